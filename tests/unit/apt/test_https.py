"""Real apt at an https server whose certificate an authority of the site signed."""

from __future__ import annotations

import hashlib
import http.server
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.gaudi.base.access import apt_conf
from ansible.module_utils.gaudi.node import apt
from ansible.module_utils.testing import patch_module_args

from library import apt_update
from tests.unit.node.outside import CertificateAuthority, serving

SITE, OTHER = CertificateAuthority(), CertificateAuthority("Other CA")
PACKAGES = "Package: habanalabs-dkms\nVersion: 1\nArchitecture: amd64\nMaintainer: x\nFilename: x.deb\nSize: 1\n"
DIGEST, SIZE = hashlib.sha256(PACKAGES.encode()).hexdigest(), len(PACKAGES)
FILES = {"/./Packages": PACKAGES, "/./Release": f"Suite: x\nSHA256:\n {DIGEST} {SIZE} Packages\n"}


class UnsignedRepository(http.server.BaseHTTPRequestHandler):
    """A package repository without a signature."""

    def log_message(self, format: str, *arguments: object) -> None:
        """Print nothing."""

    def do_GET(self) -> None:
        text = FILES.get(self.path, "").encode()
        self.send_response(200 if text else 404)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    with serving(UnsignedRepository, SITE.server(tmp_path)) as port:
        yield f"https://127.0.0.1:{port}"


def read(
    address: str, folder: Path, bundle: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> dict[str, Any]:
    """Run the module with apt in a folder of its own. bundle: the site's certificates, "" without any."""
    for name in ("etc/parts", "state/lists/partial", "cache/archives/partial"):
        (folder / name).mkdir(parents=True)
    (folder / "etc/sources.list").write_text(f"deb [trusted=yes arch=amd64] {address}/ ./\n")
    (folder / "status").write_text("")
    certificates = folder / "bundle.pem"
    certificates.write_text(bundle)
    settings = {
        "Dir::Etc": folder / "etc",
        "Dir::Etc::parts": "/nowhere",
        "Dir::State": folder / "state",
        "Dir::State::status": folder / "status",
        "Dir::Cache": folder / "cache",
        "APT::Architecture": "amd64",
        "APT::Sandbox::User": "root",
        "Acquire::Retries": "0",
    }
    text = "".join(f'{key} "{value}";\n' for key, value in settings.items())
    conf = folder / "apt.conf"
    conf.write_text(text + apt_conf("", "", bundle=str(certificates) if bundle else ""))
    monkeypatch.setenv("APT_CONFIG", str(conf))
    monkeypatch.setattr(apt, "ETC", folder / "etc")
    given = {"repository": f"{address}/", "suite": "./", "packages": ["habanalabs-dkms"]}
    with patch_module_args(given), pytest.raises(SystemExit):
        apt_update.main()
    printed: dict[str, Any] = json.loads(capsys.readouterr().out)
    return printed


def test_apt_trusts_the_sites_authority(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert read(address, tmp_path / "apt", SITE.pem, monkeypatch, capsys)["faults"] == []


@pytest.mark.parametrize(
    ("bundle", "words"), [("", "name a file"), (OTHER.pem, "bundle.pem does not contain the authority")]
)
def test_a_repository_that_apt_does_not_trust_is_refused_with_what_helps(
    address: str,
    tmp_path: Path,
    bundle: str,
    words: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    refused = read(address, tmp_path / "apt", bundle, monkeypatch, capsys)
    assert refused["refused_id"] == "repository_certificate", refused
    assert words in refused["msg"]
    assert "of 127.0.0.1 is" in refused["msg"] or "of 127.0.0.1. Add" in refused["msg"]
