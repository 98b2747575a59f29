"""A changed plan that does not come to serve is taken back by the supervisor: a real process on a node of its own."""

from __future__ import annotations

import copy
import json
import os
import shutil
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from gaudi.base import paths
from gaudi.base.documents import Damaged
from gaudi.node import kept as node_kept
from gaudi.node.kept import InstancePaths
from gaudi.serving import kept as decisions
from gaudi.serving.kept import Back, Failed, StartsFrom
from gaudi.serving.unserved import went_back

from tests.integration.vllm_service.node import PATIENCE
from tests.integration.vllm_service.test_supervisor import WARM_UP
from tests.unit.node.damages import FOR_PROGRAMS, damage
from tests.unit.node.test_turns import held
from tests.unit.ports import free_port

if TYPE_CHECKING:
    from tests.integration.vllm_service.node import SupervisedNode

NOW = "2026-01-31T08:00:00Z"
DROP_IN = "vllm-tiny.service.d/50-plan.conf"


def place(node: SupervisedNode) -> InstancePaths:
    """Where the files of the instance lie."""
    return InstancePaths("tiny", node.state_file.parent, node.root / "etc/instances", node.root / "units")


def plans(node: SupervisedNode) -> list[decisions.StoredPlan]:
    """What is kept, the last that served first."""
    return sorted(place(node).kept()[0], key=lambda each: -each.number)


def change(node: SupervisedNode, name: str, **changes: Any) -> None:
    """Write another plan, as the role does."""
    node.plan = {**copy.deepcopy(node.plan), **changes}
    node.plan["environment"] = {**node.plan["environment"], "VLLM_LOGGING_PREFIX": name}
    node.write_plan()
    (node.instances / "explanation.json").write_text(json.dumps({"explain": [name]}))
    drop_in = node.root / "units" / DROP_IN
    drop_in.parent.mkdir(parents=True, exist_ok=True)
    drop_in.write_text(f"# {name}\n")


def serve(node: SupervisedNode, *options: str) -> None:
    """Have what lies there serve, and stop it."""
    node.scenario(lines=["INFO hello"])
    node.messages.clear()
    process = node.start(*options)
    node.wait_ready()
    process.terminate()
    process.communicate(timeout=PATIENCE)


def texts(node: SupervisedNode) -> dict[str, str | None]:
    """All files of the plan."""
    return place(node).disk()


def test_what_served_is_kept_with_what_it_started_from(node: SupervisedNode) -> None:
    change(node, "a")
    serve(node)
    (kept,) = plans(node)
    assert kept.files == texts(node)
    assert (kept.number, kept.failed, kept.starts_from.image, kept.starts_from.guard) == (1, None, "sha256:1", "")
    assert len(kept.starts_from.weights) == 64
    record = node.state_file.parent / f"plans/{kept.digest}.json"
    assert record.stat().st_mode & 0o7777 == 0o600
    assert record.parent.stat().st_mode & 0o7777 == 0o700
    # Another start of the same plan is no other plan.
    serve(node)
    assert [each.number for each in plans(node)] == [2]


def test_keys_are_not_kept(node: SupervisedNode) -> None:
    node.guard("a-key-of-sixteen-letters")
    serve(node)
    (kept,) = plans(node)
    assert kept.starts_from.guard
    assert all("digest" not in json.dumps(each.document()) for each in plans(node))
    assert set(kept.files) == {"plan.json", "environment"}


def test_a_change_whose_server_exits_at_once_goes_back(node: SupervisedNode) -> None:
    change(node, "a")
    serve(node)
    before = texts(node)
    change(node, "b", modules=[{"module_id": 2, "serial": "AN2"}])
    failed = place(node).files()
    node.reserve([{"module_id": 2, "serial": "AN2"}])
    node.scenario(lines=["ValueError: something nobody foresaw"], exit=1)
    code, output = node.run()
    assert (code, node.state["phase"]) == (75, "failed")
    # What nobody foresaw may pass, so it is tried again.
    code, output = node.run()
    assert (code, node.state["phase"]) == (75, "going-back")
    assert "something nobody foresaw" in output
    assert "Going back to the plan" in node.state["status"]
    assert texts(node) == before
    assert (node.root / "reloads").read_text() == "daemon-reload\n"
    # Its cards as well.
    held = json.loads((node.root / "state/cards.lock").read_text())["reservations"]["tiny"]["cards"]
    assert [card["module_id"] for card in held] == [0, 1]
    serve(node)
    assert node.state["back"]["before"] == decisions.digest_of(failed)
    assert "something nobody foresaw" in node.state["back"]["reason"]
    good, bad = plans(node)
    assert (good.number, good.failed) == (2, None)
    assert bad.failed is not None
    assert "something nobody foresaw" in bad.failed.reason
    assert bad.files == failed


