"""Package lists of our source: named as apt names them, and removed without those of others."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from ansible.module_utils.gaudi.apt import lists
from ansible.module_utils.gaudi.apt.sources import OWN_KEYRING, AptSource
from ansible.module_utils.gaudi.node import apt

from library import apt_source
from tests.unit.preflight.conftest import Run, run

__all__ = ["run"]
REPOSITORY = "https://vault.example/artifactory/debian"
OURS = "vault.example_artifactory_debian_dists_jammy_"


@pytest.mark.parametrize(
    ("uri", "suite"),
    [
        (REPOSITORY, "jammy"),
        ("http://vault.example:8080/a_b/~c/", "jammy"),
        ("https://name:word@vault.example/x=y", "jammy-updates"),
        ("https://vault.example/x", "jammy/updates"),
        ("https://vault.example/x", "./"),
        ("https://vault.example/x", "flat/"),
        ("file:/srv/apt_files", "jammy"),
    ],
)
def test_files_are_named_as_apt_names_them(tmp_path: Path, uri: str, suite: str) -> None:
    components = "" if suite.endswith("/") else " main"
    (tmp_path / "sources.list").write_text(f"deb [trusted=yes] {uri} {suite}{components}\n")
    options = {"Dir::Etc": tmp_path, "Dir::Etc::SourceParts": "none", "Dir::State": tmp_path, "Dir::Cache": tmp_path}
    words = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
    command = ["apt-get", *words, "update", "--print-uris"]
    printed = subprocess.run(command, check=True, capture_output=True, text=True, timeout=300).stdout
    names = [line.rsplit("' ", 1)[1].split()[0] for line in printed.splitlines()]
    (file,) = [name for name in names if name.endswith("InRelease")]
    assert lists.prefix(AptSource("", uri, suite)) == file.removesuffix("InRelease")


def test_files_of_other_suites_and_of_the_same_source_elsewhere_are_not_ours() -> None:
    ours = AptSource("ours", REPOSITORY, "jammy")
    names = [f"{OURS}InRelease", f"{OURS}updates_InRelease", f"{OURS.rstrip('_')}-updates_InRelease", "other_InRelease"]
    assert lists.only_of(names, [ours], []) == names[:2]
    assert lists.only_of(names, [ours], [AptSource("theirs", REPOSITORY, "jammy/updates")]) == names[:1]
    # apt keeps one set of files for http and https.
    assert lists.only_of(names, [ours], [AptSource("theirs", REPOSITORY.replace("https", "http"), "jammy")]) == []


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A node with our source and one of others, and lists of both."""
    monkeypatch.setattr(apt, "ETC", tmp_path / "etc")
    monkeypatch.setattr(apt, "LISTS", tmp_path / "lists")
    (tmp_path / "etc/sources.list.d").mkdir(parents=True)
    (tmp_path / "lists/partial").mkdir(parents=True)
    (tmp_path / "etc/sources.list").write_text("deb http://deb.example/debian jammy main\n")
    write(tmp_path, OWN_KEYRING)
    for name in ("deb.example_debian_dists_jammy_InRelease", f"{OURS}InRelease", f"{OURS}main_Packages", "lock"):
        (tmp_path / "lists" / name).write_text("")
    (tmp_path / f"lists/partial/{OURS}InRelease").write_text("")
    return tmp_path


def write(node: Path, keyring: str) -> None:
    text = f"Types: deb\nURIs: {REPOSITORY}\nSuites: jammy\nComponents: main\nSigned-By: {keyring}\n"
    (node / "etc/sources.list.d/habana.sources").write_text(text)


def left(node: Path) -> list[str]:
    return sorted(str(file.relative_to(node)) for file in node.rglob("*") if file.is_file())


OTHERS = ["etc/sources.list", "lists/deb.example_debian_dists_jammy_InRelease", "lists/lock"]


def test_our_source_goes_with_its_lists_and_those_of_others_stay(run: Run, node: Path) -> None:
    before = left(node)
    ran = run(apt_source, {"state": "absent"}, {}, check=True)
    assert (ran["changed"], len(ran["removed"]), left(node)) == (True, 4, before)
    assert run(apt_source, {"state": "absent"}, {})["changed"]
    assert left(node) == OTHERS
    assert not run(apt_source, {"state": "absent"}, {})["changed"]


def test_a_file_of_others_with_our_name_stays(run: Run, node: Path) -> None:
    write(node, "/usr/share/keyrings/theirs.gpg")
    before = left(node)
    ran = run(apt_source, {"state": "absent"}, {})
    assert (ran["changed"], left(node)) == (False, before)
    assert ran["stays"] == [f"{node}/etc/sources.list.d/habana.sources, which others wrote"]


def test_a_disabled_file_of_others_with_our_name_stays(run: Run, node: Path) -> None:
    own = node / "etc/sources.list.d/habana.sources"
    disabled = own.read_text().replace(OWN_KEYRING, "/usr/share/keyrings/theirs.gpg") + "Enabled: no\n"
    own.write_text(disabled)
    ran = run(apt_source, {"state": "absent"}, {})
    assert (ran["changed"], own.read_text()) == (False, disabled)
    assert ran["stays"] == [f"{own}, which others wrote"]
