"""The server's side of the network: whether it answers, and who has its port."""

from __future__ import annotations

import errno
import http.client
import json
import re
import socket
import subprocess
from pathlib import Path

from gaudi.serving.plan import Plan

from .clock import HTTP_TIMEOUT
from .engine import run_command

# A line of the server's metrics: requests that have a slot, that wait for one, or (older releases) that lost it.
REQUESTS = re.compile(rb"^vllm:num_requests_(?:running|waiting|swapped)(?:\{[^}]*\})? (\S+)$", re.MULTILINE)


class Endpoint:
    """The server's HTTP side."""

    def __init__(self, address: str, model: str, keys: Path | None) -> None:
        """Take an address such as http://127.0.0.1:30001; raises ValueError for one without a port."""
        host, _, port = address[len("http://") :].rpartition(":")
        self._host, self._port = host.strip("[]"), int(port)
        self._model = model
        self._keys = keys
        self._last_key = ""

    def _get(self, path: str) -> tuple[int, bytes]:
        headers = {}
        if self._keys is not None:
            headers["Authorization"] = f"Bearer {self._key()}"
        connection = http.client.HTTPConnection(self._host, self._port, timeout=HTTP_TIMEOUT)
        try:
            connection.request("GET", path, headers=headers)
            answer = connection.getresponse()
            return answer.status, answer.read(1 << 20)
        finally:
            connection.close()

    def _key(self) -> str:
        """The first key; the last one that there was where the file is gone or empty, as the guard has it."""
        try:
            keys = self._keys.read_text(encoding="utf-8").split() if self._keys is not None else []
        except OSError:
            keys = []
        self._last_key = keys[0] if keys else self._last_key
        return self._last_key

    def problem(self, models: bool) -> str | None:
        """Ask /health, and /v1/models on request; None if all is well, else what is wrong."""
        try:
            status, _ = self._get("/health")
            if status != http.client.OK:
                return f"GET /health answers {status}"
            if not models:
                return None
            status, body = self._get("/v1/models")
            if status != http.client.OK:
                return f"GET /v1/models answers {status}"
            names = [str(model["id"]) for model in json.loads(body)["data"]]
        except (OSError, http.client.HTTPException) as failed:
            return f"no answer: {failed}"
        except (ValueError, KeyError, TypeError) as failed:
            return f"GET /v1/models answers something else than a list of models: {failed!r}"
        if self._model not in names:
            return f"GET /v1/models names {', '.join(names) or 'no model'}, not {self._model}"
        return None

    def requests(self) -> int | None:
        """How many requests the server's own metrics name, running or waiting; None where they name none.

        Raises OSError or http.client.HTTPException where the server does not answer; a busy one may not, for a while.
        """
        status, body = self._get("/metrics")
        counts = [float(count) for count in REQUESTS.findall(body)]
        return int(sum(counts)) if status == http.client.OK and counts else None


def port_problem(plan: Plan) -> str | None:
    """Try to take the port for a moment; say who has it if it is taken."""
    family = socket.AF_INET6 if ":" in plan.host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        # As the server does: a connection of the last run in TIME_WAIT is no obstacle.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((plan.host, plan.port))
            probe.listen(1)
        except socket.gaierror as failed:
            return f"The address {plan.host} is not known on this node ({failed.strerror})."
        except OSError as failed:
            if failed.errno == errno.EADDRNOTAVAIL:
                return f"The address {plan.host} is not an address of this node."
            if failed.errno != errno.EADDRINUSE:
                return f"Port {plan.port} on {plan.host} cannot be used: {failed.strerror}."
        else:
            return None
    try:
        listeners = run_command(["ss", "-H", "-l", "-t", "-n", "-p", f"sport = :{plan.port}"]).stdout
    except (FileNotFoundError, subprocess.TimeoutExpired):
        listeners = ""
    owners = sorted(set(re.findall(r'\("([^"]+)",pid=(\d+)', listeners)))
    who = ", ".join(f"{name} (pid {pid})" for name, pid in owners) or "another process"
    return f"Port {plan.port} on {plan.host} is taken by {who}. Stop it, or give the instance another port."