def taken(node: SupervisedNode) -> socket.socket:
    """Another process of the node listens at the server's port."""
    other = socket.create_server(("127.0.0.1", node.plan["listen"]["port"]))
    node.scenario(lines=["INFO hello"], exit=1)
    return other


def test_whoever_takes_the_port_takes_back_no_change(node: SupervisedNode) -> None:
    change(node, "a")
    serve(node)
    # Other cards come with other ports between the server's processes, and the same port for clients.
    change(node, "b", environment={**node.plan["environment"], "VLLM_PORT": "28032"})
    changed = texts(node)
    with taken(node):
        for _ in range(3):
            code, _ = node.run()
            assert (code, node.state["phase"], node.state["reason"]["kind"]) == (75, "failed", "port-taken")
    assert texts(node) == changed
    assert [each.failed for each in plans(node)] == [None]


def test_a_change_to_a_port_that_is_taken_goes_back(node: SupervisedNode) -> None:
    change(node, "a")
    serve(node)
    before, listen = texts(node), node.plan["listen"]
    change(node, "b", listen={**listen, "port": free_port()})
    with taken(node):
        node.run()
        node.run()
    assert node.state["phase"] == "going-back"
    assert texts(node) == before


@pytest.mark.parametrize(
    ("lines", "how_far"),
    [
        # Long after the first line, and before any graph.
        ([f"INFO Loading part {part} of 30" for part in range(30)], "Loading part 29"),
        (WARM_UP, "warm-up took 49 s"),
    ],
    ids=["after a while", "after its warm-up"],
)
def test_a_change_whose_server_exits_later_goes_back_and_is_refused(
    node: SupervisedNode, lines: list[str], how_far: str
) -> None:
    change(node, "a")
    serve(node)
    change(node, "b")
    failed = place(node).files()
    node.scenario(lines=[*lines, "RuntimeError: nothing of this was foreseen"], delay=0.05, exit=1)
    phases = []
    for _ in range(2):
        code, output = node.run()
        phases.append((code, node.state["phase"]))
        assert how_far in output or any(how_far in status for status in node.statuses)
    assert phases == [(75, "failed"), (75, "going-back")]
    serve(node)
    # What the run ends with: why the new plan does not serve, and what the instance is back on.
    said = went_back({**node.state, "phase": "serving"}, "another")
    assert said.startswith(f"the new plan {decisions.digest_of(failed)[:12]} does not serve, because it failed: ")
    assert "nothing of this was foreseen" in said
    assert f"The instance is back on the plan {decisions.digest_of(place(node).files())[:12]}" in said
    # And what the next one begins with.
    (bad,) = (each for each in plans(node) if each.failed is not None)
    assert (bad.files, bad.number) == (failed, 0)
    assert bad.failed is not None
    refusal = decisions.refused(bad, bad.failed.starts_from, "tiny")
    assert refusal is not None
    assert str(refusal).startswith(f"The plan {decisions.digest_of(failed)[:12]} of tiny failed at ")


def test_what_asks_for_keys_now_goes_back_to_no_plan_that_asks_nobody(node: SupervisedNode) -> None:
    """Who keeps it from serving, such as a local user at its port, would have it open again."""
    change(node, "a")
    serve(node)
    node.guard("a-key-of-sixteen-letters")
    change(node, "b")
    before = texts(node)
    node.scenario(lines=["api_server.py: error: unrecognized arguments: --nonsense 1"], exit=2)
    code, _ = node.run()
    assert (code, node.state["phase"]) == (78, "failed")
    assert "is not rolled back by itself" in node.state["status"]
    assert texts(node) == before


OPEN, ANY = "10.20.0.11", "0.0.0.0"
CLOSED = {"listen": {"closed_ports": [28000, 28015]}}


