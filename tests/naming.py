"""Where the files of the product, and of the tests, name what a statement outside of functions defines."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath


@dataclass(frozen=True)
class Definition:
    """An outermost statement: its first and last line, and the names it defines."""

    first: int
    last: int
    names: frozenset[str]


@dataclass(frozen=True)
class _File:
    """What is read of one file. bodies: lines of functions. names: where each name is used, annotations left out."""

    outermost: tuple[Definition, ...]
    bodies: frozenset[int]
    names: dict[str, frozenset[int]]
    imported: frozenset[str]


class Names:
    """Answers for one commit. read: the content of a file there."""

    def __init__(self, read: Callable[[str], bytes], product: Iterable[str], tests: Iterable[str]) -> None:
        self.product, self.tests = sorted(product), sorted(tests)
        self._read = functools.cache(read)
        self._file = functools.cache(lambda file: parsed(self._read(file)))

    def in_function(self, file: str, line: int) -> bool:
        """Whether a line is in the body of a function, and does not run when the file is imported."""
        return line in self._file(file).bodies

    def outermost(self, file: str, line: int) -> Definition:
        """Return the outermost statement at a line; one without names where there is none."""
        statements = self._file(file).outermost
        return next(
            (each for each in statements if each.first <= line <= each.last), Definition(line, line, frozenset())
        )

    def uses(self, file: str, defined: Definition) -> Iterator[tuple[str, int]]:
        """Yield the lines of the product that use a statement, its own functions among them.

        Of a statement that defines nothing, these are all functions of its file.
        """
        own = self._file(file).bodies
        for line in sorted(own):
            if not defined.names or defined.first <= line <= defined.last:
                yield file, line
        stem = stem_of(file)
        for other in self.product:
            read = self._file(other)
            if other == file or stem in read.imported:
                for line in sorted({line for name in defined.names for line in read.names.get(name, ())}):
                    yield other, line

    def test_files(self, file: str, defined: Definition) -> list[str]:
        """Return the files of tests that name a file and something that a statement of it defines."""
        if not defined.names:
            return []
        stem = re.compile(rf"\b{re.escape(stem_of(file))}\b")
        names = re.compile(rf"\b({'|'.join(map(re.escape, sorted(defined.names)))})\b")
        texts = ((name, self._read(name).decode()) for name in self.tests)
        return [name for name, text in texts if stem.search(text) and names.search(text)]


def stem_of(file: str) -> str:
    """Return the name a file is imported by; of a package that of its folder."""
    path = PurePosixPath(file)
    return path.parent.name if path.stem == "__init__" else path.stem


def parsed(source: bytes) -> _File:
    """Read a file."""
    tree = ast.parse(source)
    names: dict[str, set[int]] = {}
    imported: set[str] = set()
    bodies: set[int] = set()
    for node in _without_annotations(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            bodies |= set(range(node.body[0].lineno, (node.end_lineno or node.lineno) + 1))
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            words = [getattr(node, "module", None) or "", *(alias.name for alias in node.names)]
            imported |= {word for name in words for word in name.split(".")}
        for name in _used(node):
            names.setdefault(name, set()).add(node.lineno)  # type: ignore[attr-defined]
    statements = tuple(
        Definition(_first(each), each.end_lineno or each.lineno, frozenset(_defined(each))) for each in tree.body
    )
    return _File(
        statements, frozenset(bodies), {name: frozenset(names[name]) for name in names}, frozenset(imported - {""})
    )


def _without_annotations(node: ast.AST) -> Iterator[ast.AST]:
    yield node
    for name, field in ast.iter_fields(node):
        if name not in ("annotation", "returns"):
            for value in field if isinstance(field, list) else [field]:
                if isinstance(value, ast.AST):
                    yield from _without_annotations(value)


def _used(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
        yield node.id
    elif isinstance(node, ast.Attribute):
        yield node.attr


def _first(statement: ast.stmt) -> int:
    decorators: list[ast.expr] = getattr(statement, "decorator_list", [])
    return min([statement.lineno, *(each.lineno for each in decorators)])


def _defined(statement: ast.stmt) -> Iterator[str]:
    """Yield the names that a statement binds, outside of functions and classes in it."""
    if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        yield statement.name
        return
    for node in ast.walk(statement):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
