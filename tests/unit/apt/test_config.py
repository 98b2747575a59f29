"""The route that apt's configuration describes, and an index that is read along it."""

from __future__ import annotations

import http.server
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest
from ansible.module_utils.gaudi.apt import config
from ansible.module_utils.gaudi.apt.config import AptProxy as Setting
from ansible.module_utils.gaudi.apt.config import Route
from ansible.module_utils.gaudi.base.refusal import Refusal
from ansible.module_utils.gaudi.node import apt
from ansible.module_utils.gaudi.node.driver.look import index_of
from ansible.module_utils.gaudi.node.module import NodeModule
from ansible.module_utils.testing import patch_module_args

DUMPED = """\
Acquire "";
Acquire::http "";
Acquire::http::Proxy "http://u:p%40x@proxy.example:3128/";
Acquire::http::Proxy::near.example "DIRECT";
Acquire::http::Proxy::far.example "http://far.example:8080";
Acquire::https::CaInfo "/etc/site ca.pem";
"""
GENERAL = "http://u:p%40x@proxy.example:3128/"


@pytest.mark.report("A04")
@pytest.mark.parametrize(
    ("dumped", "url", "route"),
    [
        (DUMPED, "http://vault.example/debian", Route(GENERAL)),
        (DUMPED, "https://vault.example/debian", Route(GENERAL, ca="/etc/site ca.pem")),
        (DUMPED, "http://NEAR.example/debian", Route("")),
        (DUMPED, "http://far.example:81/debian", Route("http://far.example:8080")),
        ('acquire::HTTPS::Proxy "DIRECT";\n' + DUMPED, "https://vault.example", Route("", ca="/etc/site ca.pem")),
        ('Acquire::http::Proxy "false";', "http://x", Route("false")),
        ('Acquire::http::Proxy-Auto-Detect "/usr/bin/find-proxy";', "http://x", Route(None, "/usr/bin/find-proxy")),
        ('Acquire::http::ProxyAutoDetect "/usr/bin/find-proxy";', "https://x", Route(None, "/usr/bin/find-proxy")),
        ('Acquire::https::vault.example::CaInfo "/v.pem";', "https://vault.example/x", Route(ca="/v.pem")),
        ("", "http://x", Route()),
    ],
)
def test_the_route_is_apts(dumped: str, url: str, route: Route) -> None:
    assert config.route(config.parse(dumped), url) == route


@pytest.mark.parametrize(
    ("printed", "proxy"), [("http://p:1\n", "http://p:1"), ("DIRECT\n", ""), ("", None), ("\n", None)]
)
def test_what_a_detector_prints(printed: str, proxy: str | None) -> None:
    assert config.detected(printed) == proxy


class PackageProxy(http.server.BaseHTTPRequestHandler):
    """Answers for each host."""

    asked: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.asked.append(self.path)
        body = b"Package: habanalabs-dkms\nVersion: 1\n" if self.path.endswith("Packages") else b""
        self.send_response(200 if body else 404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_words: object) -> None:
        pass


