"""Keys of the simulated world: ssh keys, and the authority that signs the simulated vault's certificate."""

from __future__ import annotations

import datetime
import ipaddress
import os
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from simulator.settings import CACHE, SimulatorError

AUTHORITY_NAME = "Simulated authority (gaudi-serving simulator)"
_VALID_DAYS = 3650


@dataclass(frozen=True)
class KeyPair:
    """A private key and what may be shown of it: an ssh public key line, or a certificate in PEM."""

    private: str
    public: str


def new_ssh_pair(comment: str) -> KeyPair:
    """Make an Ed25519 key pair in OpenSSH's formats."""
    key = ed25519.Ed25519PrivateKey.generate()
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    return KeyPair(private.decode(), f"{public.decode()} {comment}")


def new_authority(now: datetime.datetime) -> KeyPair:
    """Make a certificate authority of our own."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, AUTHORITY_NAME)])
    certificate = (
        _builder(name, name, key.public_key(), now)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return KeyPair(_pem(key), certificate.public_bytes(serialization.Encoding.PEM).decode())


def new_certificate(authority: KeyPair, names: list[str], now: datetime.datetime) -> KeyPair:
    """Make a server certificate for host names and IP addresses, signed by the authority."""
    issuer = x509.load_pem_x509_certificate(authority.public.encode())
    signer = serialization.load_pem_private_key(authority.private.encode(), password=None)
    if not isinstance(signer, ec.EllipticCurvePrivateKey):
        raise SimulatorError("authority.key is not a key the simulator made. Remove it, and it makes another.")
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0])])
    certificate = (
        _builder(subject, issuer.subject, key.public_key(), now)
        .add_extension(x509.SubjectAlternativeName([_general_name(name) for name in names]), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
        .sign(signer, hashes.SHA256())
    )
    return KeyPair(_pem(key), certificate.public_bytes(serialization.Encoding.PEM).decode())


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now: datetime.datetime
) -> x509.CertificateBuilder:
    # A day of grace: the simulated node's clock is this machine's, but tests move it.
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=_VALID_DAYS))
    )


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _pem(key: ec.EllipticCurvePrivateKey) -> str:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()


def authority() -> KeyPair:
    """Give this checkout's authority, made at first use. Callers hold the lock "images"."""
    private, public = CACHE / "authority.key", CACHE / "authority.crt"
    if not public.exists():
        made = new_authority(datetime.datetime.now(datetime.UTC))
        write_private(private, made.private)
        public.write_text(made.public)
    return KeyPair(private.read_text(), public.read_text())


def write_private(path: Path, content: str) -> None:
    """Write a file that nobody else can read at any moment."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(content)
