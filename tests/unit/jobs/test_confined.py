"""What long work may do on the node: the unit is judged by systemd's own list."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[3]
UNIT = ROOT / "roles" / "node_job" / "files" / "gaudi-job@.service"
# Of 10; 9.6 without any of it (systemd 252).
MOST_EXPOSED = 3.5


def test_systemd_finds_little_exposed() -> None:
    command = ["systemd-analyze", "security", "--offline=true", "--no-pager", str(UNIT)]
    said = subprocess.run(command, capture_output=True, text=True, check=False)
    found = re.search(r"Overall exposure level for \S+: ([0-9.]+)", said.stdout)
    assert found, said.stderr
    assert float(found[1]) <= MOST_EXPOSED


def test_the_work_writes_only_where_it_is_said() -> None:
    lines = UNIT.read_text().splitlines()
    assert "ProtectSystem=strict" in lines
    # Units lie there, and systemd 252 left it writable where it is a file system of its own.
    assert "ReadOnlyPaths=/run" in lines
    assert "ReadWritePaths=/var/lib/gaudi-serving -/etc/gaudi-serving/weights" in lines
    # It would list devices, and a calibration could not ask the cards for their numbers.
    assert not [line for line in lines if re.match("ProtectClock=|DeviceAllow=|DevicePolicy=|PrivateDevices=", line)]


def test_every_job_names_the_paths_it_is_about() -> None:
    """Without them it could write nothing."""
    found = []
    for path in sorted((ROOT / "roles").glob("*/tasks/*.yml")):
        tasks = yaml.safe_load(path.read_text()) or []
        while tasks:
            task = tasks.pop()
            tasks += [inner for key in ("block", "rescue", "always") for inner in task.get(key, [])]
            job = task.get("node_job", {})
            if job.get("command") and not task.get("check_mode"):
                found.append(f"{path.parent.parent.name}/{path.name}")
                assert job.get("mounts_for"), json.dumps(task)
                # A file that a person named lies where he said: its folder is refused where it is missing.
                named = "serving_image_file" in str(job["mounts_for"])
                assert job.get("make_folders", True) is not named, json.dumps(task)
    assert sorted(found) == [
        "benchmark/measure.yml",
        "fp8_calibration/measure.yml",
        "fp8_calibration/take.yml",
        "fp8_weights/convert.yml",
        "fp8_weights/reread.yml",
        "model_weights/fetch.yml",
        "model_weights/verify.yml",
        "offline_batch/ask.yml",
        "serving_image/build.yml",
        "serving_image/give.yml",
        "serving_image/load.yml",
        "serving_image/save.yml",
        "weights_supply/take.yml",
    ]