@pytest.mark.parametrize(
    ("keys", "before", "after", "opens"),
    [
        # A plan of 0.1, which listens on every address and says nothing of keys.
        (False, {"guarded": None, "listen": {"host": ANY}}, {}, f"other machines reach it at {ANY},"),
        # Its keys would be sent in clear text.
        (True, {"listen": {"host": OPEN}}, {}, f"other machines reach it at {OPEN},"),
        (True, {"listen": {"host": ANY, "port": 30009}}, {"listen": {"host": ANY}}, f"at {ANY}, port 30009"),
        (True, {"environment": {"VLLM_SERVER_DEV_MODE": "1"}}, {}, "VLLM_SERVER_DEV_MODE"),
        (True, {}, CLOSED, "its own processes"),
        (True, {"environment": {"VLLM_ALLOW_INSECURE_SERIALIZATION": "1"}}, {}, "VLLM_ALLOW_INSECURE_SERIALIZATION"),
        (True, {"environment": {"OF_ANOTHER_LIBRARY": "1"}}, {}, "what may open something (OF_ANOTHER_LIBRARY)"),
    ],
    ids=["0.1", "address", "port", "paths", "own ports", "tensors", "unknown"],
)
def test_automatic_rollback_to_a_more_open_plan_leaves_the_instance_stopped(
    node: SupervisedNode, keys: bool, before: dict[str, Any], after: dict[str, Any], opens: str
) -> None:
    """Whoever keeps the new plan from serving, such as a local user at its port, would have the old one again."""
    if keys:
        node.guard("a-key-of-sixteen-letters")
    plan = copy.deepcopy(node.plan)

    def changed(parts: dict[str, Any]) -> dict[str, Any]:
        """The plan with other parts."""
        return {key: {**plan[key], **part} if isinstance(part, dict) else part for key, part in parts.items()}

    change(node, "a", **changed(before))
    place(node).keep(decisions.serves([], place(node).files(), StartsFrom("sha256:1", "", ""), NOW), ())
    (kept,) = plans(node)
    node.plan = plan
    change(node, "b", **changed(after))
    files = texts(node)
    node.scenario(lines=["api_server.py: error: unrecognized arguments: --nonsense 1"], exit=2)
    code, _ = node.run()
    assert (code, node.state["phase"]) == (78, "failed")
    assert texts(node) == files
    # What was found, and what to do.
    assert opens in node.state["status"]
    assert f"playbooks/rollback.yml -e instance=tiny -e to={kept.digest[:12]}" in node.state["status"]


@pytest.mark.parametrize("by", ["", "admin"])
def test_rollback_that_an_earlier_release_decided_opens_nothing_unless_a_person_asked(
    node: SupervisedNode, by: str
) -> None:
    """Its decision may wait for a long time, as for a card that another instance has; then comes an upgrade."""
    closed, start = copy.deepcopy(node.plan), StartsFrom("sha256:1", "", "")
    change(node, "a", guarded=None, listen={**closed["listen"], "host": ANY})
    place(node).keep(decisions.serves([], place(node).files(), start, NOW), ())
    (kept,) = plans(node)
    node.plan = closed
    change(node, "b")
    present = place(node).files()
    place(node).keep(decisions.fails(plans(node), present, Failed("it failed", NOW, by, start)), [kept.digest])
    place(node).go_back(Back(decisions.digest_of(present), kept.digest, "it failed", NOW, by, kept.number))
    node.scenario(lines=["api_server.py: error: unrecognized arguments: --nonsense 1"], exit=2)
    _, output = node.run()
    assert (place(node).files()["plan.json"] == kept.files["plan.json"]) is (by == "admin")
    assert (f"other machines reach it at {ANY}," in output) is (by == "")


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("api_server.py: error: unrecognized arguments: --nonsense 1", "unknown-argument"),
        ("ValueError: No available memory for the cache blocks. Try increasing", "kv-cache-too-small"),
    ],
)
def test_what_cannot_pass_goes_back_at_once(node: SupervisedNode, line: str, kind: str) -> None:
    change(node, "a")
    serve(node)
    change(node, "b")
    node.scenario(lines=["INFO starting", line], exit=1)
    code, _ = node.run()
    assert (code, node.state["phase"], node.state["reason"]["kind"]) == (75, "going-back", kind)


