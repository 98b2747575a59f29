"""What came to a node with ours, and goes with it: asked of apt, written down, and nothing else taken away."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.gaudi.engine import brought
from ansible.module_utils.gaudi.engine import packages as engine_packages
from ansible.module_utils.gaudi.node import package_states

from library import brought_packages
from tests.unit.node.damages import DAMAGES, damage
from tests.unit.preflight.conftest import Answer, ModuleRun, Run

# As apt-get 2.6 of Debian 12 prints it, shortened.
INSTALLS = """Reading package lists...
Inst runc (1.1.5+ds1-1+b1 Debian:12.0/stable [amd64])
Inst libc6 [2.36-9+deb12u4] (2.36-9+deb12u7 Debian:12.5/stable [amd64])
Inst docker.io (20.10.24+dfsg1-1+b3 Debian:12.0/stable [amd64]) []
Inst libfoo:amd64 (1.0 Debian:12.0/stable [amd64])
Conf runc (1.1.5+ds1-1+b1 Debian:12.0/stable [amd64])
"""
REMOVES = "Purg docker.io [20.10.24+dfsg1-1+b3]\nPurg runc [1.1.5+ds1-1+b1]\n"
QUERY = " ".join(engine_packages.query("Debian", []))
INSTALLED: Answer = (0, "docker.io installed 1\nlibfoo config-files 1\nrunc half-installed \n", "")


def test_a_package_is_of_the_part_that_brought_it_first() -> None:
    record = brought.noted({}, "engine", ["runc", "docker.io"])
    assert record == {"engine": ["docker.io", "runc"]}
    # A run that was cut off is run again: what it brought is on the node by then.
    assert brought.noted(record, "engine", []) == record
    assert brought.noted(record, "driver", ["runc", "dkms"]) == {**record, "driver": ["dkms"]}
    assert brought.without(record, "engine") == {}


def test_a_package_is_handed_over_to_the_part_that_needs_it() -> None:
    record = {"engine": ["runc"], "weights": ["git", "perl"], "driver": ["dkms"]}
    plan = brought.divide(["git", "perl"], record["weights"], lambda names: [*names, *(["dkms"] * ("perl" in names))])
    assert (plan.going, plan.kept) == (("git",), {"perl": ("dkms",)})
    after = brought.handed_over(record, "weights", plan.kept)
    assert after == {"engine": ["runc"], "weights": ["git"], "driver": ["dkms", "perl"]}
    # Nothing of ours needs it: it stays with the part, and is forgotten with it.
    assert brought.handed_over(record, "weights", {"perl": ("theirs",)}) == record
    assert "weights" not in brought.handed_over({**record, "weights": ["perl"]}, "weights", plan.kept)


def test_what_others_need_does_not_go() -> None:
    assert brought.needed_by_others(["docker.io", "runc"], ["docker.io", "runc"]) is None
    refusal = brought.needed_by_others(["docker.io", "podman"], ["docker.io"])
    assert refusal is not None
    assert "podman would go as well, which we did not bring. Remove it first" in str(refusal)


class AptNode:
    """A node with a record, and what apt and dpkg say."""

    def __init__(self, run: Run, record: Path) -> None:
        self.start, self.record = run, record
        self.answers: dict[str, Answer] = {
            "apt-get --simulate --quiet --no-install-recommends install": (0, INSTALLS, ""),
            "apt-get --simulate --yes --quiet purge": (0, REMOVES, ""),
            "apt-get --yes --quiet purge": (0, "", ""),
        }

    def run(self, check: bool = False, **given: Any) -> ModuleRun:
        arguments = {"part": "engine", "packages": ["docker.io"], "record": str(self.record), **given}
        # What is noted is installed afterwards.
        there = INSTALLED if given.get("state") == "removed" else (1, "", "no packages found")
        return self.start(brought_packages, arguments, {QUERY: there, **self.answers}, check=check)

    @property
    def written(self) -> Any:
        return json.loads(self.record.read_text())["packages"] if self.record.exists() else None


@pytest.fixture(autouse=True)
def system(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    release = tmp_path / "os-release"
    release.write_text("ID=debian\n")
    monkeypatch.setattr(package_states, "OS_RELEASE", release)
    # Files there are removed.
    monkeypatch.setattr(brought_packages, "ARCHIVES", tmp_path)
    return release


@pytest.fixture
def node(run: Run, tmp_path: Path) -> AptNode:
    return AptNode(run, tmp_path / "state" / "brought.json")


def test_what_comes_is_written_down_and_goes_again(node: AptNode) -> None:
    ran = node.run()
    assert (ran["changed"], ran["packages"]) == (False, ["docker.io", "libfoo", "runc"])
    assert node.written == {"engine": ["docker.io", "libfoo", "runc"]}
    ran = node.run(state="removed")
    assert (ran["changed"], ran["packages"], ran["stays"]) == (True, ["docker.io", "runc"], [])
    assert "apt-get --yes --quiet purge docker.io runc" in ran.commands
    assert ran["ours"] == ["docker.io", "libfoo", "runc"]
    node.run(check=True, state="forgotten")
    assert node.written == {"engine": ["docker.io", "libfoo", "runc"]}
    ran = node.run(state="forgotten")
    assert (ran["changed"], ran["ours"], ran["packages"]) == (False, ["docker.io", "libfoo", "runc"], [])
    assert node.written is None


def test_a_removal_that_was_cut_off_knows_what_came_with_ours(node: AptNode) -> None:
    node.run()
    node.run(state="removed")
    node.answers[QUERY] = (1, "", "dpkg-query: no packages found matching docker.io")
    ran = node.run(state="removed")
    assert (ran["changed"], ran["packages"], ran["ours"]) == (False, [], ["docker.io", "libfoo", "runc"])
    assert node.written == {"engine": ["docker.io", "libfoo", "runc"]}


def test_check_mode_says_what_would_go(node: AptNode) -> None:
    node.run()
    ran = node.run(check=True, state="removed")
    assert (ran["changed"], ran["packages"]) == (True, ["docker.io", "runc"])
    assert [command for command in ran.commands if "purge" in command and "--simulate" not in command] == []
    assert node.written == {"engine": ["docker.io", "libfoo", "runc"]}


def test_what_was_there_before_us_stays_and_is_said(node: AptNode) -> None:
    ran = node.run(state="removed")
    assert (ran["changed"], ran["packages"], ran["stays"]) == (False, [], ["docker.io"])
    assert [command for command in ran.commands if "apt-get" in command] == []


def test_nothing_goes_that_others_need(node: AptNode) -> None:
    node.run()
    node.answers["apt-get --simulate --yes --quiet purge"] = (0, REMOVES + "Purg podman [4.3]\n", "")
    ran = node.run(state="removed")
    assert ran["refused_id"] == "packages_needed_by_others"
    assert node.written == {"engine": ["docker.io", "libfoo", "runc"]}


def test_what_apt_refuses_is_said(node: AptNode) -> None:
    words = "E: Could not get lock /var/lib/dpkg/lock-frontend. It is held by process 77 (apt-get)"
    node.answers["apt-get --simulate --quiet"] = (100, "", words)
    node.answers.pop("apt-get --simulate --quiet --no-install-recommends install")
    assert node.run()["refused_id"] == "packages_locked"
    node.answers["apt-get --simulate --quiet"] = (100, "", "E: \x1b[31mstrange")
    assert node.run()["refused_id"] == "apt_failed"


def test_sources_of_others_in_conflict_are_found_by_a_check(node: AptNode) -> None:
    """playbooks/uninstall.yml makes one before anything goes."""
    node.run()
    words = "E: Conflicting values set for option Signed-By regarding source http://others.example/x/ stable: a != b"
    node.answers["apt-get --simulate --yes --quiet purge"] = (100, "", words)
    assert node.run(check=True, state="removed")["refused_id"] == "sources_in_conflict"


@pytest.mark.parametrize("check", [False, True])
def test_files_of_packages_that_are_gone_leave_the_cache_of_apt(node: AptNode, tmp_path: Path, check: bool) -> None:
    names = ["docker.io_20.10_amd64.deb", "docker.io-doc_20.10_all.deb", "runc_1.1_amd64.deb", "curl_7_amd64.deb"]
    for name in names:
        (tmp_path / name).write_text("")
    node.run()
    # Something of others needs runc by now, and a check has removed nothing.
    node.answers[QUERY] = INSTALLED if check else (0, "runc installed 1\n", "")
    node.answers["apt-get --simulate --yes --quiet purge docker.io"] = (0, "Purg docker.io [20.10]\n", "")
    node.answers["apt-get --simulate --yes --quiet purge docker.io runc"] = (0, f"{REMOVES}Purg podman [4.3]\n", "")
    ran = node.run(check=check, state="forgotten", packages=[])
    assert (ran["changed"], ran["files"]) == (True, [str(tmp_path / names[0])])
    # That of a package which was kept stays with it, and so do those of others.
    assert sorted(file.name for file in tmp_path.glob("*.deb")) == sorted(names[0 if check else 1 :])


@pytest.mark.parametrize("state", ["noted", "removed", "forgotten"])
@pytest.mark.parametrize("kind", DAMAGES)
def test_a_damaged_record_is_a_sentence(node: AptNode, kind: str, state: str) -> None:
    node.record.parent.mkdir()
    damage(node.record, kind)
    ran = node.run(state=state)
    assert ran["refused_id"] == "record_damaged"
    assert str(node.record) in ran["msg"]
    assert "Move it away" in ran["msg"]


@pytest.mark.parametrize("release", ["ID=sles\n", None])
def test_a_system_that_is_not_known_has_nothing_written_down(
    run: Run, tmp_path: Path, system: Path, release: str | None
) -> None:
    system.write_text(release) if release else system.unlink()
    ran = run(brought_packages, {"part": "engine", "record": str(tmp_path / "brought.json")}, {})
    assert (ran["changed"], ran["packages"]) == (False, [])
