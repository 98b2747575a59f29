"""The proof that containers get cards: what it is made of, when it is due, and what is said where it fails."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.gaudi.engine import proof
from ansible.module_utils.gaudi.node import containers, engine_look

from library import container_runtime_info, container_runtime_proof
from tests.unit.node.damages import DAMAGES, damage
from tests.unit.preflight.conftest import Answer, Run

LDD = """\tlinux-vdso.so.1 (0x00007ffd3b5f2000)
\tlibselinux.so.1 => /lib/x86_64-linux-gnu/libselinux.so.1 (0x00007f6d7a6c0000)
\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f6d7a4df000)
\t/lib64/ld-linux-x86-64.so.2 (0x00007f6d7a71f000)
"""
UNKNOWN = "docker: Error response from daemon: unknown or invalid runtime name: habana.\n"


def test_a_program_goes_with_what_it_is_linked_to() -> None:
    assert proof.linked(LDD) == [
        "/lib/x86_64-linux-gnu/libselinux.so.1",
        "/lib/x86_64-linux-gnu/libc.so.6",
        "/lib64/ld-linux-x86-64.so.2",
    ]
    assert proof.linked("\tnot a dynamic executable\n") == []


def test_nothing_is_pulled_and_nothing_may_be_done() -> None:
    command = proof.command("docker")
    assert {"--pull=never", "--runtime=habana", "--network=none", "--cap-drop=ALL", "--rm"} < set(command)
    assert command[-3:] == ["/bin/ls", "-1", "/dev/accel"]


@pytest.mark.parametrize(
    ("status", "printed", "said", "words"),
    [
        (125, "", UNKNOWN, "sees 0 of the 2 cards in /dev/accel (docker: Error response from daemon: unknown"),
        (2, "", "/bin/ls: cannot access '/dev/accel': No such file or directory", "cannot access '/dev/accel'"),
        (0, "accel0\naccel_controlD0\n", "", "sees 1 of the 2 cards in /dev/accel. Look at"),
    ],
)
def test_a_runtime_that_gives_no_cards_is_said(status: int, printed: str, said: str, words: str) -> None:
    refusal = proof.refusal(status, printed, said, ["accel0", "accel1"])
    assert refusal is not None
    assert (refusal.id, words in str(refusal)) == ("container_without_cards", True)


class ProofNode:
    """A node with cards, an engine and the vendor's runtime."""

    def __init__(self, run: Run, root: Path, patch: pytest.MonkeyPatch) -> None:
        self.start, self.root = run, root
        self.record = root / "state" / "runtime_proof.json"
        self.devices, self.runtime, self.program = root / "accel", root / "habana", root / "ls"
        self.devices.mkdir()
        for name in ("accel0", "accel1", "accel_controlD0", "accel_controlD1"):
            (self.devices / name).touch()
        self.runtime.touch(mode=0o755)
        self.program.write_text("a program")
        patch.setattr(containers, "DEVICES", self.devices)
        patch.setattr(proof, "PROGRAM", str(self.program))
        (root / "usr/bin").mkdir(parents=True)
        (root / "usr/bin/docker").touch(mode=0o755)
        for name, path in (("ROOT", root), ("PROC", root / "proc"), ("BROUGHT", root / "brought.json")):
            patch.setattr(engine_look, name, path)
        self.answers: dict[str, Answer | Callable[[], Answer]] = {
            "docker version": (0, "20.10.24\n", ""),
            "/usr/bin/docker version": (0, "20.10.24\n", ""),
            "ldd": (0, LDD.replace("/lib", str(root / "no-lib")), ""),
            "docker import": (0, "sha256:1\n", ""),
            "docker run": (0, "accel0\naccel1\naccel_controlD0\naccel_controlD1\n", ""),
            "docker image rm": (0, "", ""),
            "dpkg-query": (0, "docker.io installed\n", ""),
            "systemctl show": (0, "", ""),
        }
        patch.setattr(container_runtime_proof, "packed", lambda files: b"".join(name.encode() for name in files))

    def prove(self, check: bool = False) -> Any:
        arguments = {"habana_path": str(self.runtime), "record": str(self.record)}
        return self.start(container_runtime_proof, arguments, self.answers, check=check)

    @property
    def proved(self) -> bool:
        arguments = {"habana_path": str(self.runtime), "record": str(self.record), "packages": ["docker.io"]}
        return bool(self.start(container_runtime_info, arguments, self.answers)["proved"])


@pytest.fixture
def node(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ProofNode:
    return ProofNode(run, tmp_path, monkeypatch)


def test_a_proof_holds_until_engine_runtime_or_cards_are_others(node: ProofNode) -> None:
    assert not node.proved
    ran = node.prove()
    assert (ran["changed"], ran["devices"]) == (False, ["accel0", "accel1"])
    assert [command.split()[:2] for command in ran.commands][1:] == [
        ["ldd", str(node.program)],
        ["docker", "import"],
        ["docker", "run"],
        ["docker", "image"],
    ]
    assert node.proved
    version = node.answers["/usr/bin/docker version"]
    node.answers["/usr/bin/docker version"] = (0, "28.2.2\n", "")
    assert not node.proved
    node.answers["/usr/bin/docker version"] = version
    (node.devices / "accel1").unlink()
    assert not node.proved
    (node.devices / "accel1").touch()
    assert node.proved
    node.runtime.write_text("another runtime")
    assert not node.proved


def test_where_nothing_can_be_proved_nothing_is_asked_for(node: ProofNode) -> None:
    for path in node.devices.iterdir():
        path.unlink()
    assert node.proved
    (node.devices / "accel0").touch()
    assert not node.proved
    node.runtime.chmod(0o644)
    assert node.proved


@pytest.mark.parametrize("kind", DAMAGES)
def test_a_damaged_record_proves_nothing_and_is_written_anew(node: ProofNode, kind: str) -> None:
    node.record.parent.mkdir()
    damage(node.record, kind)
    assert not node.proved
    assert "msg" not in node.prove().result
    assert node.proved


def test_a_failure_is_said_and_the_image_goes_all_the_same(node: ProofNode) -> None:
    node.answers["docker run"] = (125, "", UNKNOWN)
    ran = node.prove()
    assert ran["refused_id"] == "container_without_cards"
    assert ran.commands[-1] == f"docker image rm {proof.IMAGE}"
    assert not node.record.exists()
    node.answers["docker import"] = (1, "", "no space left on device")
    assert "no space left on device" in node.prove()["msg"]


def test_check_mode_runs_nothing(node: ProofNode) -> None:
    ran = node.prove(check=True)
    assert [command for command in ran.commands if "version" not in command] == []
    assert not node.record.exists()


def test_the_archive_has_files_where_they_lie(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("content")
    (tmp_path / "link").symlink_to("real")
    name = str(tmp_path / "link")
    with tarfile.open(fileobj=io.BytesIO(container_runtime_proof.packed([name, name]))) as archive:
        assert [(member.name, member.isfile()) for member in archive] == [(name.lstrip("/"), True)]


def test_what_is_written_down_is_what_a_proof_holds_for(node: ProofNode) -> None:
    node.prove()
    assert json.loads(node.record.read_text())["devices"] == ["accel0", "accel1"]
