"""Python files of the project, parsed once for all tests that read them."""

from __future__ import annotations

import ast
import functools
import gc
from pathlib import Path


@functools.cache
def tree(path: Path) -> ast.Module:
    """A file, parsed. It stays until the tests end, so the collector of garbage leaves it out."""
    gc.disable()
    try:
        parsed = ast.parse(path.read_text(encoding="utf-8"))
        gc.freeze()
    finally:
        gc.enable()
    return parsed


@functools.cache
def nodes(tree: ast.Module) -> tuple[ast.AST, ...]:
    """Every node of a parsed file."""
    return tuple(ast.walk(tree))
