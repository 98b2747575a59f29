"""Whole fetches through proxies, over TLS, and from hubs that limit requests: the program as the job runs it."""

from __future__ import annotations

import contextlib
import datetime
import ipaddress
import json
import os
import re
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import urllib3
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from gaudi.base.refusal import Refusal
from gaudi.weights.hub_kinds import KINDS
from gaudi_weights import fetch, hub_huggingface, network, transfer
from gaudi_weights import request as request_module
from gaudi_weights.model import RemoteFile, SourceFailure
from gaudi_weights.progress import TransferProgress

from simulator.hub import git, proxy
from simulator.hub.modelscope import ModelScopeFront
from simulator.hub.server import HubFault, SimulatedHub, running
from tests.integration.weights.test_program import describe, environment
from tests.unit.node.outside import CertificateAuthority
from tests.unit.weights.models import MODEL, SERVED, LeapingClock, requested, source, write_model

ACCOUNT = "us er:p@ss/%:ä"
WRITTEN = "us%20er:p%40ss%2F%25%3A%C3%A4"


class AuthorityFolder:
    """A site's own CA in files of a folder."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder = folder
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "Site CA")])
        usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
        made = self.begun(self.name, self.key).add_extension(x509.BasicConstraints(True, None), True)
        self.certificate = made.add_extension(usage, True).sign(self.key, hashes.SHA256())
        self.file = folder / "ca.pem"
        self.file.write_bytes(self.certificate.public_bytes(serialization.Encoding.PEM))

    def begun(self, name: x509.Name, key: ec.EllipticCurvePrivateKey, expired: bool = False) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        ends = now + datetime.timedelta(days=-1 if expired else 30)
        begun = x509.CertificateBuilder(self.name, name, key.public_key(), x509.random_serial_number())
        return begun.not_valid_before(now - datetime.timedelta(days=9)).not_valid_after(ends)

    def server(self, host: str = "localhost", expired: bool = False) -> ssl.SSLContext:
        """TLS of a server by this name."""
        key = ec.generate_private_key(ec.SECP256R1())
        names: list[x509.GeneralName] = [x509.DNSName(host)]
        if host == "localhost":
            names.append(x509.IPAddress(ipaddress.ip_address("127.0.0.1")))
        made = self.begun(x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, host)]), key, expired)
        made = made.add_extension(x509.SubjectAlternativeName(names), False)
        file = self.folder / "server.pem"
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        certificate = made.sign(self.key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
        file.write_bytes(private + certificate)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(file)
        return context


@pytest.fixture
def authority(tmp_path: Path) -> AuthorityFolder:
    """A site's own CA."""
    return AuthorityFolder(tmp_path / "authority")


@contextmanager
def serve(kind: str, tmp_path: Path, **more: Any) -> Iterator[SimulatedHub]:
    """A hub of a kind with the small model."""
    host = type("Host", (git.GitHost,), {"root": tmp_path / "bare"})
    with running(front={"modelscope": ModelScopeFront, "git": host}.get(kind), **more) as hub:
        folder = write_model(tmp_path / "hub", size=20_000)
        if kind == "git":
            git.publish(hub, MODEL, folder, tmp_path / "bare")
        else:
            hub.repository(MODEL, folder)
        yield hub


