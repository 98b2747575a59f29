"""The stand-in extension."""

from setuptools import setup

setup(name="vllm-hpu-extension", version="0.0.1", description="Simulated", packages=["vllm_hpu_extension"])
