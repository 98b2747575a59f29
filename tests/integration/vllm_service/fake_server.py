"""The container of the scripted docker: prints a scenario's lines, then serves HTTP until it is stopped.

The order of what a supervisor reads and of what it is answered is fixed: nothing is printed before somebody follows,
and nothing is answered before a supervisor has read all lines.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

NODE = Path(os.environ["FAKE_NODE"])


class FakeServerHandler(BaseHTTPRequestHandler):
    """/health, /v1/models, /metrics, and /slow, a request that runs until somebody says that it may end."""

    slow = 0

    def do_GET(self) -> None:
        """Answer."""
        with (NODE / "requests").open("a") as requests:
            requests.write(f"{self.path}\n")
        token = str(self.headers.get("Authorization", "")).removeprefix("Bearer ")
        with (NODE / "tokens").open("a") as tokens:
            tokens.write(f"{token}\n")
        probe = NODE / "state/instances/tiny/door/probe"
        if (
            self.path != "/slow"
            and probe.exists()
            and hashlib.sha256(token.encode()).hexdigest() != probe.read_text().strip()
        ):
            self.send_error(401)
            return
        if self.path == "/slow":
            FakeServerHandler.slow += 1
            while NODE.exists() and not (NODE / "slow-may-end").exists():
                time.sleep(0.02)
            FakeServerHandler.slow -= 1
        if self.path == "/metrics" and (NODE / "no-metrics").exists():
            self.close_connection = True
            return
        unwell = (NODE / "unwell").exists()
        scenario = json.loads((NODE / "scenario.json").read_text())
        told = scenario.get("metrics", True)
        count = told if isinstance(told, str) else f"{FakeServerHandler.slow}.0"
        running = f'vllm:num_requests_running{{engine="0"}} {count}'
        metrics = f"{running}\nvllm:num_requests_waiting 0\n{scenario.get('more_metrics', '')}" if told else ""
        names = [{"id": scenario.get("model", "tiny")}]
        body = {"/v1/models": json.dumps({"data": names}), "/metrics": metrics}.get(self.path, "ok").encode()
        self.send_response(503 if unwell else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing per request."""


def end(status: int) -> None:
    """Leave the exit status where the scripted docker finds it, whole, and go."""
    fresh = NODE / f"container.status.{os.getpid()}"
    fresh.write_text(str(status))
    fresh.replace(NODE / "container.status")
    os._exit(0)


def heard() -> int:
    """How much of the log was read; -1 while nobody follows."""
    path = NODE / "container.heard"
    return int(path.read_text()) if path.exists() else -1


def shut_off(server: ThreadingHTTPServer) -> list[socket.socket]:
    """Have the kernel drop what comes to the port, as a firewall does: nobody takes those that wait there already."""
    server.socket.listen(0)
    waiting = [socket.socket() for _ in range(4)]
    for each in waiting:
        each.setblocking(False)
        each.connect_ex(server.server_address)
    return waiting


def main() -> None:
    """Run the scenario."""
    scenario = json.loads((NODE / "scenario.json").read_text())
    stopping, closing = threading.Event(), threading.Event()
    if scenario.get("deaf"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    else:
        signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    (NODE / "container.armed").touch()

    def wait_for(condition: Callable[[], bool]) -> None:
        """Wait until a condition holds, or end when that is asked, or when the test is over."""
        while NODE.exists() and not condition():
            if stopping.wait(0.02):
                end(0)

    wait_for(lambda: heard() >= 0)
    for line in scenario.get("lines", []):
        print(line, flush=True)
        if stopping.wait(scenario.get("delay", 0)):
            end(0)
    if "until" in scenario:
        wait_for((NODE / scenario["until"]).exists)
    if "exit" in scenario:
        end(scenario["exit"])
    if not scenario.get("serve", True):
        stopping.wait()
        end(0)
    wait_for(lambda: heard() >= (NODE / "container.log").stat().st_size)
    server = ThreadingHTTPServer(("127.0.0.1", scenario["port"]), FakeServerHandler)
    # Threads are joined when the server closes: requests in flight finish, as vLLM's do.
    server.daemon_threads = False
    shut = shut_off(server) if scenario.get("shut") else []
    if not shut:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    signal.signal(signal.SIGUSR1, lambda *_: closing.set())
    # A test that is over has nobody left to stop it.
    while NODE.exists() and not stopping.wait(0.05):
        if closing.is_set():
            # It goes on, and nobody listens any more.
            server.socket.close()
        if not shut and (NODE / "shut").exists():
            server.shutdown()
            shut = shut_off(server)
        if (NODE / "say").exists():
            print((NODE / "say").read_text(), flush=True)
            (NODE / "say").unlink()
        if (NODE / "crash").exists():
            crash = json.loads((NODE / "crash").read_text())
            print("\n".join(crash["lines"]), flush=True)
            end(crash["exit"])
    if not shut:
        server.shutdown()
    server.server_close()
    print("drained", flush=True)
    end(0)


main()
