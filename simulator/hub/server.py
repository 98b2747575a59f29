"""A simulated hub's two servers: the hub itself, and the delivery network it redirects to."""

from __future__ import annotations

import contextlib
import fnmatch
import json
import secrets
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import parse_qs, quote, unquote, urlsplit

from simulator.hub import xet
from simulator.hub.content import HubFile, HubRepository

BLOCK = 64 * 1024
# Sent at once while no rate is kept: the kernel copies, and this process hardly notices.
LARGE_BLOCK = 4 * 1024 * 1024


class HubServer(ThreadingHTTPServer):
    """Takes many connections at once."""

    request_queue_size = 128


@dataclass
class HubFault:
    """Something that goes wrong with files whose name matches, so many times.

    status: answer with it (and Retry-After, if retry_after is set, headers and body); cut_after: close the connection
    after so many bytes of an answer; flip: turn the bits of one byte of it; ignore_range: send the whole file whatever
    was asked; rate: bytes per second of one answer. where: "list", "resolve" or "content", and for files in Xet storage
    "access", "reconstruction" or "xorb"; of those three only xorbs can be cut or flipped.
    """

    name: str = "*"
    where: str = "content"
    times: int = 1
    status: int = 0
    retry_after: str | None = None
    cut_after: int | None = None
    flip: bool = False
    ignore_range: bool = False
    rate: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""


@dataclass(frozen=True)
class SeenRequest:
    """One request as the hub saw it."""

    where: str
    method: str
    path: str
    range: str | None
    token: str | None
    proxied: bool


