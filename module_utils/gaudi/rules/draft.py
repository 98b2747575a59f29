"""A plan in the making: its values, each with the named rule that made it and where that rule is written down.

A rule computes; ``Draft`` records what it was asked, so that a plan's explanation can never tell another story
than its values. A source that begins with ``script:`` is a function of the start script; ``RuleOrigin`` makes it the
script and commit (HabanaAI/vllm-fork) of the release that is planned for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any


@dataclass(frozen=True)
class RuleOrigin:
    """Where the rules of one release are written down: its fork's commit, and the start script in it if it has one."""

    fork: str
    script: str | None = None
    # What is said of a rule that stands in no script of this release.
    otherwise: str = "gaudi-serving, as the start scripts of later releases"

    def of(self, source: str) -> str:
        """A rule's source, for this release."""
        if not source.startswith("script:"):
            return source
        if self.script is None:
            return self.otherwise
        function = source[len("script:") :]
        # Only the script of 1.21 and 1.22 is made of functions; the other is read from top to bottom.
        if not function or (function.startswith("set_") and not self.script.endswith("utils.sh")):
            return f"{self.fork} {self.script}"
        return f"{self.fork} {self.script} {function}"


@dataclass(frozen=True)
class Value:
    """A result together with the rule that made it and the numbers that went in."""

    result: Any
    rule: Rule
    inputs: Mapping[str, object]


@dataclass(frozen=True)
class Rule:
    """A named computation. Called like the function it wraps, it gives a ``Value``."""

    id: str
    source: str
    compute: Callable[..., Any]

    def __call__(self, **inputs: object) -> Value:
        """Compute, and remember from what."""
        return Value(self.compute(**inputs), self, inputs)


def rule(name: str, source: str) -> Callable[[Callable[..., Any]], Rule]:
    """Make a function a named rule."""

    def wrap(compute: Callable[..., Any]) -> Rule:
        return Rule(name, source, compute)

    return wrap


def borrowed(value: Value, source: str) -> Value:
    """A value whose rule this release has no script for: ``source`` says whose rule it is."""
    return replace(value, rule=replace(value.rule, source=source))


def written(value: object) -> str:
    """A value as it goes into a variable or an argument."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


@dataclass
class Draft:
    """A plan in the making: every value in it comes with its rule."""

    origin: RuleOrigin
    environment: dict[str, str] = field(default_factory=dict)
    # Each option with its values, as they follow it.
    arguments: list[tuple[str, ...]] = field(default_factory=list)
    explain: list[dict[str, object]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    # What became of options and variables that were written for another release, a line each.
    changes: list[str] = field(default_factory=list)
    # Variables that the image's server does not read, though the release's does: rules do not set them.
    unread: frozenset[str] = frozenset()

    def note(self, value: str, result: object, name: str, source: str, inputs: Mapping[str, object]) -> None:
        """Record a decision, replacing an earlier one about the same value."""
        self.explain[:] = [entry for entry in self.explain if entry["value"] != value]
        # Plain floats: a number that remembers its text is nothing a JSON encoder should have to know.
        plain = {key: float(entry) if isinstance(entry, float) else entry for key, entry in inputs.items()}
        source = self.origin.of(source)
        self.explain.append({"value": value, "result": result, "rule": name, "source": source, "inputs": plain})

    def variable(self, name: str, value: Value) -> None:
        """Set an environment variable; a result of None leaves it unset."""
        if value.result is not None and name not in self.unread:
            self.environment[name] = written(value.result)
            self.note(f"environment.{name}", written(value.result), value.rule.id, value.rule.source, value.inputs)

    def option(self, name: str, value: Value) -> None:
        """Add an argument: None and False leave it out, True is a flag without a value, a list is several values."""
        if value.result is None or value.result is False:
            return
        several = value.result if isinstance(value.result, list) else [value.result]
        words = [] if value.result is True else [written(word) for word in several]
        self.arguments.append((name, *words))
        self.note(f"arguments.{name}", " ".join(words) or None, value.rule.id, value.rule.source, value.inputs)

    def argument(self, name: str) -> str | None:
        """What an argument says first; None where it is not passed or takes no value."""
        found = (values for option, *values in self.arguments if option.replace("_", "-") == name)
        return next(iter(next(found, [])), None)

    def change(self, line: str) -> None:
        """Say what became of an option or variable of another release, or why it is left out."""
        if line not in self.changes:
            self.changes.append(line)

    def warn(self, sentence: str) -> None:
        """Say something an operator should read before starting."""
        if sentence not in self.warnings:
            self.warnings.append(sentence)


def given(name: str, source: str) -> Rule:
    """The rule of a value that is taken as it stands: from the request, the catalogue or the start script."""
    return Rule(name, source, _same)


def _same(value: object) -> object:
    return value


REQUESTED = given("requested", "the request")
