"""Plans as a page of text: the node, then for each instance what is started, and why it is so."""

from __future__ import annotations

import re
import shlex
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..base.command_line import hub_ids
from ..base.printable import printable
from ..base.refusal import with_id
from ..base.values import without_accounts
from ..cards.text import WIDTH, describe_node
from ..serving.plan import OFFLINE, kept_offline

# Longest value shown of one input of a rule; a list of buckets would fill the page.
_LONGEST_INPUT = 60
# A run of equal steps with more steps than this is shown by its ends.
_LONG_RUN = 6


def page(
    plans: Sequence[Mapping[str, Any]],
    topology: Mapping[str, Any] | None,
    reserved: Mapping[str, str] | None = None,
    notes: Mapping[str, Sequence[str]] | None = None,
    names: Sequence[str | None] = (),
    pins: Sequence[Sequence[str]] = (),
) -> str:
    """Return the page for all requests of one node, at most WIDTH columns, without a newline at the end.

    ``plans`` holds plan documents and refusals (``{"instance": ..., "refused": sentence, "refused_id": id}``), a
    request each; ``topology`` is the topology document they were made for, or None where it is not known; ``reserved``
    names the instances that hold cards already, by module id as text; ``notes`` are those of the catalogue, by model;
    ``names`` is what each request goes by, as a refusal does not say; ``pins`` says for each request what pins its
    weights and image. Only what cannot be broken (a path, an image, a
    variable) is wider than WIDTH.
    """
    called = [*names, *[None] * (len(plans) - len(names))]
    titles = [
        _title(plan, number if len(plans) > 1 else 0, name) for number, (plan, name) in enumerate(zip(plans, called), 1)
    ]
    parts = [_node(topology, plans, reserved or {})] if topology else []
    parts += [_overview(plans, titles)] if len(plans) > 1 else []
    for plan, title, pinned in zip(plans, titles, [*pins, *[()] * (len(plans) - len(pins))]):
        known = (notes or {}).get(str(plan.get("model")), [])
        parts.append(_refusal(plan, title) if "refused" in plan else describe_plan(plan, title, known, pinned))
    return "\n\n".join(parts if plans else [*parts, _NOTHING])


_NOTHING = """\
Nothing was asked for. Name requests: -e '{"plan_requests": [{"model": "qwen3-8b"}]}'; docs/models.md
lists the models."""


def describe_plan(plan: Mapping[str, Any], title: str = "", notes: Sequence[str] = (), pins: Sequence[str] = ()) -> str:
    """Return one plan: what it starts and why, below a title, and what a person should know of its model.

    ``pins``: what pins its weights and image.
    """
    sections = [
        _heading(f"{title or _title(plan)}: {_address(plan)}"),
        _summary(plan),
        *_section("Warnings", [line for text in plan["warnings"] for line in _bullet(text)]),
        *_section("What changes", [line for text in plan.get("changes", []) for line in _bullet(text)]),
        *_section("Notes", [line for text in notes for line in _bullet(text)]),
        *_section("What must be there", _aligned(_requirements(plan["requires"]))),
        *_section("What is pinned", [line for text in pins for line in _bullet(text)]),
        *_section("Command line", _command(plan)),
        *_section("Environment", [f"{name}={value}" for name, value in sorted(plan["environment"].items())]),
        *_section("Container", _container(plan)),
        *_section("Warm-up", _buckets(plan["buckets"])),
        *_section("Memory of each card", _memory(plan["memory"])),
        *_section("Why", _explanation(plan["explain"])),
    ]
    return "\n\n".join(sections)


def _node(topology: Mapping[str, Any], plans: Sequence[Mapping[str, Any]], reserved: Mapping[str, str]) -> str:
    """Return the picture of the node, each card marked with who holds it or would get it.

    Questions take nothing from each other: one card may be the answer to several.
    """
    planned: dict[int, list[str]] = {}
    for plan in plans:
        for module in plan.get("modules", []):
            names = planned.setdefault(module["module_id"], [])
            names += [_title(plan)] * (_title(plan) not in names)
    holders = {int(module_id): instance for module_id, instance in reserved.items()}
    holders.update({module_id: " or ".join(names) for module_id, names in planned.items()})
    return f"{_heading('The node')}\n\n{describe_node(topology, holders)}"


