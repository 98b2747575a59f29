"""A repository whose server redirects to a host that does not answer: real apt, and what an owner of a card saw."""

from __future__ import annotations

import hashlib
import http.server
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from ansible.module_utils.gaudi.apt import faults
from ansible.module_utils.gaudi.driver.troubles import recognised

from tests.unit.node.outside import serving

RECORDED = Path(__file__).parent / "recorded/redirected_1.24.1.txt"
VAULT = "https://vault.habana.ai/artifactory/debian"
# Loopback, where nobody listens: the discard port.
DEAD = "127.0.0.2"
PACKAGES = (
    "Package: habanalabs-dkms\nVersion: 1\nArchitecture: amd64\nMaintainer: x\nFilename: x.deb\nSize: 1\n"
    f"SHA256: {hashlib.sha256(b'x').hexdigest()}\n"
)
DIGEST, SIZE = hashlib.sha256(PACKAGES.encode()).hexdigest(), len(PACKAGES)
FILES = {"/./Packages": PACKAGES, "/./Release": f"Suite: x\nSHA256:\n {DIGEST} {SIZE} Packages\n"}


class RedirectingRepository(http.server.BaseHTTPRequestHandler):
    """A package repository; its packages, or all of it, lie at another host."""

    everything = False

    def log_message(self, format: str, *arguments: object) -> None:
        """Print nothing."""

    def do_GET(self) -> None:
        text = FILES.get(self.path, "").encode()
        elsewhere = self.everything or self.path.endswith(".deb")
        self.send_response(302 if elsewhere else 200 if text else 404)
        if elsewhere:
            self.send_header("Location", f"http://{DEAD}:9{self.path}")
        self.send_header("Content-Length", "0" if elsewhere else str(len(text)))
        self.end_headers()
        self.wfile.write(b"" if elsewhere else text)


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    with serving(RedirectingRepository) as port:
        yield port


def apt(folder: Path, port: int, *commands: list[str]) -> str:
    """Run apt-get in a folder of its own; return what it printed."""
    for name in ("etc/preferences.d", "state/lists/partial", "cache/archives/partial"):
        (folder / name).mkdir(parents=True)
    (folder / "etc/sources.list").write_text(f"deb [trusted=yes arch=amd64] http://127.0.0.1:{port}/ ./\n")
    (folder / "status").write_text("")
    settings = {
        **{"Dir::Etc": folder / "etc", "Dir::Etc::parts": "/nowhere", "Dir::State": folder / "state"},
        **{"Dir::State::status": folder / "status", "Dir::Cache": folder / "cache", "APT::Architecture": "amd64"},
        **{"APT::Sandbox::User": "root", "Acquire::Retries": "0", "Acquire::http::Proxy": "DIRECT"},
    }
    conf = folder / "apt.conf"
    conf.write_text("".join(f'{key} "{value}";\n' for key, value in settings.items()))
    environment = {**os.environ, "LC_ALL": "C", "APT_CONFIG": str(conf)}
    printed = ""
    for command in commands:
        done = subprocess.run(["apt-get", *command], env=environment, capture_output=True, text=True, check=False)
        printed = done.stdout + done.stderr
    return printed


def test_packages_that_lie_at_a_host_that_is_down_are_told_from_the_repository(port: int, tmp_path: Path) -> None:
    printed = apt(tmp_path, port, ["update"], ["--yes", "--download-only", "install", "habanalabs-dkms"])
    found = recognised(printed, f"http://127.0.0.1:{port}")
    assert found is not None
    assert found.id == "repository_redirects"
    assert f"The repository at http://127.0.0.1:{port} redirects to {DEAD}, which does not answer (Could not" in str(
        found
    )
    # If nobody knows the repository, the host may be its own.
    unknown = recognised(printed)
    assert unknown is not None
    assert unknown.id != "repository_redirects"


def test_an_index_that_lies_at_a_host_that_is_down_is_one_fault_of_the_repository(
    port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RedirectingRepository, "everything", True)
    (fault,) = faults.parse(apt(tmp_path, port, ["update"]))
    assert (fault.kind, fault.detail) == (faults.REDIRECTED, DEAD)
    assert fault.uri.startswith(f"http://127.0.0.1:{port}/")
    refused = faults.refusal(fault)
    assert refused.id == "repository_redirects"
    assert f"redirects to {DEAD}, which does not answer" in str(refused)


@pytest.mark.parametrize("repository", [VAULT, ""])
def test_the_recorded_redirect_is_named_by_its_host(repository: str) -> None:
    found = recognised(RECORDED.read_text(encoding="utf-8"), repository)
    assert found is not None
    assert found.id == "repository_redirects"
    for words in (
        "at https://vault.habana.ai/... redirects to jfrog-prod-usw2-shared-oregon-main.s3.amazonaws.com",
        "does not answer (Connection timed out [IP: 198.18.0.30 443])",
        "for vault.habana.ai alone is not enough",
        "gaudi_https_proxy",
    ):
        assert words in str(found)


PACKAGE = "Err:6 {0} jammy/main amd64 habanalabs-graph amd64 1.24.1-482\n  {1}\nE: Failed to fetch {2}  {1}\n"
S3 = "https://jfrog.s3.amazonaws.com"


@pytest.mark.parametrize(
    ("printed", "id_"),
    [
        # The forms of other apts and reasons.
        (PACKAGE.format(VAULT, "Connection timed out [IP: 1.2.3.4 443]", f"{S3}/x?sig=1"), "repository_redirects"),
        (PACKAGE.format(S3, "Could not resolve 'jfrog.s3.amazonaws.com'", f"{S3}/x"), "repository_redirects"),
        (
            PACKAGE.format(
                VAULT, "Could not connect to jfrog.s3.amazonaws.com:443 (1.2.3.4), connection timed out", f"{S3}/x"
            ),
            "repository_redirects",
        ),
        # The last package is not the vendor's; as apt 2.6 printed it.
        (
            f"{PACKAGE.format(S3, 'Could not connect to jfrog.s3.amazonaws.com:443 (127.0.0.2). - connect (111)', S3)}"
            f"Err:2 {S3} jammy/main amd64 lm-sensors all 1:3\n  Unable to connect to jfrog.s3.amazonaws.com:443:\n"
            f"E: Failed to fetch {S3}/lm-sensors  Unable to connect to jfrog.s3.amazonaws.com:443:\n",
            "repository_redirects",
        ),
        # The repository itself does not answer, and a server that answers is none that is down.
        (PACKAGE.format(VAULT, "Connection timed out [IP: 1.2.3.4 443]", f"{VAULT}/pool/x.deb"), "repository_down"),
        (PACKAGE.format(VAULT, "403  Forbidden [IP: 1.2.3.4 443]", f"{S3}/x"), "repository_denies"),
        # Another repository's own host.
        (
            "Err:2 http://deb.debian.org/debian bookworm/main amd64 libc6 amd64 2.36\n  Connection timed out\n"
            "E: Failed to fetch http://deb.debian.org/debian/pool/libc6.deb  Connection timed out\n",
            "other_repository_fails",
        ),
    ],
)
def test_only_a_host_that_the_server_chose_and_that_is_silent_is_a_redirect(printed: str, id_: str) -> None:
    found = recognised(printed, VAULT)
    assert found is not None
    assert found.id == id_
