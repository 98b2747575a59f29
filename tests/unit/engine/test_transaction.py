"""What an installation does to packages of others: real apt on private directories, and output in dnf's format."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest
from ansible.module_utils.gaudi.engine import transaction
from ansible.module_utils.gaudi.engine.transaction import DEBIAN, RHEL
from ansible.module_utils.gaudi.node import package_look, package_states
from ansible.module_utils.gaudi.node.module import NodeModule
from ansible.module_utils.testing import patch_module_args

from library import brought_packages
from tests.unit.preflight.conftest import Answer, Run


def stanza(name: str, version: str = "1.0", status: str = "", **fields: str) -> str:
    """A package as a repository's index, or with a status as dpkg's database, has it."""
    lines = [f"Package: {name}", *([f"Status: {status}"] if status else []), f"Version: {version}"]
    lines += ["Architecture: all", "Maintainer: x <x@localhost>", "Description: x"]
    lines += [f"{key.replace('_', '-')}: {value}" for key, value in fields.items()]
    return "\n".join([*lines, *([] if status else [f"Filename: {name}.deb", "Size: 1", f"SHA256: {64 * '0'}"])]) + "\n"


INSTALLED, HELD, HALF = "install ok installed", "hold ok installed", "install ok half-configured"
DOCKER_CE = (
    stanza("docker-ce", "5:28.0", INSTALLED, Depends="docker-ce-cli, containerd.io", Conflicts="docker.io"),
    stanza("docker-ce-cli", "5:28.0", INSTALLED, Conflicts="docker.io"),
    stanza("containerd.io", "1.7", INSTALLED, Conflicts="containerd, runc", Provides="containerd, runc"),
)
OFFERED = (
    stanza("docker.io", "20.10", Depends="containerd (>= 1.4), runc", Conflicts="docker-ce"),
    stanza("containerd", "1.6", Depends="runc"),
    stanza("runc", "1.1"),
    stanza("nftables", "1.0.6"),
    stanza("rsync", "3.2", Recommends="openssh-client"),
    stanza("needs-old", "1.0", Depends="library (= 1.0)"),
    stanza("library", "1.0"),
    stanza("library", "2.0"),
    stanza("needs-new", "1.0", Depends="library (>= 2.0)"),
    stanza("needs-nothing-there", "1.0", Depends="absent (>= 2)"),
)


class Apt:
    """A package database and a repository in a folder, which the real apt-get works on."""

    def __init__(self, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.root, self.capsys, self.record = root, capsys, root / "state/brought.json"
        for name in ("apt/sources.list.d", "apt/lists/partial", "cache/archives/partial", "dpkg", "repo", "state"):
            (root / name).mkdir(parents=True)
        (root / "repo/Packages").write_text("\n".join(OFFERED))
        (root / "apt/sources.list").write_text(f"deb [trusted=yes] file:{root}/repo ./\n")
        config = {
            "Dir::Etc": root / "apt",
            "Dir::Etc::SourceParts": "sources.list.d",
            "Dir::State": root / "apt",
            "Dir::State::status": root / "dpkg/status",
            "Dir::Cache": root / "cache",
            "APT::Architecture": "amd64",
            "APT::Sandbox::User": "root",
        }
        (root / "apt.conf").write_text("".join(f'{key} "{value}";\n' for key, value in config.items()))

    def has(self, *stanzas: str) -> None:
        (self.root / "dpkg/status").write_text("\n".join(stanzas))

    def run(self, *packages: str, state: str = "noted", **given: Any) -> dict[str, Any]:
        arguments = {"part": "engine", "packages": list(packages), "state": state, "record": str(self.record), **given}
        with patch_module_args(arguments), pytest.raises(SystemExit):
            brought_packages.main()
        found: dict[str, Any] = json.loads(self.capsys.readouterr().out)
        return found


@pytest.fixture
def apt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Apt:
    node = Apt(tmp_path, capsys)
    monkeypatch.setenv("APT_CONFIG", str(tmp_path / "apt.conf"))
    monkeypatch.setattr(brought_packages, "ARCHIVES", tmp_path / "cache/archives")
    # Of the database of this machine, nothing is there.
    monkeypatch.setenv("DPKG_ADMINDIR", str(tmp_path / "dpkg"))
    node.has(stanza("bash", "5", INSTALLED))
    subprocess.run(["apt-get", "--quiet", "update"], check=True, capture_output=True)
    return node


@pytest.mark.report("E01")
def test_docker_ce_is_not_removed_for_another_engine(apt: Apt) -> None:
    apt.has(*DOCKER_CE)
    refused = apt.run("docker.io", "nftables")
    assert refused["refused_id"] == "packages_removed"
    for word in ("Installing docker.io would remove", "docker-ce", "docker-ce-cli", "containerd.io"):
        assert word in refused["msg"]
    assert "container_runtime_packages" in refused["msg"] and "container_runtime_manage" in refused["msg"]
    assert not apt.record.exists()


@pytest.mark.report("E01")
def test_containerd_of_kubernetes_is_not_removed(apt: Apt) -> None:
    apt.has(DOCKER_CE[2], stanza("kubelet", "1.30", INSTALLED))
    refused = apt.run("docker.io", "nftables")
    assert (refused["refused_id"], "would remove containerd.io" in refused["msg"]) == ("packages_removed", True)


def test_what_this_project_installed_may_be_replaced(apt: Apt) -> None:
    apt.has(*DOCKER_CE)
    apt.record.write_text(json.dumps({"packages": {"engine": ["docker-ce", "docker-ce-cli", "containerd.io"]}}))
    assert "refused_id" not in apt.run("docker.io")


def test_harmless_installations_are_recorded(apt: Apt) -> None:
    assert apt.run("docker.io")["packages"] == ["containerd", "docker.io", "runc"]
    # What is there already is not upgraded, and so not simulated.
    apt.has(stanza("rsync", "3.1", INSTALLED))
    assert apt.run("rsync", part="weights")["packages"] == []


def test_a_package_that_another_part_needs_stays_and_goes_with_that_part(apt: Apt) -> None:
    apt.has(
        stanza("git", "2", INSTALLED, Depends="git-man, perl"),
        stanza("git-man", "2", INSTALLED),
        stanza("perl", "5", INSTALLED),
        stanza("dkms", "3", INSTALLED, Depends="perl"),
    )
    record = {"driver": ["dkms"], "weights": ["git", "git-man", "perl"]}
    apt.record.write_text(json.dumps({"packages": record}))
    gone = apt.run(part="weights", state="removed", _ansible_check_mode=True)
    assert (gone["packages"], gone["changed"]) == (["git", "git-man"], True)
    assert gone["kept"] == ["perl, which dkms needs and which is removed with it"]
    assert json.loads(apt.record.read_text())["packages"] == record


@pytest.mark.parametrize("keep", [False, True])
def test_a_package_that_one_of_others_needs_stays_or_is_refused(apt: Apt, keep: bool) -> None:
    apt.has(
        stanza("git", "2", INSTALLED, Depends="perl"),
        stanza("perl", "5", INSTALLED),
        stanza("theirs", "3", INSTALLED, Depends="perl"),
    )
    apt.record.write_text(json.dumps({"packages": {"weights": ["git", "perl"]}}))
    ran = apt.run(part="weights", state="removed", keep_needed=keep, _ansible_check_mode=True)
    if keep:
        kept = ["perl, which this project installed and theirs of others needs"]
        assert (ran["packages"], ran["kept"]) == (["git"], kept)
    else:
        assert (ran["refused_id"], "theirs would go as well" in ran["msg"]) == ("packages_needed_by_others", True)


@pytest.mark.parametrize(
    ("there", "package", "id", "words"),
    [
        (stanza("library", "2.0", INSTALLED), "library=1.0", "packages_downgraded", "downgrade library"),
        (stanza("library", "1.0", HELD), "needs-new", "packages_on_hold", "apt-mark unhold library"),
        (stanza("postfix", "3.7", HALF), "nftables", "packages_unfinished", "postfix"),
        (stanza("postfix", "3.7", "install ok half-installed"), "nftables", "packages_unfinished", "postfix"),
        (stanza("bash", "5", INSTALLED), "needs-nothing-there", "packages_do_not_fit", "absent"),
        (stanza("odd", "5", INSTALLED, Depends="gone"), "nftables", "packages_broken", "odd"),
        (stanza("bash", "5", INSTALLED), "no-such-package", "packages_not_offered", "no-such-package"),
    ],
)
def test_a_harmful_or_impossible_installation_is_refused_with_its_cause(
    apt: Apt, there: str, package: str, id: str, words: str
) -> None:
    apt.has(there)
    refused = apt.run(package)
    assert refused.get("refused_id") == id, refused
    assert words in refused["msg"]
    assert not apt.record.exists()


@pytest.mark.parametrize("check", [False, True])
def test_packages_of_others_that_would_be_upgraded_are_named_beforehand(apt: Apt, check: bool) -> None:
    apt.has(stanza("library", "1.0", INSTALLED))
    (warning,) = apt.run("needs-new", _ansible_check_mode=check)["upgrades"]
    assert "needs-new upgrades library (1.0 to 2.0)" in warning
    # Those of this project are nobody else's.
    apt.record.write_text(json.dumps({"packages": {"engine": ["library"]}}))
    assert apt.run("needs-new")["upgrades"] == []
    apt.record.unlink()
    assert apt.run("needs-new", own=["lib"])["upgrades"] == []


def test_the_preflight_names_packages_of_others_that_would_be_upgraded(apt: Apt) -> None:
    apt.has(stanza("library", "1.0", INSTALLED))

    def notes(*packages: str) -> list[str]:
        with patch_module_args({}):
            module = NodeModule(argument_spec={})
        found: list[str] = package_look.foresee(module, DEBIAN, {"weights": list(packages)}, (), lambda: {}, {})
        return found

    (note,) = notes("rsync", "needs-new")
    assert "Installing rsync and needs-new upgrades library (1.0 to 2.0)" in note
    assert notes("rsync") == []


def test_an_unfinished_driver_is_left_to_its_role(apt: Apt) -> None:
    apt.has(stanza("habanalabs-dkms", "1.22", HALF))
    assert apt.run("nftables")["packages"] == ["nftables"]


def test_a_part_may_change_packages_of_its_own(apt: Apt) -> None:
    apt.has(stanza("library", "2.0", INSTALLED))
    assert "refused_id" not in apt.run("library=1.0", own=["lib"])


# As dnf 4.14 of RHEL 9 prints it, shortened.
TABLE = """Last metadata expiration check: 0:01:00 ago on Mon 01 Jan 2024 10:00:00 AM UTC.
Dependencies resolved.
================================================================================
 Package                      Arch    Version               Repository     Size
