"""Read the fingerprints of OpenPGP keys from a file (RFC 9580), without gpg on the node."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterator

from ..base.refusal import Refusal

# Strict on purpose: only files that all readers read alike. After padding, apt's reader goes on and others stop. So
# padding may only end the last line, a blank line must precede the first one, and no line may be skipped.
_ARMOUR = re.compile(
    r"^-----BEGIN PGP PUBLIC KEY BLOCK-----\n(?:[^\n:]+: [^\n]*\n)*\n"
    r"((?:[A-Za-z0-9+/]{1,76}\n)*[A-Za-z0-9+/]{1,76}={0,2}\n)(?:=[A-Za-z0-9+/]{4}\n)?"
    r"-----END PGP PUBLIC KEY BLOCK-----$",
    re.MULTILINE,
)
# Section 5: the packet of a primary key, and packets that may follow: signatures, subkeys, user ids, pictures. Secret
# keys are refused, as some programs trust them like public ones. Section 4.2: the length of a packet.
_PUBLIC_KEY = 6
_OF_A_KEY = (2, _PUBLIC_KEY, 13, 14, 17)
_ONE_BYTE, _TWO_BYTES, _FIVE_BYTES = 192, 224, 255


def fingerprints(armoured: str) -> list[str]:
    """Return the fingerprints of all primary keys of an ASCII-armoured file, in file order, in upper case.

    Raises Refusal for any other file, and for keys of a version other than 4 and 6.
    """
    text = armoured.replace("\r\n", "\n")
    blocks = _ARMOUR.findall(text)
    try:
        packets = [packet for block in blocks for packet in _packets(base64.b64decode(block))]
        found = [_fingerprint(body) for tag, body in packets if tag == _PUBLIC_KEY]
    except (IndexError, ValueError) as error:
        raise Refusal("not_openpgp_keys", f"the file of the key cannot be read as OpenPGP keys ({error}).") from error
    # Beside the blocks nothing: of a file that begins otherwise, gpg and dnf read that, and apt the blocks.
    beside = _ARMOUR.sub("", text).strip(" \n")
    if not found or beside or any(tag not in _OF_A_KEY for tag, _body in packets):
        raise Refusal(
            "not_openpgp_keys",
            "the file of the key holds something else than ASCII-armoured OpenPGP keys. Look at what its address "
            "gives, with curl.",
        )
    return found


def keyring(content: bytes) -> list[str]:
    """Return the fingerprints of all primary keys of a keyring that apt reads, armoured or binary, in upper case.

    Raises Refusal for any other file.
    """
    if content.lstrip().startswith(b"-----BEGIN"):
        return fingerprints(content.decode("ascii", "replace").strip() + "\n")
    try:
        found = [_fingerprint(body) for tag, body in _packets(content) if tag == _PUBLIC_KEY]
    except (IndexError, ValueError) as error:
        raise Refusal("not_openpgp_keys", f"the file of the key cannot be read as OpenPGP keys ({error}).") from error
    if not found:
        raise Refusal("not_openpgp_keys", "the file of the key holds no OpenPGP keys.")
    return found


def _fingerprint(body: bytes) -> str:
    """Section 5.5.4: a hash of the key's packet, with its length before it."""
    if body[0] == 4:
        return hashlib.sha1(b"\x99" + len(body).to_bytes(2, "big") + body, usedforsecurity=False).hexdigest().upper()
    if body[0] == 6:
        return hashlib.sha256(b"\x9b" + len(body).to_bytes(4, "big") + body).hexdigest().upper()
    raise ValueError(f"a key of version {body[0]}")


def _packets(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield tag and body of each packet; a packet in parts is refused, as no key has one."""
    at = 0
    while at < len(data):
        head = data[at]
        if not head & 0x80:
            raise ValueError("no packet where one should begin")
        if head & 0x40:
            tag, (size, begin) = head & 0x3F, _new_length(data, at + 1)
        else:
            wide = 1 << (head & 3)
            if wide > 4:
                raise ValueError("a packet without a length")
            tag, size, begin = head >> 2 & 0xF, int.from_bytes(data[at + 1 : at + 1 + wide], "big"), at + 1 + wide
        if begin + size > len(data):
            raise ValueError("a packet that is cut off")
        yield tag, data[begin : begin + size]
        at = begin + size


def _new_length(data: bytes, at: int) -> tuple[int, int]:
    """Return the length of a new-format packet's body, and the position where it begins."""
    first = data[at]
    if first < _ONE_BYTE:
        return first, at + 1
    if first < _TWO_BYTES:
        return (first - _ONE_BYTE << 8) + data[at + 1] + _ONE_BYTE, at + 2
    if first == _FIVE_BYTES:
        return int.from_bytes(data[at + 1 : at + 5], "big"), at + 5
    raise ValueError("a packet in parts")
