"""Build HTML that is always escaped: a str is text until element() makes it HTML."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape

from ..base.printable import printable

# HTML elements without content.
_VOID = frozenset(("meta", "br"))


class Html(str):
    """Text that is HTML already; made by element() and joined() only."""

    __slots__ = ()


def element(name: str, attributes: Mapping[str, object] | None = None, *children: str) -> Html:
    """Return an element; children that are no Html are text, and attributes are always text."""
    given = "".join(f' {key}="{_text(str(value))}"' for key, value in (attributes or {}).items())
    return Html(f"<{name}{given}>" if name in _VOID else f"<{name}{given}>{joined(children)}</{name}>")


def joined(children: Iterable[str]) -> Html:
    """Return children one after the other; those that are no Html are text."""
    return Html("".join(child if isinstance(child, Html) else _text(child) for child in children))


def _text(text: str) -> str:
    return escape(printable(str(text)), quote=True)
