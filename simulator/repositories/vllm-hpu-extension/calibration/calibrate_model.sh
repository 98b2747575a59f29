#!/bin/sh
# Stands in for vllm-hpu-extension's script of this name; says so first.
PYTHONPATH=/opt/gaudi-simulated exec /opt/venv/bin/python3 -m gaudi_simulated.calibration calibrate_model "$@"
