"""The role fp8_calibration: what an earlier run left behind, and the words of its files."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import calibrate
import pytest
import yaml
from ansible.errors import AnsibleFilterError
from gaudi.calibration import run

from tests.unit.host.modules import run_main
from tests.unit.image.made import made
from tests.unit.preflight.test_templates import evaluate, task_of, trusted, within

ROOT = Path(__file__).resolve().parents[3]
ROLE = ROOT / "roles/fp8_calibration"


def test_what_an_earlier_run_left_is_removed_before_a_description_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A leftover peer would be asked by a node that is to measure. An earlier release called it NAME.giver."""
    monkeypatch.setattr("library.node_files.OWNER", (os.getuid(), os.getgid()))
    tasks = yaml.safe_load((ROLE / "tasks/install.yml").read_text())
    removing, writing = tasks[-2:]
    given = {"fp8_calibration_plan": {"instance": "calibrate-chat"}}
    folder = "/var/lib/gaudi-serving/calibrations"
    written = evaluate("fp8_calibration", writing["ansible.builtin.copy"]["dest"], **given)
    assert written == f"{folder}/calibrate-chat.json"
    # Work that runs needs its own.
    assert removing["when"] == writing["when"]
    for name in ("calibrate-chat.giver", "calibrate-chat.peer.json", "calibrate-chat.token", "calibrate-chat.json"):
        (tmp_path / name).write_text("secret")
    removed = evaluate("fp8_calibration", removing["node_files"]["files"], **given)
    files = [{**file, "path": file["path"].replace(folder, str(tmp_path))} for file in removed]
    assert run_main("library.node_files", {"files": files})["changed"]
    assert [path.name for path in tmp_path.iterdir()] == ["calibrate-chat.json"]
    assert not run_main("library.node_files", {"files": files})["changed"]


def test_the_record_that_a_seed_sends_is_that_of_the_measurement() -> None:
    (giving,) = [
        task["vars"]
        for task in yaml.safe_load((ROLE / "tasks/spread.yml").read_text())
        if task.get("ansible.builtin.include_role", {}).get("tasks_from") == "give.yml"
    ]
    assert giving["weights_supply_record"] == f"{run.OWN}/{calibrate.RECORD}"


def peer(**said: Any) -> dict[str, Any]:
    """What a node that takes measurements writes about the seed, of what the seed has said."""
    seed = {"weights_supply_address": "10.0.0.7:8730", "weights_supply_given": {"token": "t" * 20, **said}}
    of_role = {"__fp8_calibration_seed": "gaudi-01", "__fp8_calibration_token": "/token"}
    task = task_of("fp8_calibration", "take", "address and record")
    written = within(
        "fp8_calibration", task, task["ansible.builtin.copy"]["content"], hostvars={"gaudi-01": seed}, **of_role
    )
    content: dict[str, Any] = json.loads(written)
    return content


def test_a_node_that_takes_gets_the_record_of_the_seed_through_the_controller() -> None:
    made = {"digest": "1", "measurements": {"a.npz": {"bytes": 1, "sha256": "0" * 64}}}
    written = peer(manifest=made)
    assert written["manifest"] == made
    assert {*written} == {*calibrate.PEER}


@pytest.mark.parametrize(
    "manifest",
    [
        None,
        [],
        "text",
        {"digest": "x" * 5000},
        {"x" * 5000: 1},
        {"bytes": float("nan")},
        {"bytes": 10**20},
        {"names": ["x"] * 100_001},
        json.loads('{"in": ' * 32 + "{}" + "}" * 32),
    ],
    ids=lambda manifest: str(manifest)[:20],
)
def test_a_record_without_bounds_is_not_written(manifest: object) -> None:
    with pytest.raises(AnsibleFilterError, match="report"):
        peer(manifest=manifest)


@pytest.mark.parametrize(
    "path", sorted(path for path in ROLE.rglob("*") if path.is_file() and path.suffix != ".pyc"), ids=str
)
def test_a_node_that_has_measured_is_called_the_seed(path: Path) -> None:
    """The words of the role weights_supply, and of the filter that decides."""
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if "giver" in line.lower()]
    # What an earlier release called the file.
    assert [line for line in lines if ".giver" not in line or path.name != "install.yml"] == []


