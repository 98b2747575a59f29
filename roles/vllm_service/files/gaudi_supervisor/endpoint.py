"""The server's side of the network: whether it answers, and who has its port."""

from __future__ import annotations

import contextlib
import errno
import http.client
import json
import socket
import urllib.parse

from gaudi.faults.words import remedy
from gaudi.node import listening
from gaudi.serving.load import Load
from gaudi.serving.load import read as read_load
from gaudi.serving.plan import Plan

from .clock import HTTP_TIMEOUT
from .engine import Docker
from .listening import Listening, Stranger, instance_at

# Bytes. The longest is that of the metrics.
LONGEST_ANSWER = 1 << 20


class Endpoint:
    """The server's HTTP side. Nothing is sent to anybody but the server's own container."""

    def __init__(self, address: str, model: str, token: str | None, sockets: Listening) -> None:
        """Take an address such as http://127.0.0.1:30001, and the token that a guard lets in.

        Raises ValueError for an address without a port.
        """
        where = urllib.parse.urlsplit(address)
        if where.port is None:
            raise ValueError(f"{address!r} has no port")
        self._url, self._name = address, f"port {where.port} of {where.hostname}"
        self._model = model
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._sockets = sockets
        # Who else listened at the last question, as a sentence.
        self.stranger: str | None = None
        # Whether the server listened at the last question, and no connection to it came through.
        self.shut = False
        # The server's own sockets at the last question.
        self.asked: frozenset[int] = frozenset()

    def _get(self, path: str) -> tuple[int, bytes]:
        """Ask. Raises OSError, of which Stranger says that it was not the server who listened."""
        self.stranger, self.shut = None, False
        try:
            connection, self.asked = listening.connected(self._url, self._sockets.sockets, timeout=HTTP_TIMEOUT)
        except Stranger as stranger:
            self.stranger = str(stranger)
            raise
        except (TimeoutError, socket.timeout) as failed:  # two classes before Python 3.10
            self.shut = True
            said = f"it listens, and no connection to {self._name} came through in {HTTP_TIMEOUT:g} s"
            raise TimeoutError(said) from failed
        with contextlib.closing(connection):
            return listening.answer(connection, path, self._headers, LONGEST_ANSWER)

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
        except (ValueError, KeyError, TypeError, RecursionError) as failed:
            return f"GET /v1/models answers something else than a list of models: {failed!r}"
        if self._model not in names:
            return f"GET /v1/models names {', '.join(names) or 'no model'}, not {self._model}"
        return None

    def load(self) -> Load | None:
        """What the server's own metrics say of its load; None where they say nothing.

        Raises OSError or http.client.HTTPException where the server does not answer; a busy one may not, for a while.
        """
        status, body = self._get("/metrics")
        return read_load(body.decode(errors="replace")) if status == http.client.OK else None


def port_problem(plan: Plan, docker: Docker) -> str | None:
    """Try to take the port for a moment; say who has it if it is taken, and which instance where it is one's."""
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
    address = plan.endpoint[len("http://") :].rpartition(":")[0].strip("[]")
    found = listening.listeners_at(socket.gethostbyname(address) if ":" not in address else address, plan.port)
    who = ", ".join(map(listening.describe, found)) or "another process"
    taken = f"Port {plan.port} on {plan.host} is taken by"
    other = next(filter(None, (instance_at(listener, docker) for listener in found)), None)
    if other:
        return f"{taken} the instance {other}: {who}. {remedy('port-taken', 'instance', other=other)}"
    return f"{taken} {who}. {remedy('port-taken')}"
