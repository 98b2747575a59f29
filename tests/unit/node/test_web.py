"""Modules that ask servers outside, through a proxy with an account and with the site's certificates."""

from __future__ import annotations

import http.server
import os
import threading
from pathlib import Path

import pytest
from ansible.module_utils.gaudi.base.refusal import Refusal
from ansible.module_utils.gaudi.node import web
from ansible.module_utils.gaudi.node.driver.look import index_of
from ansible.module_utils.urls import open_url

from tests.unit.node.outside import CertificateAuthority, KeyServer, proxy, serving

SITE = CertificateAuthority()


def read(address: str) -> bytes:
    with open_url(address, timeout=10) as answer:
        content: bytes = answer.read()
    return content


def test_a_server_outside_is_asked_through_the_proxy_and_with_the_sites_certificates(tmp_path: Path) -> None:
    with serving(KeyServer, SITE.server(tmp_path)) as port, proxy() as (address, site):
        url = f"https://127.0.0.1.:{port}/key.asc"
        given = {"https_proxy": address, "certificates": SITE.pem}
        before = dict(os.environ)
        with web.through(url.replace("127.0.0.1.", "outside.example"), given):
            # The name is the proxy's to resolve; the certificate is for the address.
            assert read(f"https://127.0.0.1:{port}/key.asc") == KeyServer.content
        assert dict(os.environ) == before
        assert site.asked == [f"127.0.0.1:{port}"]
        assert site.accounts == ["reader:p@ss%:/#$ x"]


def test_without_the_sites_certificates_it_is_not_trusted(tmp_path: Path) -> None:
    with serving(KeyServer, SITE.server(tmp_path)) as port, pytest.raises(OSError, match=r"(?i)certificate"):
        read(f"https://127.0.0.1:{port}/key.asc")


@pytest.mark.parametrize("name", ["http_proxy", "HTTP_PROXY", "all_proxy"])
def test_an_exception_takes_no_proxy_of_the_environment_either(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "http://127.0.0.1:1")
    with (
        serving(KeyServer) as port,
        web.through("http://inside.example", {"http_proxy": "http://p:1", "no_proxy": ".example"}),
    ):
        assert read(f"http://127.0.0.1:{port}/") == KeyServer.content


def test_where_the_site_sets_none_the_environment_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(KeyServer), proxy("") as (address, site):
        monkeypatch.setenv("http_proxy", address.replace("@", ""))
        monkeypatch.setenv("no_proxy", "")
        with web.through("http://outside.example/", {}), pytest.raises(OSError, match=r"50|refused|reset|Remote"):
            read("http://outside.example:1/")
        assert site.asked == ["http://outside.example:1/"]


class DrippingServer(http.server.BaseHTTPRequestHandler):
    """A server that sends byte by byte, each in time: of its header, or of its content. It ends at last."""

    stopped = threading.Event()

    def do_GET(self) -> None:
        self.send_response_only(200)
        if self.path.startswith("/content"):
            self.end_headers()
        self.flush_headers()
        try:
            for _ in range(60):
                self.wfile.write(b"x")
                self.wfile.flush()
                self.stopped.wait(0.05)
            self.wfile.write(b": y\r\n\r\n")
        except OSError:
            self.close_connection = True

    def log_message(self, format: str, *arguments: object) -> None:
        """Print nothing."""


def test_a_header_that_never_ends_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web, "WHOLE_SECONDS", 0.3)
    with serving(DrippingServer) as port:
        assert "not whole after 0.3 s" in web.error_of(f"http://127.0.0.1:{port}/header", {"no_proxy": "127.0.0.1"})


class WordyServer(http.server.BaseHTTPRequestHandler):
    """A proxy or server whose reason is as long as HTTP lets it be."""

    def do_GET(self) -> None:
        self.wfile.write(f"HTTP/1.1 403 {'no ' * 20_000}\r\nContent-Length: 0\r\n\r\n".encode())

    def log_message(self, format: str, *arguments: object) -> None:
        """Print nothing."""


def test_a_reason_without_end_fills_no_message() -> None:
    with serving(WordyServer) as port:
        why = web.error_of(f"http://127.0.0.1:{port}/", {"no_proxy": "127.0.0.1"})
    assert "403" in why
    assert len(why) <= web.LONGEST_REASON


@pytest.mark.parametrize("what", ["header", "content"])
def test_an_index_that_never_ends_is_not_waited_for(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web, "WHOLE_SECONDS", 0.3)
    with serving(DrippingServer) as port, pytest.raises(Refusal, match="not whole after"):
        index_of(f"http://127.0.0.1:{port}/{what}", "stable", {})