def _overview(plans: Sequence[Mapping[str, Any]], titles: Sequence[str]) -> str:
    """Return what becomes of each request, a line each."""
    rows = [
        (title, "refused" if "refused" in plan else f"{_cards(plan)}, {_address(plan)}")
        for title, plan in zip(titles, plans)
    ]
    return f"{_heading('The requests')}\n\n{_indented(_aligned(rows))}"


def _refusal(plan: Mapping[str, Any], title: str) -> str:
    sentence = with_id(str(plan["refused"]), str(plan.get("refused_id", "")))
    lines = textwrap.wrap(printable(sentence), WIDTH - 2, break_on_hyphens=False)
    return "\n\n".join([_heading(f"{title}: refused"), _indented(lines)])


def _title(plan: Mapping[str, Any], number: int = 0, called: str | None = None) -> str:
    """Return what a request goes by: its instance, or its place among several and what it asks for."""
    name = plan["instance"] or plan.get("served_model_name") or called
    place = f"request {number}" if number and not plan["instance"] else ""
    return ", ".join(part for part in (place, name) if part) or "the request"


def _address(plan: Mapping[str, Any]) -> str:
    host = plan["listen"]["host"]
    return f"http://{f'[{host}]' if ':' in host else host}:{plan['listen']['port']}"


def _cards(plan: Mapping[str, Any]) -> str:
    """Return the modules in words; without any, the number of cards."""
    modules = ", ".join(str(module["module_id"]) for module in plan["modules"])
    count = plan["requires"]["cards"]
    return f"module{'s' * (len(plan['modules']) > 1)} {modules}" if modules else f"{count} cards"


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
    """Return what a person asks first: what, on which cards and cores, from which release."""
    binding = shlex.join(plan["cpu_binding"]) if plan["cpu_binding"] else "none"
    facts = [
        ("model", plan["model"] or "not in the catalogue"),
        ("served as", " or ".join(_names(plan))),
        ("release", plan["release"]),
        ("cards", f"{len(plan['modules'])}: {_cards(plan)}" if plan["modules"] else _cards(plan)),
        ("CPU binding", binding),
    ]
    return _indented(_aligned(facts))


def _names(plan: Mapping[str, Any]) -> list[str]:
    """Return every name that clients may ask for: the one that answers show, then the path of the weights."""
    words = plan["arguments"]
    if "--served-model-name" not in words:
        return [str(plan["served_model_name"])]
    start = words.index("--served-model-name") + 1
    end = next((at for at in range(start, len(words)) if words[at].startswith("-")), len(words))
    return [str(word) for word in words[start:end]]


