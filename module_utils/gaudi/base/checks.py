"""Check values from outside: each option and catalogue key has a type and a range, and a wrong one is refused."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Mapping, Sequence
from itertools import islice

from .refusal import Refusal

# Longest text any single value may have (characters). Linux refuses a single argument or
# environment string above 128 KiB (MAX_ARG_STRLEN); far less than that is already a mistake here.
MAX_TEXT = 4096

HUB_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}/[A-Za-z0-9][A-Za-z0-9._-]{0,95}")
"""A repository of a hub: OWNER/NAME."""

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_INTEGER = re.compile(r"-?(0|[1-9][0-9]{0,17})\Z", re.ASCII)
_DECIMAL = re.compile(r"-?(0|[1-9][0-9]{0,8})(\.[0-9]{1,12})?\Z", re.ASCII)


# Levels of nesting that a message shows of a value; deeper levels do not help the reader.
_DEEPEST = 4
# Spellings of these values in YAML and JSON.
_WORDS = {None: "null", True: "true", False: "false"}


def meant(said: object, known: Sequence[str], otherwise: str) -> str:
    """Suggest the known name that is closest to a misspelled one, as a question; ``otherwise`` if none is close."""
    return question(difflib.get_close_matches(str(said), known, 1)).lstrip() or otherwise


def question(near: Sequence[str]) -> str:
    """Ask whether one of these names was meant, as an addition to a sentence; "" without names."""
    return f" Did you mean {' or '.join(near)}?" if near else ""


def shown(value: object, limit: int = 80) -> str:
    """Return a value as YAML would spell it, cut so that a long value does not make a long message."""
    if isinstance(value, str) and len(value) > limit:
        return f"{value[:limit]!r}... ({len(value)} characters)"
    text = _spelled(value, _DEEPEST, limit)
    return text if len(text) <= limit else f"{text[:limit]}..."


def _spelled(value: object, depth: int, limit: int) -> str:
    """Spell a value; of more elements than characters are shown the others cannot be seen."""
    if value is None or isinstance(value, bool):
        return _WORDS[value]
    if isinstance(value, Mapping):
        items = islice(value.items(), limit)
        pairs = (f"{_spelled(key, depth - 1, limit)}: {_spelled(item, depth - 1, limit)}" for key, item in items)
        return f"{{{', '.join(pairs) if depth else '...'}}}"
    if isinstance(value, (list, tuple)):
        elements = (_spelled(item, depth - 1, limit) for item in islice(value, limit))
        return f"[{', '.join(elements) if depth else '...'}]"
    return repr(value)


MOST_OF_FIGURE = 1 << 40
"""Of a figure in somebody's file: Python does not print every product of longer ones."""


