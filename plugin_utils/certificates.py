"""The certificates of the site, as gaudi_ca_certificates names them: a file on the controller, or their text."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime
from pathlib import Path

from ansible.module_utils.gaudi.base.certificates import LARGEST, certificates, expired, normalised
from ansible.module_utils.gaudi.base.refusal import Refusal

OPTION = "gaudi_ca_certificates"
OPTIONS = (OPTION, "container_runtime_certificates", "site_access_certificates")


def judged(option: str, value: str) -> tuple[list[str], list[str]]:
    """Return problems and findings of an option's certificates. Those that have expired are named."""
    try:
        pem = pem_of(value, option)
        found = certificates(pem, option)
    except Refusal as refusal:
        return [str(refusal)], []
    ended = expired(found, f"{datetime.now(UTC):%Y-%m-%d}")
    if not ended:
        return [], []
    said = f"{option}: expired: {'; '.join(map(str, ended))}. Replace it there."
    return ([said], []) if len(ended) == len(found) else ([], [said])


def pem_of(value: str, option: str = OPTION) -> str:
    """Return the certificates alone, of the path of a file or of a text. Raises Refusal for anything else."""
    pem: str = normalised(text_of(value, option), option)
    try:
        if pem:
            # One that OpenSSL cannot read would make programs refuse the whole file.
            ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=pem)
    except ssl.SSLError as error:
        raise Refusal(
            "certificates_damaged", f"{option}: OpenSSL cannot read these certificates. Copy the file again."
        ) from error
    return pem


def text_of(value: str, option: str = OPTION) -> str:
    """Return the text; a path is read. Raises Refusal if it cannot be read."""
    if not value.strip() or "-----BEGIN" in value:
        return value
    path = Path(value).expanduser()
    if not path.is_absolute() or "\n" in value:
        raise Refusal(
            "certificates_not_named",
            f"{option} must be the absolute path of a PEM file on the controller, or PEM text, and is neither.",
        )
    try:
        with path.open("rb") as file:
            return file.read(LARGEST + 1).decode("utf-8", "replace")
    except OSError as error:
        raise Refusal(
            "certificates_unread",
            f"{option} names {path}, which cannot be read on the controller ({error.strerror}). Correct the path.",
        ) from error
