"""Run the real supervisor against a node that is a directory: paths and the clock of a test, nothing else."""

from __future__ import annotations

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
NODE = Path(os.environ["FAKE_NODE"])
# A test may install programs and library as the role does.
sys.path[:0] = [str(NODE / "programs"), str(ROOT / "roles/vllm_service/files"), str(ROOT / "module_utils")]

from gaudi_supervisor import clock, command_line, settings  # noqa: E402 - found on the path just made

clock.POLL_STARTING = 0.05
clock.POLL_SERVING = float(os.environ.get("FAKE_POLL_SERVING", "0.1"))
clock.STABLE_SECONDS = float(os.environ.get("FAKE_STABLE", "600"))
paths = settings.Paths(NODE / "etc", NODE / "state", NODE / "programs", NODE / "proc")
sys.exit(command_line.main(sys.argv[1:], paths))
