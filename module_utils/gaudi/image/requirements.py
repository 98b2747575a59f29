"""Rewrite a fork's requirement files before pip reads them: lines that name a branch are replaced, others dropped."""

from __future__ import annotations

import re
from collections.abc import Collection

from ..base.refusal import Refusal

_NAME = re.compile(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)")
# An included file of the checkout, which is rewritten as well; pip accepts all of these forms.
_INCLUDE = re.compile(r"\s*(?:-r|--requirement)[ =]*((?![/~.]|[^\s]*(?:\.\.|:|\$))\S+)\s*")
# A package of an index (PEP 508): a name, extras, versions, a marker. Any other line that pip accepts names another
# source (repository, address, path) or index, or continues on the next line.
_PACKAGE = re.compile(
    r"\s*[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?\s*(?:\[[A-Za-z0-9._, -]*\])?\s*"
    r"\(?(?:\s*(?:===|==|!=|<=|>=|~=|<|>)\s*[A-Za-z0-9.*+!_-]+\s*,?)*\)?\s*(?:;[^\\]*)?"
)
# pip's own rule for comments.
_COMMENT = re.compile(r"(^|\s+)#.*$")


def project(name: str) -> str:
    """Return a distribution's normalised name (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def rewritten(text: str, file: str, replaced: Collection[str], dropped: Collection[str]) -> str:
    """Return a requirement file without the lines for distributions that are pinned, or that must not change.

    replaced: distributions that are installed from a pin already; their bare name stays. dropped: prefixes of names
    whose lines are removed. Raises Refusal, with file and line, for any other line that is not a package of an index,
    such as a branch.
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
