"""Requirement files of a fork: lines that name a branch are replaced, others dropped, before pip reads them."""

from __future__ import annotations

import re
from collections.abc import Collection

from ..base.refusal import Refusal

_NAME = re.compile(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)")
# A file of the checkout, which is rewritten as well; pip reads all of these forms.
_INCLUDE = re.compile(r"\s*(?:-r|--requirement)[ =]*((?![/~.]|[^\s]*(?:\.\.|:|\$))\S+)\s*")
# A package of an index (PEP 508): a name, extras, versions, a marker. Whatever else pip reads names another source (a
# repository, an address, a path), another index, or goes on in the next line.
_PACKAGE = re.compile(
    r"\s*[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?\s*(?:\[[A-Za-z0-9._, -]*\])?\s*"
    r"\(?(?:\s*(?:===|==|!=|<=|>=|~=|<|>)\s*[A-Za-z0-9.*+!_-]+\s*,?)*\)?\s*(?:;[^\\]*)?"
)
# As pip takes comments away.
_COMMENT = re.compile(r"(^|\s+)#.*$")


def project(name: str) -> str:
    """What an index calls a distribution (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def rewritten(text: str, file: str, replaced: Collection[str], dropped: Collection[str]) -> str:
    """A requirement file without the lines of distributions that are installed from a pin, or that are to stay.

    replaced: they lie in the image already, so that the bare name is left. dropped: names that their lines begin with.
    Raises Refusal, with file and line, for another line that is no package of an index: a branch is no pin.
    """
    lines = []
    for number, line in enumerate(text.splitlines(), 1):
        said = _COMMENT.sub("", line)
        found = _NAME.match(said)
        name = project(found[1]) if found else ""
        if name in {project(other) for other in replaced}:
            lines.append(str(found[1]) if found else line)
        elif not any(name.startswith(project(other)) for other in dropped if name):
            if said.strip() and not _PACKAGE.fullmatch(said) and not _INCLUDE.fullmatch(said):
                raise Refusal(
                    "requirement_without_pin",
                    f"{file}, line {number}, wants {said.strip()}, which is no package of an index, and nothing pins "
                    "its commit. Add a pin of it to serving_image_pins, or use a commit of the fork that names none.",
                )
            lines.append(line)
    return "".join(f"{line}\n" for line in lines)


def included(text: str) -> list[str]:
    """The files that a requirement file includes, as it names them."""
    lines = (_COMMENT.sub("", line) for line in text.splitlines())
    return [found[1] for found in map(_INCLUDE.fullmatch, lines) if found]
