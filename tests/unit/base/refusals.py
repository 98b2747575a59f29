"""The table of docs/refusals.md, made from the code; run as a module it writes the table into the document."""

from __future__ import annotations

import ast
import functools
from dataclasses import dataclass
from pathlib import Path

from tests.unit.sources import nodes, tree

ROOT = Path(__file__).resolve().parents[3]
DOCUMENT = ROOT / "docs" / "refusals.md"
BEGIN, END = "<!-- refusals: begin -->", "<!-- refusals: end -->"
HEAD = ("| id | sentence | from |", "| --- | --- | --- |")
# Where refusals are made, and the one file that holds the class.
ROOMS = ("module_utils/gaudi", "library", "action_plugins", "plugin_utils", "filter_plugins", "roles")
HOME = "module_utils/gaudi/base/refusal.py"
# The class, and the one that the converters derive from it for what they find wrong in their results.
CLASSES = ("Refusal", "WrongResult")
# What stands for a value in a sentence.
HOLE = "…"


@dataclass(frozen=True)
class RefusalPlace:
    """One place that refuses: its file, its line, and the arguments as they are written."""

    file: str
    line: int
    arguments: tuple[ast.expr, ...]

    @property
    def id(self) -> str | None:
        """The id where it is a literal."""
        first = self.arguments[0] if self.arguments else None
        return first.value if isinstance(first, ast.Constant) and isinstance(first.value, str) else None

    @property
    def sentence(self) -> str:
        """The sentence, with a hole for each value."""
        return " ".join(map(_form, self.arguments[1:]))


def _form(said: ast.expr) -> str:
    if isinstance(said, ast.Constant):
        return str(said.value)
    if isinstance(said, ast.JoinedStr):
        return "".join(_form(part) for part in said.values)
    if isinstance(said, ast.BinOp):
        return _form(said.left) + _form(said.right)
    return HOLE


@functools.cache
def programs() -> tuple[tuple[str, ast.Module], ...]:
    """Every file that may refuse, parsed, with its name."""
    return tuple(
        (str(path.relative_to(ROOT)), tree(path)) for room in ROOMS for path in sorted((ROOT / room).rglob("*.py"))
    )


@functools.cache
def sites() -> tuple[RefusalPlace, ...]:
    """Every place where a refusal is made, or a module ends with an id of its own, in the order of the files."""
    return tuple(
        RefusalPlace(file, node.lineno, arguments)
        for file, parsed in programs()
        if file != HOME
        for node in nodes(parsed)
        if isinstance(node, ast.Call) and (arguments := _arguments(node)) is not None
    )


def _arguments(call: ast.Call) -> tuple[ast.expr, ...] | None:
    """What a call refuses with: id and sentence; None where it refuses nothing."""
    if isinstance(call.func, ast.Name) and call.func.id in CLASSES:
        return tuple(call.args)
    given = {keyword.arg: keyword.value for keyword in call.keywords}
    written_out = isinstance(given.get("refused_id"), ast.Constant)
    return (given["refused_id"], given["msg"]) if written_out and "msg" in given else None


def table() -> list[str]:
    """The lines of the table, sorted by id."""
    rows = {(site.id or "", site.sentence.replace("|", "\\|"), site.file) for site in sites() if site.id}
    return [*HEAD, *(f"| `{id_}` | {sentence} | {file} |" for id_, sentence, file in sorted(rows))]


def table_in(text: str) -> list[str]:
    """The lines between the markers of the document."""
    return text.partition(BEGIN)[2].partition(END)[0].strip().splitlines()


if __name__ == "__main__":
    before, _, rest = DOCUMENT.read_text(encoding="utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    DOCUMENT.write_text("\n".join([f"{before}{BEGIN}", *table(), f"{END}{after}"]), encoding="utf-8")
