"""A person goes back to an earlier plan, and reads which there were."""

from __future__ import annotations

import contextlib
import io
import json
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.gaudi.base import paths
from ansible.module_utils.gaudi.cards.reservations import again
from ansible.module_utils.gaudi.node import containers, instances, iommu, startable, states
from ansible.module_utils.gaudi.node.kept import InstancePaths
from ansible.module_utils.gaudi.serving import kept as decisions
from ansible.module_utils.gaudi.serving.kept import StartsFrom
from ansible.module_utils.gaudi.serving.made_of import MadeOf
from ansible.module_utils.testing import patch_module_args

from action_plugins import vllm_service_info as following
from library import vllm_service_info, vllm_service_rollback
from tests.unit.jobs.test_following import follow

START = StartsFrom("sha256:1", "", "")
AT = "2026-01-31T08:00:00Z"
# The module that each instance holds, after the instance "other" took the module of plan 2.
OTHERS = {"tiny": 3, "other": 2}


def files(name: str, weights: Path, module_id: int = 0) -> dict[str, str]:
    """The files of a plan."""
    document = {
        "instance": "tiny",
        "image": "image:1",
        "modules": [{"module_id": module_id, "serial": "AN0"}],
        "environment": {"VLLM_LOGGING_PREFIX": name},
        "arguments": ["serve", "--max-num-seqs", name],
        "requires": {"weights_path": str(weights)},
        "guarded": False,
    }
    return {"plan.json": json.dumps(document), "environment": f"PLAN={name}\n", "mounts": f"# {name}\n"}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> InstancePaths:
    """An instance that served with the plans 1, 2 and 3; the last lies there."""
    found = InstancePaths("tiny", tmp_path / "state/instances/tiny", tmp_path / "etc", tmp_path / "units")
    (tmp_path / "etc/tiny").mkdir(parents=True)
    (tmp_path / "weights").mkdir()
    (tmp_path / "weights/config.json").write_text("{}")
    (tmp_path / "weights/model.safetensors").write_text("data")
    for number in (1, 2, 3):
        plan = files(str(number), tmp_path / "weights", number)
        found.keep(decisions.serves(found.kept()[0], plan, START, AT), ())
    for name in ("plan.json", "environment"):
        (tmp_path / "etc/tiny" / name).write_text(plan[name])
    units = tmp_path / "units/vllm-tiny.service.d"
    units.mkdir(parents=True)
    (units / "50-plan.conf").write_text(plan["mounts"])
    for module in (vllm_service_info, vllm_service_rollback):
        monkeypatch.setattr(module.InstancePaths, "of", classmethod(lambda _cls, _name: found))
    monkeypatch.setattr(paths, "INSTANCES", str(tmp_path / "etc"))
    monkeypatch.setattr(states, "installed", lambda: ["tiny"])
    monkeypatch.setattr(startable, "lacks_room", lambda _instance: [])
    monkeypatch.setattr(containers, "image_id", lambda _module, _name: "sha256:1")
    runs(found, monkeypatch, "3")
    return found


def runs(place: InstancePaths, monkeypatch: pytest.MonkeyPatch, number: str, running: bool = True) -> None:
    """Have the instance's container be of a plan; or have it run last with it."""
    plan = files(number, place.plans.parent / "weights", int(number))
    label = MadeOf(plan["plan.json"].encode(), plan["environment"].encode(), None).digest
    container = containers.InstanceContainer(True, label, {}) if running else None
    monkeypatch.setattr(containers, "look", lambda _module, _name: container)
    monkeypatch.setattr(instances, "read", lambda _module, _names: [{"state": {"plan": label}}])


def run(module: Any, check: bool = False, **arguments: Any) -> dict[str, Any]:
    """What a module answers."""
    output = io.StringIO()
    given = {**arguments, "_ansible_check_mode": check}
    with patch_module_args(given), contextlib.redirect_stdout(output), pytest.raises(SystemExit):
        module.main()
    answer: dict[str, Any] = json.loads(output.getvalue())
    return answer


def lies_there(place: InstancePaths) -> str:
    """Which plan lies on the node, by its variable."""
    return place.files()["environment"].strip().removeprefix("PLAN=")


def test_a_person_goes_back_to_the_plan_before(place: InstancePaths) -> None:
    foreseen = run(vllm_service_rollback, check=True, instance="tiny", by="admin")
    assert (foreseen["changed"], lies_there(place)) == (True, "3")
    answer = run(vllm_service_rollback, instance="tiny", by="admin")
    assert answer["differs"] == foreseen["differs"]
    assert "--max-num-seqs 3 -> 2" in answer["differs"]
    assert lies_there(place) == "2"
    assert place.files()["mounts"] == "# 2\n"
    reserved = json.loads((place.state.parents[1] / "cards.lock").read_text())["reservations"]["tiny"]["cards"]
    assert reserved == [{"module_id": 2, "serial": "AN0"}]
    left = next(each for each in place.kept()[0] if each.digest == answer["before"])
    assert left.failed is not None
    assert left.failed.by == "admin"
    back = place.back()
    assert back is not None
    assert (back.before, back.after, back.by) == (answer["before"], answer["after"], "admin")


