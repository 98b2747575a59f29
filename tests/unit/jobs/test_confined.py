"""What long work may do on the node: the unit is judged by systemd's own list."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest
import yaml
from ansible.module_utils.gaudi.base import paths
from ansible.module_utils.gaudi.jobs import decisions

ROOT = Path(__file__).parents[3]
UNIT = ROOT / "roles" / "node_job" / "files" / "gaudi-job@.service"
# Of 10; 9.6 without any of it (systemd 252).
MOST_EXPOSED = 2.5


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
    # Beside its own folder lie plans, packages and other work, which root's programs run or install.
    assert [line for line in lines if line.startswith("ReadWritePaths=")] == [f"ReadWritePaths={paths.JOBS}/%i"]
    # It would list devices, and a calibration could not ask the cards for their numbers.
    assert not [line for line in lines if re.match("ProtectClock=|DeviceAllow=|DevicePolicy=", line)]


@pytest.mark.parametrize("role", ["weights_supply", "fp8_calibration"])
def test_the_role_removes_the_token_however_a_transfer_ends(role: str) -> None:
    """The work may not write where the token lies."""
    tasks = yaml.safe_load((ROOT / "roles" / role / "tasks/take.yml").read_text())
    (block,) = [task for task in tasks if "rescue" in task]
    removed = [task for task in block["always"] if task.get("ansible.builtin.file", {}).get("state") == "absent"]
    assert len(removed) == 1
    assert "token" in str(removed[0])


def test_the_work_has_no_unix_sockets_devices_or_pipes_of_the_node() -> None:
    """molecule/weights has work try them. Through io_uring, a socket is opened past RestrictAddressFamilies."""
    lines = UNIT.read_text().splitlines()
    assert [line for line in lines if line.startswith("RestrictAddressFamilies=")] == [
        "RestrictAddressFamilies=AF_INET AF_INET6 AF_NETLINK"
    ]
    assert "SystemCallFilter=~io_uring_setup io_uring_enter io_uring_register" in lines
    assert "PrivateDevices=yes" in lines
    assert "InaccessiblePaths=-/run/initctl" in lines


def test_a_dropin_gives_sockets_and_devices_back() -> None:
    assert decisions.NODE_SERVICES.startswith("[Service]\n")
    # systemd adds a second list of families and capabilities to the first.
    assert "RestrictAddressFamilies=AF_UNIX\n" in decisions.NODE_SERVICES
    assert "PrivateDevices=no\n" in decisions.NODE_SERVICES
    granted = re.findall(r"CapabilityBoundingSet=(.*)", UNIT.read_text() + decisions.NODE_SERVICES)
    # Otherwise work without sockets could write to the memory of work with them.
    assert len(granted) == 2
    assert granted[1] not in granted[0].split()


def test_every_job_names_its_paths_and_only_some_need_services_of_the_node() -> None:
    """Without paths it could write nothing. Work that reads what a hub or another node sends needs no services."""
    found = {}
    for path in sorted((ROOT / "roles").glob("*/tasks/*.yml")):
        tasks = yaml.safe_load(path.read_text()) or []
        while tasks:
            task = tasks.pop()
            tasks += [inner for key in ("block", "rescue", "always") for inner in task.get(key, [])]
            job = task.get("node_job", {})
            if job.get("command") and not task.get("check_mode"):
                services = job.get("node_services", False)
                found[f"{path.parent.parent.name}/{path.name}"] = (
                    services if isinstance(services, bool) else "sometimes"
                )
                assert job.get("mounts_for"), json.dumps(task)
                if not job.get("node_services"):
                    # A folder that it shares with other work would have that work do what it writes there.
                    shared = re.search(f"{paths.STATE}|{paths.CONFIGURATION}", str(job["mounts_for"]))
                    assert not shared, json.dumps(task)
                # A file that a person named lies where he said: its folder is refused where it is missing.
                named = "serving_image_file" in str(job["mounts_for"])
                assert job.get("make_folders", True) is not named, json.dumps(task)
    assert found == {
        "benchmark/measure.yml": True,
        "fp8_calibration/measure.yml": True,
        "fp8_calibration/take.yml": False,
        "fp8_weights/convert.yml": False,
        "fp8_weights/reread.yml": False,
        "model_weights/fetch.yml": False,
        "model_weights/verify.yml": False,
        # systemctl stops a server that was started for the batch alone.
        "offline_batch/ask.yml": "sometimes",
        "serving_image/build.yml": True,
        "serving_image/give.yml": True,
        "serving_image/load.yml": True,
        "serving_image/save.yml": True,
        "weights_supply/take.yml": False,
    }
