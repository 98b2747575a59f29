"""A hub with one small model: the simulator's hub, and the real client library."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from gaudi_weights.model import StopSwitch
from gaudi_weights.progress import TransferProgress

from simulator.hub.server import SimulatedHub, running
from tests.unit.weights.models import MODEL, write_model


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[SimulatedHub]:
    """A hub with the small model."""
    with running() as made:
        made.repository(MODEL, write_model(tmp_path / "hub"))
        yield made


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pauses between tries that suit a hub on this machine."""
    monkeypatch.setattr("gaudi_weights.transfer.FIRST_PAUSE", 0.05)
    monkeypatch.setattr("gaudi_weights.fetch.FIRST_PAUSE", 0.05)


@pytest.fixture(scope="session")
def one_certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with one certificate, which signs nothing."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "Nobody's CA")])
    now = datetime.datetime.now(datetime.UTC)
    made = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    made = made.not_valid_before(now).not_valid_after(now + datetime.timedelta(days=1))
    file = tmp_path_factory.mktemp("trusted") / "ca.pem"
    file.write_bytes(made.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
    return file


@pytest.fixture(autouse=True)
def few_certificates(one_certificate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hubs here need no certificate of the machine's bundle, which takes longest of most fetches to read."""
    monkeypatch.setenv("SSL_CERT_FILE", str(one_certificate))
    monkeypatch.setenv("SSL_CERT_DIR", str(one_certificate.parent / "none"))


@pytest.fixture
def stop() -> StopSwitch:
    """Nobody wants to end yet."""
    return StopSwitch()


@pytest.fixture
def progress() -> TransferProgress:
    """Progress nobody follows."""
    return TransferProgress(None)
