"""Stands in for the fork's script of this name; says so first."""

import os
import sys

PYTHON = "/opt/venv/bin/python3"
COMMAND = [PYTHON, "-m", "gaudi_simulated.calibration", "run_example_tp", *sys.argv[1:]]

if __name__ == "__main__":
    os.execve(PYTHON, COMMAND, {**os.environ, "PYTHONPATH": "/opt/gaudi-simulated"})
