"""Sources that a node has already: which file is used, and which is refused."""

from __future__ import annotations

import base64
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.module_utils.gaudi.apt import sources
from ansible.module_utils.gaudi.base.refusal import Refusal
from ansible.module_utils.gaudi.node import apt
from hypothesis import given
from hypothesis import strategies as st

from library import apt_source, gaudi_preflight
from tests.unit.preflight.conftest import Run, run
from tests.unit.preflight.test_modules import against
from tests.unit.preflight.test_templates import evaluate, task_of

__all__ = ["run"]
ROOT = Path(__file__).resolve().parents[3]
KEY = (ROOT / "tests/unit/preflight/nobody.asc").read_text(encoding="ascii")
FINGERPRINT = "68B60407372208D22B0FB02D3CDFF4A7960A84B2"
REPOSITORY, SUITE = "https://vault.example/artifactory/debian", "jammy"
ENTRY = f"{REPOSITORY} {SUITE} main\n"
GIVEN = {"repository": REPOSITORY, "suite": SUITE, "fingerprint": FINGERPRINT}
BINARY = base64.b64decode("".join(re.findall(r"^[A-Za-z0-9+/=]{20,}$", KEY.replace("\n=", "\n#"), re.MULTILINE)))


@pytest.fixture
def etc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A node's /etc/apt, and its keyrings beside it."""
    monkeypatch.setattr(apt, "ETC", tmp_path)
    (tmp_path / "sources.list.d").mkdir()
    (tmp_path / "trusted.gpg.d").mkdir()
    (tmp_path / "vendor.gpg").write_bytes(BINARY)
    (tmp_path / "vendor.asc").write_text(KEY)
    (tmp_path / "other.gpg").write_bytes(b"")
    return tmp_path


def stanza(etc: Path, keyring: str, **fields: str) -> str:
    """A stanza of deb822 with several addresses and suites."""
    known = {
        "Types": "deb deb-src",
        "URIs": f"https://other.example/debian\n {REPOSITORY}/",
        "Suites": f"noble {SUITE}",
        "Components": "main",
        "Signed-By": f"{etc}/{keyring}",
    }
    return "".join(f"{name}: {value}\n" for name, value in {**known, **fields}.items())


@pytest.mark.report("A01")
@pytest.mark.parametrize("keyring", ["vendor.gpg", "vendor.asc"])
@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("sources.list.d/artifactory.list", "deb [signed-by={etc}/{keyring}] " + ENTRY),
        ("sources.list.d/artifactory.list", "# old\ndeb\t[ arch=amd64,i386  signed-by={etc}/{keyring} ]  " + ENTRY),
        (
            "sources.list",
            "deb [signed-by={etc}/{keyring}] http://VAULT.example:80/artifactory//debian/ jammy main x # y\n",
        ),
        ("sources.list.d/zz.sources", "stanza"),
    ],
)
def test_a_source_that_trusts_the_sites_key_is_used(run: Run, etc: Path, keyring: str, file: str, line: str) -> None:
    text = stanza(etc, keyring) if line == "stanza" else line.format(etc=etc, keyring=keyring)
    (etc / file).write_text(text)
    assert run(apt_source, GIVEN)["file"] == str(etc / file)


@pytest.mark.report("A01")
@pytest.mark.parametrize(
    ("file", "text", "id_"),
    [
        ("a.list", "deb [signed-by={etc}/other.gpg] " + ENTRY, "source_of_other_key"),
        ("a.list", "deb [signed-by={etc}/missing.gpg] " + ENTRY, "source_without_keyring"),
        # No keyring: a second source with one makes apt read nothing.
        ("zz.list", "deb " + ENTRY, "source_of_other_key"),
        ("a.list", "deb [trusted=yes] " + ENTRY, "source_without_signature_check"),
        ("a.list", "deb [arch=arm64] " + ENTRY, "source_of_other_architecture"),
        ("a.list", "deb " + ENTRY.replace("main", "contrib"), "source_without_component"),
        ("a.sources", f"Types: deb\nURIs: {REPOSITORY}\nSuites: {SUITE}\nComponents: main\n", "source_of_other_key"),
    ],
)
def test_another_source_is_refused_by_its_file(run: Run, etc: Path, file: str, text: str, id_: str) -> None:
    path = etc / "sources.list.d" / file
    path.write_text(text.format(etc=etc))
    ran = run(apt_source, GIVEN)
    assert ran["refused_id"] == id_
    assert str(path) in ran["msg"]


@pytest.mark.report("A01")
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("none.list", ""),
        ("commented.list", "# deb " + ENTRY),
        ("a.list.save", "deb " + ENTRY),
        ("source-only.list", "deb-src " + ENTRY),
        ("suite.list", "deb " + ENTRY.replace(SUITE, "noble")),
        ("path.list", "deb " + ENTRY.replace("debian", "ubuntu")),
        ("off.sources", f"Types: deb\nURIs: {REPOSITORY}\nSuites: {SUITE}\nComponents: main\nEnabled: no\n"),
    ],
)
def test_what_is_no_such_source_is_not_in_the_way(run: Run, etc: Path, name: str, text: str) -> None:
    (etc / "sources.list.d" / name).write_text(text)
    assert run(apt_source, GIVEN)["file"] == ""


