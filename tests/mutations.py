"""Small changes of Python source that tests should notice, found by ``ast``.

Four kinds: ``operator`` (another operator), ``constant`` (another number, truth value or text), ``condition`` (negated)
and ``statement`` (removed). Not changed: annotations, docstrings, pages of Ansible modules, what only mypy reads, and
the parts inside an f-string, whose positions Python 3.11 does not know; the f-string as a whole is a constant.
"""

from __future__ import annotations

import ast
import copy
import hashlib
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

KINDS = ("operator", "constant", "condition", "statement")
# What a constant that is a text gets, so that no path becomes shorter or empty.
ADDED = "XX"
PAGES = {"DOCUMENTATION", "EXAMPLES", "RETURN", "__all__"}

BINARY: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult,
    ast.Mod: ast.Mult,
    ast.Pow: ast.Mult,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.BitXor: ast.BitAnd,
}
COMPARING: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
BOOLEAN: dict[type[ast.boolop], type[ast.boolop]] = {ast.And: ast.Or, ast.Or: ast.And}


@dataclass(frozen=True)
class Mutant:
    """One change: the bytes from ``start`` to ``stop`` of ``file`` become ``after``.

    file: relative to the checkout. line, last: the lines of what is changed. statement: the first and last line of the
    statement it is in; of a compound statement its head alone.
    """

    file: str
    kind: str
    line: int
    last: int
    statement: tuple[int, int]
    start: int
    stop: int
    before: str
    after: str

    @property
    def key(self) -> str:
        """What identifies the change in a list of results."""
        text = f"{self.file}:{self.start}:{self.stop}:{self.before}:{self.after}"
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def change(self) -> str:
        """The change on one line."""
        return f"{' '.join(self.before.split())} → {' '.join(self.after.split())}"

    def applied(self, source: bytes) -> bytes:
        """Return the changed source. Raises ValueError where other source is at that position."""
        if source[self.start : self.stop].decode() != self.before:
            raise ValueError(f"{self.file}:{self.line} is not {self.before!r}")
        return source[: self.start] + self.after.encode() + source[self.stop :]


def head(statement: ast.stmt) -> tuple[int, int]:
    """Return the first and last line of a statement; of one with a body, the lines before the body."""
    first, last = statement.lineno, statement.end_lineno or statement.lineno
    decorators: list[ast.expr] = getattr(statement, "decorator_list", [])
    first = min([first, *(each.lineno for each in decorators)])
    body = getattr(statement, "body", None) or getattr(statement, "cases", None)
    if body:
        inner = body[0].lineno if isinstance(body[0], ast.stmt) else body[0].pattern.lineno
        last = max(statement.lineno, inner - 1)
    return first, last


def find(file: str, source: bytes) -> list[Mutant]:
    """Return every possible change of a file, in the order of the source."""
    return list(_Finder(file, source).statements(ast.parse(source).body))


class _Finder:
    """Walks through one file."""

    def __init__(self, file: str, source: bytes) -> None:
        self.file, self.source = file, source
        self.begins = [0]
        for line in source.splitlines(keepends=True):
            self.begins.append(self.begins[-1] + len(line))

    def statements(self, body: list[ast.stmt]) -> Iterator[Mutant]:
        for statement in body:
            if not _left_alone(statement):
                yield from self.statement(statement)

    def statement(self, statement: ast.stmt) -> Iterator[Mutant]:
        where = head(statement)
        if _removable(statement):
            yield self.made("statement", statement, where, "pass")
        if isinstance(statement, ast.AugAssign) and type(statement.op) in BINARY:
            other = copy.copy(statement)
            other.op = BINARY[type(statement.op)]()
            yield self.made("operator", statement, where, ast.unparse(other))
        yield from self.children(statement, where)

    def children(self, node: ast.AST, where: tuple[int, int]) -> Iterator[Mutant]:
        for name, field in ast.iter_fields(node):
            if name in ("annotation", "returns", "pattern"):
                continue
            values = field if isinstance(field, list) else [field]
            if values and isinstance(values[0], ast.stmt):
                yield from self.statements(values)
                continue
            for value in values:
                if isinstance(value, ast.AST):
                    yield from self.expression(value, where, asked=name in ("test", "ifs", "guard"))

    def expression(self, node: ast.AST, where: tuple[int, int], *, asked: bool) -> Iterator[Mutant]:
        """``asked``: whether the node is a condition."""
        if isinstance(node, ast.expr):
            if asked:
                yield self.made("condition", node, where, f"not ({self.text(node)})")
            for kind, other in _others(node):
                yield self.made(kind, node, where, f"({ast.unparse(other)})")
            if isinstance(node, ast.JoinedStr):
                yield self.made("constant", node, where, f"({self.text(node)} {ADDED!r})")
                return
            if isinstance(node, ast.Subscript) and ast.unparse(node.value).endswith("Literal"):
                return
        yield from self.children(node, where)

    def text(self, node: ast.expr | ast.stmt) -> str:
        start, stop = self.span(node)
        return self.source[start:stop].decode()

    def span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        if node.end_lineno is None or node.end_col_offset is None:
            raise ValueError(f"{self.file}:{node.lineno} has no end")
        return self.begins[node.lineno - 1] + node.col_offset, self.begins[node.end_lineno - 1] + node.end_col_offset

    def made(self, kind: str, node: ast.expr | ast.stmt, where: tuple[int, int], after: str) -> Mutant:
        start, stop = self.span(node)
        last = node.end_lineno or node.lineno
        return Mutant(self.file, kind, node.lineno, last, where, start, stop, self.text(node), after)


