"""Thirty plans in full, as text that a reviewer reads: the node's cards, the command, the variables, and why.

    python -m tests.golden.full_plans.plans           say what differs from the files
    python -m tests.golden.full_plans.plans --write   rewrite the files

requests.yml says what each is made from. A change that means to alter plans rewrites them, and its diff shows what an
instance will be started with.
"""

from __future__ import annotations

import argparse
import difflib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from plugin_utils import brain, releases
from tests.golden import canonical_plans

FOLDER = Path(__file__).resolve().parent
REQUESTS = FOLDER / "requests.yml"
TOPOLOGIES = canonical_plans.ROOT / "docs" / "examples" / "topologies"
# Rendered in a way of their own; all other keys of a plan follow as YAML.
OWN = ("cpu_binding", "arguments", "environment", "explain", "warnings")


def requests() -> dict[str, dict[str, Any]]:
    """What each plan is made from, by its name."""
    content: dict[str, dict[str, Any]] = canonical_plans.load(REQUESTS)
    return content


def node(case: dict[str, Any]) -> Any:
    """The topology that a plan is made for."""
    from ansible.module_utils.gaudi.cards.given import topology_from_case

    if "topology" in case:
        return topology_from_case(canonical_plans.load(TOPOLOGIES / case["topology"]))
    return canonical_plans.topology(case["card"])


def plan(case: dict[str, Any]) -> dict[str, Any]:
    """The plan, or the refusal, of one request."""
    from ansible.module_utils.gaudi.planning.many import Catalogue, plan_all

    request = {"instance": "golden", **case["request"]}
    name = request.get("model")
    models = {name: canonical_plans.load(canonical_plans.CATALOG / "models" / f"{name}.yml")} if name else {}
    cards = canonical_plans.load(canonical_plans.CATALOG / "cards.yml")
    catalogue = Catalogue.from_mappings(releases.read(case["release"]), models, cards)
    (made,) = plan_all([request], catalogue, node(case), weights_root="/data/models")
    return dict(made)


def text_of(case: dict[str, Any], made: dict[str, Any]) -> str:
    """A plan as the text of its file. Nothing of it is left out."""
    return "\n".join([*lines(case, made), ""])


def lines(case: dict[str, Any], made: dict[str, Any]) -> Iterator[str]:
    """The lines of the file: the request, the command with its variables, warnings, the rest, and the reasons."""
    yield "== request"
    yield from block(case)
    if "arguments" in made:
        yield "\n== command"
        yield " ".join(made["cpu_binding"])
        yield from options(made["arguments"])
        yield "\n== environment"
        yield from (f"{name}={value}" for name, value in made["environment"].items())
        yield "\n== warnings"
        yield from made["warnings"]
    yield "\n== plan"
    yield from block({key: value for key, value in made.items() if key not in OWN})
    if "explain" in made:
        yield "\n== reasons"
    for item in made.get("explain", ()):
        yield f"{item['value']} = {compact(item['result'])}"
        yield f"    {item['rule']}: {item['source']}; {compact(item['inputs'])}"


def block(content: dict[str, Any]) -> list[str]:
    """A mapping as YAML, lists and small mappings in one line where they fit."""
    copied = json.loads(json.dumps(content))  # without the references that YAML would name
    text = yaml.safe_dump(copied, sort_keys=False, allow_unicode=True, width=110, default_flow_style=None)
    return text.splitlines()


def options(arguments: list[str]) -> Iterator[str]:
    """A command line, an option with its values a line."""
    line: list[str] = []
    for word in arguments:
        if word.startswith("--") and line:
            yield " ".join(line)
            line = []
        line.append(word)
    yield " ".join(line)


def compact(value: Any) -> str:
    """A value in one line."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def path(name: str) -> Path:
    """The file of a plan."""
    return FOLDER / f"{name}.txt"


def differences(name: str, case: dict[str, Any]) -> str:
    """How a plan differs from its file, as a unified diff; empty where it does not."""
    written = path(name).read_text(encoding="utf-8").splitlines() if path(name).is_file() else []
    found = difflib.unified_diff(written, text_of(case, plan(case)).splitlines(), f"{name}.txt", "now", lineterm="")
    return "\n".join(found)


def main() -> int:
    """1 where a plan differs from its file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="rewrite the files")
    write = parser.parse_args().write
    brain.on_path()
    if write:
        for file in FOLDER.glob("*.txt"):
            file.unlink()
        for name, case in requests().items():
            path(name).write_text(text_of(case, plan(case)), encoding="utf-8")
        return 0
    found = [diff for name, case in requests().items() if (diff := differences(name, case))]
    print("\n".join([*found, f"{len(found)} of {len(requests())} plans differ"]))
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
