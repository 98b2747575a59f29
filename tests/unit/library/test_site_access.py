"""The modules site_access and fetched_key: files below our own folder, and a key through a proxy with an account."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.module_utils.gaudi.apt.sources import OWN_KEYRING
from ansible.module_utils.gaudi.base import access
from ansible.module_utils.gaudi.node import apt

from filter_plugins.certificates import pip_trouble
from library import site_access
from tests.unit.host.modules import run_main
from tests.unit.node.outside import CertificateAuthority, KeyServer, RedirectingServer, proxy, serving
from tests.unit.preflight.test_templates import ROLES, evaluate

SITE = CertificateAuthority()
NAMED = (Path(__file__).parents[1] / "preflight/nobody.asc").read_text(encoding="utf-8")
FINGERPRINT = "68B6 0407 3722 08D2 2B0F B02D 3CDF F4A7 960A 84B2"
PROXY = "http://reader:p%40ss@proxy.example:3128"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(site_access, "FOLDER", tmp_path / "gaudi-serving/access")
    monkeypatch.setattr(site_access, "APT", tmp_path / "apt")
    monkeypatch.setattr(site_access, "SOURCE_CONF", tmp_path / "apt/apt.conf.d/00gaudi-serving-source")
    monkeypatch.setattr(apt, "ETC", tmp_path / "apt")
    (tmp_path / "apt/apt.conf.d").mkdir(parents=True)
    (tmp_path / "apt/sources.list.d").mkdir(parents=True)
    return tmp_path / "gaudi-serving/access"


def write(*, check: bool = False, **given: Any) -> dict[str, Any]:
    return run_main("library.site_access", given, check=check)


def modes(folder: Path) -> dict[str, str]:
    return {path.name: f"{path.stat().st_mode & 0o777:o}" for path in sorted(folder.iterdir())}


def test_files_are_written_once_and_removed_with_the_options(folder: Path) -> None:
    given: dict[str, Any] = {"https_proxy": PROXY, "certificates": SITE.pem}
    foreseen = write(check=True, **given)
    assert (foreseen["changed"], foreseen["environment"], folder.exists()) == (True, {}, False)
    answer = write(**given)
    assert modes(folder) == {"apt.conf": "600", "ca-certificates.crt": "644"}
    assert (folder / "ca-certificates.crt").read_text().endswith(SITE.pem)
    assert answer["bundle"] == access.BUNDLE
    assert "p%40ss" not in json.dumps(answer)
    again = write(**given)
    assert (again["changed"], again["environment"]) == (False, answer["environment"])
    # An earlier release had a file for pip there.
    (folder / "pip.conf").write_text(PROXY)
    gone = write()
    assert (gone["changed"], gone["environment"], gone["bundle"], modes(folder)) == (True, {}, "", {})
    assert write()["changed"] is False


def test_apt_reaches_the_exceptions_among_its_sources_without_a_proxy(folder: Path, tmp_path: Path) -> None:
    sources = tmp_path / "apt/sources.list.d/site.sources"
    sources.write_text("URIs: https://u:p@deb.inside.example:8443/x\nURIs: https://deb.outside.example/\n")
    write(https_proxy=PROXY, no_proxy=".inside.example, 10.0.0.0/8", hosts=["10.1.2.3"])
    assert [line for line in (folder / "apt.conf").read_text().splitlines() if "DIRECT" in line] == [
        'Acquire::https::Proxy::10.1.2.3 "DIRECT";',
        'Acquire::https::Proxy::deb.inside.example "DIRECT";',
    ]


def test_a_site_without_these_options_gets_no_file(folder: Path) -> None:
    answer = write(no_proxy="localhost")
    assert (answer["changed"], answer["environment"], folder.exists()) == (False, {}, False)


SOURCE = "Types: deb\nURIs: https://vault.example/debian\nSuites: jammy\nComponents: main\nSigned-By: {}\n"


@pytest.fixture
def conf(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file for the host of our source, on a node that has one."""
    (tmp_path / "apt.conf").write_text(f'Dir::Etc "{tmp_path}/apt";\n')
    monkeypatch.setenv("APT_CONFIG", str(tmp_path / "apt.conf"))
    (tmp_path / "apt/sources.list.d/habana.sources").write_text(SOURCE.format(OWN_KEYRING))
    return tmp_path / "apt/apt.conf.d/00gaudi-serving-source"


