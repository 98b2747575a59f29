"""A build that is pinned by the lock of an earlier one, with pip itself."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from ansible.module_utils.gaudi.image.dockerfile import lock as lock_file
from ansible.module_utils.gaudi.image.output import failure

from simulator.wheels import wheel
from tests.unit.image.made import made
from tests.unit.image.test_lock import DIGEST, entry

ROOT = Path(__file__).resolve().parents[3]
CONTEXT = ROOT / "roles/serving_image/files/gaudi_image/context"


class LockBuild:
    """A folder that stands for a build: a context, an index of three wheels, and a pip that installs beside it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.context = folder, folder / "context"
        shutil.copytree(CONTEXT, self.context)
        shutil.copytree(ROOT / "module_utils/gaudi", self.context / "gaudi")
        self.lock = folder / "image/lock.txt"
        # A build has its /tmp for itself; two tests that run at once have not.
        (folder / "tmp").mkdir()
        steps = (self.context / "steps.sh").read_text().replace(" /tmp/", f" {folder / 'tmp'}/")
        steps = steps.replace("programs=/run/gaudi-build", f"programs={self.context}")
        steps = steps.replace("packages=/run/gaudi-packages", f"packages={self.context}")
        steps = steps.replace("lock=/usr/local/share/gaudi-serving/lock.txt", f"lock={self.lock}")
        (self.context / "steps.sh").write_text(steps)
        (self.context / "constraints.txt").write_text("")
        self.index = folder / "index"
        self.index.mkdir()
        for name, needs in (("front", ["behind"]), ("behind", []), ("other", [])):
            self.offer(name, "1.0", needs)
        python = folder / "bin/python3"
        python.parent.mkdir()
        python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
        python.chmod(0o755)

    def offer(self, name: str, version: str, needs: list[str], note: str = "") -> str:
        """Put a wheel into the index; returns its checksum."""
        file, content = wheel(name, version, {f"{name}.py": note}, needs)
        (self.index / file).write_bytes(content)
        return hashlib.sha256(content).hexdigest()

    def step(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a step; what it installs lies in a folder of its own."""
        environment = {
            "PATH": f"{self.folder / 'bin'}:/usr/bin:/bin",
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": str(self.index),
            "PIP_TARGET": str(self.folder / "site"),
            "PIP_CONFIG_FILE": os.devnull,
            "HOME": str(self.folder),
        }
        command = ["sh", str(self.context / "steps.sh"), *arguments]
        return subprocess.run(command, check=False, capture_output=True, text=True, env=environment)

    @property
    def installed(self) -> list[str]:
        """The distributions that are there."""
        return sorted(path.name for path in (self.folder / "site").glob("*.dist-info"))


@pytest.fixture
def build(tmp_path: Path) -> LockBuild:
    return LockBuild(tmp_path)


def test_the_lock_of_one_build_holds_the_next_one(build: LockBuild, tmp_path: Path) -> None:
    done = build.step("packages", "front")
    assert done.returncode == 0, done.stderr
    lines = build.lock.read_text().splitlines()
    assert [line.partition(" ")[0] for line in lines] == ["behind==1.0", "front==1.0"]
    (tmp_path / "next").mkdir()
    held = LockBuild(tmp_path / "next")
    held.offer("front", "2.0", ["other"])
    (held.context / "lock.txt").write_text(lock_file(made(lock=build.lock.read_text())))
    done = held.step("locked")
    assert done.returncode == 0, done.stderr
    assert held.installed == ["behind-1.0.dist-info", "front-1.0.dist-info"]
    assert held.lock.read_text() == build.lock.read_text()
    # What else is asked for of an index is not.
    assert held.step("packages", "other").returncode == 0
    assert held.installed == ["behind-1.0.dist-info", "front-1.0.dist-info"]


def test_another_file_under_a_known_name_ends_the_build(build: LockBuild) -> None:
    expected = build.offer("front", "1.0", [])
    (build.context / "lock.txt").write_text(f"front==1.0 --hash=sha256:{expected}\n")
    build.offer("front", "1.0", [], note="import os")
    done = build.step("locked")
    assert done.returncode != 0
    assert failure("x", [f"#9 1.0 {line}" for line in (done.stdout + done.stderr).splitlines()]).id == "not-as-locked"
    assert build.installed == []


def test_what_is_no_indexs_has_no_line_and_brings_nothing_with_it_where_there_is_a_lock(build: LockBuild) -> None:
    """A wheel in a folder stands for a checkout."""
    checkout = str(build.index / "front-1.0-py3-none-any.whl")
    (build.context / "lock.txt").write_text("")
    done = build.step("install", checkout)
    assert (done.returncode, build.installed) == (0, ["front-1.0.dist-info"]), done.stderr
    (build.context / "lock.txt").unlink()
    done = build.step("install", "--upgrade", checkout)
    assert done.returncode == 0, done.stderr
    assert [line.partition("==")[0] for line in build.lock.read_text().splitlines()] == ["behind"]


def test_the_requirements_of_a_checkout_are_rewritten_and_not_installed(build: LockBuild) -> None:
    (build.folder / "hpu.txt").write_text("front\nours @ git+https://example.com/ours@branch\n")
    (build.context / "lock.txt").write_text("")
    done = build.step("requirements", str(build.folder), "hpu.txt", "--replaced=ours")
    assert done.returncode == 0, done.stderr
    assert "branch" not in (build.folder / "hpu.txt").read_text()
    assert build.installed == []


def test_a_lock_without_the_part_is_said(build: LockBuild) -> None:
    (build.context / "lock.txt").write_text(f"pillow-simd==1.0 --hash=sha256:{DIGEST}\n")
    done = build.step("pillow_simd", "2.0")
    assert done.returncode == 1
    assert failure("x", done.stderr.splitlines()).id == "not_in_lock"


@pytest.mark.parametrize("locked", [False, True])
def test_only_pillow_simd_has_to_come_as_its_source(build: LockBuild, *, locked: bool) -> None:
    """What it is built with (setuptools) comes as a wheel, as on an index that has nothing else."""
    if locked:
        (build.context / "lock.txt").write_text(f"pillow-simd==1.0 --hash=sha256:{DIGEST}\n")
    python = build.folder / "bin/python3"
    python.write_text('#!/bin/sh\necho "$@"\n')
    done = build.step("pillow_simd", "1.0")
    (asked,) = [line for line in done.stdout.splitlines() if "--no-binary" in line]
    assert "--no-binary pillow-simd" in asked
    assert ":all:" not in asked


def test_the_program_adds_a_report(tmp_path: Path) -> None:
    (tmp_path / "report.json").write_text(json.dumps({"install": [entry("ray")]}))
    place = tmp_path / "deep/lock.txt"
    command = [sys.executable, str(CONTEXT / "gaudi_lock.py"), str(tmp_path / "report.json"), str(place)]
    for gone, left in ((["--gone=pillow"], ["ray"]), (["--gone=ray"], [])):
        environment = {"PYTHONPATH": str(ROOT / "module_utils"), "PYTHONDONTWRITEBYTECODE": "1"}
        subprocess.run([*command, *gone], check=True, env=environment)
        assert [line.partition("==")[0] for line in place.read_text().splitlines()] == left
