"""What a release's server knows: its arguments and environment variables, and the refusal of all others."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# Variables that begin so are the server's or the vendor's libraries'; others (PATH, PYTHONPATH) are nobody's.
FAMILIES = (
    "VLLM_",
    "PT_HPU",
    "PT_ENABLE",
    "HABANA_",
    "HCCL_",
    "HLS_",
    "INC_",
    "INIT_HCCL",
    "QUANT_CONFIG",
    "GC_KERNEL_PATH",
    "ENABLE_EXPERIMENTAL",
    "EXPERIMENTAL_",
)
# Options that take as many values as follow.
_MANY = {"--served-model-name", "--limit-mm-per-prompt", "--lora-modules", "--prompt-adapters", "--cuda-graph-sizes"}
# Flags that take "true" or "false" behind them, or nothing.
_OPTIONAL_VALUE = {"StoreBoolean"}
_FLAGS = {"store_true", "argparse.BooleanOptionalAction"}
# The lists were taken from source text, which does not show the kind of options made from dataclasses. Booleans
# among them follow their names (and --no-<name> exists).
_FLAG_NAMES = ("--enable-", "--disable-", "--use-", "--enforce-eager", "--trust-remote-code", "--skip-tokenizer-init")
_INTEGERS = {
    "--port",
    "--seed",
    "--block-size",
    "--tensor-parallel-size",
    "--pipeline-parallel-size",
    "--data-parallel-size",
    "--max-model-len",
    "--max-num-seqs",
    "--max-num-prefill-seqs",
    "--max-num-batched-tokens",
    "--max-seq-len-to-capture",
    "--num-scheduler-steps",
    "--swap-space",
}
_NUMBERS = {"--gpu-memory-utilization"}


class UsageError(Exception):
    """The server ends with status 2 and this message, as argparse does."""


@dataclass(frozen=True)
class Option:
    """One option: its other spellings, its argparse action (empty: not known), its choices (empty: any), its type."""

    name: str
    also: tuple[str, ...]
    kind: str
    choices: tuple[str, ...]
    # What its values are; empty where any text is taken, or where the file does not say. int or float; of releases with
    # the plugin also json, braced (JSON between braces, else any text) and size (a number that may end in k, M, G, T),
    # each with a question mark where None and nothing stand for no value.
    type: str = ""

    @property
    def label(self) -> str:
        """Return its name in messages."""
        return "/".join([self.name, *self.also])

    @property
    def is_flag(self) -> bool:
        """Whether it stands alone."""
        return self.kind in _FLAGS or (not self.kind and self.name.startswith(_FLAG_NAMES))


@dataclass(frozen=True)
class Surface:
    """What one release knows."""

    release: str
    options: Mapping[str, Option]
    environment: frozenset[str]
    # The release whose form its warm-up lines have, where that is not the one of 1.18 and 1.21; or plugin.
    warmup_lines: str = ""
    # Of releases with the plugin: the version of both, and the variables that vLLM itself knows.
    vllm_version: str = ""
    vllm: frozenset[str] = frozenset()

    @property
    def has_plugin(self) -> bool:
        """Whether it is vLLM itself with the plugin."""
        return self.warmup_lines == "plugin"

    @property
    def has_buckets(self) -> bool:
        """Whether the server has buckets."""
        return "VLLM_PROMPT_BS_BUCKET_MAX" in self.environment

    @property
    def reads_padding_limits(self) -> bool:
        """Whether its buckets follow padding limits."""
        return "VLLM_PROMPT_BS_BUCKET_LIMIT" in self.environment

    @property
    def spellings(self) -> dict[str, Option]:
        """Every spelling of an option, with the option it stands for."""
        found: dict[str, Option] = {}
        for option in self.options.values():
            found.update(dict.fromkeys([option.name, *option.also], option))
            if option.is_flag and option.kind != "store_true":
                found[f"--no-{option.name[2:]}"] = option
        return found


@dataclass
class Command:
    """A parsed command line. Flags have the value ``true`` or ``false``."""

    values: dict[str, list[str]] = field(default_factory=dict)

    def text(self, name: str, default: str = "") -> str:
        """Return the last value of an option."""
        return self.values.get(name, [default])[-1]

    def number(self, name: str, default: int) -> int:
        """Return the last value of an integer option."""
        return int(self.text(name, str(default)))


def _merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """``above`` over ``below``: mappings key by key, lists whole, a key set to null removed."""
    result = dict(below)
    for key, value in above.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = _merged(below.get(key, {}), value) if isinstance(value, dict) else value
    return result


def read(directory: Path, name: str) -> dict[str, Any]:
    """Read a file with what it takes from the one it extends."""
    own = json.loads((directory / f"{name}.json").read_text(encoding="utf-8"))
    base = own.pop("extends", None)
    return own if base is None else _merged(read(directory, base), own)


def load(directory: Path, release: str) -> Surface:
    """Read what a release knows."""
    facts = read(directory, release)
    environment = {name for names in facts["environment"].values() for name in names}
    options = {
        name: Option(
            name,
            tuple(entry["also"]),
            entry["kind"],
            tuple(map(str, entry.get("choices", []))),
            entry.get("type", _type(name)),
        )
        for name, entry in facts["arguments"].items()
    }
    return Surface(
        release,
        options,
        frozenset(environment),
        facts.get("warmup_lines", ""),
        facts.get("vllm_version", ""),
        frozenset(facts["environment"].get("vllm", [])),
    )


def _type(name: str) -> str:
    """The type of an option whose file does not say it."""
    return "int" if name in _INTEGERS else "float" if name in _NUMBERS else ""


def parse(surface: Surface, arguments: list[str]) -> Command:
    """Parse a command line as the release's parser would; UsageError where it refuses."""
    spellings = surface.spellings
    command = Command()
    strays: list[str] = []
    position = 0
    while position < len(arguments):
        word = arguments[position]
        position += 1
        spelling, has_value, value = word.partition("=")
        # vLLM's parser takes underscores for hyphens in long options.
        spelling = spelling.replace("_", "-") if spelling.startswith("--") else spelling
        option = spellings.get(spelling)
        if option is None:
            strays.append(word)
            continue
        name = option.name
        following = _following(arguments, position)
        if option.is_flag:
            if has_value:
                raise UsageError(f"argument {option.label}: ignored explicit argument {value!r}")
            command.values[name] = ["false" if spelling.startswith("--no-") else "true"]
            continue
        given = [value] if has_value else following if name in _MANY else following[:1]
        if option.kind in _OPTIONAL_VALUE:
            command.values[name] = [(given or ["true"])[0].lower()]
        elif not given:
            raise UsageError(f"argument {option.label}: expected {'at least ' if name in _MANY else ''}one argument")
        elif option.type.endswith("?") and given in (["None"], [""]):
            command.values.pop(name, None)
        else:
            _check(option, given)
            command.values[name] = [*command.values.get(name, []), *given] if option.kind == "append" else given
        position += 0 if has_value else len(given)
    if strays:
        raise UsageError(f"unrecognized arguments: {' '.join(strays)}")
    return command