PLAIN = "http://proxy.example:3128"
LINES = (
    f'Acquire::https::Proxy::vault.example "{PLAIN}";\n',
    f'Acquire::https::vault.example::CaInfo "{access.BUNDLE}";\n',
)
# A module shows no value of an option that may hold a password.
MASKED = "".join(LINES).replace(PLAIN, "*" * 8)


def test_every_apt_reaches_our_source_alone_as_the_site_says(conf: Path, tmp_path: Path) -> None:
    given: dict[str, Any] = {"https_proxy": PLAIN, "certificates": SITE.pem}
    foreseen = write(check=True, **given)
    assert (foreseen["diff"]["before"], foreseen["diff"]["after"], conf.exists()) == ("", MASKED, False)
    assert str(conf) in write(**given)["written"]
    assert (conf.read_text(), f"{conf.stat().st_mode & 0o777:o}") == ("".join(LINES), "644")
    # Its own lines are no setting of the node's.
    assert (write(**given)["changed"], write(**given, check=True)["environment"] != {}) == (False, True)
    write(https_proxy=PLAIN, no_proxy=".example", certificates=SITE.pem)
    assert conf.read_text() == LINES[1]
    # https takes the proxy of http.
    write(http_proxy=PLAIN)
    assert conf.read_text() == LINES[0].replace("https", "http", 1)
    # An account would be readable by all.
    assert write(https_proxy=PROXY, certificates=SITE.pem)["diff"]["after"] == conf.read_text() == LINES[1]
    # A source of the owner's in our file's name, and none.
    sources = tmp_path / "apt/sources.list.d/habana.sources"
    sources.write_text(SOURCE.format("/usr/share/keyrings/own.asc"))
    assert (write(**given)["changed"], conf.exists()) == (True, False)
    sources.unlink()
    assert (write(**given)["changed"], conf.exists()) == (False, False)
    # Before the source is written, in a check.
    assert write(**given, repository="https://vault.example/x", check=True)["diff"]["after"] == MASKED


@pytest.mark.parametrize(
    ("own", "left"),
    [
        ('Acquire::https::Proxy::vault.example "http://own.example:1";', LINES[1]),
        ('Acquire::http::Proxy "http://own.example:1";', LINES[1]),
        ('Acquire::https::Proxy::vault.example "DIRECT";', LINES[1]),
        ('Acquire::https::Proxy::other.example "http://own.example:1";', "".join(LINES)),
        ('Acquire::https::CaInfo "/etc/own.pem";', LINES[0]),
    ],
)
def test_what_the_nodes_own_apt_sets_is_left_to_it(conf: Path, own: str, left: str) -> None:
    given: dict[str, Any] = {"https_proxy": PLAIN, "certificates": SITE.pem}
    write(**given)
    (conf.parent / "50own").write_text(f"{own}\n")
    write(**given)
    assert conf.read_text() == left
    assert write(**given)["changed"] is False