def _left_alone(statement: ast.stmt) -> bool:
    """Whether a statement is a docstring, a page, or there for mypy or for a program's start alone."""
    if isinstance(statement, ast.Expr):
        return isinstance(statement.value, ast.Constant)
    if isinstance(statement, ast.Assign):
        return any(isinstance(target, ast.Name) and target.id in PAGES for target in statement.targets)
    if isinstance(statement, ast.If):
        return any(word in ast.unparse(statement.test) for word in ("TYPE_CHECKING", "__name__"))
    return isinstance(statement, (ast.Import, ast.ImportFrom))


def _removable(statement: ast.stmt) -> bool:
    """Whether a statement can go without a name being undefined after it."""
    if isinstance(statement, ast.Assign):
        return all(isinstance(target, (ast.Attribute, ast.Subscript)) for target in statement.targets)
    return isinstance(statement, (ast.AugAssign, ast.Break, ast.Continue, ast.Delete, ast.Expr, ast.Raise))


def _others(node: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    """The kind of each change of an expression, and what it becomes."""
    if isinstance(node, ast.Constant):
        value = _other_value(node.value)
        if value is not None:
            yield "constant", ast.Constant(value)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.Not, ast.USub)):
        yield "operator", node.operand
    elif isinstance(node, ast.BinOp) and type(node.op) in BINARY:
        yield "operator", ast.BinOp(node.left, BINARY[type(node.op)](), node.right)
    elif isinstance(node, ast.BoolOp):
        yield "operator", ast.BoolOp(BOOLEAN[type(node.op)](), node.values)
    elif isinstance(node, ast.Compare):
        for number, operator in enumerate(node.ops):
            operators = [*node.ops[:number], COMPARING[type(operator)](), *node.ops[number + 1 :]]
            yield "operator", ast.Compare(node.left, operators, node.comparators)


def _other_value(value: object) -> bool | int | float | str | bytes | None:
    """Return what a constant becomes; None for one that is not changed."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, (int, float)):
        return value + 1
    if isinstance(value, str):
        return value + ADDED
    return value + ADDED.encode() if isinstance(value, bytes) else None


def compiles(mutant: Mutant, source: bytes) -> bool:
    """Whether the changed source is Python, and differs in more than its form."""
    try:
        changed = ast.parse(mutant.applied(source))
        compile(changed, mutant.file, "exec")
    except SyntaxError:
        return False
    return ast.dump(changed) != ast.dump(ast.parse(source))


def draw(sources: Mapping[str, bytes], seed: int, count: int) -> list[Mutant]:
    """Draw different changes of files, as many of each kind; the same ones for the same files and seed.

    Raises ValueError where there are fewer.
    """
    chance = random.Random(seed)
    waiting: dict[str, list[Mutant]] = {kind: [] for kind in KINDS}
    for file in sorted(sources):
        for mutant in find(file, sources[file]):
            waiting[mutant.kind].append(mutant)
    for mutants in waiting.values():
        chance.shuffle(mutants)
    drawn: list[Mutant] = []
    while len(drawn) < count:
        mutants = waiting[KINDS[len(drawn) % len(KINDS)]]
        if not mutants:
            raise ValueError(f"There are no {count} changes; {len(drawn)} were drawn")
        mutant = mutants.pop()
        if compiles(mutant, sources[mutant.file]):
            drawn.append(mutant)
    return drawn