def planned_with(playbook: str, **site: Any) -> Any:
    """What a playbook's plan is told of images, for a site that says this."""
    path = ROOT / "playbooks" / playbook
    (play,) = yaml.safe_load(path.read_text())
    known: dict[str, Any] = {}
    for file in play["vars_files"]:
        known |= yaml.safe_load((path.parent / file).read_text())
    (given,) = [task["serving_plan"] for task in play["tasks"] if "serving_plan" in task]
    return evaluate("fp8_calibration", given["image"], **trusted(known), **site)


BUILT = {"serving_image_build": "true", "serving_image_name": "registry.example/vllm", "serving_image_parts": ["audio"]}


@pytest.mark.parametrize(
    ("playbook", "site"), [("calibrate.yml", BUILT), ("plan.yml", BUILT), ("plan.yml", {"plan_site": BUILT})]
)
def test_a_model_is_planned_with_the_image_that_the_site_builds(playbook: str, site: dict[str, Any]) -> None:
    """The vendor's image, which it was measured in, lacks vLLM and the part with the program."""
    image = planned_with(playbook, **site)
    assert image["build"] is True
    expected = made(needs=("inc_calibration",), name="registry.example/vllm", parts=["audio"])
    assert made(needs=("inc_calibration",), **image) == expected
    assert planned_with(playbook)["build"] is False


def test_the_image_of_a_measurement_has_what_its_plan_needs() -> None:
    """The role builds parts that plans need, and an image without them is refused before cards are reserved."""
    (play,) = yaml.safe_load((ROOT / "playbooks/calibrate.yml").read_text())
    names = [task.get("ansible.builtin.import_role", {}).get("name") for task in play["tasks"]]
    task = play["tasks"][names.index("serving_image")]
    plans = [{"instance": "calibrate-x", "image": "x"}]
    given = {"calibrate_serving": {"plans": plans, "release": {}}, "inventory_hostname": "n"}
    assert evaluate("serving_image", task["vars"]["serving_image_plans"], **given) == plans
    files = [task.get("ansible.builtin.import_tasks") for task in play["tasks"]]
    assert names.index("serving_image") < files.index("tasks/all_served.yml") < names.index("fp8_calibration")


@pytest.mark.parametrize(
    ("ref", "release", "digest"),
    [("x", "1.21", "sha256:1"), ("", "1.22", "sha256:1"), ("", "1.21", "")],
    ids=["ready", "release of the inventory", "release of the model"],
)
def test_the_pin_of_the_site_counts_for_the_image_that_it_is_of(ref: str, release: str, digest: str) -> None:
    (play,) = yaml.safe_load((ROOT / "playbooks/calibrate.yml").read_text())
    (pin,) = [
        task["vars"]["serving_image_digest"] for task in play["tasks"] if "serving_image_digest" in task.get("vars", {})
    ]
    known: dict[str, Any] = {"hostvars": {"n": {"serving_image_digest": "sha256:1"}}, "inventory_hostname": "n"}
    planned = {"calibrate_serving": {"release": {"name": release}}, "calibrate_release": "1.22"}
    assert evaluate("serving_image", pin, **known, **planned, site_image={"ref": ref}) == digest


@pytest.mark.parametrize(("status", "frees"), [("running", False), ("succeeded", True), ("failed", True)])
def test_ports_are_opened_and_cards_freed_only_when_the_tool_has_ended(status: str, frees: bool) -> None:
    """A run that lost the connection ends before the tool; the next one frees what it left."""
    left, block = yaml.safe_load((ROLE / "tasks/measure.yml").read_text())
    reading, freeing = block["always"]
    assert reading["node_job"]["state"] == "read"
    for task in (left, freeing):
        assert task["ansible.builtin.include_tasks"]["file"] == "free.yml"
        (known,) = re.findall(r"\w+(?=\.job)", task["when"])
        assert evaluate("fp8_calibration", f"{{{{ {task['when']} }}}}", **{known: {"job": {"status": status}}}) is frees
