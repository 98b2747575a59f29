"""Outside of a site, for tests: an authority, a server with its certificate, and a proxy that asks for an account."""

from __future__ import annotations

import base64
import http.server
import ipaddress
import select
import socket
import ssl
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import ClassVar
from urllib.parse import unquote

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


def name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


class CertificateAuthority:
    """A certificate of an authority, and those that it signs."""

    def __init__(self, text: str = "Site CA", days: int = 30) -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.name = name(text)
        self.certificate = self.signed(self.name, self.key.public_key(), authority=True, days=days)
        self.pem = self.certificate.public_bytes(serialization.Encoding.PEM).decode()

    @property
    def private(self) -> str:
        return self.key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        ).decode()

    def signed(
        self, subject: x509.Name, key: ec.EllipticCurvePublicKey, *, authority: bool = False, days: int = 30
    ) -> x509.Certificate:
        now = datetime.now(UTC)
        address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self.name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=60))
            .not_valid_after(now + timedelta(days=days))
            .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
            .add_extension(address, critical=False)
            .sign(self.key, hashes.SHA256())
        )

    def server(self, folder: Path) -> ssl.SSLContext:
        """The context of a server at 127.0.0.1."""
        key = ec.generate_private_key(ec.SECP256R1())
        file = folder / "server.pem"
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        certificate = self.signed(name("server"), key.public_key()).public_bytes(serialization.Encoding.PEM)
        file.write_bytes(private + certificate)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(file)
        return context


@contextmanager
def serving(handler: type[http.server.BaseHTTPRequestHandler], context: ssl.SSLContext | None = None) -> Iterator[int]:
    """Serve on a port of the loopback while the block runs."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    if context:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()


class AccountProxy:
    """A proxy that knows one account, and what it was asked for. Every host is the loopback."""

    def __init__(self, account: str) -> None:
        self.account = account
        self.asked: list[str] = []
        self.accounts: list[str] = []
        outer = self

        class AccountProxyHandler(http.server.BaseHTTPRequestHandler):
            # git asks again on the same connection.
            protocol_version = "HTTP/1.1"
            timeout = 10

            def log_message(self, format: str, *arguments: object) -> None:
                """Print nothing."""

            def knows(self) -> bool:
                kind, _, packed = self.headers.get("Proxy-Authorization", "").partition(" ")
                given = base64.b64decode(packed).decode() if kind == "Basic" else ""
                outer.asked.append(self.path)
                outer.accounts.append(given)
                if given != outer.account:
                    self.send_response(407)
                    self.send_header("Proxy-Authenticate", 'Basic realm="site"')
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                return given == outer.account

            def do_GET(self) -> None:
                if not self.knows():
                    return
                opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
                with opener.open(outer.here(self.path), timeout=10) as answer:
                    content = answer.read()
                self.send_response(200)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def do_CONNECT(self) -> None:
                if not self.knows():
                    return
                with socket.create_connection(("127.0.0.1", int(self.path.rpartition(":")[2])), 10) as other:
                    self.send_response(200)
                    self.end_headers()
                    ends = {self.connection: other, other: self.connection}
                    while True:
                        for end in select.select(list(ends), [], [], 10)[0]:
                            block = end.recv(65536)
                            if not block:
                                self.close_connection = True
                                return
                            ends[end].sendall(block)

        self.handler = AccountProxyHandler

    @staticmethod
    def here(address: str) -> str:
        """The same address on the loopback."""
        scheme, _, rest = address.partition("://")
        host, _, path = rest.partition("/")
        return f"{scheme}://127.0.0.1:{host.rpartition(':')[2]}/{path}"


@contextmanager
def proxy(encoded: str = "reader:p%40ss%25%3A%2F%23%24%20x") -> Iterator[tuple[str, AccountProxy]]:
    """A proxy for the account, as an address has it; yields its address and what it saw."""
    site = AccountProxy(unquote(encoded))
    with serving(site.handler) as port:
        yield f"http://{encoded}@127.0.0.1:{port}", site


class RedirectingServer(http.server.BaseHTTPRequestHandler):
    """A server or proxy that leads elsewhere, and what it was asked: paths, and accounts as they come."""

    asked: ClassVar[list[tuple[str, str | None]]] = []

    def log_message(self, format: str, *arguments: object) -> None:
        """Print nothing."""

    def do_GET(self) -> None:
        self.asked.append((self.path, self.headers.get("Authorization")))
        self.send_response(302)
        self.send_header("Location", "http://elsewhere.example/")
        self.send_header("Content-Length", "0")
        self.end_headers()


class KeyServer(http.server.BaseHTTPRequestHandler):
    """A server that has one text at every path."""

    content = b"-----BEGIN PGP PUBLIC KEY BLOCK-----\n"

    def log_message(self, format: str, *arguments: object) -> None:
        """Print nothing."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(self.content)))
        self.end_headers()
        self.wfile.write(self.content)