def test_a_change_that_says_nothing_any_more_goes_back_at_once(node: SupervisedNode) -> None:
    change(node, "a")
    serve(node)
    change(node, "b")
    node.scenario(lines=["INFO hello"], serve=False)
    code, _ = node.run("--stall", "1")
    assert (code, node.state["phase"], node.state["reason"]["kind"]) == (75, "going-back", "stalled")


def test_a_change_that_takes_too_long_goes_back_at_once(node: SupervisedNode) -> None:
    change(node, "a")
    serve(node)
    change(node, "b")
    node.scenario(lines=[f"INFO step {place}" for place in range(400)], delay=0.1)
    code, _ = node.run("--longest-start", "1")
    assert (code, node.state["phase"], node.state["reason"]["kind"]) == (75, "going-back", "start-timeout")


def test_what_is_wrong_with_the_node_takes_no_plan_back(node: SupervisedNode) -> None:
    change(node, "a")
    serve(node)
    change(node, "b")
    (node.root / "hl-smi.csv").unlink()
    for _ in range(3):
        code, _ = node.run("--attempts-of-change", "1")
        assert (code, node.state["phase"], node.state["reason"]["kind"]) == (75, "failed", "cards-not-offered")
    assert len(plans(node)) == 1


def test_a_firewall_takes_no_plan_back_and_is_named(node: SupervisedNode) -> None:
    """It was said after half an hour, as a server without a sign of progress, and the plan was given up for it."""
    change(node, "a")
    serve(node)
    change(node, "b")
    lies_there = texts(node)
    node.scenario(lines=WARM_UP, shut=True)
    process = node.start("--unhealthy", "600", FAKE_HTTP_TIMEOUT="0.2")
    # It is a fault for the doctor from then on.
    node.wait_for(lambda: node.state["phase"] == "not-answering", "the state")
    process.terminate()
    process.communicate(timeout=PATIENCE)
    code, _ = node.run("--unhealthy", "0.5", "--attempts-of-change", "1", FAKE_HTTP_TIMEOUT="0.2")
    assert (code, node.state["phase"], node.state["reason"]["kind"]) == (75, "failed", "port-blocked")
    assert "a firewall which drops packets to its port" in node.state["status"]
    assert any("it listens, and no connection to port" in status for status in node.statuses)
    assert texts(node) == lies_there
    # Once the port is open, it serves.
    serve(node)
    assert texts(node) == lies_there


def test_a_plan_that_served_is_not_taken_back(node: SupervisedNode) -> None:
    change(node, "a")
    serve(node)
    change(node, "b")
    serve(node)
    node.scenario(lines=["OSError: [Errno 98] address already in use"], exit=1)
    for _ in range(3):
        code, _ = node.run("--attempts-of-change", "1")
        assert (code, node.state["phase"]) == (75, "failed")
    assert [each.failed for each in plans(node)] == [None, None]


def test_the_first_plan_has_nothing_to_go_back_to(node: SupervisedNode) -> None:
    node.scenario(lines=["api_server.py: error: unrecognized arguments: --nonsense 1"], exit=2)
    code, _ = node.run()
    assert (code, node.state["phase"]) == (78, "failed")
    assert plans(node) == []


def test_where_the_old_plan_fails_too_both_reasons_are_said(node: SupervisedNode) -> None:
    change(node, "a")
    serve(node)
    change(node, "b")
    node.scenario(lines=["api_server.py: error: unrecognized arguments: --nonsense 1"], exit=2)
    node.run()
    node.scenario(lines=["ValueError: No available memory for the cache blocks. Try increasing"], exit=1)
    code, _ = node.run()
    assert (code, node.state["phase"]) == (78, "failed")
    assert "No available memory" in node.state["status"]
    assert "--nonsense" in node.state["status"]
    # It goes back no further, and says both again.
    code, _ = node.run()
    assert (code, node.state["phase"]) == (78, "failed")
    # Once it serves, what was before is no reason any more.
    serve(node)
    node.scenario(lines=["ValueError: No available memory for the cache blocks. Try increasing"], exit=1)
    node.run()
    assert "--nonsense" not in node.state["status"]


