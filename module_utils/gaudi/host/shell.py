"""Parse the subset of shell syntax used in files such as /etc/default/grub; each character keeps its file and line."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from ..base.refusal import Refusal

_REFERENCE = re.compile(r"\$(?:(?P<plain>[A-Za-z_][A-Za-z0-9_]*)|\{(?P<braced>[A-Za-z_][A-Za-z0-9_]*)\})")
# Characters that a backslash escapes inside double quotes; before any other one it is literal.
_PROTECTED = ('"', "\\", "$", "`", "\n")


@dataclass(frozen=True)
class TextPosition:
    """The file and line of a piece of text."""

    path: str
    line: int

    def __str__(self) -> str:
        return f"{self.path}:{self.line}"


Text = tuple[tuple[str, TextPosition], ...]
"""Characters, each with the place it came from."""


def plain(text: Text) -> str:
    """Return the characters without their positions."""
    return "".join(character for character, _ in text)


def statements(path: str, text: str) -> list[Text]:
    """Split a file into statements, without comments; quotes and substitutions stay as written.

    Raises Refusal, with file and line, for an unclosed quote.
    """
    found: list[list[tuple[str, TextPosition]]] = [[]]
    line, index = 1, 0
    while index < len(text):
        current = found[-1]
        comment = text[index] == "#" and (not current or current[-1][0] in " \t")
        end = index + len(text[index:].split("\n", 1)[0]) if comment else _end_of_piece(path, text, index, line)
        piece = text[index:end]
        if piece in ("\n", ";"):
            found.append([])
        elif not comment and piece != "\\\n":
            current += [
                (character, TextPosition(path, line + piece.count("\n", 0, offset)))
                for offset, character in enumerate(piece)
            ]
        line += piece.count("\n")
        index = end
    return [statement for statement in map(_stripped, found) if statement]


def value(written: Text, values: Mapping[str, Text], *, quoted: bool = False) -> Text:
    """Return the value of an assignment's right-hand side; ``quoted``: it is inside double quotes.

    A command substitution stays as written, as its output is unknown.
    """
    text = plain(written)
    result: list[tuple[str, TextPosition]] = []
    index = 0
    while index < len(written):
        if not quoted and text[index] in " \t":
            # "NAME=value command" sets the variable for that command only; GRUB's files do not use it.
            break
        reference = _REFERENCE.match(text, index)
        if reference:
            result += values.get(reference["plain"] or reference["braced"], ())
            index = reference.end()
        else:
            place = written[index][1]
            literal = quoted and text[index] == "'"
            end = index + 1 if literal else _end_of_piece(place.path, text, index, place.line)
            result += _without_quotes(written[index:end], values, quoted)
            index = end
    return tuple(result)


def _without_quotes(piece: Text, values: Mapping[str, Text], quoted: bool) -> Text:
    """Return the value of one quoted, escaped or plain piece."""
    opening = piece[0][0]
    if opening == "'" and not quoted:
        return piece[1:-1]
    if opening == '"':
        return value(piece[1:-1], values, quoted=True)
    if opening != "\\" or (quoted and plain(piece[1:]) not in _PROTECTED):
        return piece
    return () if plain(piece) == "\\\n" else piece[1:]


def _stripped(text: list[tuple[str, TextPosition]]) -> Text:
    """Return a statement without the spaces around it."""
    written = "".join(character for character, _ in text)
    start = len(written) - len(written.lstrip(" \t"))
    return tuple(text[start : len(written.rstrip(" \t"))])


def _end_of_piece(path: str, text: str, start: int, line: int) -> int:
    """Return where the piece that begins at ``start`` ends: a quote, a substitution, or a single character."""
    opening = "$(" if text.startswith("$(", start) else text[start]
    if opening == "\\":
        return min(start + 2, len(text))
    if opening not in ("$(", "'", '"', "`"):
        return start + 1
    closing = ")" if opening == "$(" else opening
    nested = {"$(": ("$(", "`", "'", '"'), '"': ("$(", "`")}.get(opening, ())
    index, depth = start + len(opening), 1
    while index < len(text):
        character = text[index]
        if character == closing:
            depth -= 1
            if depth == 0:
                return index + 1
        if text.startswith(nested, index):
            index = _end_of_piece(path, text, index, line + text.count("\n", start, index))
            continue
        depth += opening == "$(" and character == "("
        index += 2 if character == "\\" and opening != "'" else 1
    raise Refusal(
        "quote_never_closed",
        f"{path}:{line}: the {opening} opened here is never closed, so GRUB could not read the file. Close it.",
    )
