"""The stand-in quantiser: its name follows a variable, as the real one's does."""

import os

from setuptools import setup

name = "neural_compressor_pt" if os.environ.get("INC_PT_ONLY") else "neural_compressor"
setup(name=name, version="3.5", description="Simulated", packages=["neural_compressor"])
