"""The modules site_access and fetched_key: files below our own folder, and a key through a proxy with an account."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.gaudi.base import access

from library import site_access
from tests.unit.host.modules import run_main
from tests.unit.node.outside import Authority, Key, proxy, serving

SITE = Authority()
PROXY = "http://reader:p%40ss@proxy.example:3128"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(site_access, "FOLDER", tmp_path / "gaudi-serving/access")
    return tmp_path / "gaudi-serving/access"


def write(check: bool = False, **given: Any) -> dict[str, Any]:
    return run_main("library.site_access", given, check=check)


def modes(folder: Path) -> dict[str, str]:
    return {path.name: f"{path.stat().st_mode & 0o777:o}" for path in sorted(folder.iterdir())}


def test_files_are_written_once_and_removed_with_the_options(folder: Path) -> None:
    given = {"https_proxy": PROXY, "certificates": SITE.pem, "python_index": "https://pypi.example/simple"}
    foreseen = write(check=True, **given)
    assert (foreseen["changed"], foreseen["environment"], folder.exists()) == (True, {}, False)
    answer = write(**given)
    assert modes(folder) == {"apt.conf": "600", "ca-certificates.crt": "644", "pip.conf": "600"}
    assert (folder / "ca-certificates.crt").read_text().endswith(SITE.pem)
    assert answer["environment"]["PIP_CONFIG_FILE"] == access.PIP_CONF
    assert answer["bundle"] == access.BUNDLE
    assert "p%40ss" not in json.dumps(answer)
    again = write(**given)
    assert (again["changed"], again["environment"]) == (False, answer["environment"])
    # Another role, which needs no pip, leaves its file.
    assert write(**{**given, "python_index": ""})["changed"] is False
    gone = write()
    assert (gone["changed"], gone["environment"], gone["bundle"], modes(folder)) == (True, {}, "", {})
    assert write()["changed"] is False


def test_an_index_that_is_an_exception_has_no_proxy_for_pip(folder: Path) -> None:
    given = {"https_proxy": PROXY, "no_proxy": ".example", "python_index": "https://pypi.example/simple"}
    assert "PIP_CONFIG_FILE" not in write(**given)["environment"]


def test_a_site_without_these_options_gets_no_file(folder: Path) -> None:
    answer = write(no_proxy="localhost")
    assert (answer["changed"], answer["environment"], folder.exists()) == (False, {}, False)


def fetch(port: int, dest: Path, **more: Any) -> dict[str, Any]:
    check = bool(more.pop("check", False))
    more.setdefault("url", f"http://keys.example:{port}/key.asc")
    return run_main("library.fetched_key", {"dest": str(dest), **more}, check=check)


def test_a_key_comes_through_a_proxy_with_an_account(tmp_path: Path) -> None:
    dest = tmp_path / "keyrings/key.asc"
    with serving(Key) as port, proxy() as (address, site):
        assert fetch(port, dest, http_proxy=address, check=True)["changed"] is True
        assert not dest.exists()
        answer = fetch(port, dest, http_proxy=address)
        assert (answer["changed"], dest.read_bytes(), f"{dest.stat().st_mode & 0o777:o}") == (True, Key.content, "644")
        assert fetch(port, dest, http_proxy=address)["changed"] is False
        assert set(site.accounts) == {"reader:p@ss%:/#$ x"}
        refused = fetch(port, dest, http_proxy=address.replace("reader", "stranger"))
        assert (refused["msg"], "407" in refused["response"]) == ("Request failed", True)
        assert "p%40ss" not in json.dumps({key: refused[key] for key in ("msg", "response", "url")})


def test_another_checksum_than_the_sites_is_refused(tmp_path: Path) -> None:
    dest = tmp_path / "key.asc"
    right = f"sha256:{hashlib.sha256(Key.content).hexdigest()}"
    with serving(Key) as port:
        url = f"http://127.0.0.1:{port}/"
        assert fetch(port, dest, url=url, checksum="sha256:" + "0" * 64)["refused_id"] == "checksum_differs"
        assert fetch(port, dest, url=url, checksum="crc:1")["refused_id"] == "checksum_unknown"
        assert not dest.exists()
        assert fetch(port, dest, url=url, checksum=right)["changed"] is True


def test_a_key_may_be_a_file_of_the_node(tmp_path: Path) -> None:
    (tmp_path / "there.asc").write_bytes(Key.content)
    assert fetch(0, tmp_path / "key.asc", url=f"file://{tmp_path}/there.asc", https_proxy=PROXY)["changed"] is True
    assert fetch(0, tmp_path / "key.asc", url=f"file://{tmp_path}/not.asc")["msg"] == "Request failed"