@pytest.mark.parametrize(("before", "after"), [(1, 0), (0, 1)])
def test_a_clock_that_is_set_hides_no_reason(node: SupervisedNode, before: int, after: int) -> None:
    (node.root / "days").write_text(str(before))
    change(node, "a")
    serve(node)
    (node.root / "days").write_text(str(after))
    change(node, "b")
    node.scenario(lines=["api_server.py: error: unrecognized arguments: --nonsense 1"], exit=2)
    code, _ = node.run()
    assert (code, node.state["phase"]) == (75, "going-back")
    node.scenario(lines=["ValueError: No available memory for the cache blocks. Try increasing"], exit=1)
    node.run()
    assert "--nonsense" in node.state["status"]
    (node.root / "days").write_text(str(after - 1))
    serve(node)
    node.scenario(lines=["ValueError: No available memory for the cache blocks. Try increasing"], exit=1)
    node.run()
    assert "--nonsense" not in node.state["status"]


def test_a_card_that_another_instance_has_by_now_is_a_second_reason(node: SupervisedNode) -> None:
    change(node, "a")
    serve(node)
    change(node, "b", modules=[{"module_id": 2, "serial": "AN2"}])
    held = {
        name: {"cards": cards, "since": NOW}
        for name, cards in {
            "tiny": [{"module_id": 2, "serial": "AN2"}],
            "other": [{"module_id": 0, "serial": "AN0"}],
        }.items()
    }
    (node.root / "state/cards.lock").write_text(json.dumps({"schema": 1, "reservations": held}))
    node.scenario(lines=["api_server.py: error: unrecognized arguments: --nonsense 1"], exit=2)
    code, _ = node.run()
    assert (code, node.state["phase"]) == (78, "failed")
    assert "--nonsense" in node.state["status"]
    assert "reserved by other" in node.state["status"]
    code, _ = node.run()
    assert (code, node.state["reason"]["kind"]) == (78, "going-back")
    assert "--nonsense" in node.state["status"]
    assert "reserved by other" in node.state["status"]


def test_no_image_of_a_former_plan_is_said(node: SupervisedNode) -> None:
    change(node, "a")
    node.plan["image"] = "registry/image:1"
    serve(node)
    (kept,) = plans(node)
    gone = {**kept.files, "plan.json": kept.files["plan.json"].replace("image:1", "image:0")}
    (node.state_file.parent / f"plans/{kept.digest}.json").unlink()
    place(node).keep(decisions.serves([], gone, kept.starts_from, NOW), ())
    change(node, "b")
    node.scenario(lines=["api_server.py: error: unrecognized arguments: --nonsense 1"], exit=2)
    code, output = node.run()
    assert code == 78
    assert "its image registry/image:0 is not on the node any more" in output
    assert "cannot go back" in node.state["status"]


def test_a_plan_of_another_driver_is_nothing_to_go_back_to(node: SupervisedNode) -> None:
    """Its image would not acquire a card; whoever changed the driver brings both back."""
    (node.root / "driver").write_text("1.22.2-32\n")
    change(node, "a")
    serve(node)
    assert [each.starts_from.driver for each in plans(node)] == ["1.22.2-32"]
    (node.root / "driver").write_text("1.24.1-30\n")
    change(node, "b")
    wished = place(node).files()
    node.scenario(lines=["api_server.py: error: unrecognized arguments: --nonsense 1"], exit=2)
    code, _ = node.run()
    assert code == 78
    assert "it served with the driver 1.22.2-32, and the node has 1.24.1-30 now." in node.state["status"]
    assert place(node).files() == wished
    # The run brings both back, and the next one is to know what came of this plan.
    new = next(each for each in plans(node) if each.digest == decisions.digest_of(wished))
    assert new.failed is not None
    assert (new.failed.starts_from.driver, new.number) == ("1.24.1-30", 0)
    assert "--nonsense" in new.failed.reason
    assert not (node.state_file.parent / "back.json").exists()


def test_a_damaged_plan_is_passed_over_with_a_sentence(node: SupervisedNode) -> None:
    for name in ("a", "b"):
        change(node, name)
        serve(node)
    newest, older = plans(node)
    record = node.state_file.parent / f"plans/{newest.digest}.json"
    record.write_text(record.read_text()[:99])
    change(node, "c")
    node.scenario(lines=["api_server.py: error: unrecognized arguments: --nonsense 1"], exit=2)
    code, output = node.run()
    assert code == 75
    assert f"{record} is damaged" in output
    assert decisions.digest_of(place(node).files()) == older.digest


