"""The plan of every catalogue model on every release and card type, as one SHA-256 a line.

    python -m tests.golden.canonical_plans                    say which plans differ from the list
    python -m tests.golden.canonical_plans --write            rewrite the list
    python -m tests.golden.canonical_plans --against COMMIT   show what differs from the plans of another commit
    python -m tests.golden.canonical_plans --only NAME        the same for the plans of one release or of one model

The digest of a plan covers what an instance is started with: arguments, environment, container, all but explanations
and warnings. The digest of a refusal covers its id. Sentences may change; ``--against`` shows them, too. A change that
means to leave plans alone leaves ``canonical_plans.sha256`` alone. A change that means to alter plans rewrites the
list, and its commit says why.
"""

from __future__ import annotations

import argparse
import dataclasses
import difflib
import functools
import hashlib
import io
import json
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Container, Iterator
from pathlib import Path
from typing import Any

import yaml

from plugin_utils import brain, releases

ROOT = Path(__file__).resolve().parents[2]
CATALOG = ROOT / "catalog"
LIST = Path(__file__).with_suffix(".sha256")
TOPOLOGY = ROOT / "docs" / "examples" / "topologies" / "hl-225-two-sockets.yml"
DESCRIBED_CARD = "HL-225"
# For models that were validated on Gaudi 3 alone.
GAUDI3_CARD = "HL-325"
# Where this program is in a commit; the second is its former place.
MODULES = ("tests.golden.canonical_plans", "tests.canonical_plans")
# Text for people, which no digest covers.
TEXT = ("explain", "warnings")
# Lines of difference shown for one plan.
SHOWN = 40

Plans = dict[str, Any]


@functools.cache
def load(path: Path) -> Any:
    """The content of a YAML file."""
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def topology(card: str) -> Any:
    """A node of two sockets with eight cards of one type, as the planner reads it."""
    from ansible.module_utils.gaudi.cards.given import topology_from_case

    case = load(TOPOLOGY)
    named = case["hl_smi_name_csv"].replace(DESCRIBED_CARD, card)
    return topology_from_case({**case, "hl_smi_name_csv": named})


def models() -> list[str]:
    """The models of the catalogue, in the order of the list."""
    return [file.stem for file in sorted((CATALOG / "models").glob("*.yml"))]


def wanted(names: list[str], only: str | None) -> list[str]:
    """Of the names of all models, or of all releases, those whose plans are asked for."""
    return [only] if only in names else names


def names() -> list[str]:
    """``model release card`` of all plans, in the order of the list."""
    cards = sorted(load(CATALOG / "cards.yml")["cards"])
    return [f"{model} {release} {card}" for model in models() for release in releases.names() for card in cards]


def card_of(model: str) -> str:
    """The card type that a model is served on: Gaudi 2, unless it was validated on Gaudi 3 alone."""
    validated = load(CATALOG / "models" / f"{model}.yml").get("validated", {}).get("generations", ["gaudi2"])
    return DESCRIBED_CARD if "gaudi2" in validated else GAUDI3_CARD


def sample() -> list[str]:
    """Of the names of all plans, those that make test makes, in the order of the list.

    Each model on each release with the cards that it is served on, and each further card type on one release, another
    one from model to model. This program makes all, and make test-all runs it.
    """
    cards = sorted(load(CATALOG / "cards.yml")["cards"])
    found = set[str]()
    for turn, model in enumerate(models()):
        own = card_of(model)
        found |= {f"{model} {release} {own}" for release in releases.names()}
        for place, card in enumerate(cards):
            found.add(f"{model} {releases.names()[(turn + place) % len(releases.names())]} {card}")
    return [name for name in names() if name in found]