class SimulatedHub:
    """Repositories, faults, and what was seen. Two servers on free ports of one address while open."""

    def __init__(
        self,
        address: str = "127.0.0.1",
        name: str | None = None,
        port: int = 0,
        cdn_port: int = 0,
        front: type[HubHandler] | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.repositories: dict[str, HubRepository] = {}
        self.tokens: set[str] = set()
        self.faults: list[HubFault] = []
        self.seen: list[SeenRequest] = []
        self.sent = 0  # bytes of content
        self.say: Callable[[str], None] = lambda text: None  # hears of every answer with content
        self.rate = 0  # bytes per second of all answers together, 0 for no limit
        self.away = False  # whether connections end without an answer
        self.xet = False  # whether large files are in Xet storage, too
        self.lock = threading.Lock()
        self.free_at = time.monotonic()
        # Signs addresses of the delivery network; without it they answer 403.
        self.signature = secrets.token_hex(16)
        self.servers = [
            HubServer((address, number), type(f"{kind.__name__}Of", (kind,), {"hub": self}))
            for kind, number in ((front or Front, port), (Delivery, cdn_port))
        ]
        if tls:
            for server in self.servers:
                # The handshake is each connection's own: one that fails or waits keeps no other from connecting.
                server.socket = tls.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        host, scheme = name or address, "https" if tls else "http"
        self.endpoint, self.delivery = (f"{scheme}://{host}:{server.server_address[1]}" for server in self.servers)

    def repository(self, name: str, folder: Path, **more: Any) -> HubRepository:
        """Add a repository with one commit of a folder's files."""
        made = self.repositories.setdefault(name, HubRepository(name, **more))
        made.add(folder)
        return made

    def signed(self, name: str, file: HubFile) -> str:
        """The delivery network's address of a repository's file."""
        return f"{self.delivery}/{file.sha256}?name={quote(name)}&signature={self.signature}"

    def xorb_signed(self, file: HubFile, number: int) -> str:
        """The delivery network's address of a part of a file in Xet storage."""
        return f"{self.delivery}/xorbs/{file.sha256}/{number}?signature={self.signature}"

    def stored(self, sha256: str) -> HubFile | None:
        """The file with this checksum, of whatever repository."""
        commits = [commit for repository in self.repositories.values() for commit in repository.commits.values()]
        return next((file for commit in commits for file in commit.values() if file.sha256 == sha256), None)

    def fault(self, where: str, name: str) -> HubFault | None:
        """Take a fault that is due for a file."""
        with self.lock:
            for fault in self.faults:
                if fault.where == where and fault.times > 0 and fnmatch.fnmatchcase(name, fault.name):
                    fault.times -= 1
                    return fault
        return None

    def pay(self, size: int, rate: int, since: float, before: int) -> None:
        """Count bytes that are sent, and wait as long as the limits of the hub and of this answer want."""
        with self.lock:
            self.sent += size
            due = since + (before + size) / rate if rate else 0.0
            if self.rate:
                self.free_at = max(self.free_at, time.monotonic()) + size / self.rate
                due = max(due, self.free_at)
        time.sleep(max(0.0, due - time.monotonic()))

    def serve(self) -> None:
        """Serve until closed."""
        for server in self.servers:
            threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def close(self) -> None:
        """Stop serving."""
        for server in self.servers:
            server.shutdown()
            server.server_close()


@contextmanager
def running(**more: Any) -> Iterator[SimulatedHub]:
    """A hub that serves while the block runs."""
    hub = SimulatedHub(**more)
    hub.serve()
    try:
        yield hub
    finally:
        hub.close()


class HubHandler(BaseHTTPRequestHandler):
    """What both servers have in common."""

    hub: ClassVar[SimulatedHub]
    where: ClassVar[str]
    protocol_version = "HTTP/1.1"
    timeout = 60

    def log_message(self, format: str, *arguments: object) -> None:
        """Say nothing: what was asked is in hub.seen."""

    def handle(self) -> None:
        """Answer until the client has had enough, however it goes."""
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            super().handle()

    def do_HEAD(self) -> None:
        """Answer without a body."""
        self.do_GET()

    def do_GET(self) -> None:
        """Note the request, then answer it."""
        if self.hub.away:
            self.hang_up()
            return
        parts = urlsplit(self.path)
        self.token = self.token_sent()
        # A client that goes through a proxy sends the whole address; the hub is its own proxy.
        with self.hub.lock:
            self.hub.seen.append(
                SeenRequest(
                    self.where, self.command, parts.path, self.headers.get("Range"), self.token, bool(parts.netloc)
                )
            )
        self.answer([unquote(part) for part in parts.path.strip("/").split("/")], parse_qs(parts.query))

    def token_sent(self) -> str | None:
        """The token a request carries."""
        return self.headers.get("Authorization", "").removeprefix("Bearer ") or None

    def answer(self, path: list[str], query: dict[str, list[str]]) -> None:
        """Answer a request for a path."""
        raise NotImplementedError

    def hang_up(self) -> None:
        """End the connection whatever was promised."""
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)

    def send(self, status: int, headers: dict[str, str], body: bytes = b"") -> None:
        """Send a short answer."""
        self.send_response(status)
        for key, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(key, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def send_json(self, content: object, status: int = 200) -> None:
        """Send JSON."""
        self.send(status, {"Content-Type": "application/json"}, json.dumps(content).encode())

    def refuse(self, status: int, code: str = "", message: str = "", **headers: str) -> None:
        """Refuse as the real hub does."""
        said = {"X-Error-Code": code} if code else {}
        if message:
            said["X-Error-Message"] = message
        self.send(status, {**said, **headers}, json.dumps({"error": message}).encode())

    def failed(self, fault: HubFault | None) -> bool:
        """Whether a fault answered in place of the hub."""
        if fault is None or not fault.status:
            return False
        asked = {"Retry-After": fault.retry_after} if fault.retry_after else {}
        self.send(fault.status, {**fault.headers, **asked}, fault.body)
        return True

    def send_file(self, file: HubFile, headers: dict[str, str]) -> None:
        """Send a file or the range that was asked for."""
        fault = self.hub.fault("content", file.name) if self.command == "GET" else None
        if self.failed(fault):
            return
        start, asked = 0, self.headers.get("Range")
        if asked and not (fault and fault.ignore_range):
            start = int(asked.removeprefix("bytes=").split("-")[0])
            if start >= file.size:
                self.send(416, {"Content-Range": f"bytes */{file.size}"})
                return
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{file.size - 1}/{file.size}")
        else:
            self.send_response(200)
        for key, value in {**headers, "Accept-Ranges": "bytes", "Content-Length": str(file.size - start)}.items():
            self.send_header(key, value)
        self.end_headers()
        if self.command == "HEAD":
            return
        try:
            self.send_content(file, start, fault or HubFault())
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def send_content(self, file: HubFile, start: int, fault: HubFault) -> None:
        """Send the bytes, as whole and as fast as the fault lets them."""
        since, sent, size = time.monotonic(), 0, file.size - start
        end = size if fault.cut_after is None else min(size, fault.cut_after)
        with file.path.open("rb") as stream:
            if fault.flip:
                self.wfile.write(bytes([stream.read(start + 1)[start] ^ 0xFF]))
                sent = 1
            while sent < end and not self.hub.away:
                block = BLOCK if fault.rate or self.hub.rate else LARGE_BLOCK
                count = self.connection.sendfile(stream, start + sent, min(block, end - sent))
                self.hub.pay(count, fault.rate, since, sent)
                sent += count
        self.hub.say(f"{sent} bytes of {file.name} to {self.client_address[0]}")
        if sent < size:
            self.hang_up()


class Front(HubHandler):
    """The hub: model info, trees, and where files are."""

    where = "hub"

    def answer(self, path: list[str], query: dict[str, list[str]]) -> None:
        """Route as the real hub does."""
        if path[:3] == ["api", "resolve-cache", "models"] and len(path) > 6:
            self.cached("/".join(path[3:5]), path[5], "/".join(path[6:]))
        elif path[:2] == ["api", "models"] and len(path) >= 4:
            self.api("/".join(path[2:4]), path[4:], query)
        elif len(path) > 4 and path[2] == "resolve":
            self.resolve("/".join(path[:2]), path[3], "/".join(path[4:]))
        else:
            self.refuse(404, "", "Not Found")

    def readable(self, name: str) -> HubRepository | None:
        """The repository, if whoever asks may read it; otherwise it has been refused."""
        repository = self.hub.repositories.get(name)
        known = self.token in self.hub.tokens
        if self.token is not None and not known:
            self.refuse(401, "", "Invalid credentials in Authorization header")
        elif repository is None or (repository.private and not known):
            self.refuse(404 if known else 401, "RepoNotFound", "Repository not found")
        elif repository.gated and not known:
            self.refuse(401, "GatedRepo", f"Access to model {name} is restricted. You must be authenticated.")
        else:
            return repository
        return None

    def api(self, name: str, rest: list[str], query: dict[str, list[str]]) -> None:
        """Describe a revision."""
        if self.failed(self.hub.fault("list", name)):
            return
        repository = self.readable(name)
        if repository is None:
            return
        revision = rest[1] if len(rest) > 1 else "main"
        commit = repository.commit(revision)
        if commit is None:
            self.refuse(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        elif rest[:1] == ["xet-read-token"]:
            self.xet_access()
        elif rest[:1] == ["tree"]:
            self.send_json([file.leaf() for file in repository.commits[commit].values()])
        else:
            blobs = query.get("blobs", ["false"])[0].lower() == "true"
            self.send_json(
                {
                    "id": name,
                    "modelId": name,
                    "sha": commit,
                    "private": repository.private,
                    "gated": "manual" if repository.gated else False,
                    "tags": [],
                    "siblings": [file.sibling(blobs) for file in repository.commits[commit].values()],
                }
            )

    def xet_access(self) -> None:
        """Give access to Xet storage: a token of its own, for an hour."""
        if not self.failed(self.hub.fault("access", "")):
            token = {"accessToken": self.hub.signature, "exp": int(time.time()) + 3600, "casUrl": self.hub.delivery}
            self.send_json(token)

    def resolve(self, name: str, revision: str, filename: str) -> None:
        """Say where a file is: with the delivery network for LFS files, in the hub's own cache for the rest."""
        if self.failed(self.hub.fault("resolve", filename)):
            return
        repository = self.readable(name)
        if repository is None:
            return
        commit = repository.commit(revision)
        if commit is None:
            self.refuse(404, "RevisionNotFound", f"Invalid rev id: {revision}")
            return
        file = repository.commits[commit].get(filename)
        if file is None:
            self.refuse(404, "EntryNotFound", "Entry not found")
            return
        if file.lfs:
            self.send(
                302,
                {
                    "Location": self.hub.signed(name, file),
                    "X-Repo-Commit": commit,
                    "X-Linked-Size": str(file.size),
                    "X-Linked-Etag": f'"{file.sha256}"',
                    **self.xet_headers(name, commit, file),
                },
            )
        else:
            self.send(
                307,
                {
                    "Location": f"/api/resolve-cache/models/{name}/{commit}/{quote(filename)}",
                    "X-Repo-Commit": commit,
                    "ETag": f'"{file.oid}"',
                },
            )

    def xet_headers(self, name: str, commit: str, file: HubFile) -> dict[str, str]:
        """What the hub says of a file that is in Xet storage, too. Its name there is its checksum here."""
        if not self.hub.xet:
            return {}
        access = f"{self.hub.endpoint}/api/models/{name}/xet-read-token/{commit}"
        return {"X-Xet-Hash": file.sha256, "Link": f'<{access}>; rel="xet-auth"'}

    def cached(self, name: str, commit: str, filename: str) -> None:
        """Send a small file."""
        repository = self.readable(name)
        if repository is not None:
            file = repository.commits[commit][filename]
            self.send_file(file, {"X-Repo-Commit": commit, "ETag": f'"{file.oid}"'})


class Delivery(HubHandler):
    """The delivery network: LFS content by checksum, for signed addresses."""

    where = "delivery"

    def answer(self, path: list[str], query: dict[str, list[str]]) -> None:
        """Send content, or of Xet storage what a file is made of, or some of that."""
        if path[:2] == ["v1", "reconstructions"]:
            self.reconstruction(path[2])
        elif path[0] == "v2":
            self.send(404, {})  # the client asks again in the first version
        elif query.get("signature") != [self.hub.signature]:
            self.send(403, {})
        elif path[0] == "xorbs":
            self.xorb(path[1], int(path[2]))
        elif (file := self.hub.stored(path[0])) is not None:
            self.send_file(file, {"ETag": f'"{file.sha256}"'})
        else:
            self.send(404, {})

    def reconstruction(self, xet_hash: str) -> None:
        """How a file is put together."""
        file = self.hub.stored(xet_hash)
        if self.token != self.hub.signature:
            self.send(401, {})
        elif file is None:
            self.send(404, {})
        elif not self.failed(self.hub.fault("reconstruction", file.name)):
            start, end = self.range_asked(file.size)
            self.send_json(xet.reconstruction(file, start, end, partial(self.hub.xorb_signed, file)))

    def xorb(self, sha256: str, number: int) -> None:
        """Some of the pieces a file is made of."""
        file = self.hub.stored(sha256)
        if file is None:
            self.send(404, {})
            return
        fault = self.hub.fault("xorb", file.name)
        if self.failed(fault):
            return
        packed = bytearray(xet.xorb(file, number))
        start, end = self.range_asked(len(packed))
        if fault and fault.flip:
            packed[start + xet.HEADER] ^= 0xFF
        self.send_response(206)
        self.send_header("Content-Range", f"bytes {start}-{end - 1}/{len(packed)}")
        self.send_header("Content-Length", str(end - start))
        self.end_headers()
        since, until = time.monotonic(), end
        if fault and fault.cut_after is not None:
            until = min(end, start + fault.cut_after)
        for at in range(start, until, BLOCK):
            block = packed[at : min(at + BLOCK, until)]
            self.wfile.write(block)
            self.hub.pay(len(block), fault.rate if fault else 0, since, at - start)
        self.hub.say(f"{until - start} bytes of {file.name} over Xet to {self.client_address[0]}")
        if until < end:
            self.hang_up()

    def range_asked(self, size: int) -> tuple[int, int]:
        """The first byte asked for and the one after the last."""
        first, _, last = self.headers.get("Range", "bytes=0-").removeprefix("bytes=").partition("-")
        return int(first), min(int(last) + 1 if last else size, size)
