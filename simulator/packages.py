"""Debian packages and a signed repository of them, made of nothing but what they are to say.

A package is an ar archive of three members (deb(5)); a repository is an index of packages, and a Release file with the
index's hash that a key has signed (apt-secure(8)). No tool of Debian's is needed to make either.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from simulator import context
from simulator.context import ContextFile

# When the key and every signature were made, in seconds since the epoch: what is made twice is the same.
MADE = 1_700_000_000
_RSA, _SHA256 = 1, 8
_OF_DOCUMENT, _OF_KEY = 0x00, 0x13


@dataclass(frozen=True)
class SimulatedPackage:
    """A binary package. ``files``: what it puts where. ``scripts``: maintainer scripts by name, such as postinst."""

    name: str
    version: str
    about: str
    depends: tuple[str, ...] = ()
    files: Mapping[str, ContextFile] = field(default_factory=dict)
    scripts: Mapping[str, str] = field(default_factory=dict)

    @property
    def path(self) -> str:
        """Where it lies in the repository."""
        # An epoch is not part of a file's name.
        return f"pool/{self.name}_{self.version.rpartition(':')[2]}_all.deb"

    def control(self) -> str:
        """Its control file."""
        depends = [f"Depends: {', '.join(self.depends)}"] if self.depends else []
        size = -(-sum(len(file.content) for file in self.files.values()) // 1024)
        lines = [f"Package: {self.name}", f"Version: {self.version}", "Architecture: all", *depends]
        lines += [f"Installed-Size: {size}"]
        lines += ["Maintainer: gaudi-serving simulator <nobody@localhost>", f"Description: {self.about}"]
        return "\n".join(lines) + "\n"

    def content(self) -> bytes:
        """The .deb file."""
        scripts = {f"./{name}": context.text(script, 0o755) for name, script in self.scripts.items()}
        control = _packed({"./control": context.text(self.control()), **scripts})
        data = _packed({f"./{path}": file for path, file in self.files.items()})
        members = {"debian-binary": b"2.0\n", "control.tar.gz": control, "data.tar.gz": data}
        return b"!<arch>\n" + b"".join(_member(name, content) for name, content in members.items())


def repository(packages: Iterable[SimulatedPackage], suite: str, signer: Signer) -> dict[str, ContextFile]:
    """The files of a repository with one suite and one component, main, for amd64; its key is in key.asc."""
    files = {package.path: ContextFile(package.content()) for package in packages}
    index = "\n".join(_entry(package, files[package.path].content) for package in packages).encode()
    place = "main/binary-amd64/Packages"
    release = (
        f"Origin: simulated\nLabel: simulated\nSuite: {suite}\nCodename: {suite}\nArchitectures: amd64\n"
        f"Components: main\nDate: Tue, 14 Nov 2023 22:13:20 UTC\nDescription: Simulated: not an Intel Gaudi product\n"
        f"SHA256:\n {hashlib.sha256(index).hexdigest()} {len(index)} {place}\n"
    ).encode()
    return {
        **files,
        f"dists/{suite}/{place}": ContextFile(index),
        f"dists/{suite}/Release": ContextFile(release),
        f"dists/{suite}/Release.gpg": context.text(signer.signature(release)),
        "key.asc": context.text(signer.public),
    }


def _entry(package: SimulatedPackage, content: bytes) -> str:
    where = f"Filename: {package.path}\nSize: {len(content)}\nSHA256: {hashlib.sha256(content).hexdigest()}\n"
    return package.control() + where


def _packed(files: Mapping[str, ContextFile]) -> bytes:
    return gzip.compress(context.archive(files), mtime=0)


def _member(name: str, content: bytes) -> bytes:
    head = f"{name:<16}{0:<12}{0:<6}{0:<6}{'100644':<8}{len(content):<10}`\n".encode()
    return head + content + b"\n" * (len(content) % 2)


class Signer:
    """An OpenPGP key of RSA that signs (RFC 9580, version 4)."""

    def __init__(self, key: rsa.RSAPrivateKey, user: str) -> None:
        self._key, self._user = key, user.encode()
        numbers = key.public_key().public_numbers()
        self._body = struct.pack(">BIB", 4, MADE, _RSA) + _number(numbers.n) + _number(numbers.e)

    @property
    def fingerprint(self) -> str:
        """Of the key, in upper case."""
        return hashlib.sha1(self._hashed_key(), usedforsecurity=False).hexdigest().upper()

    @property
    def public(self) -> str:
        """The public key with its user, ASCII-armoured."""
        user = struct.pack(">BI", 0xB4, len(self._user)) + self._user
        packets = _packet(6, self._body) + _packet(13, self._user)
        return _armoured("PUBLIC KEY BLOCK", packets + self._sign(_OF_KEY, self._hashed_key() + user))

    def signature(self, document: bytes) -> str:
        """A detached signature of a document, ASCII-armoured."""
        return _armoured("SIGNATURE", self._sign(_OF_DOCUMENT, document))

    def _hashed_key(self) -> bytes:
        return b"\x99" + struct.pack(">H", len(self._body)) + self._body

    def _sign(self, kind: int, what: bytes) -> bytes:
        """A signature packet (section 5.2.3)."""
        fingerprint = bytes.fromhex(self.fingerprint)
        # When it was made, whose it is, and that the key may sign and certify.
        hashed = _sub(2, struct.pack(">I", MADE)) + _sub(33, b"\x04" + fingerprint) + _sub(27, b"\x03")
        head = struct.pack(">BBBBH", 4, kind, _RSA, _SHA256, len(hashed)) + hashed
        signed = what + head + struct.pack(">BBI", 4, 0xFF, len(head))
        made = self._key.sign(signed, padding.PKCS1v15(), hashes.SHA256())
        other = _sub(16, fingerprint[-8:])
        tail = struct.pack(">H", len(other)) + other + hashlib.sha256(signed).digest()[:2]
        return _packet(2, head + tail + _number(int.from_bytes(made, "big")))


def _number(value: int) -> bytes:
    """A multiprecision integer (section 3.2)."""
    bits = value.bit_length()
    return struct.pack(">H", bits) + value.to_bytes((bits + 7) // 8, "big")


def _sub(kind: int, content: bytes) -> bytes:
    return bytes([len(content) + 1, kind]) + content


def _packet(tag: int, body: bytes) -> bytes:
    """A packet of the new format with a length of five bytes (section 4.2)."""
    return bytes([0xC0 | tag, 0xFF]) + struct.pack(">I", len(body)) + body


def _armoured(kind: str, content: bytes) -> str:
    """ASCII armour with its checksum, which apt's own reader expects (section 6)."""
    crc = 0xB704CE
    for byte in content:
        crc ^= byte << 16
        for _ in range(8):
            crc = crc << 1 ^ (0x1864CFB if crc & 0x800000 else 0)
    text = base64.b64encode(content).decode()
    lines = "\n".join(text[start : start + 64] for start in range(0, len(text), 64))
    check = base64.b64encode((crc & 0xFFFFFF).to_bytes(3, "big")).decode()
    return f"-----BEGIN PGP {kind}-----\n\n{lines}\n={check}\n-----END PGP {kind}-----\n"