@pytest.mark.parametrize("how", FOR_PROGRAMS)
def test_a_record_that_is_damaged_while_its_plan_serves_is_written_anew(how: str, node: SupervisedNode) -> None:
    """Or a change that fails would find no plan to go back to."""
    change(node, "a")
    process = node.start()
    node.wait_ready()
    node.wait_for(lambda: plans(node), "the keeping")
    (kept,) = plans(node)
    damage(node.state_file.parent / f"plans/{kept.digest}.json", how)
    node.wait_for(lambda: [each.files for each in plans(node)] == [kept.files], "the keeping again")
    process.terminate()
    process.communicate(timeout=PATIENCE)


def test_a_plan_that_serves_still_counts_as_taken_back(node: SupervisedNode) -> None:
    """rollback.yml writes that down before it restarts the instance."""
    change(node, "a")
    process = node.start()
    node.wait_ready()
    node.wait_for(lambda: plans(node), "the keeping")
    (kept,) = plans(node)
    place(node).keep(decisions.fails([kept], kept.files, decisions.Failed("x", NOW, "admin", kept.starts_from)), ())
    looks = node.requests.count("/health")
    node.wait_for(lambda: node.requests.count("/health") > looks + 3, "some looks at the server")
    (kept,) = plans(node)
    assert kept.failed is not None
    process.terminate()
    process.communicate(timeout=PATIENCE)


def test_a_full_disk_while_keeping_ends_nothing(node: SupervisedNode) -> None:
    change(node, "a")
    # As good as full for whoever wants to write there: a file has the place of the folder.
    (node.state_file.parent).mkdir(parents=True)
    in_the_way = node.state_file.parent / paths.KEPT
    in_the_way.write_text("")
    process = node.start()
    node.wait_ready()
    node.wait_for(lambda: node.requests.count("/health") > 3, "some looks at the server")
    assert node.state["phase"] == "serving"
    in_the_way.unlink()
    node.wait_for(lambda: plans(node), "the keeping")
    process.terminate()
    output, _ = process.communicate(timeout=PATIENCE)
    assert output.count("cannot be kept") == 1


def cut_off(node: SupervisedNode, step: str) -> None:
    """Leave the node as a power cut leaves it after a step of going back from b to a."""
    change(node, "a")
    serve(node)
    change(node, "b")
    before, (after,) = place(node).files(), plans(node)
    failed = Failed("it exits", NOW, "", StartsFrom("sha256:1", "", ""))
    place(node).keep(decisions.fails([after], before, failed), [after.digest])
    if step == "remembered":
        return
    place(node).go_back(Back(decisions.digest_of(before), after.digest, "it exits", NOW, ""))
    steps = ("decided", "plan.json", "environment", "explanation.json", "mounts")
    for name in steps[1 : 1 + steps.index(step)]:
        target = place(node)._target(name)
        target.write_text(after.files[name])


@pytest.mark.parametrize("step", ["decided", "plan.json", "environment", "explanation.json", "mounts"])
def test_a_way_back_that_was_cut_off_goes_on(node: SupervisedNode, step: str) -> None:
    cut_off(node, step)
    (after,) = (each for each in plans(node) if each.number)
    node.scenario(lines=["INFO hello"])
    if step != "mounts":
        code, _ = node.run()
        assert (code, node.state["phase"]) == (75, "going-back")
        assert (node.root / "reloads").exists()
    assert texts(node) == after.files
    serve(node)
    assert node.state["back"]["after"] == after.digest


def power_cut_in_a_warm_up(node: SupervisedNode) -> None:
    """Cut the power while what lies there warms up, and boot: all that is left is what lies on the disk."""
    node.scenario(lines=WARM_UP[:4], serve=False)
    node.messages.clear()
    process = node.start()
    node.wait_for(lambda: any("warm-up: prompt" in status for status in node.statuses), "the warm-up")
    process.kill()
    process.communicate()
    node.kill()
    (node.root / "proc/sys/kernel/random/boot_id").write_text("boot-2\n")


def test_a_power_cut_during_a_warm_up_costs_the_new_plan_nothing(node: SupervisedNode) -> None:
    change(node, "a")
    serve(node)
    change(node, "b")
    lies_there = texts(node)
    power_cut_in_a_warm_up(node)
    serve(node)
    assert texts(node) == lies_there
    assert (node.state["back"], node.state["failures"]) == (None, 0)
    assert [each.failed for each in plans(node)] == [None, None]


