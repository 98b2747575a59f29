"""A simulated forward proxy: CONNECT and plain requests, an account, and refusals of its own."""

from __future__ import annotations

import base64
import http.client
import select
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar
from urllib.parse import urlsplit


class SimulatedProxy:
    """What it demands, how it answers, and what it saw (method, host, whether an account was sent)."""

    def __init__(
        self, account: str = "", status: int = 0, host: str = "127.0.0.1", tls: ssl.SSLContext | None = None
    ) -> None:
        self.account = account  # USER:PASSWORD, empty for none
        self.status = status  # with which it refuses everything, 0 for none
        self.seen: list[tuple[str, str, bool]] = []
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        kind = type("Server", (ThreadingHTTPServer,), {"address_family": family})
        self.server = kind((host, 0), type("Of", (_Handler,), {"proxy": self}))
        if tls:
            self.server.socket = tls.wrap_socket(self.server.socket, server_side=True, do_handshake_on_connect=False)
        name = "localhost" if tls else f"[{host}]" if ":" in host else host
        self.address = f"{name}:{self.server.server_address[1]}"

    @property
    def methods(self) -> set[str]:
        """The methods of requests that carried the right account."""
        return {method for method, _, known in self.seen if known}


@contextmanager
def running(account: str = "", status: int = 0, **more: Any) -> Iterator[SimulatedProxy]:
    """A proxy that serves while the block runs."""
    proxy = SimulatedProxy(account, status, **more)
    threading.Thread(target=proxy.server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    try:
        yield proxy
    finally:
        proxy.server.shutdown()
        proxy.server.server_close()


class _Handler(BaseHTTPRequestHandler):
    proxy: ClassVar[SimulatedProxy]
    protocol_version = "HTTP/1.1"
    timeout = 60

    def log_message(self, format: str, *arguments: object) -> None:
        """Say nothing."""

    def refused(self, host: str) -> bool:
        """Whether the proxy answered itself."""
        pair = base64.b64encode(self.proxy.account.encode()).decode()
        known = not self.proxy.account or self.headers.get("Proxy-Authorization") == f"Basic {pair}"
        self.proxy.seen.append((self.command, host, known))
        status = self.proxy.status or (0 if known else 407)
        if status:
            self.send_response(status)
            if status == 407:
                self.send_header("Proxy-Authenticate", 'Basic realm="simulated"')
            self.send_header("X-Squid-Error", "ERR_ACCESS_DENIED 0")
            self.send_header("Content-Length", "0")
            self.end_headers()
        return bool(status)

    def do_CONNECT(self) -> None:
        """Connect, and pass bytes on in both directions until one side ends."""
        if self.refused(self.path):
            return
        host, _, port = self.path.rpartition(":")
        with socket.create_connection((host.strip("[]"), int(port)), 30) as other:
            self.send_response(200)
            self.end_headers()
            sides = {self.connection: other, other: self.connection}
            while True:
                # Of TLS, bytes that were read already are no event any more.
                held = [side for side in sides if isinstance(side, ssl.SSLSocket) and side.pending()]
                for side in held or select.select(list(sides), [], [], 60)[0]:
                    block = side.recv(65536)
                    if not block:
                        self.close_connection = True
                        return
                    sides[side].sendall(block)

    def do_GET(self) -> None:
        """Pass a plain request on."""
        parts = urlsplit(self.path)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.refused(parts.netloc):
            return
        other = http.client.HTTPConnection(parts.netloc, timeout=30)
        headers = {key: text for key, text in self.headers.items() if not key.lower().startswith("proxy-")}
        other.request(self.command, self.path.partition(parts.netloc)[2] or "/", body or None, headers)
        answer = other.getresponse()
        content = answer.read()
        self.send_response(answer.status)
        for key, text in answer.getheaders():
            if key.lower() not in ("content-length", "connection", "transfer-encoding"):
                self.send_header(key, text)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)
        other.close()

    do_POST = do_GET
