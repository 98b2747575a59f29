"""What holds for every plan: its release knows each word, each value has its rule, and the stand-in server starts."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterator
from typing import Any

from ansible.module_utils.gaudi.catalogue.entries import ReleaseEntry
from ansible.module_utils.gaudi.catalogue.surface import CHECKED, normal

from tests.golden.serving_cases import vendor

SERVING = vendor.ROOT / "simulator" / "images" / "serving"
sys.path.insert(0, str(SERVING))
surface = importlib.import_module("gaudi_simulated.surface")


def entry(release: str) -> ReleaseEntry:
    """A release of the catalogue as the planner reads it."""
    return ReleaseEntry.from_mapping(vendor.content("releases", release))


def problems(release: str, plan: dict[str, Any]) -> list[str]:
    """What is wrong with a plan that was made for a release, a sentence each."""
    return [*beyond_surface(release, plan), *unexplained(plan), *not_started(release, plan)]


def beyond_surface(release: str, plan: dict[str, Any]) -> Iterator[str]:
    """Options and variables that the release does not read."""
    read = entry(release)
    known = {normal(name) for name in read.arguments}
    yield from (f"{release} has no option {name}" for name in sorted(set(vendor.options(plan["arguments"])) - known))
    checked = {name for name in plan["environment"] if CHECKED.match(name)}
    yield from (f"{release} does not read {name}" for name in sorted(checked - read.variables))


def unexplained(plan: dict[str, Any]) -> Iterator[str]:
    """Values without a rule, and rules without a source."""
    values = {item["value"]: item for item in plan["explain"]}
    if len(values) != len(plan["explain"]):
        yield "a value is explained twice"
    for name, value in plan["environment"].items():
        if values.get(f"environment.{name}", {}).get("result") != value:
            yield f"{name}={value} is not explained"
    options = {normal(known.removeprefix("arguments.")) for known in values}
    yield from (f"{option} is not explained" for option in vendor.options(plan["arguments"]) if option not in options)
    yield from (
        f"{name} is not explained" for name in ("modules", "cpu_binding", "execution_mode") if name not in values
    )
    for item in plan["explain"]:
        whole = set(item) == {"value", "result", "rule", "source", "inputs"}
        if not (whole and item["source"] and re.fullmatch(r"[a-z0-9.-]+", item["rule"])):
            yield f"an explanation is incomplete: {item}"


def not_started(release: str, plan: dict[str, Any]) -> Iterator[str]:
    """What the stand-in server, which reads the release's surface by itself, stops at."""
    known = surface.load(SERVING / "surface", release)
    try:
        surface.parse(known, plan["arguments"][3:])
    except surface.UsageError as error:
        yield f"the stand-in server stops: {error}"
    unknown = surface.unknown_variables(known, {**plan["environment"], **plan["container"]["environment"]})
    yield from (f"the stand-in server does not know {name}" for name in unknown)
