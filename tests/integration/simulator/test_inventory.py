from __future__ import annotations

import json
import runpy
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from simulator import inventory
from simulator.inventory import SimulatedNode

ROOT = Path(__file__).resolve().parents[3]
NODES = [
    SimulatedNode("one", 40001, "ssh-ed25519 AAAAone simulated one", "gaudi2-oam8", {30001: 40002}),
    SimulatedNode("two", 40003, "ssh-ed25519 AAAAtwo", "gaudi3-oam8"),
]


def test_every_node_is_known_by_its_port_and_key() -> None:
    assert inventory.known_hosts(NODES) == (
        "[127.0.0.1]:40001 ssh-ed25519 AAAAone\n[127.0.0.1]:40003 ssh-ed25519 AAAAtwo\n"
    )


def test_ansible_gets_what_it_needs_and_checks_host_keys() -> None:
    document = json.loads(inventory.document(NODES, Path("/some where/demo"), {"serving_image_build": False}))
    assert document["gaudi_nodes"]["hosts"] == ["one", "two"]
    one = document["_meta"]["hostvars"]["one"]
    assert (one["ansible_host"], one["ansible_port"], one["ansible_user"]) == ("127.0.0.1", 40001, "gaudi")
    assert one["serving_image_build"] is False
    assert one["simulator_ports"] == {"30001": 40002}
    options = shlex.split(one["ansible_ssh_common_args"])
    assert "StrictHostKeyChecking=yes" in options
    assert 'UserKnownHostsFile="/some where/demo/known_hosts"' in options


def test_ssh_itself_reads_the_configuration(tmp_path: Path) -> None:
    directory = tmp_path / "with space"
    directory.mkdir()
    (directory / "ssh_config").write_text(inventory.ssh_config(NODES, directory))
    read = subprocess.run(
        ["ssh", "-G", "-F", str(directory / "ssh_config"), "two"], check=True, capture_output=True, text=True
    ).stdout.splitlines()
    assert {"hostname 127.0.0.1", "port 40003", "user gaudi", "stricthostkeychecking true"} <= set(read)
    assert f"userknownhostsfile {directory}/known_hosts" in read


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    script = ROOT / "inventories" / "simulated" / "hosts.py"
    copy = tmp_path / "inventories" / "simulated" / "hosts.py"
    copy.parent.mkdir(parents=True)
    copy.write_text(script.read_text())
    return tmp_path


def printed(checkout: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, dict[str, object]]:
    runpy.run_path(str(checkout / "inventories" / "simulated" / "hosts.py"), run_name="__main__")
    document: dict[str, dict[str, object]] = json.loads(capsys.readouterr().out)
    return document


def test_without_a_node_a_run_cannot_end_well(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document = printed(checkout, capsys)
    assert document["gaudi_nodes"]["hosts"] == ["simulated-gaudi-1"]
    assert "python -m simulator up" in str(document["_meta"])


def test_the_scope_of_the_environment_is_printed(
    checkout: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = checkout / ".cache" / "simulator" / "scopes" / "other"
    directory.mkdir(parents=True)
    (directory / "inventory.json").write_text(inventory.document(NODES, directory, {}))
    monkeypatch.setenv("GAUDI_SIMULATOR_SCOPE", "other")
    assert printed(checkout, capsys)["gaudi_nodes"]["hosts"] == ["one", "two"]


def test_ansible_refuses_to_run_on_no_node_with_a_sentence(checkout: Path) -> None:
    (checkout / "inventories" / "simulated" / "hosts.py").chmod(0o755)
    ping = [sys.executable, "-m", "ansible", "adhoc", "gaudi_nodes", "-m", "ping", "-i", "inventories/simulated"]
    result = subprocess.run(ping, check=False, capture_output=True, text=True, cwd=checkout)
    assert result.returncode != 0
    assert "No simulated node runs. Start one: python -m simulator up" in result.stdout + result.stderr