def test_rollback_by_a_person_opens_more_and_says_what(place: InstancePaths) -> None:
    plan = json.loads(place.files()["plan.json"])
    plan |= {"guarded": True, "listen": {"host": "10.20.0.11", "port": 30002}}
    (place.plans / "tiny/plan.json").write_text(json.dumps(plan))
    present = {name: text for name, text in place.files().items() if name in decisions.DETERMINING}
    opened = {
        **present,
        "plan.json": json.dumps({**plan, "guarded": None, "listen": {"host": "0.0.0.0", "port": 30001}}),
    }
    for each in (opened, present):
        place.keep(decisions.serves(place.kept()[0], each, START, AT), ())
    for check in (True, False):
        answer = run(vllm_service_rollback, check=check, instance="tiny", by="admin")
        assert answer["opens"] == ["it asks for no key", "other machines reach it at 0.0.0.0, port 30001"]
        # Where the firewall is opened, if the site says so.
        assert (answer["host"], answer["port"]) == ("0.0.0.0", 30001)
    assert place.files()["plan.json"] == opened["plan.json"]


def test_rollback_to_a_plan_that_opens_nothing_says_so(place: InstancePaths) -> None:
    answer = run(vllm_service_rollback, instance="tiny", by="admin")
    assert (answer["opens"], answer["host"], answer["port"]) == ([], "127.0.0.1", 0)


def test_a_person_names_a_plan(place: InstancePaths, monkeypatch: pytest.MonkeyPatch) -> None:
    first = next(each for each in place.kept()[0] if each.number == 1)
    assert run(vllm_service_rollback, instance="tiny", to=first.digest[:12], by="admin")["after"] == first.digest
    assert lies_there(place) == "1"
    # It came to run. From there to the one before it was left, which nobody took back.
    runs(place, monkeypatch, "1")
    run(vllm_service_rollback, instance="tiny", by="admin")
    assert lies_there(place) == "2"


@pytest.mark.parametrize("running", [True, False])
def test_a_way_back_that_was_cut_off_is_taken_to_its_end(
    place: InstancePaths, monkeypatch: pytest.MonkeyPatch, running: bool
) -> None:
    """Not another one: who runs the playbook again wants what was wanted."""
    runs(place, monkeypatch, "3", running)
    begun = run(vllm_service_rollback, instance="tiny", by="admin")
    # Cut off before the restart, and then with files that were not written yet.
    for name, text in (("environment", "PLAN=2\n"), ("environment", "PLAN=3\n")):
        (place.plans / "tiny" / name).write_text(text)
        again = run(vllm_service_rollback, instance="tiny", by="admin")
        assert (again["before"], again["after"]) == (begun["before"], begun["after"])
        assert again["differs"] == begun["differs"]
        assert lies_there(place) == "2"
    assert len(place.kept()[0]) == 3


