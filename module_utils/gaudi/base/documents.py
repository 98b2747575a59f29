"""Parse JSON documents that this project keeps on a node; they may have been damaged since they were written."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

# Nesting limit; none of our documents is that deep, and json itself stops at about a thousand levels.
DEEPEST = 32
# Bytes of the largest files and nanoseconds of a century stay below.
LARGEST_NUMBER = 10**19
# Characters of a text file that a request names. The longest list of buckets in a public report has some 30,000.
LONGEST_FILE = 1 << 20
_TOO_LARGE = "it holds a number that is too large"


class Damaged(ValueError):
    """A file that exists but does not hold what it should.

    path: the file. what: the defect, as a clause that begins with "it".
    """

    def __init__(self, path: str, what: str) -> None:
        super().__init__(path, what)
        self.path = path
        self.what = what

    def __str__(self) -> str:
        """Return the sentence without its full stop, so that the caller can add the consequence."""
        return f"{self.path} is damaged: {self.what}"


def parse(text: str, form: Any = dict, schema: int | None = None, *, of_model: bool = False) -> dict[str, Any]:
    """Parse a document and compare it with a form (see misfit) and, if given, a schema number.

    of_model: it is a file of a model, in which numbers may be infinite.
    Raises ValueError, with a clause that begins with "it", if the text does not match.
    """
    if not text.strip("\0 \t\r\n"):
        # A power cut leaves a new file empty or full of zeros.
        raise ValueError("it is empty")
    try:
        content = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"it is cut off or no JSON (line {error.lineno}: {error.msg})") from error
    except ValueError as error:
        # Python reads no integer of more than 4,300 digits.
        raise ValueError(_TOO_LARGE) from error
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    if not isinstance(content, dict):
        raise ValueError(f"it holds {_kind(content)} where a mapping is to be")
    if deeper(content, DEEPEST):
        raise ValueError("it is nested too deeply")
    if not of_model and not all(bounded(leaf) for leaf in leaves(content)):
        raise ValueError(_TOO_LARGE)
    if schema is not None and content.get("schema") != schema:
        raise ValueError(f"it is of schema {content.get('schema')!r}; this release reads schema {schema}"[:200])
    wrong = misfit(content, form)
    if wrong:
        raise ValueError(f"it has no {wrong}, or of another type" if wrong != "." else "it has another form")
    return content


def misfit(value: Any, form: Any) -> str | None:
    """Name the first place where a JSON value has another form, such as "cards.0.serial"; None where it fits.

    A form is a type or a tuple of types; [form of every element]; {str: form of every value}; or {key: form}, where a
    key that ends in "?" may be absent and other keys are not looked at. "." is the value itself.
    """
    if isinstance(form, list):
        if not isinstance(value, list):
            return "."
        return _first({str(number): (element, form[0]) for number, element in enumerate(value)})
    if not isinstance(form, dict):
        # true is an int to Python, not to JSON.
        return None if isinstance(value, form) and not (isinstance(value, bool) and form is int) else "."
    if not isinstance(value, dict):
        return "."
    if str in form:
        return _first({name: (element, form[str]) for name, element in value.items()})
    asked = {key.rstrip("?"): (key, inner) for key, inner in form.items()}
    absent = next((name for name, (key, _) in asked.items() if name not in value and not key.endswith("?")), None)
    return absent or _first({name: (value[name], inner) for name, (_, inner) in asked.items() if name in value})


def _first(parts: Mapping[str, tuple[Any, Any]]) -> str | None:
    for name, (value, form) in parts.items():
        wrong = misfit(value, form)
        if wrong:
            return name if wrong == "." else f"{name}.{wrong}"
    return None


def _kind(value: object) -> str:
    """What JSON calls a value."""
    names = {str: "a text", bool: "a truth value", int: "a number", float: "a number", list: "a list"}
    return names.get(type(value), "null")


def leaves(value: object) -> Iterator[object]:
    """Yield the keys and values of nested mappings and lists."""
    if isinstance(value, Mapping):
        yield from value
    inner = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    for each in inner:
        yield from leaves(each)
    if not isinstance(value, (Mapping, list)):
        yield value


def bounded(leaf: object) -> bool:
    """Return whether a leaf is no number, or one that can be calculated with; JSON of Python has Infinity and NaN."""
    # NaN compares with nothing.
    return not isinstance(leaf, (int, float)) or abs(leaf) <= LARGEST_NUMBER


def deeper(value: object, levels: int) -> bool:
    """Return whether mappings and lists are nested more than ``levels`` deep."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return levels == 0 or any(deeper(item, levels - 1) for item in inner)
