from __future__ import annotations

import datetime
import ipaddress
import stat
import subprocess
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from simulator import keys

NOW = datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC)


def test_ssh_accepts_the_pair(tmp_path: Path) -> None:
    pair = keys.new_ssh_pair("simulated node")
    private = tmp_path / "key"
    keys.write_private(private, pair.private)
    shown = subprocess.run(["ssh-keygen", "-y", "-f", str(private)], check=True, capture_output=True, text=True).stdout
    assert shown.split()[:2] == pair.public.split()[:2]
    assert pair.public.endswith(" simulated node")


def test_a_private_key_is_private_even_over_an_open_one(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_text("old")
    path.chmod(0o644)
    keys.write_private(path, "new")
    assert path.read_text() == "new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_the_certificate_names_the_vault_and_is_the_authoritys() -> None:
    authority = keys.new_authority(NOW)
    issued = keys.new_certificate(authority, ["vault.habana.ai", "127.0.0.1"], NOW)
    ours = x509.load_pem_x509_certificate(authority.public.encode())
    certificate = x509.load_pem_x509_certificate(issued.public.encode())
    certificate.verify_directly_issued_by(ours)
    assert isinstance(ours.public_key(), ec.EllipticCurvePublicKey)
    assert "Simulated" in ours.subject.rfc4514_string()
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["vault.habana.ai"]
    assert names.get_values_for_type(x509.IPAddress) == [ipaddress.ip_address("127.0.0.1")]
    assert certificate.not_valid_before_utc < NOW < certificate.not_valid_after_utc
