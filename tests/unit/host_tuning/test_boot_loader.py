"""host_tuning_kernel_cmdline: update-grub only on change, everything back when it fails; grubby's exact calls."""

from __future__ import annotations

import importlib
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.unit.host_tuning.modules import Answer, run_main, script

RECORDED = Path(__file__).with_name("recorded")
ARGUMENTS = ["intel_idle.max_cstate=0", "iommu=pt"]


class Grub:
    """Debian's files in a folder, and an update-grub that writes grub.cfg from our drop-in, or fails."""

    def __init__(self, root: Path, patch: pytest.MonkeyPatch) -> None:
        shutil.copytree(RECORDED / "debian12", root / "default")
        self.config = root / "default/grub.cfg"
        self.drop_in = root / "default/grub.d/zz-gaudi-serving.cfg"
        self.original = self.config.read_text()
        self.answer: Answer = self.update
        module = importlib.import_module("host_tuning_kernel_cmdline")
        patch.setattr(module, "CONFIG", self.config)
        patch.setattr(module, "DEFAULTS", root / "default/grub")
        self.commands = script(patch, {"update-grub": self.update_grub})

    def update_grub(self, command: list[str]) -> tuple[int, str, str]:
        return self.answer(command)

    def update(self, _command: list[str]) -> tuple[int, str, str]:
        ours = ""
        if self.drop_in.exists():
            ours = self.drop_in.read_text().rpartition("DEFAULT ")[2].rstrip('"\n')
        text = self.original.replace("intel_idle.max_cstate=1\n", f"intel_idle.max_cstate=1 {ours}".rstrip() + "\n")
        self.config.write_text(text)
        return 0, "done", ""

    def run(self, *, check: bool = False, **options: Any) -> dict[str, Any]:
        given = {"path": str(self.drop_in), "arguments": ARGUMENTS, **options}
        return run_main("host_tuning_kernel_cmdline", given, check=check)


