"""Read YAML and JSON that people wrote: every fault is a sentence with the file, and the line where it is known."""

from __future__ import annotations

import contextlib
import json
import stat
from pathlib import Path
from typing import Any

import yaml

from plugin_utils import brain

brain.on_path()

from ansible.module_utils.gaudi.base.refusal import Refusal

# A plan is small; a file of this size is a mistake, and would only be read to be refused. Bytes.
MAX_FILE = 1 << 20


def _twice(key: object, mark: yaml.Mark | None = None) -> yaml.YAMLError:
    return yaml.constructor.ConstructorError(None, None, f"the key {key} stands there twice", mark)


class _Loader(yaml.SafeLoader):
    """Safe YAML without what surprises: the second of two equal keys, aliases that grow without end, dates.

    The loader in Python, because the one in C ends the whole process on deeply nested input.
    """

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            event = self.peek_event()  # type: ignore[no-untyped-call]  # PyYAML's stubs leave it out
            problem = f"the alias *{event.anchor} is not read here, write its value out"
            raise yaml.composer.ComposerError(None, None, problem, event.start_mark)
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key_node, _ in node.value:
            key = str(getattr(key_node, "value", key_node))
            if key in seen:
                raise _twice(key, key_node.start_mark)
            seen.add(key)
        return super().construct_mapping(node, deep)


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith(":timestamp")]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON, each of its keys written once."""
    content: dict[str, Any] = {}
    for key, value in pairs:
        if key in content:
            raise _twice(key)
        content[key] = value
    return content


def parse(text: str, shown: str) -> Any:
    """Value of a text in YAML or JSON; ``shown`` is what messages call it.

    Raises Refusal: it is neither; with the line where known.
    """
    try:
        # What looks like JSON is read as such first: YAML knows neither its tabs nor all of its escapes.
        if text.lstrip()[:1] in ("{", "["):
            with contextlib.suppress(json.JSONDecodeError):
                return json.loads(text, object_pairs_hook=_once)
        return _Loader(text).get_single_data()
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        line = f" (line {mark.line + 1})" if mark else ""
        problem = getattr(error, "problem", None) or getattr(error, "reason", None) or str(error)
        raise Refusal("not_yaml", f"{shown}{line} is not valid YAML: {problem[:200]}.") from error


def load_yaml(path: Path, shown: str) -> Any:
    """Content of a YAML or JSON file; ``shown`` is what messages call it.

    Raises Refusal: the file is missing, unreadable, too large, or not YAML; with the line where known.
    """
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode):
            # A pipe or a device may have no end.
            raise Refusal(
                "not_a_file", f"{shown} is {'a directory' if path.is_dir() else 'a pipe or a device'}, not a file."
            )
        if found.st_size > MAX_FILE:
            raise Refusal(
                "file_too_large", f"{shown} has {found.st_size} bytes, the limit is {MAX_FILE}. Is it the right file?"
            )
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise Refusal("file_unreadable", f"{shown} cannot be read: {error.strerror}.") from error
    except UnicodeError as error:
        raise Refusal("not_yaml", f"{shown} is not valid YAML: it is not text in UTF-8.") from error
    return parse(text, shown)
