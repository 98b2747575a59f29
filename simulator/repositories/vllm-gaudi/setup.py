"""The stand-in for the plugin: as the real one, it asks setuptools_scm for its version and is found by entry points."""

from pathlib import Path

from setuptools import find_packages, setup
from setuptools_scm import get_version

setup(
    name="vllm_gaudi",
    version=get_version(write_to="vllm_gaudi/_version.py"),
    description="Simulated: a stand-in for the plugin of vLLM",
    packages=find_packages(),
    install_requires=[line for line in Path(__file__).with_name("requirements.txt").read_text().splitlines() if line],
    entry_points={"vllm.platform_plugins": ["hpu = vllm_gaudi:register"]},
)
