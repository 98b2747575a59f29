"""The stand-in for vLLM itself, under the plugin: builds for no device, and reads its own requirement file."""

import os
from pathlib import Path

from setuptools import find_packages, setup

if os.environ.get("VLLM_TARGET_DEVICE") != "empty":
    raise RuntimeError("Unknown runtime environment")

setup(
    name="vllm",
    version=os.environ.get("SETUPTOOLS_SCM_PRETEND_VERSION", "0.0.1") + ".empty",
    description="Simulated: a stand-in for vLLM, without an engine",
    packages=find_packages(),
    install_requires=[
        line
        for line in Path(__file__).with_name("requirements").joinpath("common.txt").read_text().splitlines()
        if line and not line.startswith("#")
    ],
    extras_require={"audio": ["librosa", "soundfile"]},
)