def plans(only: str | None = None, among: Container[str] | None = None) -> Iterator[tuple[str, Any]]:
    """The name and the document of each plan, in the order of the list.

    only: of one release or model; among: those with one of these names. Without either, all.
    """
    from ansible.module_utils.gaudi.catalogue.entries import ModelEntry
    from ansible.module_utils.gaudi.planning.many import Catalogue, plan_all

    cards = load(CATALOG / "cards.yml")
    nodes = {card: topology(card) for card in sorted(cards["cards"])}
    read = {name: Catalogue.from_mappings(releases.read(name), {}, cards) for name in wanted(releases.names(), only)}
    for model in wanted(models(), only):
        entry = ModelEntry.from_mapping(load(CATALOG / "models" / f"{model}.yml"))
        for release, its in read.items():
            catalogue = dataclasses.replace(its, models={model: entry})
            request = {"model": model, "instance": "canonical"}
            for card, node in nodes.items():
                name = f"{model} {release} {card}"
                if among is not None and name not in among:
                    continue
                (plan,) = plan_all([request], catalogue, node, weights_root="/data/models")
                yield name, plan


def text_of(plan: Any) -> str:
    """A plan as text that does not depend on the order of keys."""
    return json.dumps(plan, indent=1, sort_keys=True, ensure_ascii=False)


def digest(plan: dict[str, Any]) -> str:
    """The SHA-256 of a plan without its text for people, and of a refusal's id."""
    covered = {key: value for key, value in plan.items() if key not in TEXT}
    text = text_of({"refused_id": plan["refused_id"]} if "refused" in plan else covered)
    return hashlib.sha256(text.encode()).hexdigest()


def digests(made: Plans) -> str:
    """The list: one line a plan."""
    return "".join(f"{digest(plan)}  {name}\n" for name, plan in made.items())


def listed(text: str, only: str | None = None) -> dict[str, str]:
    """The list, or its lines of one release or model, as a mapping from a plan's name to its digest."""
    lines = (line.split("  ", 1) for line in text.splitlines())
    return {name: digest for digest, name in lines if asked_for(name, only)}


def asked_for(name: str, only: str | None) -> bool:
    """Whether a plan is one of a release or model; without either, all are."""
    return only is None or only in name.split()[:2]


def rewritten(text: str, made: Plans) -> str:
    """The list with the plans that were made in place of their lines; lines of plans that nobody makes any more go."""
    known = {**listed(text), **listed(digests(made))}
    return "".join(f"{known[name]}  {name}\n" for name in names() if name in known)


def differing(before: dict[str, str], after: dict[str, str]) -> list[str]:
    """Names of the plans that were added, removed or changed."""
    return sorted(name for name in {**before, **after} if before.get(name) != after.get(name))


def plans_at(commit: str) -> Plans:
    """The plans that another commit makes, with its own copy of this program. Raises CalledProcessError."""
    archive = subprocess.run(["git", "archive", commit], cwd=ROOT, check=True, capture_output=True).stdout
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(fileobj=io.BytesIO(archive)) as files:
            files.extractall(folder, filter="data")
        module = next((name for name in MODULES if Path(folder, *name.split(".")).with_suffix(".py").exists()), None)
        if module is None:
            sys.exit(f"{commit} has no list of canonical plans: compare with a later commit.")
        done = subprocess.run(
            [sys.executable, "-m", module, "--json"],
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
    parser.add_argument("--only", metavar="NAME", help="only the plans of this release or model")
    asked = parser.parse_args()
    if asked.only and asked.only not in (*releases.names(), *models()):
        parser.error(f"the catalogue has no release and no model {asked.only}")
    brain.on_path()
    made = dict(plans(asked.only))
    if asked.json:
        json.dump(made, sys.stdout)
        return 0
    if asked.against:
        before = {name: plan for name, plan in plans_at(asked.against).items() if asked_for(name, asked.only)}
        return int(show(before, made) > 0)
    text = LIST.read_text(encoding="utf-8")
    if asked.write:
        LIST.write_text(rewritten(text, made), encoding="utf-8")
        print(f"{len(made)} plans in {LIST.relative_to(ROOT)}")
        return 0
    changed = differing(listed(text, asked.only), listed(digests(made)))
    print("\n".join([*changed, f"{len(changed)} of {len(made)} plans differ from {LIST.relative_to(ROOT)}"]))
    return int(bool(changed))


if __name__ == "__main__":
    sys.exit(main())