def _following(arguments: list[str], position: int) -> list[str]:
    """Return the words from a position that are values: up to the next option. "-1" is a value."""
    found = []
    for word in arguments[position:]:
        if word.startswith("-") and not word.lstrip("-").replace(".", "", 1).isdigit():
            break
        found.append(word)
    return found


def _braced(value: str) -> object:
    return json.loads(value) if re.fullmatch(r"(?s)\s*{.*}\s*", value) else value


def _size(value: str) -> float:
    found = re.fullmatch(r"(\d+|\d+(?:\.\d+)?(?=[kKmMgGtT]))[kKmMgGtT]?", value)
    if found is None:
        raise ValueError
    return float(found[1])


# As the message names what could not read a value: classes, and functions of vllm/engine/arg_utils.py.
_SHOWN = {
    "int": "<class 'int'>",
    "float": "<class 'float'>",
    "json": "<function loads at 0x7f0000000000>",
    "braced": "<function loads at 0x7f0000000000>",
    "size": "<function human_readable_int at 0x7f0000000000>",
}
_READ: Mapping[str, Callable[[str], object]] = {
    "int": int,
    "float": float,
    "json": json.loads,
    "braced": _braced,
    "size": _size,
}


def _check(option: Option, given: list[str]) -> None:
    kind = option.type.rstrip("?")
    for value in given:
        try:
            _READ.get(kind, str)(value)
        except ValueError:
            if option.type in ("int", "float"):
                words = f"invalid {option.type} value: {value!r}"
            else:
                words = f"Value {value} cannot be converted to {_SHOWN[kind]}."
            raise UsageError(f"argument {option.label}: {words}") from None
        if option.choices and value not in option.choices:
            choices = ", ".join(map(repr, option.choices))
            raise UsageError(f"argument {option.label}: invalid choice: {value!r} (choose from {choices})")


def unknown_variables(surface: Surface, environment: Mapping[str, str]) -> list[str]:
    """Return the variables of the server's families that the release does not know, sorted."""
    return sorted(name for name in environment if name.startswith(FAMILIES) and name not in surface.environment)