def _requirements(requires: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return what has to be on the node before it is started."""
    facts: list[tuple[str, str]] = []
    weights, size = requires.get("weights_path"), requires.get("weights_bytes")
    if weights or size:
        facts.append(("weights", ", ".join([str(weights)] * bool(weights) + [_size(size or 0)] * bool(size))))
    facts += [("beside them", path) for path in requires.get("weights_beside", [])]
    if requires.get("weights_missing"):
        facts.append(("missing", ", ".join(requires["weights_missing"])))
    if requires.get("conversion"):
        conversion = requires["conversion"]
        facts.append(("made from", f"{conversion['from_directory']}, converted ({conversion['tool']})"))
    if requires.get("measurements"):
        measured = requires["measurements"]
        facts.append(("measurements", f"{measured['path']}, {measured['files']} files"))
    facts += [("file", path) for path in requires.get("files", [])]
    if requires.get("disk_bytes"):
        facts.append(("recipe cache", f"room for {_size(requires['disk_bytes'])}"))
    if requires.get("host_nics"):
        facts.append(("host NICs", "measured, with libfabric"))
    return facts


def _size(count: int) -> str:
    """Return the size of files as shops count it: powers of 1000."""
    for unit, name in ((10**9, "GB"), (10**6, "MB")):
        if count >= unit // 10:
            return f"{count / unit:.1f} {name}"
    return f"{count / 1000:.1f} kB"


def _aligned(facts: Sequence[tuple[str, str]]) -> list[str]:
    """Return names and values in two columns; a value too long for the second stands below its name."""
    width = max((len(printable(name)) for name, _ in facts), default=0) + 2
    lines: list[str] = []
    for name, value in facts:
        text = printable(value)
        longest = max((len(word) for word in text.split()), default=0)
        below = longest > WIDTH - 2 - width
        lines += [printable(name)] if below else []
        lines += textwrap.wrap(
            text,
            WIDTH - 2,
            initial_indent="  " if below else printable(name).ljust(width),
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
        mount["source"]
        + (f" -> {mount['target']}" if mount["target"] != mount["source"] else "")
        + (" (read only)" if mount["read_only"] else "")
        for mount in box["mounts"]
    ]
    facts = [
        ("image", plan["image"]),
        ("name", box["name"] or "none, as the request names no instance"),
        ("runtime", f"{box['runtime']}, network {box['network']}, ipc {box['ipc']}"),
        ("processes", f"{box['pids']} at most" if box.get("pids") else "the engine's limit"),
        ("root", "read only" if box["read_only"] else "writable"),
        ("capabilities", ", ".join(box["capabilities"]) or "none added"),
        ("limits", ", ".join(f"{name} {value}" for name, value in box["ulimits"].items()) or "the engine's"),
        *_rows("may write to", _writable(box)),
        *_rows("mounts", mounts),
        ("environment", ", ".join(f"{name}={value}" for name, value in box["environment"].items())),
        ("hubs", _hubs(plan)),
    ]
    return _aligned(facts)


def _hubs(plan: Mapping[str, Any]) -> str:
    """Return what the server may fetch from a hub by itself."""
    if kept_offline(plan):
        return f"fetches nothing ({', '.join(f'{name}=1' for name in OFFLINE)}, set at each start)"
    named = ", ".join(map(without_accounts, hub_ids(plan)))
    return f"fetches {named}" if named else "as the environment says"


def _rows(name: str, values: Sequence[str]) -> list[tuple[str, str]]:
    """Return a row for each value, the first with the name."""
    return list(zip([name, *[""] * len(values)], values or ["none"]))


def _writable(box: Mapping[str, Any]) -> list[str]:
    """Return every place the server may write to, and what it is."""
    memory = [f"{at['path']} (memory, {at['size_mib'] >> 10} GiB at most, mode {at['mode']})" for at in box["tmpfs"]]
    kept = [f"{mount['target']} (a directory of the node)" for mount in box["mounts"] if not mount["read_only"]]
    shared = "the node's own" if box["ipc"] == "host" else f"memory, {box['shm_mib'] >> 10} GiB at most, mode 1777"
    return [*memory, *kept, f"/dev/shm ({shared})"]  # noqa: S108 - named, not written to


def _buckets(buckets: Mapping[str, Any] | None) -> list[str]:
    """Return the lists of shapes, and how many graphs they make; nothing where the longest request is not known.

    Whole shapes are counted, as there are hundreds of them; what each strategy comes to stands a line each.
    """
    if not buckets:
        return []
    rows = []
    for name, value in buckets.items():
        if name == "compared":
            rows += [(f"as {row['strategy']}", _compared(row)) for row in value]
        elif isinstance(value, list) and value and isinstance(value[0], list):
            ends = f"{_shape(value[0])} to {_shape(value[-1])}" if len(value) > 1 else _shape(value[0])
            rows.append((_words(name), f"{len(value):,} shapes, {ends}"))
        else:
            rows.append((_words(name), _value(value)))
    return _aligned(rows)


def _shape(shape: Sequence[int]) -> str:
    return f"({', '.join(str(side) for side in shape)})"


def _compared(row: Mapping[str, Any]) -> str:
    """Return what a strategy would warm up and pad."""
    if "why_not" in row:
        return f"would be refused: {row['why_not']}"
    padding = row["padding_percent"]
    return (
        f"{row['graphs']:,} graphs; padding about {padding['prompt']} % of prompts, {padding['decode']} % of decoding; "
        f"{row['unprepared_percent']} % unprepared"
    )


# What a name alone does not say.
_MEMORY = {
    "idle_mib": "used when idle",
    "reserve_mib": "bridge, profiling run",
    "weights_gib_per_card": "weights",
    "free_gib": "free after loading",
    "graphs_gib": "for graphs",
    "kv_cache_gib": "for the KV cache",
}


def _memory(memory: Mapping[str, Any] | None) -> list[str]:
    """Return the memory of a card from what it has to what is left for requests, in GiB below each other.

    Nothing where the model is only a path and its weights are not there to be asked.
    """
    if not memory:
        return []
    rows = []
    everywhere = memory.get("weights_bytes") if "weights_gib_per_card" in memory else None
    for name, value in memory.items():
        gib = _gib(name, value)
        shown = _value(value) if gib is None else f"{gib:6.2f} GiB"
        if name == "weights_gib_per_card" and everywhere and everywhere / (1 << 30) > value + 0.01:
            shown += f" of {everywhere / (1 << 30):.2f} on all cards"
        if name != "weights_bytes" or not everywhere:
            rows.append((_MEMORY.get(name, _words(_UNIT.sub("", name))), shown))
    return _aligned(rows)


_UNIT = re.compile(r"_(mib|gib|bytes)(?=_|$)")


def _gib(name: str, value: object) -> float | None:
    """Return an amount of memory in GiB, whatever unit its name says; None for anything else."""
    unit = _UNIT.search(name)
    if unit is None or isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return value / {"mib": 1 << 10, "gib": 1, "bytes": 1 << 30}[unit.group(1)]


def _words(name: str) -> str:
    return name.replace("_", " ")


def _value(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (list, tuple)):
        return _steps([str(item) for item in value], value)
    if isinstance(value, Mapping):
        return ", ".join(f"{_words(str(name))} {_value(inner)}" for name, inner in value.items())
    if isinstance(value, int):
        return f"{value:,}"
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
    by_rule: dict[tuple[str, str], dict[str, list[str]]] = {}
    for item in explain:
        # Values that the same numbers make stand side by side.
        by_inputs = by_rule.setdefault((item["rule"], item["source"]), {})
        by_inputs.setdefault(_inputs(item), []).append(_named(item))
    lines: list[str] = []
    for (rule, source), by_inputs in by_rule.items():
        lines += textwrap.wrap(
            printable(f"{rule} ({source})"), WIDTH - 2, subsequent_indent="    ", break_on_hyphens=False
        )
        for inputs, names in by_inputs.items():
            lines += _wrapped(f"{', '.join(names)}  <-  {inputs}" if inputs else ", ".join(names))
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
    if isinstance(result, list) and all(isinstance(word, str) for word in result):
        return f"{_words(kind)}: {shlex.join(result)}"
    return f"{name or kind}={_short(result)}"


def _inputs(item: Mapping[str, Any]) -> str:
    """Return the numbers that went in; a rule that hands its only input on has none worth telling.

    What was not given went into nothing.
    """
    if set(item["inputs"]) == {"value"}:
        return ""
    return ", ".join(f"{name}={_short(value)}" for name, value in item["inputs"].items() if value not in (None, [], {}))


def _short(value: object) -> str:
    text = _plain(value)
    return text if len(text) <= _LONGEST_INPUT else f"{text[: _LONGEST_INPUT - 3]}..."


def _plain(value: object) -> str:
    """Return a value without the brackets, quotes and blanks of a program."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return ",".join(f"{name}:{_plain(inner)}" for name, inner in value.items())
    if isinstance(value, (list, tuple)):
        nested = any(isinstance(inner, (list, tuple, Mapping)) for inner in value)
        return (" " if nested else ",").join(_plain(inner) for inner in value if inner is not None)
    return str(value)
