"""API keys: what one must look like. No key is in any sentence."""

from __future__ import annotations

import re

OPTION = "vllm_service_api_keys"
# A key is one line of a file and one word of a header; shorter ones can be guessed.
KEY = re.compile(r"[!-~]{16,512}")
FORM = "a text of 16 to 512 printable ASCII characters without blanks and line breaks, in quotes if it is all digits"


def faults(name: str, value: object) -> list[str]:
    """A sentence for each API key that is none; nothing for other options. ``value`` is the option's, a list."""
    if name != OPTION:
        return []
    if not isinstance(value, (list, tuple)):
        return [f"{name} must be a list, and is {_kind(value)}. Its value is not shown: it may hold a secret."]
    return [
        f"{name}[{place}] is {_kind(key)}, but a key is {FORM}. It is not shown."
        for place, key in enumerate(value)
        if not (isinstance(key, str) and KEY.fullmatch(key))
    ]


def _kind(value: object) -> str:
    """What is wrong with a key, without the key."""
    if not isinstance(value, str):
        return "a number" if isinstance(value, (int, float)) and not isinstance(value, bool) else "no text"
    if not value:
        return "empty"
    if re.search(r"\s", value):
        return "a text with blanks or line breaks"
    return f"a text of {len(value)} characters" if value.isascii() else "a text with other characters than ASCII"
