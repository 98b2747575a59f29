"""Ansible packages a module of this project once, not in each run."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
PARTS = ("callback_plugins", "doc_fragments", "library", "module_utils", "plugin_utils", "ansible.cfg")
MODULE = "card_reservation"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """What Ansible needs of a checkout to run a module."""
    for part in PARTS:
        (shutil.copytree if (ROOT / part).is_dir() else shutil.copyfile)(ROOT / part, tmp_path / part)
    task = {MODULE: {"instance": "a", "state": "absent"}, "check_mode": True}
    python = {"ansible_python_interpreter": sys.executable}
    play = {"hosts": "all", "gather_facts": False, "vars": python, "tasks": [task]}
    (tmp_path / "play.yml").write_text(json.dumps([play]))
    return tmp_path


def packages(checkout: Path) -> list[Path]:
    """The packages that were kept."""
    return sorted((checkout / "home").glob("gaudi-serving-modules/*/*"))


def packaged(checkout: Path) -> bool:
    """Run the module in check mode on this machine; say whether Ansible has packaged it."""
    play = Path(sys.executable).with_name("ansible-playbook")
    done = subprocess.run(
        [play, "--inventory=here,", "--connection=local", "play.yml"],
        cwd=checkout,
        env={**os.environ, "ANSIBLE_HOME": str(checkout / "home"), "ANSIBLE_DEBUG": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "ANSIBALLZ" in done.stdout, done.stdout + done.stderr
    assert done.stderr == ""
    return "Creating module" in done.stdout


def test_a_second_run_uses_what_the_first_has_packaged(checkout: Path) -> None:
    assert packaged(checkout)
    (kept,) = packages(checkout)
    assert kept.name.startswith(f"ansible.legacy.{MODULE}-")
    assert not packaged(checkout)
    assert packages(checkout) == [kept]


@pytest.mark.parametrize("changed", [f"library/{MODULE}.py", "module_utils/gaudi/base/places.py"])
def test_after_a_change_it_is_packaged_again(checkout: Path, changed: str) -> None:
    assert packaged(checkout)
    with (checkout / changed).open("a") as file:
        file.write("# changed\n")
    assert packaged(checkout)
    assert not packaged(checkout)


@pytest.mark.parametrize("above", [0, 1])
def test_packages_that_others_could_have_changed_are_not_used(checkout: Path, above: int) -> None:
    assert packaged(checkout)
    (kept,) = packages(checkout)
    kept.parents[above].chmod(0o777)
    before = kept.read_bytes()
    assert packaged(checkout)
    assert kept.read_bytes() == before


def test_only_the_last_ones_are_kept(checkout: Path) -> None:
    former = [checkout / "home/gaudi-serving-modules" / str(number) for number in range(20)]
    for age, folder in enumerate(former):
        folder.mkdir(mode=0o700, parents=True)
        os.utime(folder, (age, age))
    former[0].parent.chmod(0o700)
    assert packaged(checkout)
    assert [folder for folder in former if folder.exists()] == former[-7:]
    assert len(packages(checkout)) == 1