@pytest.fixture
def debian(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Grub:
    return Grub(tmp_path, monkeypatch)


def test_update_grub_runs_once(debian: Grub) -> None:
    assert debian.run(check=True)["changed"] is True
    assert debian.commands == []
    first = debian.run()
    assert first["changed"] is True
    assert first["entries"]["/boot/vmlinuz-6.1.0-56-cloud-amd64"].endswith(" ".join(ARGUMENTS))
    assert debian.run()["changed"] is False
    assert debian.run(check=True)["changed"] is False
    assert debian.commands == [["/usr/sbin/update-grub"]]


def test_an_update_that_never_ran_is_made_up_for(debian: Grub) -> None:
    debian.run()
    debian.config.write_text(debian.original)
    assert debian.run()["changed"] is True
    assert debian.run()["changed"] is False


def test_a_later_file_that_wins_does_not_make_every_run_a_change(debian: Grub) -> None:
    (debian.drop_in.parent / "zzz.cfg").write_text('GRUB_CMDLINE_LINUX_DEFAULT="iommu=soft"\n')
    debian.answer = lambda _command: (0, "", "")
    assert debian.run()["changed"] is True
    assert debian.run()["changed"] is False


def test_taken_away(debian: Grub) -> None:
    debian.run()
    assert debian.run(state="absent")["changed"] is True
    assert debian.config.read_text() == debian.original
    assert not debian.drop_in.exists()
    assert debian.run(state="absent")["changed"] is False


def half_written(debian: Grub) -> Answer:
    def answer(_command: list[str]) -> tuple[int, str, str]:
        debian.config.write_text("half")
        return 1, "", "no space left on device"

    return answer


def test_a_failing_update_leaves_the_previous_configuration(debian: Grub) -> None:
    debian.run()
    config, drop_in = debian.config.read_text(), debian.drop_in.read_text()
    debian.answer = half_written(debian)
    answer = debian.run(arguments=["quiet=1"])
    assert answer["failed"] is True
    assert "/usr/sbin/update-grub ended with status 1: no space left on device" in answer["msg"]
    assert (debian.config.read_text(), debian.drop_in.read_text()) == (config, drop_in)


def test_a_failing_first_update_leaves_no_drop_in(debian: Grub) -> None:
    debian.answer = half_written(debian)
    assert debian.run()["failed"] is True
    assert debian.config.read_text() == debian.original
    assert not debian.drop_in.exists()


def test_an_update_without_effect_is_a_failure(debian: Grub) -> None:
    debian.answer = lambda _command: (0, "", "")
    answer = debian.run()
    assert "lack intel_idle.max_cstate=0 iommu=pt" in answer["msg"]
    assert not debian.drop_in.exists()


@pytest.mark.parametrize(
    "break_it",
    [
        lambda grub: (grub.drop_in.parent / "typo.cfg").write_text('GRUB_CMDLINE_LINUX="x'),
        lambda grub: grub.drop_in.write_text("GRUB_TIMEOUT=1\n"),
    ],
)
def test_what_is_refused_before_anything_changes(debian: Grub, break_it: Callable[[Grub], None]) -> None:
    break_it(debian)
    assert debian.run()["failed"] is True
    assert debian.commands == []
    assert debian.config.read_text() == debian.original


def test_an_argument_of_an_unknown_kind(debian: Grub) -> None:
    answer = debian.run(arguments=[{"iommu": "pt"}])
    assert "is not a kernel argument this role can write" in answer["msg"]
    assert debian.commands == []


def test_a_system_with_neither_tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script(monkeypatch, {})
    answer = run_main("host_tuning_kernel_cmdline", {"path": str(tmp_path / "zz.cfg"), "arguments": ARGUMENTS})
    assert "neither grubby nor update-grub" in answer["msg"]


class Grubby:
    """A grubby that keeps its arguments in a list per kernel, after RHEL's recorded answer."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.text = (RECORDED / "rhel9/grubby_info_all.txt").read_text()
        self.fail = False
        self.commands = script(patch, {"grubby": self.answer})

    def answer(self, command: list[str]) -> tuple[int, str, str]:
        if command[1] == "--info=ALL":
            return 0, self.text, ""
        if self.fail:
            return 1, "", "The param /boot/vmlinuz is incorrect"
        add = command[2].partition("=")[2] if command[2].startswith("--args=") else ""
        drop = set(command[2].partition("=")[2].split())
        names = {word.partition("=")[0] for word in drop}
        lines = []
        for line in self.text.splitlines():
            if line.startswith("args="):
                kept = [w for w in line[6:-1].split() if (w.partition("=")[0] not in names if add else w not in drop)]
                lines.append(f'args="{" ".join([*kept, *add.split()])}"')
            else:
                lines.append(line)
        self.text = "\n".join(lines) + "\n"
        return 0, "", ""

    def changes(self) -> list[list[str]]:
        return [command[1:] for command in self.commands if command[1] != "--info=ALL"]


def test_grubby_is_called_once(monkeypatch: pytest.MonkeyPatch) -> None:
    grubby = Grubby(monkeypatch)
    given = {"path": "/nowhere", "arguments": ARGUMENTS}
    assert run_main("host_tuning_kernel_cmdline", given, check=True)["changed"] is True
    assert grubby.changes() == []
    assert run_main("host_tuning_kernel_cmdline", given)["changed"] is True
    assert run_main("host_tuning_kernel_cmdline", given)["changed"] is False
    assert grubby.changes() == [["--update-kernel=ALL", "--args=intel_idle.max_cstate=0 iommu=pt"]]


def test_grubby_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    grubby = Grubby(monkeypatch)
    grubby.fail = True
    answer = run_main("host_tuning_kernel_cmdline", {"path": "/nowhere", "arguments": ARGUMENTS})
    assert "The param /boot/vmlinuz is incorrect" in answer["msg"]
    assert "The previous arguments are back in place" in answer["msg"]


def test_grubby_takes_away(monkeypatch: pytest.MonkeyPatch) -> None:
    grubby = Grubby(monkeypatch)
    before = grubby.text
    given = {"path": "/nowhere", "arguments": ARGUMENTS}
    run_main("host_tuning_kernel_cmdline", given)
    assert run_main("host_tuning_kernel_cmdline", {**given, "state": "absent"})["changed"] is True
    assert grubby.text == before
    assert run_main("host_tuning_kernel_cmdline", {**given, "state": "absent"})["changed"] is False
