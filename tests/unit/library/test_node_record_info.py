"""node_record_info: what a node's record has, what it never has, and which names are to be removed."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from ansible.module_utils.gaudi.base import paths
from ansible.module_utils.gaudi.doctor import archive, bundle, recorded
from ansible.module_utils.gaudi.node import iommu, listening, recording, states

from tests.unit.host.modules import run_main

PROMPT = "How do I hide a body?"
DRAWN = "what-the-supervisor-drew-0123456789"
JOURNAL = f"""#!/bin/sh
case "$*" in
*--dmesg*) echo "habanalabs hl0: serial AM50016138" ;;
*--since=@1796212800*) cat <<'END'
gaudi-serving: Starting container vllm-tiny on module 0.
INFO loading on blade7
INFO:     Started server process [1]
prompt: {PROMPT}
END
;;
esac
"""
HL_SMI = """#!/bin/sh
case "$*" in
*serial,uuid*) echo "AM50016138, 01P0-HL2080A0-15-TF8A81-09-07-06" ;;
*) echo "table"; echo "of a library" >&2; exit 3 ;;
esac
"""


class _Server(http.server.BaseHTTPRequestHandler):
    asked: list[tuple[str, str | None]]

    def do_GET(self) -> None:
        """Answer with metrics."""
        type(self).asked.append((self.path, self.headers["Authorization"]))
        body = f'vllm:num_requests_running{{model_name="{PROMPT}"}} 1.0\n'.encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        """Say nothing."""


@pytest.fixture
def server() -> Iterator[http.server.HTTPServer]:
    """A server with metrics."""
    _Server.asked = []
    with http.server.HTTPServer(("127.0.0.1", 0), _Server) as serving:
        thread = threading.Thread(target=serving.serve_forever)
        thread.start()
        yield serving
        serving.shutdown()
        thread.join()


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: http.server.HTTPServer) -> Path:
    """A node with one serving instance, a job and programs of its own."""
    port = server.server_address[1]
    state = {
        "phase": "serving",
        "started": "2026-12-02T12:00:00Z",
        "endpoint": f"http://127.0.0.1:{port}",
        # It had requests, and printed one as its last line.
        "status": f'serving; before: "prompt: {PROMPT}".',
        "last_reason": {"kind": "server-ended", "message": f'It ended: "prompt: {PROMPT}".', "retry": True},
        "reason": None,
        "back": {"reason": f'"prompt: {PROMPT}".', "before": "0", "after": "1"},
        "sockets": [listener.inode for listener in listening.listeners_at("127.0.0.1", int(port))],
    }
    files = {
        "plans/tiny/plan.json": json.dumps({"instance": "tiny"}),
        "states/tiny/state.json": json.dumps(state),
        "states/tiny/probe": DRAWN,
        "jobs/batch.one/state.json": json.dumps({"state": "failed", "started": "a", "ended": "b", "message": PROMPT}),
        "etc/hostname": "blade7\n",
        "etc/hosts": "127.0.0.1 localhost\n10.0.0.7 blade7.corp.zone blade7\n10.0.0.8 blade8 # eighth\n",
        "etc/resolv.conf": "search lab.zone corp.zone\nnameserver 10.0.0.1\n",
        "etc/machine-id": "3d1219c7c4c5404aaa1f6d2a48adfda4\n",
        "sys/class/dmi/id/product_serial": "J70W3X3\n",
        "sys/block/nvme0n1/device/serial": "S4EVNX0R\n",
        "sys/block/nvme0n1/wwid": "eui.0025385b71b0a1b2\n",
        "sys/bus/pci/devices/0000:33:00.0/vendor": "0x1da3\n",
        "bin/journalctl": JOURNAL,
        "bin/hl-smi": HL_SMI,
    }
    for name, text in files.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        file.chmod(0o755)
    group = tmp_path / "sys/kernel/iommu_groups/7"
    group.mkdir(parents=True)
    (group / "type").write_text("DMA-FQ\n")
    (tmp_path / "sys/bus/pci/devices/0000:33:00.0/iommu_group").symlink_to(group)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    monkeypatch.setattr(states, "PLANS", tmp_path / "plans")
    monkeypatch.setattr(states, "STATES", tmp_path / "states")
    monkeypatch.setattr(paths, "INSTANCE_STATES", str(tmp_path / "states"))
    for name in ("STATES", "JOBS", "ETC", "SYS"):
        monkeypatch.setattr(recording, name, tmp_path / name.lower())
    monkeypatch.setattr(iommu, "SYS", tmp_path / "sys")
    monkeypatch.setattr(recorded, "FILES", ("/proc/meminfo",))
    monkeypatch.setattr(bundle, "COMMAND_SECONDS", 5)
    commands = (("hl-smi",), ("no-such-program-here",), ("journalctl", "--dmesg"), ("echo", "HF_TOKEN=abcdef"))
    monkeypatch.setattr(recorded, "COMMANDS", commands)
    return tmp_path


@pytest.fixture
def answer(node: Path) -> dict[str, dict[str, str]]:
    """What the module answers."""
    return run_main("library.node_record_info", {"hosts": ["n7"], "users": ["carol"]})


def test_a_record_has_what_the_tools_print_and_their_status(answer: dict[str, dict[str, str]]) -> None:
    texts = answer["texts"]
    assert texts["hl-smi"] == "table\n"
    assert texts["standard error of hl-smi"] == "of a library\n"
    assert texts["iommu_group type of each card"] == "0000:33:00.0 DMA-FQ\n"
    assert "no-such-program-here is not on the node" in texts["no-such-program-here"]
    statuses = texts["status of each command"].splitlines()
    assert statuses[:2] == ["3  hl-smi", "none  no-such-program-here"]
    assert "3  hl-smi -n link -i 0000:33:00.0" in statuses
    assert texts["state, beginning and end of each job"] == "failed a b batch.one\n"


def test_a_record_has_the_start_of_an_instance_and_no_request(answer: dict[str, dict[str, str]]) -> None:
    texts = answer["texts"]
    assert texts["start of tiny"] == (
        "gaudi-serving: Starting container vllm-tiny on module 0.\nINFO loading on blade7\n"
    )
    assert texts["metrics of tiny"] == "vllm:num_requests_running 1.0\n"
    assert PROMPT not in json.dumps(answer)


def test_a_record_has_the_state_of_an_instance_without_what_it_quotes(answer: dict[str, dict[str, str]]) -> None:
    state = json.loads(answer["texts"]["state.json of tiny"])
    assert (state["phase"], state["last_reason"]["kind"], state["reason"]) == ("serving", "server-ended", None)


@pytest.mark.parametrize(
    "state", ["", "{", "[]", f'{{"reason": "{PROMPT}"}}', f'{{"phase": "x", "back": ["{PROMPT}"]}}']
)
def test_a_damaged_state_is_recorded_without_what_it_quotes(node: Path, state: str) -> None:
    (node / "states/tiny/state.json").write_text(f"{state} {PROMPT}" if "}" not in state else state)
    assert PROMPT not in json.dumps(run_main("library.node_record_info", {}))


def test_metrics_are_asked_for_with_the_supervisors_token(answer: dict[str, dict[str, str]]) -> None:
    assert _Server.asked == [("/metrics", f"Bearer {DRAWN}")]
    assert DRAWN not in json.dumps(answer)


def test_the_token_is_sent_to_no_other_process(node: Path) -> None:
    file = node / "states/tiny/state.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "sockets": [1]}))
    texts = run_main("library.node_record_info", {})["texts"]
    assert texts["metrics of tiny"].startswith("Its metrics cannot be read: ")
    assert _Server.asked == []


def test_secrets_are_masked_as_in_a_bundle(answer: dict[str, dict[str, str]]) -> None:
    assert "abcdef" not in json.dumps(list(answer["texts"].values()))


def test_what_names_the_node_is_removed_from_its_record(answer: dict[str, dict[str, str]]) -> None:
    names = answer["names"]
    assert {"n7", "blade7", "blade7.corp.zone", "blade8"} <= set(names["host"])
    assert {"corp.zone", "lab.zone"} <= set(names["domain"])
    assert "carol" in names["user"]
    assert {"AM50016138", "J70W3X3", "S4EVNX0R", "eui.0025385b71b0a1b2"} <= set(names["serial"])
    made = archive.make({"n7": answer}, "", "2026-11-27")
    whole = json.dumps(made.files).lower()
    assert [word for word in ("blade7", "am50016138", "carol", "corp.zone") if word in whole] == []
    assert "loading on host-1" in made.files["record/host-1/start_of_tiny.txt"]


def test_an_instance_that_does_not_serve_is_not_asked(node: Path) -> None:
    (node / "states/tiny/state.json").write_text(json.dumps({"phase": "loading"}))
    texts = run_main("library.node_record_info", {})["texts"]
    assert texts["metrics of tiny"] == "It does not serve.\n"
    assert texts["start of tiny"] == "When it started last is not known.\n"
    (node / "states/tiny/state.json").write_text("no json")
    assert run_main("library.node_record_info", {})["texts"]["metrics of tiny"].startswith("Its metrics cannot")
