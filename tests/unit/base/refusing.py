"""Which functions refuse, themselves or through others, and which handlers lose a refusal's id; found in the code."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from tests.unit.base.refusals import CLASSES, programs
from tests.unit.sources import nodes

# What a refusal is caught as: it is a ValueError.
CAUGHT_AS = {"Refusal", "ValueError", "Exception", "BaseException"}


def dotted(file: str) -> str:
    """The name that a program is imported by, such as gaudi.engine.daemon."""
    return re.sub(r"^(module_utils|roles/\w+/files)/", "", file)[: -len(".py")].replace("/", ".")


def origins(file: str, tree: ast.Module) -> dict[str, str]:
    """The dotted name of each name that a program imports or defines."""
    found = {
        node.name: f"{dotted(file)}.{node.name}"
        for node in tree.body
        if isinstance(node, (ast.FunctionDef, ast.ClassDef))
    }
    for node in nodes(tree):
        if isinstance(node, ast.ImportFrom):
            above = dotted(file).split(".")[: -node.level] if node.level else []
            module = ".".join([*above, *(node.module or "").split(".")]).strip(".")
            for name in node.names:
                found[name.asname or name.name] = f"{module}.{name.name}".replace("ansible.module_utils.", "")
    return found


def calls(body: list[ast.stmt], known: dict[str, str]) -> set[str]:
    """The dotted names of what statements call, where they name it."""
    names = {ast.unparse(node.func) for part in body for node in ast.walk(part) if isinstance(node, ast.Call)}
    return {known[first] + dot + rest for first, dot, rest in (name.partition(".") for name in names) if first in known}


def makes_one(function: ast.FunctionDef) -> bool:
    """Whether a function itself raises a refusal."""
    raised = [node.exc for node in ast.walk(function) if isinstance(node, ast.Raise)]
    return any(isinstance(exc, ast.Call) and ast.unparse(exc.func) in CLASSES for exc in raised)


def refusing() -> set[str]:
    """The dotted names of all functions that refuse."""
    refuse: set[str] = set()
    called: dict[str, set[str]] = {}
    for file, tree in programs():
        known = origins(file, tree)
        for node in tree.body:
            if isinstance(node, ast.FunctionDef):
                called[known[node.name]] = calls(node.body, known)
                if makes_one(node):
                    refuse.add(known[node.name])
    while more := {name for name, by_it in called.items() if name not in refuse and by_it & refuse}:
        refuse |= more
    return refuse


def caught(handler: ast.ExceptHandler) -> set[str]:
    """The names of the classes that a handler catches."""
    if handler.type is None:
        return {"BaseException"}
    return {
        ast.unparse(type_) for type_ in (handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type])
    }


def handlers(file: str, tree: ast.Module, refuse: set[str]) -> Iterator[ast.ExceptHandler]:
    """Every handler that a refusal ends in: by its class, or as a ValueError of a call that refuses."""
    known = origins(file, tree)
    for tried in (node for node in nodes(tree) if isinstance(node, ast.Try)):
        may = bool(calls(tried.body, known) & refuse)
        for handler in tried.handlers:
            if "Refusal" in caught(handler) or (may and caught(handler) & CAUGHT_AS):
                yield handler
                break


def ends(handler: ast.ExceptHandler) -> list[ast.Call]:
    """The calls of fail_json in a handler."""
    called = [node for node in ast.walk(handler) if isinstance(node, ast.Call)]
    return [call for call in called if isinstance(call.func, ast.Attribute) and call.func.attr == "fail_json"]


def without_id(file: str, tree: ast.Module, refuse: set[str]) -> list[str]:
    """Where a module ends with a refusal, and does not give its id."""
    found = [call for handler in handlers(file, tree, refuse) for call in ends(handler)]
    return [f"{file}:{call.lineno}" for call in found if "refused_id" not in {word.arg for word in call.keywords}]
