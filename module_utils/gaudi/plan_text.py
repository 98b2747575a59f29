"""Plans as a page of text: the node, then for each instance what is started, and why it is so."""

from __future__ import annotations

import json
import re
import shlex
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .topology_text import WIDTH, describe_node
from .topology_users import printable

# Bytes as shops count them, for files; device memory is counted in GiB everywhere else.
GB = 10**9
# Longest value shown of one input of a rule; a list of buckets would fill the page.
_LONGEST_INPUT = 60
# A run of equal steps with more steps than this is shown by its ends.
_LONG_RUN = 6


def page(
    plans: Sequence[Mapping[str, Any]],
    topology: Mapping[str, Any] | None,
    reserved: Mapping[str, str] | None = None,
) -> str:
    """Return the page for all requests of one node, at most WIDTH columns, without a newline at the end.

    ``plans`` holds plan documents and refusals (``{"instance": ..., "refused": sentence}``), a request each;
    ``topology`` is the topology document they were made for, or None where it is not known; ``reserved`` names the
    instances that hold cards already, by module id as text.
    """
    parts = [_node(topology, plans, reserved or {})] if topology else []
    for number, plan in enumerate(plans, 1):
        parts.append(_refusal(plan, number) if "refused" in plan else describe_plan(plan))
    return "\n\n".join(parts)


def describe_plan(plan: Mapping[str, Any]) -> str:
    """Return one plan: what it starts and why."""
    sections = [
        _heading(_title(plan)),
        _summary(plan),
        *_section("Warnings", [line for text in plan["warnings"] for line in _bullet(text)]),
        *_section("Command line", _command(plan)),
        *_section("Environment", [f"{name}={value}" for name, value in sorted(plan["environment"].items())]),
        *_section("Container", _container(plan)),
        *_section("Warm-up", _buckets(plan["buckets"])),
        *_section("Memory of each card", _memory(plan["memory"])),
        *_section("Why", _explanation(plan["explain"])),
    ]
    return "\n\n".join(sections)


def _node(topology: Mapping[str, Any], plans: Iterable[Mapping[str, Any]], reserved: Mapping[str, str]) -> str:
    """Return the picture of the node, each card marked with the instance that holds it or would get it."""
    holders = {int(module_id): instance for module_id, instance in reserved.items()}
    for plan in plans:
        for module in plan.get("modules", []):
            holders[module["module_id"]] = plan["instance"] or plan["served_model_name"]
    return f"{_heading('The node')}\n\n{describe_node(topology, holders)}"


def _refusal(plan: Mapping[str, Any], number: int) -> str:
    lines = textwrap.wrap(printable(plan["refused"]), WIDTH - 2, break_on_hyphens=False)
    return "\n\n".join([_heading(f"{plan['instance'] or f'request {number}'}: refused"), _indented(lines)])


def _title(plan: Mapping[str, Any]) -> str:
    listen = plan["listen"]
    return f"{plan['instance'] or plan['served_model_name']}: http://{listen['host']}:{listen['port']}"


def _heading(text: str) -> str:
    text = printable(text)
    return f"{text}\n{'=' * min(len(text), WIDTH)}"


def _section(title: str, lines: Sequence[str]) -> list[str]:
    """Return a section as a list of one, or nothing where there is nothing to say."""
    return [f"{title}\n{_indented(lines)}"] if lines else []


def _indented(lines: Iterable[str]) -> str:
    return "\n".join(f"  {line}".rstrip() for line in lines)


def _bullet(text: str) -> list[str]:
    return textwrap.wrap(
        printable(text), WIDTH - 2, initial_indent="* ", subsequent_indent="  ", break_on_hyphens=False
    )


def _summary(plan: Mapping[str, Any]) -> str:
    """Return what a person asks first: what, on which cards, from which release, what must be there."""
    requires = plan["requires"]
    modules = ", ".join(str(module["module_id"]) for module in plan["modules"])
    cards = f"{len(plan['modules'])} (module {modules})" if plan["modules"] else str(requires["cards"])
    weights = str(requires["weights_path"])
    if requires.get("weights_bytes"):
        weights += f", {requires['weights_bytes'] / GB:.1f} GB"
    binding = shlex.join(plan["cpu_binding"]) if plan["cpu_binding"] else "none"
    facts = {
        "model": plan["model"] or "not in the catalogue",
        "served as": plan["served_model_name"],
        "release": plan["release"],
        "cards": cards,
        "CPU binding": binding,
        "weights": weights,
    }
    return _indented(_aligned(facts))


def _aligned(facts: Mapping[str, str]) -> list[str]:
    """Return names and values in two columns; a value too long for the second stands below its name."""
    width = max(len(name) for name in facts) + 2
    lines: list[str] = []
    for name, value in facts.items():
        text = printable(value)
        longest = max((len(word) for word in text.split()), default=0)
        below = longest > WIDTH - 2 - width
        lines += [name] if below else []
        lines += textwrap.wrap(
            text,
            WIDTH - 2,
            initial_indent="  " if below else name.ljust(width),
            subsequent_indent="  " if below else " " * width,
            break_on_hyphens=False,
            # A path or an image is copied from here: in one piece or not at all.
            break_long_words=False,
        )
    return lines


def _command(plan: Mapping[str, Any]) -> list[str]:
    """Return the command as a shell would take it, an option with its value never torn apart."""
    words = [*plan["cpu_binding"], *plan["arguments"]]
    groups: list[str] = []
    for word in words:
        option = word.startswith("-") and not word.lstrip("-").isdigit()
        # The value of an option follows it on the same line; what comes before the first option stays together.
        if groups and not option and groups[-1].startswith("-") and " " not in groups[-1]:
            groups[-1] += f" {shlex.quote(word)}"
        else:
            groups.append(shlex.quote(word))
    return _filled(groups, " \\", indent="    ")


