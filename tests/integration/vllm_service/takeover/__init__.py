"""An instance as commit 80d7c6a6 set it up, open and guarded: what its role and its supervisor wrote on a node.

The folders have the plan, the environment, the unit, the digests of keys, the reservation and the state of the
supervisor that started the container, and the container's labels. They were recorded on the node of these tests, whose
weights lay where the plan says. They are not recorded again: what is on a site's nodes does not change either.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from plugin_utils import releases
from tests.golden import canonical_plans
from tests.unit.vllm_service.test_rendered import ROLE, file_text

FOLDER = Path(__file__).resolve().parent
MODEL, RELEASE, CARD = "qwen3-8b", "1.22", "HL-225"
# Ports below those that a system hands out.
CASES: dict[str, dict[str, Any]] = {
    "open": {"model": MODEL, "instance": "tiny", "port": 17391, "tensor_parallel_size": 2},
    "guarded": {"model": MODEL, "instance": "tiny", "port": 17392, "tensor_parallel_size": 2, "guarded": True},
}


def planned(case: str) -> dict[str, Any]:
    """Plan a case with the working tree."""
    from ansible.module_utils.gaudi.planning.many import Catalogue, plan_all

    load, catalog = canonical_plans.load, canonical_plans.CATALOG
    models = {MODEL: load(catalog / "models" / f"{MODEL}.yml")}
    catalogue = Catalogue.from_mappings(releases.read(RELEASE), models, load(catalog / "cards.yml"))
    (plan,) = plan_all([CASES[case]], catalogue, canonical_plans.topology(CARD), weights_root="/data/models")
    return plan


def rendered(plan: dict[str, Any]) -> dict[str, str]:
    """Render what the role of the working tree writes of a plan."""
    return {
        "plan": file_text("plan_text", plan),
        "environment": file_text("environment_text", plan),
        "guard": (ROLE / "files/guard/gaudi_guard.py").read_text(encoding="utf-8"),
        "unit": file_text("unit", plan),
    }