def run(tmp_path: Path, request: Path, before: list[str] | None = None, **more: str) -> tuple[int, str]:
    """Run the program to its end; its status and text."""
    command = [*(before or []), sys.executable, "-m", "gaudi_weights", "fetch", str(request)]
    done = subprocess.run(
        command,
        env={**environment(tmp_path), "HF_HUB_DISABLE_TELEMETRY": "1", **more},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stdout + done.stderr


def whole(tmp_path: Path) -> bool:
    """Whether the model has arrived."""
    return all((tmp_path / "models/Small-Model" / name).is_file() for name in SERVED)


@pytest.mark.report("W01")
@pytest.mark.parametrize("tls", [False, True], ids=["plain", "connect"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_proxy_gets_its_account_for_the_list_and_the_bytes(
    kind: str, tls: bool, authority: AuthorityFolder, tmp_path: Path
) -> None:
    more = {"name": "localhost", "tls": authority.server()} if tls else {}
    with serve(kind, tmp_path, **more) as hub, proxy.running(ACCOUNT) as through:
        address = f"http://{WRITTEN}@{through.address}"
        request = describe(tmp_path, hub, source={"kind": kind, "proxy": address})
        status, said = run(tmp_path, request, SSL_CERT_FILE=str(authority.file) if tls else "")
        assert status == 0, said
        hosts = {host for _, host, known in through.seen if known}
        # Nothing went around it: neither the list nor the delivery network's bytes.
        assert hosts == {hub.endpoint.partition("//")[2], hub.delivery.partition("//")[2]}
        assert through.methods <= ({"CONNECT"} if tls else {"GET", "POST"})
    assert whole(tmp_path)
    assert "p@ss" not in said
    assert "p%40ss" not in said


@pytest.mark.report("W01")
@pytest.mark.parametrize(
    ("kind", "how"),
    # git with curl 7.88 and GnuTLS (Debian 12) waits for ever behind a proxy that is reached over TLS.
    [(kind, how) for kind in KINDS for how in ("tls", "ipv6") if (kind, how) != ("git", "tls")],
)
def test_a_proxy_may_be_reached_over_tls_and_over_ipv6(
    kind: str, how: str, authority: AuthorityFolder, tmp_path: Path
) -> None:
    context = authority.server()
    more = {"tls": context} if how == "tls" else {"host": "::1"}
    with serve(kind, tmp_path, name="localhost", tls=context) as hub, proxy.running(ACCOUNT, **more) as through:
        address = f"{'https' if how == 'tls' else 'http'}://{WRITTEN}@{through.address}"
        request = describe(tmp_path, hub, source={"kind": kind, "proxy": address})
        status, said = run(tmp_path, request, SSL_CERT_FILE=str(authority.file))
        assert status == 0, said
        assert {host for _, host, known in through.seen if known} == {
            hub.endpoint.partition("//")[2],
            hub.delivery.partition("//")[2],
        }


@pytest.mark.report("W01")
@pytest.mark.parametrize(
    ("account", "status", "words"),
    [
        ("user:wrong@", 0, ["refuses the account", "407"]),
        ("", 0, ["wants an account", "407"]),
        (f"{WRITTEN}@", 403, ["does not connect to", "403"]),
    ],
    ids=["wrong", "none", "forbidden"],
)
@pytest.mark.parametrize("kind", KINDS)
def test_a_proxy_that_refuses_is_named_at_once(
    kind: str, account: str, status: int, words: list[str], authority: AuthorityFolder, tmp_path: Path
) -> None:
    with (
        serve(kind, tmp_path, name="localhost", tls=authority.server()) as hub,
        proxy.running(ACCOUNT, status) as through,
    ):
        request = describe(tmp_path, hub, source={"kind": kind, "proxy": f"http://{account}{through.address}"})
        ended, said = run(tmp_path, request, SSL_CERT_FILE=str(authority.file))
        assert hub.seen == []
        # Asked for the list, and where the client hides the cause again, not for a quarter of an hour.
        assert len(through.seen) <= 4
    assert ended == 1
    assert f"the proxy http://{through.address}" in said
    for word in words:
        assert word in said
    assert "wrong" not in said.replace("wrong account", "")
    assert "ss%2F" not in said


@pytest.mark.report("W01")
@pytest.mark.parametrize("kind", KINDS)
def test_a_proxy_that_is_not_there_is_named_and_not_the_hub(kind: str, tmp_path: Path) -> None:
    with serve(kind, tmp_path) as hub:
        away = {"kind": kind, "proxy": "http://user:secret@127.0.0.1:1"}
        status, said = run(tmp_path, describe(tmp_path, hub, source=away, wait_limit=0))
    assert (status, hub.seen) == (1, [])
    assert "its proxy http://127.0.0.1:1 cannot be reached" in said
    assert "secret" not in said


@pytest.mark.report("W01")
def test_a_proxy_that_refuses_bytes_alone_is_final(tmp_path: Path) -> None:
    """As one that lets the hub through and not its delivery network."""
    with serve("huggingface", tmp_path) as hub, proxy.running() as through:
        hub.faults = [HubFault("*.safetensors", status=407, times=99, headers={"Proxy-Authenticate": "Basic"})]
        began = time.monotonic()
        request = describe(tmp_path, hub, source={"proxy": f"http://{through.address}"})
        status, said = run(tmp_path, request)
    assert status == 1
    assert "wants an account (407)" in said
    assert time.monotonic() - began < 60


@pytest.mark.parametrize("kind", ["huggingface", "modelscope"])
def test_a_proxy_that_may_have_answered_in_place_of_the_hub_is_named(kind: str, tmp_path: Path) -> None:
    with serve(kind, tmp_path) as hub, proxy.running(ACCOUNT, 403) as through:
        request = describe(tmp_path, hub, source={"kind": kind, "proxy": f"http://{WRITTEN}@{through.address}"})
        status, said = run(tmp_path, request)
        assert (status, hub.seen) == (1, [])
    assert f"the proxy http://{through.address}" in said
    assert "403" in said


@pytest.mark.parametrize(
    ("host", "exceptions", "direct"),
    [
        ("hub.example.com", "example.com", True),
        ("hub.example.com", ".example.com other.example", True),
        ("hub.example.com", "*.example.com:443", True),
        ("hub.myexample.com", "example.com", False),
        ("10.1.2.3", "10.0.0.0/8", True),
        ("10.1.2.3", "10.1.2.4, 1.2.3", False),
        ("fd00::1", "[fd00::1]", True),
        ("hub.example.com", "", False),
        ("hub.example.com", "*", True),
    ],
)
def test_which_hosts_are_exceptions(host: str, exceptions: str, direct: bool) -> None:
    assert request_module.without_proxy(host, exceptions) is direct


@pytest.mark.parametrize("exceptions", ["127.0.0.1", "127.0.0.0/8", "*", "example.com, 127.0.0.1"])
@pytest.mark.report("W01")
def test_hosts_that_are_exceptions_are_reached_without_the_proxy(exceptions: str, tmp_path: Path) -> None:
    with serve("huggingface", tmp_path) as hub:
        away = {"proxy": "http://127.0.0.1:1", "no_proxy": exceptions}
        status, said = run(tmp_path, describe(tmp_path, hub, source=away))
    assert status == 0, said


@pytest.mark.parametrize("address", ["socks5://proxy:1080", "proxy:3128", "http://", "http://proxy:port"])
def test_a_proxy_that_cannot_be_used_is_refused_by_name(address: str, tmp_path: Path) -> None:
    with serve("huggingface", tmp_path) as hub:
        request = describe(tmp_path, hub)
        content = json.loads(request.read_text())
        content["sources"][0]["proxy"] = address
        request.write_text(json.dumps(content))
        status, said = run(tmp_path, request)
    assert (status, hub.seen) == (1, [])
    assert "proxy of source hub" in said
    assert json.loads((tmp_path / "result.json").read_text())["refused_id"] == "proxy_unusable"


class TestCertificates:
    """A hub whose certificate is of the site's own CA, or does not hold."""

    @pytest.mark.report("W04")
    @pytest.mark.parametrize("kind", KINDS)
    def test_the_trust_store_of_the_node_counts_for_every_kind(
        self, kind: str, authority: AuthorityFolder, tmp_path: Path
    ) -> None:
        store = Path("/etc/ssl/certs/ca-certificates.crt")
        if not store.is_file():
            pytest.skip("this machine keeps its trust store elsewhere")
        (tmp_path / "store").write_bytes(store.read_bytes() + authority.file.read_bytes())
        own = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
        script = f'mount --bind {tmp_path / "store"} {store}; exec "$@"'
        with serve(kind, tmp_path, name="localhost", tls=authority.server()) as hub:
            request = describe(tmp_path, hub, source={"kind": kind})
            status, said = run(tmp_path, request, ["unshare", *own, "--mount", "sh", "-c", script, "sh"])
        assert status == 0, said

    @pytest.mark.report("W04")
    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize(
        ("host", "expired", "trusted", "words"),
        [
            ("localhost", False, False, "issued by a CA that this node does not trust"),
            ("localhost", True, True, "has expired"),
            ("other.example.com", False, True, "is for another name"),
        ],
        ids=["untrusted", "expired", "name"],
    )
    def test_a_certificate_that_does_not_hold_is_named_at_once(
        self, kind: str, host: str, expired: bool, trusted: bool, words: str, authority: AuthorityFolder, tmp_path: Path
    ) -> None:
        with serve(kind, tmp_path, name="localhost", tls=authority.server(host, expired)) as hub:
            request = describe(tmp_path, hub, source={"kind": kind})
            status, said = run(tmp_path, request, SSL_CERT_FILE=str(authority.file) if trusted else "")
        assert (status, hub.seen) == (1, [])
        assert words in said
        assert f"the certificate of {hub.endpoint.partition('//')[2]}" in said
        assert ("gaudi_ca_certificates" in said) is not trusted
        assert "cannot be reached" not in said

    @pytest.mark.parametrize("kind", KINDS)
    def test_certificates_of_the_site_that_lack_a_hubs_authority_are_named(
        self, kind: str, authority: AuthorityFolder, tmp_path: Path
    ) -> None:
        other = tmp_path / "other.pem"
        other.write_text(CertificateAuthority("Other CA").pem)
        with serve(kind, tmp_path, name="localhost", tls=authority.server()) as hub:
            status, said = run(tmp_path, describe(tmp_path, hub, source={"kind": kind}), SSL_CERT_FILE=str(other))
        assert (status, hub.seen) == (1, [])
        assert f"{other} does not contain the authority" in said

    @pytest.mark.parametrize("content", [None, "no certificate"])
    def test_a_bundle_without_certificates_is_refused_by_name(self, content: str | None, tmp_path: Path) -> None:
        file = tmp_path / "site.pem"
        if content:
            file.write_text(content)
        with serve("huggingface", tmp_path) as hub:
            status, said = run(tmp_path, describe(tmp_path, hub), SSL_CERT_FILE=str(file))
        assert (status, hub.seen) == (1, [])
        assert str(file) in said
        assert json.loads((tmp_path / "result.json").read_text())["refused_id"] == "ca_unusable"


LIMITS = {
    "retry-after": ({"Retry-After": "300"}, 300),
    "windows": ({"RateLimit": '"api";r=0;t=170', "RateLimit-Policy": '"fixed window";"api";q=500;w=300'}, 170),
}


class TestLimits:
    """A hub that answers 429 to the list."""

    @pytest.mark.report("W03")
    @pytest.mark.parametrize("limit", LIMITS)
    @pytest.mark.parametrize("kind", KINDS)
    def test_a_list_is_waited_for_as_the_hub_asks(
        self, kind: str, limit: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        # The program sets it before the library is loaded, which other tests have done here.
        monkeypatch.setattr("modelscope_hub._legacy_api.REPO_TREE_PAGE_MAX_ATTEMPTS", 1)
        headers, seconds = LIMITS[limit]
        told: list[dict[str, Any]] = []
        with serve(kind, tmp_path) as hub:
            # git and the request that asks for its cause meet it.
            hub.faults = [HubFault(where="list", status=429, headers=headers, times=2 if kind == "git" else 1)]
            leap = LeapingClock(lambda now: told.append(json.loads((tmp_path / "progress.json").read_text())))
            fetch.fetch(requested(tmp_path, source(hub, kind=kind)), TransferProgress(tmp_path / "progress.json"), leap)
        assert seconds - 2 < leap.now < seconds + 2
        assert "too many requests" in told[0]["waiting"]
        assert re.search(r"the next time at (\S+ )?\d\d:\d\d:\d\d UTC", told[0]["waiting"])
        assert whole(tmp_path)

    @pytest.mark.report("W03")
    @pytest.mark.parametrize("kind", KINDS)
    def test_the_program_waits_and_goes_on(self, kind: str, tmp_path: Path) -> None:
        with serve(kind, tmp_path) as hub:
            hub.faults = [HubFault(where="list", status=429, retry_after="1", times=2 if kind == "git" else 1)]
            status, said = run(tmp_path, describe(tmp_path, hub, source={"kind": kind}))
        assert status == 0, said

    @pytest.mark.report("W03")
    @pytest.mark.parametrize("kind", KINDS)
    def test_a_longer_wait_than_the_limit_is_named_with_its_end(self, kind: str, tmp_path: Path) -> None:
        with serve(kind, tmp_path) as hub:
            hub.faults = [HubFault(where="list", status=429, retry_after="7200", times=99)]
            status, said = run(tmp_path, describe(tmp_path, hub, source={"kind": kind}, wait_limit=600))
            assert len(hub.seen) <= 3
        assert status == 1
        assert re.search(r"asks to wait until (\S+ )?\d\d:\d\d:\d\d UTC \((7200|7199) s\)", said)
        assert "600 s" in said

    @pytest.mark.report("W03")
    def test_a_limit_of_one_hub_does_not_keep_the_next_from_serving(self, hub: SimulatedHub, tmp_path: Path) -> None:
        hub.faults = [HubFault(where="list", status=429, retry_after="300", times=99)]
        with serve("modelscope", tmp_path / "other") as other:
            leap = LeapingClock()
            both = requested(tmp_path, source(hub), source(other, name="other", kind="modelscope"))
            assert fetch.fetch(both, TransferProgress(None), leap)["source"] == "other"
        assert leap.now == 0

    @pytest.mark.report("W03")
    def test_waiting_has_an_end(self, hub: SimulatedHub, tmp_path: Path) -> None:
        hub.faults = [HubFault(where="list", status=429, retry_after="300", times=99)]
        leap = LeapingClock()
        asked = replace(requested(tmp_path, source(hub)), wait_limit=900)
        with pytest.raises(Refusal, match="too many requests"):
            fetch.fetch(asked, TransferProgress(None), leap)
        assert leap.now <= 900


QUOTA = b'{"message": "This repository is over its data quota.", "documentation_url": "https://help.example.com"}'


class TestMessages:
    """What a hub says itself."""

    @pytest.mark.report("W07")
    @pytest.mark.parametrize("where", ["list", "resolve"])
    @pytest.mark.parametrize("kind", KINDS)
    def test_a_quota_is_quoted_and_no_licence_is_blamed(self, kind: str, where: str, tmp_path: Path) -> None:
        with serve(kind, tmp_path) as hub:
            hub.faults = [HubFault(where=where, status=403, times=99, body=QUOTA)]
            status, said = run(tmp_path, describe(tmp_path, hub, source={"kind": kind}))
        assert status == 1
        assert 'It says: "This repository is over its data quota."' in said
        assert "licence" not in said
        assert "token" not in said

    @pytest.mark.report("W07")
    @pytest.mark.parametrize("kind", KINDS)
    def test_a_refused_account_is_quoted(self, kind: str, tmp_path: Path) -> None:
        with serve(kind, tmp_path) as hub:
            hub.faults = [
                HubFault(where="list", status=401, times=99, body=b'{"message": "This mirror wants a login"}')
            ]
            status, said = run(tmp_path, describe(tmp_path, hub, source={"kind": kind}))
        assert status == 1
        assert 'It says: "This mirror wants a login"' in said
        assert "token" in said

    @pytest.mark.report("W08")
    @pytest.mark.parametrize("status", [401, 403])
    def test_a_gated_file_of_an_open_list_names_the_licence(self, status: int, tmp_path: Path) -> None:
        headers = {"X-Error-Code": "GatedRepo", "X-Error-Message": "Access to model maker/Small-Model is restricted."}
        with serve("huggingface", tmp_path) as hub:
            hub.faults = [HubFault(where="resolve", status=status, times=99, headers=headers)]
            ended, said = run(tmp_path, describe(tmp_path, hub))
        assert ended == 1
        assert "accept the model's licence" in said
        assert "token" in said

    @pytest.mark.report("W07")
    @pytest.mark.parametrize("status", [402, 451, 507, 509])
    def test_other_final_answers_are_quoted_at_once(self, status: int, tmp_path: Path) -> None:
        with serve("git", tmp_path) as hub:
            hub.faults = [HubFault(where="resolve", status=status, times=99, body=b'{"message": "Bandwidth used up"}')]
            ended, said = run(tmp_path, describe(tmp_path, hub, source={"kind": "git"}))
        assert ended == 1
        assert f"answers {status}" in said
        assert "Bandwidth used up" in said


@contextmanager
def endless(first: bytes) -> Iterator[str]:
    """A hub that answers each request with these lines, and goes on with a body that does not end."""

    def serve(listener: socket.socket) -> None:
        while listener.fileno() >= 0:
            with contextlib.suppress(OSError), listener.accept()[0] as connection:
                connection.recv(65536)
                connection.sendall(b"HTTP/1.1 " + first + b"\r\nTransfer-Encoding: chunked\r\n\r\n")
                while True:
                    connection.sendall(b"1\r\nx\r\n")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener,))
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/file"
        listener.shutdown(socket.SHUT_RDWR)
    thread.join()


def test_the_body_of_a_redirect_is_not_waited_for(tmp_path: Path) -> None:
    """It never ends here, so that reading it would not either."""
    hub = request_module.HubSource("hub", "http://127.0.0.1:9", "a/b", "main", None, None)
    moving = transfer.Transfer(network.Connections(hub, 1), transfer.RateLimit(0), LeapingClock(), patience=1)
    redirect = b"302 Found\r\nLocation: http://127.0.0.1:9/file"
    with endless(redirect) as address, pytest.raises(SourceFailure, match="refused"):
        moving.fetch(RemoteFile("x", 1), lambda _: transfer.FileLocation(address, {}), tmp_path, lambda _: None)


def test_an_answer_that_does_not_end_is_read_for_a_time_and_up_to_a_size() -> None:
    for most, seconds in ((10, 3600.0), (1 << 40, 0.2)):
        with endless(b"500 Broken") as address:
            response = urllib3.PoolManager().request("GET", address, preload_content=False)
            assert network.start_of(response, most, seconds)[:10] == b"x" * 10
            response.close()


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [("TIMEOUT", 0.2, "answer took more than"), ("MOST_ANSWERED", 1000, "more than 1000 bytes")],
)
def test_a_list_of_a_hub_has_an_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: float, text: str
) -> None:
    monkeypatch.setattr(hub_huggingface, name, value)
    with endless(b"200 OK") as address:
        hub = request_module.HubSource("hub", address.removesuffix("/file"), "a/b", "main", None, None)
        with pytest.raises(SourceFailure, match=text):
            hub_huggingface.HuggingFace(hub, tmp_path).files()
