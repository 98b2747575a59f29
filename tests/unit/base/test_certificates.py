"""Certificates of the site: which texts are some, which have expired, and what is never quoted."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible.module_utils.gaudi.base import certificates
from ansible.module_utils.gaudi.base.refusal import Refusal

from tests.unit.node.outside import CertificateAuthority

SITE = CertificateAuthority("Site CA")
OLD = CertificateAuthority("Old CA", days=-2)


def refused(text: str) -> Refusal:
    with pytest.raises(Refusal) as caught:
        certificates.normalised(text, "gaudi_ca_certificates")
    return caught.value


def test_what_is_around_certificates_is_left_out() -> None:
    text = f"# subject=CN = Site CA\r\n{SITE.pem}\nother words\n{OLD.pem}".replace("\n", "\r\n")
    assert certificates.normalised(text, "x") == f"{SITE.pem}{OLD.pem}"
    assert certificates.normalised(" \n", "x") == ""


def test_an_expired_one_is_named() -> None:
    found = certificates.certificates(SITE.pem + OLD.pem, "x")
    assert [each.name for each in found] == ["Site CA", "Old CA"]
    (ended,) = certificates.expired(found, f"{SITE.certificate.not_valid_after_utc:%Y-%m-%d}")
    assert str(ended) == f"certificate 2 (Old CA), until {OLD.certificate.not_valid_after_utc:%Y-%m-%d}"


@pytest.mark.parametrize(
    ("text", "id_"),
    [
        (f"{SITE.pem}{SITE.private}", "private_key_in_certificates"),
        (SITE.private, "private_key_in_certificates"),
        ("-----BEGIN RSA PRIVATE KEY-----\ncut off", "private_key_in_certificates"),
        ("no PEM", "no_certificates"),
        (SITE.pem.replace("CERTIFICATE", "CERTIFICATE REQUEST"), "no_certificates"),
        ("-----BEGIN CERTIFICATE-----\n!!\n-----END CERTIFICATE-----\n", "certificate_damaged"),
        (SITE.pem * 300, "certificates_too_large"),
    ],
)
def test_what_is_no_certificate_is_refused_and_not_quoted(text: str, id_: str) -> None:
    refusal = refused(text)
    assert refusal.id == id_
    assert SITE.private.splitlines()[1] not in str(refusal)
    assert "gaudi_ca_certificates" in str(refusal)


@pytest.mark.parametrize("body", ["AAAA", "MAA=", "MIIB"])
def test_a_damaged_one_is_named_by_its_place(body: str) -> None:
    text = f"{SITE.pem}-----BEGIN CERTIFICATE-----\n{body}\n-----END CERTIFICATE-----\n"
    with pytest.raises(Refusal, match="certificate 2") as caught:
        certificates.certificates(text, "x")
    assert caught.value.id == "certificate_damaged"


UNKNOWN = "x509: certificate signed by unknown authority"


@pytest.mark.parametrize(
    ("printed", "file", "words"),
    [
        (UNKNOWN, "", "name a file with the certificate of that authority in gaudi_ca_certificates"),
        (UNKNOWN, "gaudi_ca_certificates", "The file of gaudi_ca_certificates does not contain"),
        (UNKNOWN, "/etc/ssl/theirs.pem", "/etc/ssl/theirs.pem does not contain"),
        ("certificate verify failed: certificate has expired", "", "has expired"),
        ("x509: certificate is valid for a, not b", "gaudi_ca_certificates", "for another name"),
        ("certificate verify failed: Hostname mismatch, certificate is not valid for 'b'", "", "for another name"),
    ],
)
def test_advice_names_the_file_that_lacks_an_authority(printed: str, file: str, words: str) -> None:
    assert certificates.REJECTED.search(printed)
    said = certificates.advice(printed, "mirror.example", file)
    assert words in said and "mirror.example" in said


@pytest.mark.parametrize(
    ("printed", "there", "words"),
    [
        (
            f'Get "https://r.example:5000/v2/": tls: {UNKNOWN}',
            True,
            "(here /etc/docker/certs.d/r.example:5000/",
        ),
        (f'Get "https://r.example:5000/v2/": tls: {UNKNOWN}', False, "container_runtime_certificate_registries"),
        (f"tls: failed to verify certificate: {UNKNOWN}", False, "of r.example:5000 is not signed"),
        (
            (Path(__file__).parents[1] / "image/recorded/docker_pull_timeout_29.1.3.txt").read_text(encoding="utf-8"),
            True,
            "takes no proxy from /etc/environment",
        ),
        ("proxyconnect tcp: dial tcp 10.0.0.9:3128: connect: connection refused", True, "The proxy that the engine"),
        ("dial tcp: lookup r.example on 10.0.0.1:53: no such host", False, "does not answer the engine"),
        ("manifest unknown", True, ""),
    ],
)
def test_registry_advice_knows_whether_the_engine_has_the_sites_certificates(
    printed: str, there: bool, words: str
) -> None:
    said = certificates.registry_advice(printed, "r.example:5000/site/image:1", lambda _: there)
    assert words in said
    assert bool(said) is bool(words)
