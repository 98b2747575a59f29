"""What a server's option or variable takes: its type, its default and its choices, as a release file says them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ..base.checks import Reader

# ``flag`` takes no value (and has a --no- form), ``bool`` is a variable's word, ``text`` and ``list`` take anything.
TYPES = ("flag", "bool", "int", "float", "text", "list", "json", "choice")
# Words that vLLM and the plugin accept for an on/off variable; the plugin reads every other word as off.
WORDS = ("true", "t", "1", "yes", "y", "on", "false", "f", "0", "no", "n", "off", "")


@dataclass(frozen=True)
class TypedOption:
    """One option or variable of a server. ``default`` is as it is written; None where the server decides. ``choices``
    of a bool are the words that its code reads rightly, in any case; without them WORDS.
    """

    type: str
    default: str | None = None
    choices: tuple[str, ...] = ()

    KEYS = ("type", "default", "choices")

    @classmethod
    def table(cls, value: Mapping[str, object], where: str) -> dict[str, TypedOption]:
        """Read a mapping of names to {type, default, choices}; raises Refusal with file and key."""
        found = {}
        for name, entry in value.items():
            reader = Reader(entry, f"{where}.{name}", cls.KEYS)
            choices = reader.texts("choices")
            found[name] = cls(reader.choice("type", TYPES), reader.optional_text("default"), choices)
        return found

    def wrong(self, value: str) -> str | None:
        """Return what the server requires instead of ``value``; None if it accepts the value."""
        if self.type == "choice":
            return None if value in self.choices else f"one of {', '.join(self.choices)}"
        if self.type == "bool":
            words = self.choices or WORDS
            return None if value.lower() in words else " or ".join(self.choices or ("true", "false"))
        read, form = _READ.get(self.type, (str, ""))
        try:
            read(value)
        except ValueError:
            return form
        return None


_READ: Mapping[str, tuple[Callable[[str], object], str]] = {
    "int": (int, "a whole number"),
    "float": (float, "a number"),
    "json": (json.loads, "JSON"),
}
