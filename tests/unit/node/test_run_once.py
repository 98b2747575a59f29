"""A container that runs once: its program may hang or print without end, and nobody waits or runs out of memory."""

from __future__ import annotations

import resource
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.gaudi.node import containers, inspection

# As docker's client: "rm" and "inspect" are written down; "run" does what the test says.
DOCKER = """#!/bin/sh
echo "$*" >> {log}
case $1 in
  inspect) echo {oom} ;;
  run) {does} ;;
esac
"""


class ProgramsModule:
    """Runs the programs that are there, as Ansible's module does."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def get_bin_path(self, name: str, required: bool) -> str:
        assert required
        return str(self.folder / name) if name == "docker" else name

    def run_command(self, command: list[str]) -> tuple[int, str, str]:
        return inspection.run_limited(command)


class ContainerNode:
    """A node whose engine runs what the test says."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def run(self, does: str, seconds: int = 60, data: str = "", oom: str = "false") -> containers.ContainerExit:
        program = self.folder / "docker"
        program.write_text(DOCKER.format(log=self.folder / "log", does=does, oom=oom))
        program.chmod(0o755)
        module: Any = ProgramsModule(self.folder)
        return containers.run_once(module, "looks", ["an/image:1", "python3"], seconds, data)

    @property
    def asked(self) -> list[str]:
        return (self.folder / "log").read_text().splitlines()


@pytest.fixture
def node(tmp_path: Path) -> ContainerNode:
    return ContainerNode(tmp_path)


def test_what_it_reads_and_prints_comes_through_and_it_is_gone(node: ContainerNode) -> None:
    question = "é" * (1 << 17)
    ended = node.run("cat; echo beside >&2; exit 3", data=question)
    assert (ended.status, ended.out, ended.err, ended.how) == (3, question, "beside\n", "ended with status 3")
    assert ended.text == f"{question}beside\n"
    assert node.asked == [
        "rm --force --volumes looks",
        "run --name looks --log-driver none --pull never an/image:1 python3",
        "rm --force --volumes looks",
    ]


def test_of_one_that_ends_well_nobody_needs_what_stands_beside(node: ContainerNode) -> None:
    assert node.run("echo said; echo beside >&2").text == "said\n"


@pytest.mark.parametrize("stream", ["", ">&2"])
def test_one_that_prints_without_end_costs_no_memory_and_is_gone(node: ContainerNode, stream: str) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    ended = node.run(f"exec yes {stream}")
    assert (ended.status, ended.how) == (1, "printed more than 4 MiB")
    assert len(ended.text) < inspection.PRINTED + (1 << 20)
    # KiB. What is kept, and as text beside it.
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 << 10
    assert node.asked[-1] == "rm --force --volumes looks"


def test_once_it_prints_somebody_may_inspect_it_while_it_runs(node: ContainerNode) -> None:
    program = node.folder / "docker"
    seen: list[bool] = []
    gone, inspected = node.folder / "gone", node.folder / "inspected"

    def inspect() -> None:
        seen.append(gone.exists())
        inspected.touch()

    program.write_text(
        DOCKER.format(
            log=node.folder / "log",
            does=f"echo one; echo two >&2; until [ -e {inspected} ]; do :; done; echo > {gone}",
            oom="",
        )
    )
    program.chmod(0o755)
    module: Any = ProgramsModule(node.folder)
    containers.run_once(module, "looks", ["an/image:1"], 60, began=inspect)
    assert (seen, gone.exists()) == ([False], True)


def test_one_that_hangs_is_ended_at_the_limit(node: ContainerNode) -> None:
    ended = node.run("echo waits; exec sleep 600", seconds=1)
    assert (ended.status, ended.out, ended.how) == (None, "waits\n", "did not end within 1 seconds")
    assert node.asked[-1] == "rm --force --volumes looks"


def test_one_that_does_not_hear_is_killed_at_the_limit(node: ContainerNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(containers, "KILL_AFTER", 1)
    # A signal that is ignored stays so in what a shell starts.
    ended = node.run("trap '' TERM; echo waits; exec sleep 600", seconds=1)
    assert (ended.status, ended.out) == (None, "waits\n")


@pytest.mark.parametrize("oom", ["true", "false"])
def test_one_that_somebody_killed_before_its_time_did_not_hang(node: ContainerNode, oom: str) -> None:
    ended = node.run("exit 137", oom=oom)
    assert (ended.status, ended.no_memory) == (137, oom == "true")


def test_what_is_no_text_is_read_all_the_same(node: ContainerNode) -> None:
    assert node.run(r"printf '\377\n'").out == "\ufffd\n"


def test_nothing_is_left_open(node: ContainerNode) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    node.run("exec yes")
    node.run("exit 0")
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_a_client_that_is_killed_counts_as_a_killed_container(node: ContainerNode) -> None:
    assert node.run("kill -9 $$").status == 137