def positive(value: object) -> int | None:
    """Return a whole number above zero; None for anything else, and for more than any file has."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= MOST_OF_FIGURE else None


def text(value: object, what: str, *, longest: int = MAX_TEXT, empty: bool = False) -> str:
    """Return a string without control characters, so that it stays one argument, one line or one file name."""
    if not isinstance(value, str):
        raise Refusal("not_text", f"{what} must be text, not {shown(value)}.")
    if len(value) > longest:
        raise Refusal("too_long", f"{what} has {len(value)} characters, the limit is {longest}. Shorten it.")
    found = _CONTROL.search(value)
    if found:
        raise Refusal(
            "control_character", f"{what} {shown(value)} contains the control character {found.group()!r}. Remove it."
        )
    if not value and not empty:
        raise Refusal("empty", f"{what} is empty. Give it a value or leave it out.")
    return str(value)


def matching(value: object, what: str, pattern: re.Pattern[str], form: str, *, longest: int = MAX_TEXT) -> str:
    """A string of a given form; ``form`` says in words what the pattern asks for."""
    result = text(value, what, longest=longest)
    if not pattern.fullmatch(result):
        raise Refusal("wrong_form", f"{what} {shown(result)} must be {form}.")
    return result


def integer(value: object, what: str, lowest: int, highest: int) -> int:
    """A whole number within a range. Inventories and ``-e key=value`` write numbers as text: "8" is 8."""
    if isinstance(value, str) and _INTEGER.match(value):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise Refusal(
            "not_a_whole_number", f"{what} must be a whole number from {lowest} to {highest}, not {shown(value)}."
        )
    if not lowest <= value <= highest:
        raise Refusal(
            "out_of_range",
            f"{what} is {shown(value)}, the limits are {lowest} to {highest}. Choose a value between them.",
        )
    return int(value)


class Number(float):
    """A number that keeps its original spelling: ``0.90`` stays ``0.90``, ``0`` does not become ``0.0``."""

    text: str

    def __new__(cls, value: float, text: str) -> Number:
        """Keep the text beside the value."""
        number = super().__new__(cls, value)
        number.text = text
        return number

    def __str__(self) -> str:
        return self.text


def number(value: object, what: str, lowest: float, highest: float) -> float:
    """A number within a range; text must look like ``0.25``, never ``.5`` or ``1e-1``."""
    written = str(value)[:64]
    if isinstance(value, str):
        if not _DECIMAL.match(value):
            raise Refusal(
                "not_a_number",
                f"{what} must be a number from {lowest} to {highest} written like 0.25, not {shown(value)}.",
            )
        value = float(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise Refusal("not_a_number", f"{what} must be a number from {lowest} to {highest}, not {shown(value)}.")
    if not lowest <= value <= highest:  # also refuses NaN
        raise Refusal(
            "out_of_range",
            f"{what} is {shown(value)}, the limits are {lowest} to {highest}. Choose a value between them.",
        )
    return Number(value, written)


def switch(value: object, what: str) -> bool:
    """A boolean; the words that ``-e key=true`` delivers count too."""
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in ("true", "yes", "false", "no"):
        return value.lower() in ("true", "yes")
    raise Refusal("not_true_or_false", f"{what} must be true or false, not {shown(value)}.")


def choice(value: object, what: str, allowed: Collection[str]) -> str:
    """One of a few words."""
    if not isinstance(value, str) or value not in allowed:
        raise Refusal("unknown_choice", f"{what} must be one of {', '.join(sorted(allowed))}, not {shown(value)}.")
    return str(value)


def mapping(value: object, what: str) -> Mapping[str, object]:
    """A mapping whose keys are all text."""
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise Refusal("not_a_mapping", f"{what} must be a mapping of names to values, not {shown(value)}.")
    return value


def sequence(value: object, what: str, longest: int = 256) -> Sequence[object]:
    """A list (never a string, which is also a sequence to Python)."""
    if isinstance(value, (str, bytes)) or not isinstance(value, Sequence):
        raise Refusal("not_a_list", f"{what} must be a list, not {shown(value)}.")
    if len(value) > longest:
        raise Refusal("too_many_entries", f"{what} has {len(value)} entries, the limit is {longest}.")
    return value


def only_known(value: Mapping[str, object], what: str, known: Collection[str]) -> None:
    """Refuse unknown keys: a misspelled option would otherwise have no effect without a word."""
    unknown = sorted(set(value) - set(known))
    if unknown:
        names = ", ".join(shown(name) for name in unknown[:5])
        raise Refusal("unknown_key", f"{what} does not know {names}. Known: {', '.join(sorted(known))}.")


class Reader:
    """Reads one mapping key by key; errors name the file and the key, and keys that nobody read are refused."""

    def __init__(self, value: object, where: str, known: Collection[str]) -> None:
        self._values = mapping(value, where)
        self._where = where
        only_known(self._values, where, known)

    def _what(self, key: str) -> str:
        return f"{self._where}: key {key}"

    def has(self, key: str) -> bool:
        """Whether the key is there with a value."""
        return self._values.get(key) is not None

    def raw(self, key: str) -> object:
        """Return the value as it is; a missing key is refused."""
        if not self.has(key):
            raise Refusal("missing_key", f"{self._what(key)} is missing. Add it.")
        return self._values[key]

    def text(self, key: str, default: str | None = None, *, longest: int = MAX_TEXT) -> str:
        """Text, or the default when the key is absent."""
        if default is not None and not self.has(key):
            return default
        return text(self.raw(key), self._what(key), longest=longest, empty=default == "")

    def optional_text(self, key: str) -> str | None:
        """Text or None."""
        return text(self.raw(key), self._what(key)) if self.has(key) else None

    def integer(self, key: str, lowest: int, highest: int, default: int | None = None) -> int:
        """A whole number within a range."""
        if default is not None and not self.has(key):
            return default
        return integer(self.raw(key), self._what(key), lowest, highest)

    def number(self, key: str, lowest: float, highest: float, default: float | None = None) -> float:
        """A number within a range."""
        if default is not None and not self.has(key):
            return default
        return number(self.raw(key), self._what(key), lowest, highest)

    def switch(self, key: str, default: bool | None = None) -> bool:
        """A boolean."""
        if default is not None and not self.has(key):
            return default
        return switch(self.raw(key), self._what(key))

    def choice(self, key: str, allowed: Collection[str], default: str | None = None) -> str:
        """One of a few words."""
        if default is not None and not self.has(key):
            return default
        return choice(self.raw(key), self._what(key), allowed)

    def texts(self, key: str, *, required: bool = False, longest: int = 1024) -> tuple[str, ...]:
        """A list of texts, empty when the key is absent."""
        if not required and not self.has(key):
            return ()
        items = sequence(self.raw(key), self._what(key), longest)
        return tuple(text(item, self._what(key)) for item in items)

    def mapping(self, key: str, *, required: bool = False) -> Mapping[str, object]:
        """A mapping, empty when the key is absent and not required."""
        return mapping(self.raw(key), self._what(key)) if required or self.has(key) else {}

    def text_mapping(self, key: str) -> dict[str, str]:
        """A mapping of text to text, empty when the key is absent."""
        return {name: text(value, f"{self._what(key)}.{name}", empty=True) for name, value in self.mapping(key).items()}