def test_real_apt_reaches_that_host_and_no_other_through_it(conf: Path, tmp_path: Path) -> None:
    """The owner's own call: nothing but what lies below /etc/apt."""
    for name in ("state/lists/partial", "cache/archives/partial"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "status").touch()
    (tmp_path / "server").mkdir()
    options = {"Dir::State": tmp_path / "state", "Dir::State::status": tmp_path / "status", "Acquire::Retries": 0}
    options |= {"Dir::Cache": tmp_path / "cache", "APT::Sandbox::User": "root"}
    main = tmp_path / "apt.conf"
    main.write_text(main.read_text() + "".join(f'{name} "{value}";\n' for name, value in options.items()))
    with serving(KeyServer, SITE.server(tmp_path / "server")) as port, proxy() as (address, _site):
        plain = f"http://127.0.0.1:{address.rpartition(':')[2]}"
        bundle = tmp_path / "bundle.pem"
        bundle.write_text(SITE.pem)
        conf.write_text(
            access.source_conf(f"https://127.0.0.1:{port}/", "", "", "", bundle=str(bundle))
            + access.source_conf("http://vault.invalid/", plain, "", "", bundle="")
        )
        line = "deb [trusted=yes]"
        (tmp_path / "apt/sources.list").write_text(
            f"{line} https://127.0.0.1:{port}/ a/\n{line} https://localhost:{port}/ b/\n"
            f"{line} http://vault.invalid/ c/\n{line} http://other.invalid/ d/\n"
        )
        (tmp_path / "apt/sources.list.d/habana.sources").unlink()
        ran = subprocess.run(
            ["apt-get", "update"], capture_output=True, text=True, check=False, env={**os.environ, "LC_ALL": "C"}
        )
    said = ran.stdout + ran.stderr
    assert f" https://127.0.0.1:{port} a/ InRelease [" in said
    assert re.search(rf"Err:\d+ https://localhost:{port} b/ InRelease\n  Certificate .* issuer is unknown", said), said
    assert re.search(r"Err:\d+ http://vault.invalid c/ \S+\n  407 ", said), said
    assert "Could not resolve 'other.invalid'" in said


def fetch(port: int, dest: Path, **more: Any) -> dict[str, Any]:
    check = bool(more.pop("check", False))
    more.setdefault("url", f"http://keys.example:{port}/key.asc")
    return run_main("library.fetched_key", {"dest": str(dest), **more}, check=check)


def test_a_key_comes_through_a_proxy_with_an_account(tmp_path: Path) -> None:
    dest = tmp_path / "keyrings/key.asc"
    with serving(KeyServer) as port, proxy() as (address, site):
        assert fetch(port, dest, http_proxy=address, check=True)["changed"] is True
        assert not dest.exists()
        answer = fetch(port, dest, http_proxy=address)
        assert (answer["changed"], dest.read_bytes(), f"{dest.stat().st_mode & 0o777:o}") == (
            True,
            KeyServer.content,
            "644",
        )
        assert fetch(port, dest, http_proxy=address)["changed"] is False
        assert set(site.accounts) == {"reader:p@ss%:/#$ x"}
        refused = fetch(port, dest, http_proxy=address.replace("reader", "stranger"))
        assert (refused["refused_id"], "407" in refused["msg"]) == ("repository_behind_proxy", True)
        assert "p%40ss" not in refused["msg"]
        where = f"127.0.0.1:{address.rpartition(':')[2]}"
        assert f"The proxy {where} rejects its account (407). Check the account in gaudi_http_proxy." in refused["msg"]
        refused = fetch(port, dest, http_proxy=f"http://{where}")
        assert f"The proxy {where} wants an account (407), and gaudi_http_proxy has none." in refused["msg"]


def test_a_proxy_that_only_apt_knows_is_named_where_it_denies_the_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with proxy() as (address, _site):
        (tmp_path / "apt.conf.d").mkdir()
        parts, line = (
            tmp_path / "apt.conf.d/50own",
            f'Acquire::http::Proxy "{address.replace("reader", "stranger")}";\n',
        )
        parts.write_text(line)
        (tmp_path / "apt.conf").write_text(f'Dir::Etc::parts "/nowhere";\n{line}')
        monkeypatch.setenv("APT_CONFIG", str(tmp_path / "apt.conf"))
        monkeypatch.setattr(apt, "ETC", tmp_path)
        refused = fetch(1, tmp_path / "key.asc")
    assert f"rejects its account (407). Check the account in Acquire::http::Proxy of {tmp_path}" in refused["msg"]
    assert "gaudi_http_proxy" not in refused["msg"]