def test_a_source_trusted_by_all_keys_is_used_if_the_sites_key_is_one_of_them(run: Run, etc: Path) -> None:
    (etc / "sources.list.d/a.list").write_text(f"deb {ENTRY}")
    (etc / "trusted.gpg.d/vendor.gpg").write_bytes(BINARY)
    assert run(apt_source, GIVEN)["file"].endswith("a.list")


def test_a_key_in_the_stanza_itself_is_read(run: Run, etc: Path) -> None:
    embedded = "\n" + "\n".join(f" {line or '.'}" for line in KEY.strip().splitlines())
    (etc / "sources.list.d/a.sources").write_text(stanza(etc, "", **{"Signed-By": embedded}))
    assert run(apt_source, GIVEN)["file"].endswith("a.sources")


def test_a_fingerprint_instead_of_a_keyring_is_compared(run: Run, etc: Path) -> None:
    (etc / "sources.list.d/a.sources").write_text(stanza(etc, "", **{"Signed-By": f"{FINGERPRINT}!"}))
    assert run(apt_source, GIVEN)["file"].endswith("a.sources")


def test_without_a_named_key_the_nodes_source_is_used_as_it_is(run: Run, etc: Path) -> None:
    (etc / "sources.list.d/a.list").write_text(f"deb {ENTRY}")
    assert run(apt_source, {**GIVEN, "fingerprint": ""})["file"].endswith("a.list")