def test_who_names_another_plan_than_the_one_of_the_cut_off_way_gets_that(
    place: InstancePaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(vllm_service_rollback, instance="tiny", by="admin")
    first = next(each for each in place.kept()[0] if each.number == 1)
    assert run(vllm_service_rollback, instance="tiny", to=first.digest[:12], by="admin")["after"] == first.digest
    assert lies_there(place) == "1"


def test_a_damaged_way_back_is_none(place: InstancePaths, monkeypatch: pytest.MonkeyPatch) -> None:
    (place.state / "back.json").write_text("{")
    run(vllm_service_rollback, instance="tiny", by="admin")
    assert lies_there(place) == "2"


def test_nothing_is_touched_where_a_plan_cannot_start(place: InstancePaths, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(vllm_service_rollback, instance="tiny", to="zz", by="a")["refused_id"] == "no_plan_to_go_back_to"
    weights = place.plans.parent / "weights/model.safetensors"
    weights.rename(weights.with_suffix(".gone"))
    assert run(vllm_service_rollback, instance="tiny", by="a")["refused_id"] == "weights_of_plan_missing"
    weights.with_suffix(".gone").rename(weights)
    monkeypatch.setattr(containers, "image_id", lambda _module, _name: None)
    assert run(vllm_service_rollback, instance="tiny", by="a")["refused_id"] == "image_of_plan_missing"
    (place.plans / "tiny/plan.json").unlink()
    assert run(vllm_service_rollback, instance="tiny", by="a")["refused_id"] == "no_plan"
    assert place.back() is None
    assert [each.failed for each in place.kept()[0]] == [None] * 3


def test_nothing_is_touched_where_an_iommu_translates(place: InstancePaths, monkeypatch: pytest.MonkeyPatch) -> None:
    """What runs would end, and the plan would not start."""
    asked: list[list[int]] = []

    def translated(versions: list[str], modules: list[int], _folder: Path) -> dict[str, str]:
        asked.append(modules)
        return {"case": "", "cards": "DMA of 0000:33:00.0", "damage": ""} if versions == [""] else {}

    monkeypatch.setattr(iommu, "translated", translated)
    answer = run(vllm_service_rollback, instance="tiny", by="a")
    assert (answer["refused_id"], asked) == ("cards_translated", [[2]])
    assert "DMA of 0000:33:00.0" in answer["msg"].partition("cannot start. ")[2]
    assert place.back() is None


def test_nothing_is_touched_where_what_is_written_has_no_room(
    place: InstancePaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a plan may count as taken back that serves, while nothing says where to."""
    monkeypatch.setattr(startable, "lacks_room", lambda _instance: ["/state has 4.1 kB free"])
    answer = run(vllm_service_rollback, instance="tiny", by="a")
    assert answer["refused_id"] == "no_room"
    assert answer["msg"] == "tiny was left as it is, because /state has 4.1 kB free. Make room, then run this again."
    assert place.back() is None
    assert [each.failed for each in place.kept()[0]] == [None] * 3


def test_nothing_is_touched_where_another_instance_has_a_card_of_the_plan(place: InstancePaths) -> None:
    """A decision for the way back would keep the instance from every later start."""
    lock = place.state.parents[1] / "cards.lock"
    held = {name: {"cards": [{"module_id": number, "serial": "AN0"}], "since": AT} for name, number in OTHERS.items()}
    lock.write_text(json.dumps({"schema": 1, "reservations": held}))
    before = lock.read_text()
    for check in (True, False):
        assert run(vllm_service_rollback, check=check, instance="tiny", by="a")["refused_id"] == "card_reserved"
    assert place.back() is None
    assert [each.failed for each in place.kept()[0]] == [None] * 3
    assert (lies_there(place), lock.read_text()) == ("3", before)


def test_the_history_of_a_node(place: InstancePaths, monkeypatch: pytest.MonkeyPatch) -> None:
    run(vllm_service_rollback, instance="tiny", by="admin")
    (place.state / "plans" / f"{'0' * 64}.json").write_text("")
    monkeypatch.setattr(vllm_service_info, "installed", lambda: ["tiny"])
    monkeypatch.setattr(vllm_service_info, "read", lambda _module, _names: [])
    answer = run(vllm_service_info, history=True)
    assert len(answer["history"]["tiny"]) == 3
    text = "\n".join(answer["lines"])
    assert "taken back by admin at " in text
    assert "--max-num-seqs 2 -> 1" in text
    assert "is damaged: it is empty, and is passed over." in text
    (place.state / "back.json").write_text("{")
    assert "back.json is damaged" in "\n".join(run(vllm_service_info, instances=["tiny"], history=True)["lines"])
    assert run(vllm_service_info, instances=["other"], history=True)["lines"] == []
    assert "lines" not in run(vllm_service_info)


def test_the_cards_of_a_former_plan_are_reserved_once() -> None:
    cards = [{"module_id": 1, "serial": "AN1"}, {"module_id": 0, "serial": "AN0"}]
    held = again({}, "tiny", cards, AT)
    assert held == {"tiny": {"cards": sorted(cards, key=lambda card: str(card["module_id"])), "since": AT}}
    assert again(held, "tiny", cards, "later") is held


def test_who_follows_a_start_hears_that_the_node_went_back() -> None:
    back = {"before": "a" * 64, "after": "b" * 64, "reason": "The server ended.", "at": AT, "by": ""}
    state = {"phase": "serving", "status": "serving tiny", "plan": "old", "back": back}
    found = {
        **{"instance": "tiny", "active": "active", "sub": "running", "job": False, "result": "success"},
        **{"said": "serving tiny", "state": state},
    }
    answer = {"changed": False, "instances": [found], "digest": "d"}
    said = follow(following, {"follow": True, "instances": ["tiny"], "labels": {"tiny": "new"}}, answer)
    assert said["failed"] is True
    assert said["msg"].startswith("tiny on gaudi-01: the new plan aaaaaaaaaaaa does not serve, because it failed: ")
    # Nobody asked for another plan.
    assert "failed" not in follow(following, {"follow": True, "instances": ["tiny"]}, answer)
    assert "failed" not in follow(following, {"follow": True, "instances": ["tiny"], "labels": {"tiny": "old"}}, answer)
    on_its_way = {**found, "active": "activating", "sub": "auto-restart", "state": {**state, "phase": "going-back"}}
    assert following.line("n", on_its_way) == "[n: tiny] serving tiny"
