"""The program of the compute check with the real PyTorch for CPUs, in the stand-in serving image.

Needs Docker, so ``make molecule`` runs it, and ``make unit`` does not:

    python -m pytest tests/compute_torch.py
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import yaml
from ansible.module_utils.gaudi.catalogue.compute import ComputeBounds
from ansible.module_utils.gaudi.fabric import compute

from simulator import engine, images

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = ROOT / "roles" / "fabric_check" / "files" / "compute_check.py"
BOUNDS = ComputeBounds.from_cards(yaml.safe_load((ROOT / "catalog" / "cards.yml").read_text(encoding="utf-8")))
PLANNED = compute.ComputePlan((0, 1), ((0, 1),), compute.FULL, 16)


def test_the_program_computes_with_the_real_pytorch() -> None:
    """Its tolerance holds for products in bfloat16 on a CPU."""
    asked = json.dumps({**compute.request(PLANNED), "device": "cpu"})
    # As on a node: sockets of the collective library are on loopback.
    isolation = ["--network", "none", "--env", "GLOO_SOCKET_IFNAME=lo", "--read-only", "--tmpfs", "/tmp:exec"]  # noqa: S108
    image = images.vllm(engine.ensure(), print)
    command = ["docker", "run", "--rm", "--interactive", *isolation, image, "/opt/venv/bin/python3", "-", asked]
    ended = subprocess.run(command, input=PROGRAM.read_bytes(), capture_output=True, check=False, timeout=300)
    assert ended.returncode == 0, ended.stderr.decode()
    said = compute.ComputeExit(ended.stdout.decode(), 0, 300)
    rows, _ = compute.judge(PLANNED, said, {0: 0, 1: 1}, BOUNDS, "now", "boot")
    assert [row["outcome"] for row in rows] == ["passed"] * 3, ended.stdout.decode()
