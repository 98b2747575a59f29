"""The plan of every catalogue model on every release and card type, as one SHA-256 a line.

    python -m tests.canonical_plans                    say which plans differ from the list
    python -m tests.canonical_plans --write            rewrite the list
    python -m tests.canonical_plans --against COMMIT   show what differs from the plans of another commit

A plan is taken whole: arguments, environment, container, explanations and warnings; a refusal by its sentence. A change
that means to leave plans alone leaves ``canonical_plans.sha256`` alone. A change that means to alter plans rewrites the
list, and its commit says why.
"""

from __future__ import annotations

import argparse
import difflib
import hashlib
import io
import json
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from plugin_utils import brain, releases

ROOT = Path(__file__).resolve().parent.parent
CATALOG = ROOT / "catalog"
LIST = Path(__file__).with_suffix(".sha256")
TOPOLOGY = ROOT / "docs" / "examples" / "topologies" / "hl-225-two-sockets.yml"
DESCRIBED_CARD = "HL-225"
# Lines of difference shown for one plan.
SHOWN = 40

Plans = dict[str, Any]


def load(path: Path) -> Any:
    """The content of a YAML file."""
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def topology(card: str) -> Any:
    """A node of two sockets with eight cards of one type, as the planner reads it."""
    from ansible.module_utils.gaudi.cards.given import topology_from_case

    case = load(TOPOLOGY)
    case["hl_smi_name_csv"] = case["hl_smi_name_csv"].replace(DESCRIBED_CARD, card)
    return topology_from_case(case)


def plans() -> Iterator[tuple[str, Any]]:
    """``model release card`` and the plan document, for all of them, sorted."""
    from ansible.module_utils.gaudi.planning.many import Catalogue, plan_all

    cards = load(CATALOG / "cards.yml")
    nodes = {card: topology(card) for card in sorted(cards["cards"])}
    contents = {name: releases.read(name) for name in releases.names()}
    for file in sorted((CATALOG / "models").glob("*.yml")):
        model = load(file)
        for release, content in contents.items():
            catalogue = Catalogue.from_mappings(content, {file.stem: model}, cards)
            request = {"model": file.stem, "instance": "canonical"}
            for card, node in nodes.items():
                (plan,) = plan_all([request], catalogue, node, weights_root="/data/models")
                plan.pop("refused_id", None)
                yield f"{file.stem} {release} {card}", plan


def text_of(plan: Any) -> str:
    """A plan as text that does not depend on the order of keys."""
    return json.dumps(plan, indent=1, sort_keys=True, ensure_ascii=False)


def digests(made: Plans) -> str:
    """The list: one line a plan."""
    return "".join(f"{hashlib.sha256(text_of(plan).encode()).hexdigest()}  {name}\n" for name, plan in made.items())


def listed(text: str) -> dict[str, str]:
    """The list as a mapping from a plan's name to its digest."""
    return {name: digest for digest, name in (line.split("  ", 1) for line in text.splitlines())}


def differing(before: dict[str, str], after: dict[str, str]) -> list[str]:
    """Names of the plans that were added, removed or changed."""
    return sorted(name for name in {**before, **after} if before.get(name) != after.get(name))


def plans_at(commit: str) -> Plans:
    """The plans that another commit makes, with its own copy of this program. Raises CalledProcessError."""
    archive = subprocess.run(["git", "archive", commit], cwd=ROOT, check=True, capture_output=True).stdout
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(fileobj=io.BytesIO(archive)) as files:
            files.extractall(folder, filter="data")
        if not Path(folder, "tests", Path(__file__).name).exists():
            sys.exit(f"{commit} has no tests/{Path(__file__).name}: compare with a later commit.")
        done = subprocess.run(
            [sys.executable, "-m", "tests.canonical_plans", "--json"],
            cwd=folder,
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        )
    return dict(json.loads(done.stdout))


def show(before: Plans, after: Plans) -> int:
    """Print what differs; the number of plans that do."""
    names = [name for name in sorted({**before, **after}) if before.get(name) != after.get(name)]
    for name in names:
        old, new = (text_of(side.get(name)).splitlines() for side in (before, after))
        lines = list(difflib.unified_diff(old, new, lineterm="", n=1))[2:]
        print("\n".join([f"== {name}", *lines[:SHOWN]]))
        if len(lines) > SHOWN:
            print(f"   and {len(lines) - SHOWN} lines more")
    print(f"{len(names)} of {len(after)} plans differ")
    return len(names)


def main() -> int:
    """1 where plans differ from the list, or from the other commit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    choice = parser.add_mutually_exclusive_group()
    choice.add_argument("--write", action="store_true", help="rewrite the list")
    choice.add_argument("--against", metavar="COMMIT", help="show what differs from the plans of another commit")
    choice.add_argument("--json", action="store_true", help="print all plans as one JSON object")
    asked = parser.parse_args()
    brain.on_path()
    made = dict(plans())
    if asked.json:
        json.dump(made, sys.stdout)
        return 0
    if asked.against:
        return int(show(plans_at(asked.against), made) > 0)
    if asked.write:
        LIST.write_text(digests(made), encoding="utf-8")
        print(f"{len(made)} plans in {LIST.relative_to(ROOT)}")
        return 0
    changed = differing(listed(LIST.read_text(encoding="utf-8")), listed(digests(made)))
    print("\n".join([*changed, f"{len(changed)} of {len(made)} plans differ from {LIST.relative_to(ROOT)}"]))
    return int(bool(changed))


if __name__ == "__main__":
    sys.exit(main())
