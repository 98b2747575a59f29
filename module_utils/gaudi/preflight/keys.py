"""API keys: what an inventory's must look like. No key is in any sentence."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterator, Mapping

from ..base.checks import question
from ..base.refusal import Refusal
from ..serving import keys

OPTION = "vllm_service_api_keys"
FORM = (
    "a text of 16 to 512 printable ASCII characters without blanks and line breaks, in quotes if it is all digits, or "
    "the digest of one"
)


def faults(name: str, value: object) -> list[str]:
    """A sentence for each API key that is none; nothing for other options.

    ``value`` is the option's, a list for all instances or a mapping from an instance to its list.
    """
    if name != OPTION:
        return []
    lists = {f"{name}.{key}": inner for key, inner in value.items()} if isinstance(value, Mapping) else {name: value}
    return [said for where, entries in lists.items() for said in _faults(where, entries)]


def strangers(value: object, instances: Collection[str]) -> tuple[list[str], list[str]]:
    """What is wrong, and what is odd, with the names in a mapping of keys: a mistyped one leaves its instance open.

    ``instances`` are those of the inventory. One that is to be open beside another of nearly its name has no keys: [].
    """
    problems: list[str] = []
    findings: list[str] = []
    if not isinstance(value, Mapping):
        return problems, findings
    without = [instance for instance in instances if instance not in value]
    for name in [name for name in value if name not in instances]:
        near = difflib.get_close_matches(str(name), without, n=1)
        said = f"{OPTION} has keys for {name}, and no instance is called so."
        if near:
            problems.append(f"{said}{question(near)} If that is to ask for no keys, say so: {near[0]}: [].")
        else:
            findings.append(f"{said} They open nothing.")
    return problems, findings


def _faults(where: str, entries: object) -> Iterator[str]:
    if not isinstance(entries, (list, tuple)):
        yield str(keys.not_keys(where))
        return
    for place, entry in enumerate(entries):
        try:
            keys.entry(entry, place + 1)
        except Refusal as refusal:
            said = f"is {_kind(entry)}, but a key is {FORM}. It is not shown."
            yield f"{where}[{place}]{f': {refusal}' if refusal.id != 'not_an_api_key' else f' {said}'}"


def _kind(value: object) -> str:
    """What is wrong with a key, without the key."""
    if not isinstance(value, str):
        return "a number" if isinstance(value, (int, float)) and not isinstance(value, bool) else "no text"
    if not value:
        return "empty"
    if re.search(r"\s", value):
        return "a text with blanks or line breaks"
    return f"a text of {len(value)} characters" if value.isascii() else "a text with other characters than ASCII"