def test_our_own_source_is_written_again_and_coexists_with_one_that_apt_accepts_beside_it(
    run: Run, etc: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = etc / "sources.list.d/habana.sources"
    monkeypatch.setattr(sources, "OWN_FILE", str(own))
    own.write_text(stanza(etc, "", **{"Signed-By": sources.OWN_KEYRING}))
    assert run(apt_source, GIVEN)["file"] == ""
    (etc / "sources.list.d/http.list").write_text(f"deb [signed-by={etc}/other.gpg] {ENTRY.replace('https', 'http')}")
    assert run(apt_source, GIVEN)["file"] == ""
    # apt reads nothing with these two: the administrator's stays.
    (etc / "sources.list.d/b.list").write_text(f"deb [signed-by={etc}/vendor.gpg] {ENTRY}")
    (etc / "sources.list.d/http.list").unlink()
    assert run(apt_source, GIVEN)["file"].endswith("b.list")


@pytest.mark.report("A01")
def test_the_preflight_refuses_it_before_anything_is_changed(run: Run, etc: Path) -> None:
    (etc / "sources.list.d/a.list").write_text(f"deb [signed-by={etc}/other.gpg] {ENTRY}")
    ran = run(gaudi_preflight, against(habana_source=GIVEN))
    assert [problem["id"] for problem in ran["problems"]] == ["source_of_other_key"]
    assert str(etc / "sources.list.d/a.list") in ran["report"]
    # Nothing is installed from it where the engine is not managed, and where the driver is there.
    driver = {"driver": {"suite": GIVEN["suite"], "fingerprint": GIVEN["fingerprint"], "replace": False}}
    unneeded = {**driver, "driver_repository": GIVEN["repository"], "habana_source": GIVEN}
    assert gaudi_preflight.look_at_sources({**unneeded, "packages": {"manage": False}}, driver_first=False) == ([], [])


ACCOUNT = "http://reader:s%40cret@proxy.example:3128"
OWN_STANZA = f"Types: deb\nURIs: {REPOSITORY}\nSuites: {SUITE}\nComponents: main\nSigned-By: {sources.OWN_KEYRING}\n"


def unreached(run: Run, *, dumped: str = "", check: bool = True, **given: Any) -> list[str]:
    """Return the findings of the preflight that name apt's own calls."""
    given = {"https_proxy": ACCOUNT, "habana_source": GIVEN, **given}
    ran = run(gaudi_preflight, against(**given), {"apt-config dump": (0, dumped, "")}, check)
    assert "s%40cret" not in str(ran)
    return [said for said in ran["findings"] if "The node's own apt may not reach" in said]


@pytest.mark.parametrize("check", [True, False])
def test_a_source_that_the_owners_apt_cannot_reach_is_a_finding_with_what_to_do(
    run: Run, etc: Path, check: bool
) -> None:
    (said,) = unreached(run, check=check)
    for part in ("vault.example", "Acquire::https::Proxy::vault.example to http://proxy.example:3128", "auth.conf.d"):
        assert part in said
    # Of a source that this project wrote earlier, too; the proxy of http is that of https where it has none.
    (etc / "sources.list.d/habana.sources").write_text(OWN_STANZA)
    assert len(unreached(run, habana_source={})) == 1
    (said,) = unreached(run, https_proxy="", http_proxy=ACCOUNT)
    assert "Acquire::http::Proxy::vault.example" in said


def test_an_apt_that_reaches_our_source_or_needs_no_proxy_is_no_finding(run: Run, etc: Path) -> None:
    for own in ('Acquire::https::Proxy::vault.example "http://own:1";', 'Acquire::http::Proxy "DIRECT";'):
        assert unreached(run, dumped=f"{own}\n") == []
    assert unreached(run, https_proxy="http://proxy.example:3128") == []
    assert unreached(run, no_proxy=".example") == []
    assert unreached(run, habana_source={}) == []
    # A source of the owner's is used, which its owner reaches in his own way.
    (etc / "sources.list.d/own.list").write_text(f"deb [signed-by={etc}/vendor.asc] {ENTRY}")
    assert unreached(run) == []


def test_an_account_of_a_source_is_not_shown(run: Run, etc: Path) -> None:
    (etc / "sources.list.d/a.list").write_text(f"deb {ENTRY.replace('vault', 'reader:secret@vault')}")
    ran = run(apt_source, {**GIVEN, "repository": REPOSITORY.replace("vault", "reader:hidden@vault")})
    assert ran["refused_id"] == "source_of_other_key"
    assert "secret" not in ran["msg"]


def test_the_role_writes_what_counts_as_ours() -> None:
    debian = {"ansible_facts": {"os_family": "Debian"}}
    index = task_of("container_runtime", "vendor_source", "Write the package index (Debian")["ansible.builtin.template"]
    key = task_of("container_runtime", "vendor_source", "fetched_key")["fetched_key"]
    written = [evaluate("container_runtime", each["dest"], **debian) for each in (index, key)]
    assert written == [sources.OWN_FILE, sources.OWN_KEYRING]


@given(st.text(max_size=400))
def test_any_file_is_read(text: str) -> None:
    for name in ("a.list", "a.sources"):
        for source in sources.parse(name, text):
            assert source.uri
            assert source.suite


WORD = st.from_regex(r"[a-z0-9]{1,8}", fullmatch=True)


@given(host=WORD, path=st.lists(WORD, max_size=3), suite=WORD, names=st.lists(WORD, min_size=1, max_size=3))
def test_both_forms_of_a_source_are_the_same(host: str, path: list[str], suite: str, names: list[str]) -> None:
    uri = f"https://{host}.example/{'/'.join(path)}"
    line = f"deb [arch=amd64 signed-by=/k.gpg] {uri} {suite} {' '.join(names)}\n"
    fields = f"Types: deb\nURIs: {uri}\nSuites: {suite}\nComponents: {' '.join(names)}\n"
    fields += "Architectures: amd64\nSigned-By: /k.gpg\n"
    assert sources.parse("x.list", line)[0] == sources.parse("x.sources", fields)[0].__class__(
        **{**sources.parse("x.sources", fields)[0].__dict__, "file": "x.list"}
    )
    assert sources.for_repository(sources.parse("x.list", line), uri.replace("https", "http") + "/", suite)


def test_a_keyring_that_cannot_be_read_has_no_keys(etc: Path) -> None:
    (etc / "page.gpg").write_bytes(b"<html>")
    assert apt.keys_of(str(etc / "page.gpg")) == apt.keys_of(str(etc / "nowhere.gpg")) == []
    assert apt.keys_of(str(etc / "vendor.gpg")) == apt.keys_of(str(etc / "vendor.asc")) == [FINGERPRINT]


def test_existing_sources_of_one_repository_must_all_be_right() -> None:
    found = [sources.AptSource(f"{n}.list", REPOSITORY, SUITE, ("main",), f"/{n}.gpg") for n in "ab"]
    with pytest.raises(Refusal, match=r"b\.list"):
        sources.existing(found, REPOSITORY, SUITE, FINGERPRINT, {"/a.gpg": [FINGERPRINT], "/b.gpg": []}.__getitem__)


@pytest.mark.report("A01")
@pytest.mark.parametrize(
    ("file", "goes"),
    [
        ("", False),
        ("/etc/apt/sources.list.d/artifactory.list", True),
        # Others wrote a file of the name that ours has.
        ("/etc/apt/sources.list.d/habana.sources", False),
    ],
)
def test_the_role_writes_no_second_source(file: str, goes: bool) -> None:
    tasks = yaml.safe_load((ROOT / "roles/container_runtime/tasks/vendor_index.yml").read_text("utf-8"))
    read, gone, ours = tasks
    given = {read["register"]: {"file": file}}
    assert "apt_source" in read
    assert ours["ansible.builtin.import_tasks"] == "vendor_source.yml"
    written, removed = (evaluate("container_runtime", f"{{{{ {task['when']} }}}}", **given) for task in (ours, gone))
    assert (written, removed) == (not file, goes)


def test_every_reading_of_the_repositories_knows_the_sites_proxy() -> None:
    """The environment names the files of the role site_access, which comes first."""
    text = (ROOT / "roles/gaudi_driver/tasks/hold.yml").read_text("utf-8")
    assert text.index("name: site_access") < text.index('environment: "{{ site_access_written.environment }}"')
