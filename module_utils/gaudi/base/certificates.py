"""Certificates of the site's own authorities, in PEM, as the option gaudi_ca_certificates has them."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from .access import BUNDLE, REGISTRIES, registry_file
from .printable import printable
from .refusal import Refusal

OPTION = "gaudi_ca_certificates"
# How the messages of OpenSSL, GnuTLS and Go (crypto/x509) begin for a server's certificate that a program rejects.
REJECTED = re.compile(
    r"certificate[ _]verif(?:y|ication)[ _]failed|server certificate verification failed|certificate is NOT trusted|"
    r"SSL certificate problem|x509: ",
    re.IGNORECASE,
)
# Their messages for a certificate that is invalid whichever authority signed it.
_INVALID = re.compile(
    r"expired|not yet (?:valid|activated)|mismatch|(?:does not|doesn't|no alternative certificate subject name) match|"
    r"no alternative certificate|certificate is (?:not )?valid for|revoked",
    re.IGNORECASE,
)

# The address in an error of Go's HTTP client.
_ASKED = re.compile(r'https://([^/\s"]+)')
# A registry that a client of Go does not reach.
_SILENT = re.compile(
    r"i/o timeout|no such host|connection refused|no route to host|network is unreachable|TLS handshake timeout|"
    r"context deadline exceeded|Client\.Timeout exceeded|server misbehaving"
)

# Bytes. With a system's own certificates they stay below what a build takes as a secret (500 KiB in BuildKit).
LARGEST = 128 * 1024

_BLOCK = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----", re.DOTALL)
_VERSION, _UTC_TIME = 0xA0, 0x17
# id-at-commonName, 2.5.4.3.
_COMMON_NAME = bytes([0x06, 0x03, 0x55, 0x04, 0x03])


@dataclass(frozen=True)
class Certificate:
    """One certificate: its place in the file from 1, its common name, and its last day, as 2031-12-31."""

    place: int
    name: str
    ends: str

    def __str__(self) -> str:
        """Return what a sentence says of it."""
        return f"certificate {self.place} ({self.name or 'without a common name'}), until {self.ends}"


def advice(printed: str, server: str, ca_file: str = "") -> str:
    """Return what is wrong with the certificate of a server that a program rejects, and what to do.

    printed: the program's message. server: its name. ca_file: path on the node of the certificates that the program
    trusts, or OPTION if it trusts those of the site; "" for those of the system alone.
    """
    if _INVALID.search(printed):
        return (
            f"The certificate of {server} has expired, is not valid yet, or is for another name. Have it corrected "
            "there, and compare this machine's clock."
        )
    if ca_file:
        ours = ca_file == BUNDLE or ca_file.startswith(f"{REGISTRIES}/")
        named = f"The file of {OPTION} (here {ca_file})" if ours else ca_file
        if ca_file == OPTION:
            named = f"The file of {OPTION}"
        return (
            f"{named} does not contain the authority that signed the certificate of {server}. Add the certificate of "
            "that authority to the file."
        )
    return (
        f"The certificate of {server} is not signed by an authority that is trusted here. If an authority of the site "
        f"signed it, or a proxy in between, name a file with the certificate of that authority in {OPTION}."
    )


def registry_advice(printed: str, image: str, is_file: Callable[[str], bool]) -> str:
    """Return what to do if an engine rejects the certificate of a registry, or gets no answer; "" for other reasons.

    printed: the engine's message. image: what was pulled or pushed. is_file: whether a path of the node is a file.
    """
    if not REJECTED.search(printed):
        return _of_silence(printed)
    asked = _ASKED.search(printed)
    server = asked[1] if asked else image.partition("/")[0]
    if is_file(registry_file(server)) or _INVALID.search(printed):
        return advice(printed, server, registry_file(server))
    return (
        f"{advice(printed, server)} The engine trusts it at gaudi_image_registry and at the registries of "
        "container_runtime_certificate_registries."
    )


def _of_silence(printed: str) -> str:
    """Return what to do if a registry does not answer the engine; "" for another reason."""
    if not _SILENT.search(printed):
        return ""
    if "proxyconnect" in printed:
        return (
            "The proxy that the engine was given does not answer. Correct gaudi_http_proxy and gaudi_https_proxy "
            "(container_runtime_http_proxy and container_runtime_https_proxy where set); then run again."
        )
    return (
        "The registry does not answer the engine. The engine takes no proxy from /etc/environment or a shell: name it "
        "in gaudi_http_proxy and gaudi_https_proxy, from which its drop-in is written, or a mirror in "
        "gaudi_image_registry; then run again."
    )


def normalised(text: str, what: str) -> str:
    """Return the certificates alone, one PEM block after the other; "" for an empty text.

    Raises Refusal for anything that is no certificate. A private key is refused, and never quoted.
    """
    return "".join(
        "-----BEGIN CERTIFICATE-----\n{}-----END CERTIFICATE-----\n".format(
            "".join(f"{body[at : at + 64]}\n" for at in range(0, len(body), 64))
        )
        for body in (base64.b64encode(der).decode() for der in _decoded(text, what))
    )


def certificates(text: str, what: str) -> list[Certificate]:
    """Return what is in a text. Raises Refusal as normalised does."""
    return [_read(der, place, what) for place, der in enumerate(_decoded(text, what), 1)]


def expired(found: Sequence[Certificate], today: str) -> list[Certificate]:
    """Return those that are not valid any more; today: a day of UTC as 2031-12-31."""
    return [each for each in found if each.ends < today]


def _decoded(text: str, what: str) -> list[bytes]:
    if len(text.encode()) > LARGEST:
        raise Refusal(
            "certificates_too_large",
            f"{what} is larger than {LARGEST >> 10} KiB. Name the site's own authorities there alone; those of the "
            "node's system are added on the node.",
        )
    return list(_blocks(text, what)) if text.strip() else []


def _blocks(text: str, what: str) -> Iterator[bytes]:
    found = _BLOCK.findall(text)
    if any("PRIVATE KEY" in kind for kind, _ in found) or "PRIVATE KEY-----" in text:
        raise Refusal(
            "private_key_in_certificates",
            f"{what} has a private key in it, which would be readable by everybody on the nodes. Name a file with "
            "certificates alone. Its content is not shown.",
        )
    if not found or any(kind not in ("CERTIFICATE", "X509 CERTIFICATE") for kind, _ in found):
        raise Refusal(
            "no_certificates",
            f"{what} must be certificates in PEM (-----BEGIN CERTIFICATE-----), and is not. Convert a file in DER with "
            "openssl x509 -inform DER.",
        )
    for place, (_, body) in enumerate(found, 1):
        try:
            der = base64.b64decode("".join(body.split()), validate=True)
        except ValueError as error:
            raise Refusal(
                "certificate_damaged", f"{what}: certificate {place} cannot be read. Copy the file again."
            ) from error
        yield der


def _read(der: bytes, place: int, what: str) -> Certificate:
    """Read name and end of validity (RFC 5280, 4.1)."""
    try:
        fields = list(_parts(next(_parts(next(_parts(der))[1]))[1]))
        if fields[0][0] == _VERSION:
            del fields[0]
        _serial, _algorithm, _issuer, validity, subject = fields[:5]
        _begins, (kind, ends) = list(_parts(validity[1]))
        said = ends.decode("ascii")
        if kind == _UTC_TIME:
            # RFC 5280, 4.1.2.5.1: two digits of a year from 50 on are of the last century.
            said = f"{'19' if said[:2] >= '50' else '20'}{said}"
        if not said.isascii() or not said[:8].isdigit():
            raise ValueError(said)
    except (IndexError, ValueError, StopIteration, UnicodeDecodeError) as error:
        raise Refusal(
            "certificate_damaged", f"{what}: certificate {place} cannot be read. Copy the file again."
        ) from error
    _, found, rest = subject[1].rpartition(_COMMON_NAME)
    name = next(_parts(rest))[1].decode("utf-8", "replace") if found else ""
    return Certificate(place, printable(name), f"{said[:4]}-{said[4:6]}-{said[6:8]}")


def _parts(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield tag and content of the DER elements, one after the other. Raises IndexError for a text that is cut off."""
    at = 0
    while at < len(data):
        tag, length, at = data[at], data[at + 1], at + 2
        if length & 0x80:
            size = length & 0x7F
            length, at = int.from_bytes(data[at : at + size], "big"), at + size
        if at + length > len(data):
            raise IndexError(at)
        yield tag, data[at : at + length]
        at += length