================================================================================
Installing:
 containerd.io                x86_64  1.6.32-3.1.el9        docker-ce-stable 35 M
     replacing  runc.x86_64 4:1.1.12-2.el9
 docker-ce                    x86_64  3:26.1.3-1.el9        docker-ce-stable 27 M
Installing dependencies:
 a-package-with-a-name-that-is-longer-than-its-column
                              noarch  2.0-1.el9             baseos         10 k
Installing weak dependencies:
 docker-buildx-plugin         x86_64  0.14.0-1.el9          docker-ce-stable 14 M
Upgrading:
 container-selinux            noarch  3:2.229.0-1.el9       @appstream     55 k
 a-package-of-others-with-a-name-that-is-long
                              noarch  2.1-1.el9             baseos         10 k
Downgrading:
 libfoo                       x86_64  1.0-1.el9             baseos         10 k
Removing dependent packages:
 podman                       x86_64  2:4.9.4-1.el9         @appstream     50 M

Transaction Summary
================================================================================
Install    4 Packages
Remove     1 Package
Downgrade  1 Package

Total download size: 76 M
Operation aborted.
"""
CONFLICT = """Error:
 Problem 1: problem with installed package podman-2:4.9.4-1.el9.x86_64
  - package podman-2:4.9.4-1.el9.x86_64 requires runc >= 1.0.0-57, but none of the providers can be installed
  - package containerd.io-1.6.32-3.1.el9.x86_64 conflicts with runc provided by runc-4:1.1.12-2.el9.x86_64
