"""driver_kernel_pin: what GRUB boots after it, and everything back where that is not the kernel."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.gaudi.node.host import boot_loader, tuning

from tests.unit.host.modules import Answer, run_main, script
from tests.unit.host.test_boot_menu import NEW, OLD, OLD_ID, SUBMENU, config


class PinnedGrub:
    """GRUB's files in a folder, and an update-grub that writes grub.cfg from GRUB_DEFAULT, or fails."""

    def __init__(self, root: Path, patch: pytest.MonkeyPatch) -> None:
        self.root = root
        self.kernels: tuple[str, ...] = (NEW, OLD)
        (root / "default/grub.d").mkdir(parents=True)
        (root / "default/grub").write_text("GRUB_DEFAULT=0\n")
        (root / "grub.cfg").write_text(config("0"))
        self.drop_in = root / "default/grub.d/zz-kernel.cfg"
        self.answer: Answer = self.update
        patch.setattr(tuning, "BOOT_LOCK", root / "lock")
        patch.setattr(tuning, "LOCALE", root / "locale")
        patch.setattr(boot_loader, "GRUB_CONFIG", root / "grub.cfg")
        patch.setattr(boot_loader, "GRUB_DEFAULTS", root / "default/grub")
        patch.setattr(boot_loader, "GRUB_ENVIRONMENTS", (root / "grubenv",))
        self.commands = script(patch, {"update-grub": self.update_grub})

    def update_grub(self, command: list[str]) -> tuple[int, str, str]:
        return self.answer(command)

    def update(self, _command: list[str]) -> tuple[int, str, str]:
        default = "0"
        for file in (self.root / "default/grub", *sorted((self.root / "default/grub.d").glob("*.cfg"))):
            for line in file.read_text().splitlines():
                default = line.partition("=")[2].strip('"') if line.startswith("GRUB_DEFAULT=") else default
        (self.root / "grub.cfg").write_text(config(default, *self.kernels))
        return 0, "done", ""

    def run(self, *, check: bool = False, **options: Any) -> dict[str, Any]:
        return run_main("driver_kernel_pin", {"path": str(self.drop_in), "kernel": OLD, **options}, check=check)


@pytest.fixture
def grub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PinnedGrub:
    return PinnedGrub(tmp_path, monkeypatch)


def test_a_kernel_is_chosen_once_and_taken_back(grub: PinnedGrub) -> None:
    assert grub.run(check=True)["changed"] is True
    assert not grub.drop_in.exists()
    first = grub.run()
    assert (first["changed"], first["boots"]) == (True, OLD)
    assert f'GRUB_DEFAULT="{SUBMENU}>{OLD_ID}"' in grub.drop_in.read_text()
    assert grub.run()["changed"] is False
    assert len(grub.commands) == 1
    back = grub.run(state="absent")
    assert (back["changed"], back["boots"]) == (True, NEW)
    assert not grub.drop_in.exists()
    assert grub.run(state="absent")["changed"] is False


def test_a_newer_kernel_does_not_change_the_choice(grub: PinnedGrub) -> None:
    grub.run()
    grub.kernels = ("7.0.0-1-generic", NEW, OLD)
    grub.update([])
    again = grub.run()
    assert (again["changed"], again["boots"]) == (False, OLD)


def test_a_menu_that_was_written_without_our_drop_in_is_written_again(grub: PinnedGrub) -> None:
    grub.run()
    (grub.root / "grub.cfg").write_text(config("0"))
    again = grub.run()
    assert (again["changed"], again["boots"]) == (True, OLD)


def test_a_kernel_that_the_menu_lacks_is_looked_for_once_more(grub: PinnedGrub) -> None:
    """It was copied into /boot by hand."""
    (grub.root / "grub.cfg").write_text(config("0", NEW))
    assert grub.run()["boots"] == OLD
    grub.kernels = (NEW,)
    grub.update([])
    failed = grub.run()
    assert failed["refused_id"] == "kernel_not_in_menu"


@pytest.mark.parametrize("later", ["", 'GRUB_DEFAULT="0"\n'])
def test_what_was_there_is_back_where_the_kernel_would_not_boot(grub: PinnedGrub, later: str) -> None:
    """update-grub fails, or a file after ours chooses another one."""
    before = (grub.root / "grub.cfg").read_text()
    if later:
        (grub.root / "default/grub.d/zzz-site.cfg").write_text(later)
    else:
        grub.answer = lambda _command: (1, "", "no such device")
    failed = grub.run()
    assert failed["failed"]
    assert ("zzz-site.cfg:1 sets GRUB_DEFAULT" if later else "no such device") in failed["msg"]
    assert (grub.root / "grub.cfg").read_text() == before
    assert not grub.drop_in.exists()


def test_a_kernel_that_somebody_boots_once_is_refused(grub: PinnedGrub) -> None:
    (grub.root / "grubenv").write_text("# GRUB Environment Block\nnext_entry=1>0\n")
    failed = grub.run()
    assert failed["refused_id"] == "other_kernel_boots_once"
    assert grub.commands == []


@pytest.mark.parametrize("state", ["present", "absent"])
def test_a_file_of_somebody_else_stays(grub: PinnedGrub, state: str) -> None:
    grub.drop_in.write_text("GRUB_DEFAULT=2\n")
    assert grub.run(state=state)["refused_id"] == "file_in_the_way"
    assert grub.drop_in.read_text() == "GRUB_DEFAULT=2\n"


def test_a_node_without_grub_has_nothing_to_take_back(grub: PinnedGrub) -> None:
    (grub.root / "grub.cfg").unlink()
    assert grub.run(state="absent")["changed"] is False
    assert grub.run()["refused_id"] == "kernel_without_grub"