def test_a_power_cut_during_a_way_back_ends_on_the_plan_that_served(node: SupervisedNode) -> None:
    change(node, "a")
    serve(node)
    before = texts(node)
    change(node, "b")
    failed = place(node).files()
    node.scenario(lines=["error: unrecognized arguments: --nonsense"], exit=2)
    code, _ = node.run()
    assert (code, node.state["phase"]) == (75, "going-back")
    power_cut_in_a_warm_up(node)
    serve(node)
    assert texts(node) == before
    assert node.state["back"]["before"] == decisions.digest_of(failed)
    assert "--nonsense" in node.state["back"]["reason"]


def test_who_is_killed_on_a_way_back_does_not_blame_the_plan_that_was_given_up(node: SupervisedNode) -> None:
    """The pause before the next try of the former plan named what was wrong with the other."""
    change(node, "a")
    serve(node)
    change(node, "b")
    node.scenario(lines=["error: unrecognized arguments: --nonsense"], exit=2)
    code, _ = node.run()
    assert (code, node.state["phase"]) == (75, "going-back")
    boot = node.root / "proc/sys/kernel/random/boot_id"
    before = boot.read_text()
    power_cut_in_a_warm_up(node)
    # Supervisor and container alone were killed.
    boot.write_text(before)
    node.scenario(lines=WARM_UP)
    process = node.start("--first-pause", "1")
    node.wait_for(lambda: any("before attempt 2" in status for status in node.statuses), "the pause")
    paused = [status for status in node.statuses if "before attempt 2" in status]
    assert "--nonsense" in node.state["back"]["reason"]
    node.wait_ready()
    process.terminate()
    process.communicate(timeout=PATIENCE)
    assert [status.partition("; last: ")[2] for status in paused] == ["killed"]


def test_before_it_was_decided_the_new_plan_is_tried_again(node: SupervisedNode) -> None:
    cut_off(node, "remembered")
    lies_there = texts(node)
    serve(node)
    assert texts(node) == lies_there
    # It came to serve, so it counts as failed no longer.
    assert [each.failed for each in plans(node)] == [None, None]


def test_a_plan_that_somebody_wrote_since_is_not_overwritten(node: SupervisedNode) -> None:
    cut_off(node, "environment")
    change(node, "c")
    lies_there = texts(node)
    serve(node)
    assert texts(node) == lies_there
    assert not (node.state_file.parent / paths.BACK).exists()
    assert node.state["back"] is None


def test_a_damaged_way_back_is_removed(node: SupervisedNode) -> None:
    change(node, "a")
    serve(node)
    (node.state_file.parent / paths.BACK).write_text("{")
    serve(node)
    assert not (node.state_file.parent / paths.BACK).exists()


def test_a_way_back_that_somebody_holds_up_is_waited_for(node: SupervisedNode) -> None:
    """systemd starts a supervisor ten times in ten minutes at most."""
    cut_off(node, "decided")
    with held(node.root / "state/cards.lock.guard") as holder:
        process = node.start()
        lock = f"{node.root}/state/cards.lock.guard is locked by process {holder} ("
        said = f"waiting: The instance cannot go back to its former plan: {lock}"
        node.wait_for(lambda: any(status.startswith(said) for status in node.statuses), "the wait for the lock")
        assert process.poll() is None
    process.communicate(timeout=PATIENCE)
    assert (process.returncode, node.state["phase"]) == (75, "going-back")
    assert "gone back to the plan that served before" in node.state["status"]


def test_who_waits_for_a_way_back_can_be_stopped(node: SupervisedNode) -> None:
    cut_off(node, "decided")
    with held(node.root / "state/cards.lock.guard"):
        process = node.start()
        node.wait_for(lambda: any("is locked" in status for status in node.statuses), "the wait for the lock")
        process.terminate()
        assert process.wait(PATIENCE) == 0
    assert (node.state_file.parent / paths.BACK).exists()


def test_a_way_back_that_somebody_holds_up_for_too_long_is_tried_again(node: SupervisedNode) -> None:
    cut_off(node, "decided")
    with held(node.root / "state/cards.lock.guard") as holder:
        code, _ = node.run("--engine-wait", "0")
        assert (code, node.state["reason"]["kind"]) == (75, "going-back")
        assert f"cards.lock.guard is locked by process {holder} (" in node.state["status"]
    code, _ = node.run()
    assert (code, node.state["phase"]) == (75, "going-back")
    assert "gone back to the plan that served before" in node.state["status"]