@pytest.fixture
def proxy() -> Iterator[str]:
    PackageProxy.asked = []
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), PackageProxy) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> NodeModule:
    for name in ("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with patch_module_args({}):
        return NodeModule(argument_spec={})


@pytest.mark.report("A04")
@pytest.mark.parametrize("detects", [False, True])
def test_an_index_is_read_through_the_proxy_that_only_apt_knows(
    module: NodeModule, proxy: str, detects: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    detector = tmp_path / "detect"
    detector.write_text(f"#!/bin/sh\necho {proxy}\n")
    detector.chmod(0o755)
    line = f'Acquire::http::Proxy-Auto-Detect "{detector}";' if detects else f'Acquire::http::Proxy "{proxy}";'
    (tmp_path / "apt.conf").write_text(f'Dir::Etc::parts "/nowhere";\n{line}\n')
    monkeypatch.setenv("APT_CONFIG", str(tmp_path / "apt.conf"))
    repository = "http://vault.invalid/debian"
    with pytest.raises(Refusal) as refused:
        index_of(repository, "jammy", {})
    assert refused.value.id == "repository_not_read"
    assert "habanalabs-dkms" in index_of(repository, "jammy", apt.environment(module, repository))
    assert PackageProxy.asked[-1].startswith("http://vault.invalid/debian/dists/jammy/")


@pytest.mark.report("A17")
@pytest.mark.parametrize(
    ("error", "words"),
    [
        ("[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: unable to get local issuer", "gaudi_ca_certif"),
        ("[Errno -2] Name or service not known", "does not resolve"),
        ("[Errno 111] Connection refused", "Nothing accepts connections"),
        ("timed out", "in time"),
        ("[Errno 5] Input/output error", "gaudi_driver_suite"),
    ],
)
def test_an_index_that_cannot_be_read_is_refused_with_what_to_do(
    monkeypatch: pytest.MonkeyPatch, error: str, words: str
) -> None:
    def fails(*_arguments: object, **_options: object) -> None:
        raise OSError(error)

    monkeypatch.setattr("socket.create_connection", fails)
    monkeypatch.setenv("no_proxy", "*")
    with pytest.raises(Refusal) as refused:
        index_of("http://vault.invalid/debian", "jammy", {})
    assert refused.value.id == "repository_not_read"
    assert words in str(refused.value)


def test_a_proxy_that_denies_is_at_fault_where_nobody_knows_which_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_arguments: object, **_options: object) -> None:
        raise OSError("Tunnel connection failed: 407 Proxy Authentication Required")

    monkeypatch.setattr("socket.create_connection", fails)
    monkeypatch.setenv("no_proxy", "*")
    with pytest.raises(Refusal) as refused:
        index_of("http://vault.invalid/debian", "jammy", {})
    assert refused.value.id == "repository_behind_proxy"
    assert str(refused.value).startswith("The proxy rejects its account.")


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ConnectionRefusedError(111, "Verbindungsaufbau abgelehnt"), "Nothing accepts connections"),
        (OSError(113, "Keine Route zum Zielrechner"), "Nothing accepts connections"),
        (socket.gaierror(socket.EAI_NONAME, "Der Name oder der Dienst ist nicht bekannt"), "does not resolve"),
        (TimeoutError(110, "Die Wartezeit ist abgelaufen"), "in time"),
        (OSError("Tunnel connection failed: 503 Service Unavailable"), "answered this"),
        (OSError("Tunnel connection failed: 407 Proxy Authentication Required"), "wants an account"),
    ],
)
def test_a_fault_of_the_proxy_names_it_and_its_option_in_every_language(
    monkeypatch: pytest.MonkeyPatch, error: OSError, words: str
) -> None:
    def fails(*_arguments: object, **_options: object) -> None:
        raise error

    monkeypatch.setattr("socket.create_connection", fails)
    monkeypatch.setenv("no_proxy", "*")
    with pytest.raises(Refusal) as refused:
        index_of("http://vault.invalid/debian", "jammy", {}, proxy=Setting("http://p.test:9", "gaudi_https_proxy"))
    said = str(refused.value)
    assert refused.value.id == "repository_behind_proxy"
    assert words in said and "p.test:9" in said and "gaudi_https_proxy" in said
    # What is at fault comes first.
    assert said.index("p.test:9") < said.index("gaudi_driver_repository")
    assert "gaudi_driver_suite" not in said and "gaudi_http_proxy" not in said


@pytest.mark.parametrize(
    ("line", "named", "address"),
    [
        ("", "gaudi_https_proxy", "http://site.test:1"),
        (
            'Acquire::https::Proxy::vault.invalid "http://u:p@own.test:2";',
            "Acquire::https::Proxy::vault.invalid of",
            "",
        ),
        ('Acquire::https::Proxy "http://u:p@own.test:2";', "Acquire::https::Proxy of", "http://u:p@own.test:2"),
        ('Acquire::https::Proxy::vault.invalid "DIRECT";', "", ""),
    ],
)
def test_an_index_is_read_along_the_route_that_apt_will_take(
    module: NodeModule, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, named: str, address: str
) -> None:
    (tmp_path / "apt.conf.d").mkdir()
    (tmp_path / "apt.conf.d/50own").write_text(f"{line}\n")
    (tmp_path / "apt.conf").write_text(f'Dir::Etc::parts "/nowhere";\n{line}\n')
    monkeypatch.setenv("APT_CONFIG", str(tmp_path / "apt.conf"))
    monkeypatch.setattr(apt, "ETC", tmp_path)
    site = {"http_proxy": "http://site.test:1", "https_proxy": "http://site.test:1"}
    variables, found = apt.coming(module, "https://vault.invalid/debian", site)
    if not named:
        assert variables == {"no_proxy": "*"} and found is None
        return
    assert found is not None and found.named.startswith(named)
    assert variables["https_proxy"] == found.address
    assert not address or found.address == address
    # The site's own exception.
    excepted = {**site, "no_proxy": "vault.invalid"}
    if not line:
        assert apt.coming(module, "https://vault.invalid/debian", excepted) == ({"no_proxy": "*"}, None)