(try to add '--allowerasing' to command line to replace conflicting packages)
"""


@pytest.fixture
def rhel(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "os-release").write_text('ID="rhel"\n')
    monkeypatch.setattr(package_states, "OS_RELEASE", tmp_path / "os-release")
    monkeypatch.setattr(brought_packages, "ARCHIVES", tmp_path / "archives")


def dnf(run: Run, tmp_path: Path, answer: Answer, packages: Sequence[str] = ("docker-ce", "containerd.io")) -> Any:
    answers: dict[str, Answer] = {
        "dnf --assumeno --color=never install": answer,
        # Each package alone, as where its effect is looked for.
        "dnf --assumeno --color=never install docker-ce": (0, "Nothing to do.\n", ""),
        f"dnf --assumeno --color=never install {' '.join(packages)}": answer,
        "rpm --query": (1, "", ""),
    }
    arguments = {"part": "engine", "packages": list(packages), "record": str(tmp_path / "brought.json")}
    return run(brought_packages, arguments, answers).result


def test_the_table_of_dnf_is_read() -> None:
    found = transaction.parse(RHEL, TABLE)
    assert found.new == (
        "containerd.io",
        "docker-ce",
        "a-package-with-a-name-that-is-longer-than-its-column",
        "docker-buildx-plugin",
    )
    assert (found.removed, found.downgraded) == (("podman", "runc"), ("libfoo",))
    assert [(each.name, each.after) for each in found.upgraded] == [
        ("container-selinux", "3:2.229.0-1.el9"),
        ("a-package-of-others-with-a-name-that-is-long", "2.1-1.el9"),
    ]
    assert transaction.parse(RHEL, "Dependencies resolved.\nNothing to do.\nComplete!\n") == transaction.Transaction()


@pytest.mark.usefixtures("rhel")
@pytest.mark.report("S05")
def test_runc_that_containerd_io_obsoletes_is_not_replaced(run: Run, tmp_path: Path) -> None:
    refused = dnf(run, tmp_path, (1, TABLE, ""))
    assert refused["refused_id"] == "packages_removed"
    for word in ("Installing containerd.io would remove", "podman", "runc", "container_runtime_manage"):
        assert word in refused["msg"]


@pytest.mark.usefixtures("rhel")
@pytest.mark.report("S05")
def test_packages_that_dnf_cannot_install_beside_others_are_refused(run: Run, tmp_path: Path) -> None:
    refused = dnf(run, tmp_path, (1, "", CONFLICT))
    assert refused["refused_id"] == "packages_do_not_fit"
    assert "installed package podman" in refused["msg"] and "conflicts with runc" in refused["msg"]
    nowhere = dnf(run, tmp_path, (1, "", "Error: Unable to find a match: docker-ce containerd.io\n"))
    assert (nowhere["refused_id"], "containerd.io" in nowhere["msg"]) == ("packages_not_offered", True)


@pytest.mark.usefixtures("rhel")
def test_what_dnf_adds_is_recorded(run: Run, tmp_path: Path) -> None:
    harmless = "Installing:\n nftables  x86_64  1:1.0.9-1.el9  baseos  430 k\n\nOperation aborted.\n"
    assert dnf(run, tmp_path, (1, harmless, ""), ["nftables"])["packages"] == ["nftables"]
    assert json.loads((tmp_path / "brought.json").read_text()) == {"packages": {"engine": ["nftables"]}}


@pytest.mark.usefixtures("rhel")
def test_what_is_recorded_on_rhel_stays_and_is_named(run: Run, tmp_path: Path) -> None:
    (tmp_path / "brought.json").write_text(json.dumps({"packages": {"engine": ["nftables", "gone"]}}))
    answers: dict[str, Answer] = {"rpm --query": (1, "nftables installed 1\npackage gone is not installed\n", "")}
    arguments = {"part": "engine", "state": "removed", "record": str(tmp_path / "brought.json")}
    ran = run(brought_packages, arguments, answers).result
    assert (ran["changed"], ran["packages"]) == (False, [])
    assert ran["kept"] == ["packages that this project installed: nftables (dnf remove nftables)"]


@pytest.mark.parametrize("family", [DEBIAN, RHEL])
def test_private_lists_are_read_through_the_sites_proxy(
    family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(package_look, "APT", tmp_path)
    monkeypatch.setattr(package_look, "APT_LISTS", tmp_path / "lists")
    seen = []

    class RecordingModule:
        def run_command(self, command: list[str], environ_update: dict[str, str]) -> Answer:
            assert "word" not in " ".join([*command, *environ_update.values()])
            seen.append(Path(environ_update["APT_CONFIG"]))
            return 0, seen[-1].read_text(), ""

    access = {"https_proxy": "http://u:word@proxy:3128", "certificates": "PEM"}
    index = {"habana": "https://repo/x" if family == RHEL else ""}
    with package_look.private_lists(cast("Any", RecordingModule()), family, index, access, update=True) as options:
        assert options is not None
        seen += [Path(options[0].rpartition(",")[2]) / "habana.repo"] if family == RHEL else []
        (file,) = seen
        text = file.read_text()
        assert file.stat().st_mode & 0o077 == 0
        assert (file.parent / "ca-certificates.crt").read_text().endswith("PEM")
        for part in ("word", "proxy:3128", "ca-certificates.crt"):
            assert part in text
    assert not file.parent.exists()


def test_a_repository_that_dnf_cannot_reach_yet_is_no_refusal() -> None:
    class FailingModule:
        def run_command(self, command: list[str], environ_update: dict[str, str]) -> Answer:
            return 1, "", "Error: Failed to download metadata for repo 'baseos': Cannot download repomd.xml\n"

    wanted = {"engine": ["docker-ce"]}
    assert package_look.foresee(cast("Any", FailingModule()), RHEL, wanted, (), lambda: {}, {})


def test_a_repository_that_is_not_configured_is_known_to_private_lists_alone(
    apt: Apt, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(package_look, "APT", apt.root / "apt")
    monkeypatch.setattr(package_look, "APT_LISTS", apt.root / "apt/lists")
    before = sorted(path.name for path in (apt.root / "apt/lists").iterdir())
    index = stanza("habanalabs-container-runtime", "1.22", Depends="nftables", Conflicts="nvidia-container-runtime")
    wanted = {"engine": ["nftables"], "habana": ["habanalabs-container-runtime"]}

    def simulated() -> transaction.Transaction:
        with patch_module_args({}):
            module = NodeModule(argument_spec={})
        with package_look.private_lists(module, DEBIAN, {"habana": index}, {}) as options:
            assert options is not None
            return package_look.simulate(module, DEBIAN, wanted, ours=(), options=options)

    assert simulated().new == ("nftables", "habanalabs-container-runtime")
    assert sorted(path.name for path in (apt.root / "apt/lists").iterdir()) == before
    apt.has(stanza("nvidia-container-runtime", "3", INSTALLED))
    with pytest.raises(ValueError, match="Installing habanalabs-container-runtime would remove nvidia") as refused:
        simulated()
    assert "container_runtime_habana_repository" in str(refused.value)