def _filled(groups: Iterable[str], end: str, indent: str) -> list[str]:
    """Return groups side by side, as many on a line as fit; every line but the last closed with ``end``."""
    room = WIDTH - 2 - len(end)
    lines: list[str] = []
    for group in groups:
        if lines and len(lines[-1]) + 1 + len(group) <= room:
            lines[-1] += f" {group}"
        else:
            lines.append(f"{indent}{group}" if lines else group)
    return [line + end for line in lines[:-1]] + lines[-1:]


def _container(plan: Mapping[str, Any]) -> list[str]:
    box = plan["container"]
    mounts = [
        f"{mount['source']} -> {mount['target']}{' (read only)' if mount['read_only'] else ''}"
        for mount in box["mounts"]
    ]
    facts = {
        "image": plan["image"],
        "name": box["name"] or "none, as the request names no instance",
        "runtime": f"{box['runtime']}, network {box['network']}, ipc {box['ipc']}",
        "root": "read only" if box["read_only"] else "writable",
        "capabilities": ", ".join(box["capabilities"]) or "none added",
        "limits": ", ".join(f"{name} {value}" for name, value in box["ulimits"].items()) or "the engine's",
        "tmpfs": ", ".join(box["tmpfs"]) or "none",
        "mounts": "; ".join(mounts) or "none",
        "environment": ", ".join(f"{name}={value}" for name, value in box["environment"].items()) or "none of its own",
    }
    return _aligned(facts)


def _buckets(buckets: Mapping[str, Any]) -> list[str]:
    """Return the lists of shapes, and how many graphs they make."""
    return _aligned({_words(name): _value(value) for name, value in buckets.items()}) if buckets else []


def _memory(memory: Mapping[str, Any]) -> list[str]:
    """Return the memory of a card from what it has to what is left for requests, in GiB."""
    if not memory:
        return []
    names = {"weights_bytes": "weights, all cards"}
    return _aligned({names.get(name, _words(_UNIT.sub("", name))): _amount(name, memory[name]) for name in memory})


_UNIT = re.compile(r"_(mib|gib|bytes)(?=_|$)")


def _amount(name: str, value: object) -> str:
    """Return an amount of memory in GiB, whatever unit its name says; anything else as it is."""
    unit = _UNIT.search(name)
    if unit is None or isinstance(value, bool) or not isinstance(value, (int, float)):
        return _value(value)
    return f"{value / {'mib': 1 << 10, 'gib': 1, 'bytes': 1 << 30}[unit.group(1)]:.2f} GiB"


def _words(name: str) -> str:
    return name.replace("_", " ")


def _value(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (list, tuple)):
        return _steps([str(item) for item in value], value)
    if isinstance(value, Mapping):
        return ", ".join(f"{_words(str(name))} {_value(inner)}" for name, inner in value.items())
    return "not known" if value is None else str(value)


def _steps(words: Sequence[str], values: Sequence[object]) -> str:
    """Return a list with its long runs of equal steps cut short: ``1 2 4 6 ... 128``."""
    numbers = [value if isinstance(value, int) else None for value in values]
    shown: list[str] = []
    start = 0
    while start < len(words):
        end = start + 1
        while end + 1 < len(words) and _even(numbers[end - 1], numbers[end], numbers[end + 1]):
            end += 1
        if end - start >= _LONG_RUN:
            shown += [*words[start : start + 2], "...", words[end]]
            start = end + 1
        else:
            shown.append(words[start])
            start += 1
    return " ".join(shown) + (f"  ({len(words)} values)" if "..." in shown else "")


def _even(first: int | None, second: int | None, third: int | None) -> bool:
    return first is not None and second is not None and third is not None and second - first == third - second


def _explanation(explain: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return every value with its rule and the numbers that went in, gathered by rule and source."""
    by_rule: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for item in explain:
        by_rule.setdefault((item["rule"], item["source"]), []).append(item)
    lines: list[str] = []
    for (rule, source), items in by_rule.items():
        lines += textwrap.wrap(
            printable(f"{rule}: {source}"), WIDTH - 2, subsequent_indent="    ", break_on_hyphens=False
        )
        plain = [_named(item) for item in items if not _inputs(item)]
        lines += _wrapped(", ".join(plain)) if plain else []
        for item in items:
            inputs = _inputs(item)
            lines += _wrapped(f"{_named(item)}  <-  {', '.join(inputs)}") if inputs else []
    return lines


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(
        printable(text), WIDTH - 2, initial_indent="    ", subsequent_indent="        ", break_on_hyphens=False
    )


def _named(item: Mapping[str, Any]) -> str:
    """Return a value by the name it has where it is used; what a section above shows is not repeated."""
    kind, _, name = item["value"].partition(".")
    result = item["result"]
    if kind == "arguments":
        return name if result is None else f"{name} {_short(result)}"
    if isinstance(result, Mapping):
        return str(item["value"])
    return f"{name or kind}={_short(result)}"


def _inputs(item: Mapping[str, Any]) -> list[str]:
    """Return the numbers that went in; a rule that hands its only input on has none worth telling."""
    if set(item["inputs"]) == {"value"}:
        return []
    return [f"{name} {_short(value)}" for name, value in item["inputs"].items()]


def _short(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return text if len(text) <= _LONGEST_INPUT else f"{text[: _LONGEST_INPUT - 3]}..."