def test_a_key_is_asked_for_without_accounts_of_the_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".netrc").write_text("default login me password stolen\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(RedirectingServer, "asked", [])
    with serving(RedirectingServer) as port:
        fetch(1, tmp_path / "key.asc", http_proxy=f"http://127.0.0.1:{port}")
    assert RedirectingServer.asked
    assert {account for _, account in RedirectingServer.asked} == {None}


def test_another_checksum_than_the_sites_is_refused(tmp_path: Path) -> None:
    dest = tmp_path / "key.asc"
    right = f"sha256:{hashlib.sha256(KeyServer.content).hexdigest()}"
    with serving(KeyServer) as port:
        url = f"http://127.0.0.1:{port}/"
        assert fetch(port, dest, url=url, checksum="sha256:" + "0" * 64)["refused_id"] == "checksum_differs"
        assert fetch(port, dest, url=url, checksum="crc:1")["refused_id"] == "checksum_unknown"
        assert not dest.exists()
        assert fetch(port, dest, url=url, checksum=right)["changed"] is True


class VendorKeyServer(KeyServer):
    """A vendor's key, as the site names it."""

    content = NAMED.encode()


class ForeignKeyServer(KeyServer):
    """The vendor's key with a further one, which packages would be trusted by as well."""

    content = NAMED.encode() * 2


def test_a_file_with_any_other_key_than_the_sites_is_refused(tmp_path: Path) -> None:
    dest = tmp_path / "key.asc"

    def answered(server: type[KeyServer], fingerprint: str) -> dict[str, Any]:
        with serving(server) as port:
            return fetch(port, dest, url=f"http://127.0.0.1:{port}/", fingerprint=fingerprint)

    assert answered(ForeignKeyServer, FINGERPRINT)["refused_id"] == "another_key"
    assert answered(VendorKeyServer, "0123 4567 " * 5)["refused_id"] == "another_key"
    assert answered(KeyServer, FINGERPRINT)["refused_id"] == "not_openpgp_keys"
    assert answered(VendorKeyServer, "not a fingerprint")["failed"] is True
    assert not dest.exists()
    assert answered(VendorKeyServer, FINGERPRINT)["changed"] is True
    assert dest.read_bytes() == VendorKeyServer.content
    # The key that is there stays as it is.
    assert answered(ForeignKeyServer, FINGERPRINT)["refused_id"] == "another_key"
    assert dest.read_bytes() == VendorKeyServer.content
    assert answered(ForeignKeyServer, "")["changed"] is True


@pytest.mark.parametrize(
    "around",
    [
        (b"\xfc\xff\x00\x00\x10\x00", b""),  # A packet, in whose body the key is: gpg reads what stands before it.
        (b"anything\n", b""),
        (b"", b"\x99\x01\x0d"),
        (b"", b"anything\n"),
    ],
)
def test_a_file_that_is_more_than_the_sites_key_is_refused(tmp_path: Path, around: tuple[bytes, bytes]) -> None:
    class PolyglotKeyServer(KeyServer):
        content = around[0] + b"\n" + NAMED.encode() + around[1]

    with serving(PolyglotKeyServer) as port:
        refused = fetch(port, tmp_path / "key.asc", url=f"http://127.0.0.1:{port}/", fingerprint=FINGERPRINT)
    assert refused["refused_id"] == "not_openpgp_keys"
    assert not (tmp_path / "key.asc").exists()


@pytest.mark.parametrize(
    ("file", "option"), [("vendor_source", "container_runtime_habana_key"), ("engine", "container_runtime_rhel_key")]
)
def test_the_role_fetches_the_vendors_key_with_the_sites_fingerprint(file: str, option: str) -> None:
    tasks = yaml.safe_load((ROLES / f"container_runtime/tasks/{file}.yml").read_text(encoding="utf-8"))
    (fetched,) = [task["fetched_key"] for task in tasks if "fetched_key" in task]
    assert (
        evaluate("container_runtime", fetched["fingerprint"], **{f"{option}_fingerprint": FINGERPRINT}) == FINGERPRINT
    )
    # Packages are trusted by that file, and by nothing that is fetched elsewhere.
    trusted = [task["ansible.builtin.yum_repository"] for task in tasks if "ansible.builtin.yum_repository" in task]
    facts = {"ansible_facts": {"os_family": "RedHat"}}
    path = evaluate("container_runtime", fetched["dest"], **facts)
    assert [evaluate("container_runtime", each["gpgkey"], **facts) for each in trusted] == [f"file://{path}"]


def test_a_key_may_be_a_file_of_the_node(tmp_path: Path) -> None:
    (tmp_path / "there.asc").write_bytes(KeyServer.content)
    assert fetch(0, tmp_path / "key.asc", url=f"file://{tmp_path}/there.asc", https_proxy=PROXY)["changed"] is True
    refused = fetch(0, tmp_path / "key.asc", url=f"file://{tmp_path}/not.asc")
    assert (refused["refused_id"], "No such file" in refused["msg"]) == ("key_not_fetched", True)


@pytest.mark.parametrize(
    ("pem", "words"), [("", ("name a file",)), (CertificateAuthority("Other CA").pem, ("does not contain", "Add"))]
)
def test_a_server_that_is_not_trusted_is_named_with_what_helps(
    pem: str, words: tuple[str, ...], tmp_path: Path
) -> None:
    with serving(KeyServer, SITE.server(tmp_path)) as port:
        url = f"https://127.0.0.1:{port}/key.asc"
        refused = fetch(port, tmp_path / "key.asc", url=url, certificates=pem)
        assert fetch(port, tmp_path / "key.asc", url=url, certificates=SITE.pem)["changed"] is True
    assert refused["refused_id"] == "key_not_fetched"
    for word in (*words, "127.0.0.1", "gaudi_ca_certificates"):
        assert word in refused["msg"]


class EmptyIndex(KeyServer):
    """A Python index whose packages have no files."""

    content = b"<!DOCTYPE html><html><body></body></html>"

    def end_headers(self) -> None:
        self.send_header("Content-Type", "text/html")
        super().end_headers()


@pytest.mark.parametrize(
    ("pem", "words"), [("", "name a file"), (CertificateAuthority("Other CA").pem, "does not contain")]
)
def test_an_index_that_pip_does_not_trust_is_named_with_what_helps(
    pem: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in [name for name in os.environ if name.upper().endswith("_PROXY") or name.startswith("PIP_")]:
        monkeypatch.delenv(variable)
    if pem:
        (tmp_path / "ca.crt").write_text(pem)
        monkeypatch.setenv("PIP_CERT", str(tmp_path / "ca.crt"))
    with serving(EmptyIndex, SITE.server(tmp_path)) as port:
        index = f"https://reader:hunter2@127.0.0.1:{port}/simple"
        command = [sys.executable, "-m", "pip", "install", "--no-deps", "--no-cache-dir", "--retries=0", "--timeout=5"]
        done = subprocess.run(
            [*command, f"--index-url={index}", f"--target={tmp_path}", "tiny"],
            check=False,
            capture_output=True,
            text=True,
        )
    said = pip_trouble(done.stdout + done.stderr, index, pem)
    for word in (words, "of 127.0.0.1", "gaudi_ca_certificates"):
        assert word in said, said
    assert "hunter2" not in said
    assert pip_trouble("ERROR: No matching distribution found for tiny", index).startswith("Check ")


def test_pip_reads_the_proxy_and_trusts_the_sites_authority(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in [name for name in os.environ if name.upper().endswith("_PROXY") or name.startswith("PIP_")]:
        monkeypatch.delenv(variable)
    with serving(EmptyIndex, SITE.server(tmp_path)) as port, proxy() as (address, site):
        (tmp_path / "ca.crt").write_text(SITE.pem)
        (tmp_path / "pip.conf").write_text(access.pip_conf(f"https://127.0.0.1:{port}/simple", address))
        monkeypatch.setenv("PIP_CONFIG_FILE", str(tmp_path / "pip.conf"))
        monkeypatch.setenv("PIP_CERT", str(tmp_path / "ca.crt"))
        command = [sys.executable, "-m", "pip", "install", "--no-deps", "--no-cache-dir", "--retries=0"]
        command += [f"--target={tmp_path}", "tiny"]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        assert "No matching distribution found for tiny" in done.stderr
        assert (site.asked[0], site.accounts[-1]) == (f"127.0.0.1:{port}", "reader:p@ss%:/#$ x")
        assert "p%40ss" not in done.stdout + done.stderr