def test_a_way_back_is_begun_again_though_its_reason_is_none_to_try_again(node: SupervisedNode) -> None:
    change(node, "a")
    serve(node)
    before = texts(node)
    change(node, "b")
    node.scenario(lines=["error: unrecognized arguments: --nonsense"], exit=2)
    with held(node.root / "state/cards.lock.guard"):
        code, _ = node.run()
    assert (code, node.state["phase"]) == (75, "going-back")
    assert "--nonsense" in node.state["status"]
    assert "is tried again: " in node.state["status"]
    assert ".." not in node.state["status"].partition("is tried again: ")[2]
    code, _ = node.run()
    assert (code, node.state["phase"]) == (75, "going-back")
    assert texts(node) == before


def test_a_way_back_to_what_is_not_kept_any_more_ends_with_both_reasons(node: SupervisedNode) -> None:
    cut_off(node, "decided")
    for record in (node.state_file.parent / paths.KEPT).iterdir():
        record.unlink()
    code, _ = node.run()
    assert (code, node.state["reason"]["kind"]) == (78, "going-back")
    assert "is not kept any more" in node.state["status"]
    assert "it exits" in node.state["status"]


def test_a_full_disk_while_going_back_is_said_and_tried_again(
    node: SupervisedNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut_off(node, "decided")
    (after,) = (each for each in plans(node) if each.number)

    def full(path: Path, *_arguments: Any, **_options: Any) -> None:
        raise OSError(28, "No space left on device", str(path))

    with monkeypatch.context() as patched, pytest.raises(OSError, match="No space left"):
        patched.setattr(node_kept, "write_text", full)
        place(node).finish(NOW)
    assert place(node).finish(NOW)[1]
    assert texts(node) == after.files
    assert place(node).finish(NOW)[1] is False


def test_five_are_kept(node: SupervisedNode) -> None:
    change(node, "0")
    for number in range(8):
        files = {**place(node).files(), "environment": f"PLAN={number}\n"}
        place(node).keep(decisions.serves(plans(node), files, StartsFrom("", "", ""), NOW), ())
    assert [each.files["environment"] for each in plans(node)] == [f"PLAN={number}\n" for number in (7, 6, 5, 4, 3)]


def test_a_record_under_another_name_is_damaged(node: SupervisedNode) -> None:
    change(node, "a")
    serve(node)
    (kept,) = plans(node)
    folder = node.state_file.parent / paths.KEPT
    shutil.move(folder / f"{kept.digest}.json", folder / f"{'0' * 64}.json")
    found, damaged = place(node).kept()
    assert found == []
    assert "another plan than its name says" in damaged[0]


def test_weights_are_known_by_name_size_and_time(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_text("data")
    before = node_kept.weights_digest([tmp_path])
    (tmp_path / ".gaudi").mkdir()
    assert node_kept.weights_digest([tmp_path]) == before
    os.utime(tmp_path / "model.safetensors", (1, 1))
    assert node_kept.weights_digest([tmp_path]) != before
    assert node_kept.weights_digest([tmp_path / "gone"]) == ""


@pytest.mark.parametrize("kind", FOR_PROGRAMS)
def test_whatever_happened_to_what_is_kept_is_seen(tmp_path: Path, kind: str) -> None:
    lies_there = InstancePaths("tiny", tmp_path / "state/tiny", tmp_path / "etc", tmp_path / "units")
    files = {"plan.json": "{}", "environment": ""}
    lies_there.keep(decisions.serves([], files, StartsFrom("", "", ""), NOW), ())
    lies_there.go_back(Back("a", "b", "it exits", NOW, ""))
    (record,) = (lies_there.state / paths.KEPT).iterdir()
    for path in (record, lies_there.state / paths.BACK):
        damage(path, kind)
    found, damaged = lies_there.kept()
    assert found == []
    assert damaged[0].startswith(f"{record} is damaged: it ")
    with pytest.raises(Damaged, match=r"back\.json is damaged"):
        lies_there.back()
    # And written again.
    lies_there.keep(decisions.serves([], files, StartsFrom("", "", ""), NOW), ())
    lies_there.go_back(Back("a", "b", "it exits", NOW, ""))
    assert lies_there.kept()[1] == []
    assert lies_there.back() is not None
