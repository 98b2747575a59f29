"""Every plan for every model passes the front of its release: what we plan, a server of that release takes.

Planner and front know the releases from different lists and have the bucket rules from different hands.
"""

from __future__ import annotations

import functools
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.module_utils.gaudi.planning.many import Catalogue, plan_all
from gaudi_simulated import front, numactl, plugin_buckets, surface, v1, warmup

from plugin_utils import releases
from simulator.standins import description

CATALOG = Path(__file__).resolve().parents[3] / "catalog"
SURFACES = Path(surface.__file__).parent.parent / "surface"


@functools.lru_cache
def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def pairs() -> list[Any]:
    models = {path.stem: read(path) for path in sorted((CATALOG / "models").glob("*.yml"))}
    return [
        pytest.param(model, release, machine, id=f"{machine}-{model}-{release}")
        for model, entry in models.items()
        for release in entry.get("releases", releases.names())
        for machine in machines(entry)
    ]


def machines(entry: dict[str, Any]) -> list[str]:
    """The described nodes a model is planned on: those of Gaudi 3 where it was validated on these alone."""
    on_gaudi2 = "gaudi2" in entry.get("validated", {}).get("generations", ["gaudi2"])
    return ["gaudi2-oam8", "gaudi2-oam8-smt-off"] if on_gaudi2 else ["gaudi3-oam8"]


def topology(node: dict[str, Any]) -> dict[str, Any]:
    """A described node as the topology module shows it."""
    same = ("index", "module_id", "name", "serial", "uuid", "bus_id", "numa_node", "cpus")
    cards = [
        {
            **{key: card[key] for key in same},
            "memory_total_mib": card["memory_total"],
            "memory_used_mib": card["memory_idle"],
            "temperature_c": card["temperature"],
            "driver_version": node["driver"]["version"],
            "nic_driver_version": node["driver"]["nic_version"],
            "firmware": None,
            "links_up": 21,
            "links_total": 21,
            "state": "operational",
            "users": [],
        }
        for card in sorted(node["cards"], key=lambda card: int(card["module_id"]))
    ]
    return {
        "schema": 1,
        "cards": cards,
        "hl_smi_version": node["release"],
        "driver_version": node["driver"]["version"],
        "addresses": [["eth0", "10.20.0.11/24"]],
        "findings": [],
    }


def agrees(plan: dict[str, Any], known: surface.Surface, command: surface.Command) -> None:
    """The front of a release with the plugin takes the plan further on, and warms up the same shapes."""
    v1.check_environment(known, command, plan["environment"])
    engine = v1.engine_of(known, command, 0)
    buckets = plan["buckets"]
    # What the stand-in says that it has not: chunks of Mamba models.
    if buckets is None or "prompt" not in buckets or any(query % engine.block for _, query, _ in buckets["prompt"]):
        return
    work = plugin_buckets.shapes(replace(engine, kv_blocks=buckets["kv_blocks"]), plan["environment"])
    pooling = command.text("--runner") == "pooling"
    assert [list(shape) for shape in work.prompt] == buckets["prompt"]
    assert ([] if pooling else [list(shape) for shape in work.decode]) == buckets["decode"]


@pytest.mark.parametrize(("model", "release", "machine"), pairs())
def test_a_plan_passes_the_front(model: str, release: str, machine: str) -> None:
    node = description.load(machine)
    catalogue = Catalogue.from_mappings(
        releases.read(release),
        {model: read(CATALOG / "models" / f"{model}.yml")},
        read(CATALOG / "cards.yml"),
    )
    request = {"instance": "x", "model": model}
    plan = plan_all([request], catalogue, topology(node), weights_root="/data/models")[0]
    assert "refused" not in plan, plan

    known = surface.load(SURFACES, release)
    assert plan["arguments"][:3] == ["python3", "-m", "vllm.entrypoints.openai.api_server"]
    command = surface.parse(known, plan["arguments"][3:])
    assert surface.unknown_variables(known, {**plan["environment"], "HABANA_VISIBLE_DEVICES": "0"}) == []
    if plan["cpu_binding"]:
        numactl.check(numactl.parse([*plan["cpu_binding"][1:], "python3"]), node)

    if known.has_plugin:
        agrees(plan, known, command)
        return
    limits = front.limits_of(command)
    work = warmup.buckets(plan["environment"], limits, padding_limits=known.reads_padding_limits)
    # The first two releases take the length from the weights, which are not here.
    if "--max-model-len" in command.values:
        assert (len(work.prompt), len(work.decode)) == (
            plan["buckets"]["prompt_graphs"],
            plan["buckets"]["decode_graphs"],
        )
