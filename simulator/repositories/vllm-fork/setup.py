"""The stand-in fork: builds for Gaudi only, reads the same requirement files as the real one."""

import os
from pathlib import Path

from setuptools import find_packages, setup

if os.environ.get("VLLM_TARGET_DEVICE") != "hpu":
    raise RuntimeError("Unknown runtime environment")


def requirements(name):
    """Lines of a requirement file, and of those that it includes."""
    lines = Path(__file__).with_name("requirements").joinpath(name).read_text().splitlines()
    for line in lines:
        if line.startswith("-r "):
            yield from requirements(line.split()[1])
        elif line and not line.startswith("#"):
            yield line


setup(
    name="vllm",
    version=os.environ.get("SETUPTOOLS_SCM_PRETEND_VERSION", "0.0.1") + ".gaudi000",
    description="Simulated: a stand-in for the vLLM fork, without an engine",
    packages=find_packages(),
    install_requires=list(requirements("hpu.txt")),
    extras_require={"audio": ["librosa", "soundfile"]},
)
