"""Which instance restarts and why: the files of a node against those that are to be written, and the line about it."""

from __future__ import annotations

import contextlib
import copy
import io
import json
import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.gaudi.node import containers, instances, startable, states
from ansible.module_utils.gaudi.node.kept import InstancePaths, weights_digest
from ansible.module_utils.gaudi.serving import kept as decisions
from ansible.module_utils.gaudi.serving import written
from ansible.module_utils.gaudi.serving.made_of import MadeOf
from ansible.module_utils.gaudi.serving.plan import OWN_DIRECTORIES, own_directories
from ansible.module_utils.testing import patch_module_args
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from library import vllm_service_changes
from tests.unit.preflight.test_templates import results, task_of
from tests.unit.vllm_service.made import guarded as guarded_plan
from tests.unit.vllm_service.test_rendered import PLAN, file_text, render
from tests.unit.vllm_service.test_verify import full

DOCUMENT = {key: value for key, value in PLAN.items() if key not in ("explain", "warnings")}
GUARDED = guarded_plan(DOCUMENT, Path("/x"))


def line(answer: dict[str, Any], check: bool) -> str:
    """What a run says of a restart."""
    says = task_of("vllm_service", "run", "Say why it restarts")["ansible.builtin.debug"]["msg"]
    known = results("vllm_service", vllm_service_changes=answer)
    return render(says, PLAN, **known, ansible_check_mode=check)


@pytest.fixture
def instance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of an instance as the role has written it; its unit runs."""
    folder, units = tmp_path / "instances/tiny", tmp_path / "units"
    folder.mkdir(parents=True)
    units.mkdir()
    (tmp_path / "weights").mkdir()
    (tmp_path / "weights/config.json").write_text("{}")
    (tmp_path / "weights/model.safetensors").write_text("data")
    (folder / "plan.json").write_text(json.dumps(DOCUMENT, indent=4, sort_keys=True))  # as to_nice_json does
    (folder / "environment").write_text(file_text("environment_text", PLAN))
    (units / "vllm-tiny.service").write_text(file_text("unit", PLAN))
    monkeypatch.setattr(vllm_service_changes, "PLANS", folder.parent)
    monkeypatch.setattr(vllm_service_changes, "UNITS", units)
    monkeypatch.setattr(containers, "look", lambda _module, _name: container(made_of().digest))
    monkeypatch.setattr(states, "STATES", tmp_path / "states")
    monkeypatch.setattr(containers, "outlived", lambda _module, _container, _plan: [])
    monkeypatch.setattr(instances, "read", lambda _module, _names: [{"current": True, "state": {}}])
    monkeypatch.setattr(vllm_service_changes, "systemctl", lambda _module, *_arguments: shown())
    return folder


def made_of(plan: dict[str, Any] = DOCUMENT, guard: bytes | None = None) -> MadeOf:
    """What a container of a plan is made of."""
    text = json.dumps(plan, indent=4, sort_keys=True)
    return MadeOf(text.encode(), file_text("environment_text", plan).encode(), guard)


def container(label: str | None, running: bool = True) -> containers.InstanceContainer:
    """A container with a label."""
    return containers.InstanceContainer(running, label, {})


def shown(**changes: str) -> str:
    """What systemctl says of the unit and of the target of all instances; changes are of the unit."""
    units = [{**vllm_service_changes.SETTLED, **changes}, vllm_service_changes.SETTLED]
    return "\n".join("".join(f"{name}={value}\n" for name, value in unit.items()) for unit in units)


def ask(plan: dict[str, Any], unit: str | None = None, **given: Any) -> dict[str, Any]:
    """What the module answers for a plan that is to be written."""
    arguments = {
        "instance": "tiny",
        "plan": plan,
        "plan_text": json.dumps(plan, indent=4, sort_keys=True),
        "environment_text": file_text("environment_text", plan),
        "guard_text": "guard",
        "unit": unit or file_text("unit", plan),
        "weights": str(vllm_service_changes.PLANS.parent / "weights"),
        **given,
    }
    output = io.StringIO()
    with patch_module_args(arguments), contextlib.redirect_stdout(output), pytest.raises(SystemExit):
        vllm_service_changes.main()
    answer: dict[str, Any] = json.loads(output.getvalue())
    return answer


def other(**changes: Any) -> dict[str, Any]:
    """The plan with other parts."""
    return {**copy.deepcopy(DOCUMENT), **changes}


def test_an_untouched_instance_says_nothing(instance: Path) -> None:
    answer = ask(DOCUMENT)
    assert (answer["changed"], answer["running"], answer["reasons"]) == (False, True, [])


def test_a_plan_that_is_more_open_is_warned_of(instance: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is refused, since the inventory says so; in check mode it is known before anything is changed."""
    closed = other(guarded=True)
    (instance / "plan.json").write_text(json.dumps(closed))
    found = ask(other(listen={**DOCUMENT["listen"], "host": "0.0.0.0"}))["opens"]
    assert found == ["it asks for no key", f"other machines reach it at 0.0.0.0, port {DOCUMENT['listen']['port']}"]
    assert f"more open with the plan of this run than with the one on the node: {'; '.join(found)}." in (
        capsys.readouterr().err
    )
    assert ask(closed)["opens"] == []
    for text in (json.dumps(DOCUMENT), "{"):
        (instance / "plan.json").write_text(text)
        assert ask(closed)["opens"] == []


def test_the_options_that_differ_are_named(instance: Path) -> None:
    answer = ask(other(arguments=[*DOCUMENT["arguments"], "--max-num-seqs", "64"]))
    assert answer["reasons"] == ["--max-num-seqs 64 added"]
    assert line(answer, check=True) == "tiny would restart: --max-num-seqs 64 added"
    assert line(answer, check=False) == "tiny restarts: --max-num-seqs 64 added"


def test_unit_environment_file_and_keys_count_too(instance: Path) -> None:
    (instance / "environment").write_text((instance / "environment").read_text() + "BY_HAND=1\n")
    unit = file_text("unit", PLAN).replace("WatchdogSec=120", "WatchdogSec=60")
    said = ["BY_HAND removed (was 1)", "unit WatchdogSec 120 -> 60"]
    assert ask(DOCUMENT, unit)["reasons"] == said
    reasons = ask(GUARDED, unit)["reasons"]
    assert reasons[0] == "--middleware gaudi_guard.ApiKeyGuard added"
    assert reasons[-1] == "it asks for API keys"
    # A plan of 0.1 did not say it: whether it had keys does.
    before = {key: value for key, value in DOCUMENT.items() if key != "guarded"}
    (instance / "plan.json").write_text(json.dumps(before))
    assert ask(GUARDED)["reasons"][-1] == "it asks for API keys"
    (instance / "keys").mkdir()
    (instance / "keys/api_keys").touch()
    assert "it asks for API keys" not in ask(GUARDED)["reasons"]
    assert ask(DOCUMENT)["reasons"][-1] == "it asks for no API key any more"


def test_a_container_of_other_files_is_said_as_such(instance: Path) -> None:
    said = line(ask(DOCUMENT), check=True)
    assert said == "tiny would restart: it runs with other files, or another guard, than those on the node"


def test_an_instance_that_is_not_there_yet_has_no_reasons(instance: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vllm_service_changes, "systemctl", lambda _module, *_arguments: shown(ActiveState="inactive"))
    (instance / "plan.json").unlink()
    answer = ask(DOCUMENT)
    assert (answer["running"], answer["reasons"]) == (False, [])


def test_a_damaged_plan_is_named(instance: Path) -> None:
    (instance / "plan.json").write_text("{")
    assert ask(DOCUMENT)["reasons"] == [f"{instance / 'plan.json'} is damaged"]


def test_a_reordered_command_is_no_matter_of_rights(instance: Path) -> None:
    words = [*DOCUMENT["arguments"], "--seed", "1"]
    (instance / "plan.json").write_text(json.dumps(other(arguments=words)))
    moved = [*words[:3], *words[-2:], *words[3:-2]]
    assert ask(other(arguments=moved))["reasons"] == ["arguments in another order"]


def test_a_file_that_is_gone_under_a_running_instance_is_named(instance: Path) -> None:
    (instance / "plan.json").unlink()
    assert ask(DOCUMENT)["reasons"] == [f"{instance / 'plan.json'} is missing"]
    (instance / "environment").unlink()
    assert len(ask(DOCUMENT)["reasons"]) == 2


DAMAGED = [b"[]", b"[1]", b"null", b"{}", b'{"container": 5}', b'{"arguments": 5}', b'{"modules": [3]}', b"\xff"]


@pytest.mark.parametrize("content", [*DAMAGED, b"[" * 100000, b'{"a":' * 500 + b"1" + b"}" * 500])
def test_whatever_is_no_plan_is_damaged(instance: Path, content: bytes) -> None:
    (instance / "plan.json").write_bytes(content)
    assert ask(DOCUMENT)["reasons"] == [f"{instance / 'plan.json'} is damaged"]


@pytest.mark.parametrize("name", ["plan.json", "environment"])
def test_a_directory_in_a_files_place_is_damage(instance: Path, name: str) -> None:
    (instance / name).unlink()
    (instance / name).mkdir()
    assert ask(DOCUMENT)["reasons"] == [f"{instance / name} is damaged"]


def test_an_environment_that_is_no_text_is_damaged(instance: Path) -> None:
    (instance / "environment").write_bytes(b"A=\xff\n")
    assert ask(DOCUMENT)["reasons"] == [f"{instance / 'environment'} is damaged"]


junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=9), inner, max_size=4),
    max_leaves=12,
)
parts = st.sampled_from(sorted(DOCUMENT))
insides = st.sampled_from(["mounts", "environment", "tmpfs", "ulimits"])


@st.composite
def plans(draw: st.DrawFn) -> Any:
    """Any JSON value; or the plan with any JSON value in some of its places."""
    if draw(st.booleans()):
        return draw(junk)
    plan = other(**draw(st.dictionaries(parts, junk, max_size=3)))
    if isinstance(plan["container"], dict):
        plan["container"].update(draw(st.dictionaries(insides, junk | st.lists(junk), max_size=2)))
    return plan


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(plans(), st.binary(max_size=60) | st.just(b"A=1\n"))
def test_any_plan_and_any_environment_end_in_sentences(instance: Path, plan: Any, environment: bytes) -> None:
    """A sentence, never an exception; without a character that moves the terminal's cursor."""
    content = json.dumps(plan)
    (instance / "plan.json").write_text(content)
    (instance / "environment").write_bytes(environment)
    unit = instance.parents[1] / "units/vllm-tiny.service"
    wanted = {"plan": DOCUMENT, "unit": unit.read_text()}
    reasons = vllm_service_changes.reasons(instance, unit, wanted)
    assert all(reason and reason.isprintable() for reason in reasons)
    try:
        read = written.parse(content) == DOCUMENT
    except ValueError:
        assert f"{instance / 'plan.json'} is damaged" in reasons
    else:
        assert reasons or read


@pytest.mark.parametrize(
    ("changes", "settled", "running"),
    [
        ({}, True, True),
        ({"ActiveState": "failed"}, False, False),
        ({"ActiveState": "activating"}, False, True),
        ({"UnitFileState": "disabled"}, False, True),
        ({"NeedDaemonReload": "yes"}, False, True),
    ],
)
def test_a_settled_instance_is_one_that_systemd_has_as_it_is_to_be(
    instance: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, str], settled: bool, running: bool
) -> None:
    asked: list[tuple[str, ...]] = []

    def systemctl(_module: object, *arguments: str) -> str:
        asked.append(arguments)
        return shown(**changes)

    monkeypatch.setattr(vllm_service_changes, "systemctl", systemctl)
    answer = ask(DOCUMENT)
    assert (answer["settled"], answer["running"], answer["installed"]) == (settled, running, True)
    assert asked[0][:3] == ("show", "vllm-tiny.service", "gaudi-serving.target")


@pytest.mark.parametrize(
    ("label", "running", "guarded", "outdated"),
    [
        (made_of().digest, True, False, False),
        (made_of().labels[1], True, False, False),
        (made_of(other(served_model_name="old")).digest, True, False, True),
        (None, True, False, True),
        # Keys were written by a run that was cut off: the server is still open.
        (made_of().digest, True, True, True),
        (made_of(GUARDED, guard=b"guard").digest, True, True, False),
        (made_of(GUARDED, guard=b"an older guard").digest, True, True, True),
        # A container that has ended says nothing; nor does its supervisor's state here.
        (made_of().digest, False, False, True),
    ],
)
def test_a_container_that_was_made_of_something_else_is_outdated(
    instance: Path, monkeypatch: pytest.MonkeyPatch, label: str | None, running: bool, guarded: bool, outdated: bool
) -> None:
    """Whatever lies on the disk: here it is what is wished, as after a run that was cut off."""
    monkeypatch.setattr(containers, "look", lambda _module, _name: container(label, running))
    answer = ask(GUARDED if guarded else DOCUMENT)
    assert answer["outdated"] is outdated
    # What stays keeps its label; anything else gets that of what is written.
    wished = made_of(GUARDED, guard=b"guard") if guarded else made_of()
    assert answer["label"] == (wished.digest if outdated else label)


# -- what a label cannot tell: what the container has outlived

OUTLIVED = containers.outlived
IMAGE = "sha256:" + "1" * 64
PID = 4711


@pytest.fixture
def held(instance: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A guarded container that was made of what is wished; its processes see the node's own directories."""
    plan = guarded_plan(DOCUMENT, tmp_path)
    for target, source in own_directories(plan).items():
        Path(source).mkdir(parents=True, exist_ok=True)
        seen = tmp_path / f"proc/{PID}/root{target}"
        seen.parent.mkdir(parents=True, exist_ok=True)
        # A mount, as far as device and number go.
        seen.symlink_to(tmp_path / f"mounted{target}")
        (tmp_path / f"mounted{target}").parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / f"mounted{target}").symlink_to(source)
    runs = containers.InstanceContainer(True, made_of(plan, b"guard").digest, {"Image": IMAGE, "State": {"Pid": PID}})
    monkeypatch.setattr(containers, "look", lambda _module, _name: runs)
    monkeypatch.setattr(containers, "PROC", tmp_path / "proc")
    monkeypatch.setattr(states, "STATES", tmp_path / "states")
    monkeypatch.setattr(containers, "outlived", OUTLIVED)
    monkeypatch.setattr(containers, "image_id", lambda _module, _reference: IMAGE)
    (instance / "plan.json").write_text(json.dumps(plan, indent=4, sort_keys=True))
    return plan


def test_a_container_over_what_is_on_the_node_stays(held: dict[str, Any]) -> None:
    answer = ask(held)
    assert (answer["outdated"], answer["reasons"]) == (False, [])


@pytest.mark.parametrize("target", OWN_DIRECTORIES)
@pytest.mark.parametrize("back", [True, False])
def test_a_directory_that_was_replaced_restarts_the_container(
    held: dict[str, Any], tmp_path: Path, target: str, back: bool
) -> None:
    """As by rm -rf, or by a backup that was put back: the container has the one that it was started with."""
    source = Path(own_directories(held)[target])
    source.rename(tmp_path / "former")
    mounted = tmp_path / f"mounted{target}"
    mounted.unlink()
    mounted.symlink_to(tmp_path / "former")
    if back:
        source.mkdir()
    answer = ask(held)
    said = f"it still has the former {source}, which was replaced"
    assert (answer["outdated"], answer["reasons"]) == (True, [said])
    assert answer["label"] == made_of(held, b"guard").digest
    assert line(answer, check=False) == f"tiny restarts: {said}"


@pytest.mark.parametrize(("replaced", "left_over"), [(True, True), (False, False)])
def test_a_container_that_goes_on_without_its_unit_is_not_taken_over_with_what_was_replaced(
    held: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, replaced: bool, left_over: bool
) -> None:
    """Its supervisor was killed too often, or gave the engine up."""
    monkeypatch.setattr(vllm_service_changes, "systemctl", lambda _module, *_arguments: shown(ActiveState="failed"))
    source = Path(own_directories(held)[OWN_DIRECTORIES[0]])
    if replaced:
        source.rename(tmp_path / "former")
    answer = ask(held)
    said = [f"it still has the former {source}, which was replaced"] if replaced else []
    assert (answer["left_over"], answer["reasons"], answer["outdated"]) == (left_over, said, False)
    assert answer["label"] == made_of(held, b"guard").digest


@pytest.mark.parametrize(
    ("phase", "settled"), [("serving", True), ("warming-up", False), ("starting", False), ("not-answering", False)]
)
def test_a_container_that_somebody_started_anew_or_that_hangs_is_followed(
    instance: Path, monkeypatch: pytest.MonkeyPatch, phase: str, settled: bool
) -> None:
    """Its unit is active all the while."""
    monkeypatch.setattr(instances, "read", lambda _module, _names: [{"current": True, "state": {"phase": phase}}])
    answer = ask(DOCUMENT)
    assert (answer["settled"], answer["outdated"]) == (settled, False)


@pytest.mark.parametrize(("now", "outdated"), [(IMAGE, False), ("sha256:" + "2" * 64, True), (None, False)])
def test_another_image_of_the_same_name_restarts_the_container(
    held: dict[str, Any], monkeypatch: pytest.MonkeyPatch, now: str | None, outdated: bool
) -> None:
    """One that is gone is no other: the server goes on."""
    monkeypatch.setattr(containers, "image_id", lambda _module, _reference: now)
    answer = ask(held)
    assert answer["outdated"] is outdated
    said = f"{held['image']} is another image by now, which its next start would take"
    assert answer["reasons"] == ([said] if outdated else [])


@pytest.mark.parametrize(("status", "printed", "found"), [(0, f"{IMAGE}\n", IMAGE), (1, "\n", None)])
def test_the_engine_is_asked_what_the_name_of_an_image_leads_to(status: int, printed: str, found: str | None) -> None:
    asked: list[list[str]] = []

    def run_command(command: list[str]) -> tuple[int, str, str]:
        asked.append(command)
        return status, printed, ""

    module = SimpleNamespace(get_bin_path=lambda _name: "docker", run_command=run_command)
    assert containers.image_id(module, "vllm:1") == found
    assert asked == [["docker", "image", "inspect", "--format", "{{.Id}}", "vllm:1"]]


@pytest.mark.parametrize(
    ("active", "read", "outdated"),
    [
        ("activating", made_of().digest, False),
        # It pauses, or waits for the engine, and would try the old plan again.
        ("activating", made_of(other(served_model_name="old")).digest, True),
        ("failed", made_of(other(served_model_name="old")).digest, False),
    ],
)
def test_without_a_container_the_plan_counts_that_the_supervisor_has_read(
    instance: Path, monkeypatch: pytest.MonkeyPatch, active: str, read: str, outdated: bool
) -> None:
    monkeypatch.setattr(containers, "look", lambda _module, _name: None)
    monkeypatch.setattr(instances, "read", lambda _module, _names: [{"current": True, "state": {"plan": read}}])
    monkeypatch.setattr(vllm_service_changes, "systemctl", lambda _module, *_arguments: shown(ActiveState=active))
    assert ask(DOCUMENT)["outdated"] is outdated


@pytest.mark.parametrize("active", ["active", "failed"])
def test_a_supervisor_counts_as_current_where_none_runs(
    instance: Path, monkeypatch: pytest.MonkeyPatch, active: str
) -> None:
    monkeypatch.setattr(instances, "read", lambda _module, _names: [{"current": False, "state": {}}])
    monkeypatch.setattr(vllm_service_changes, "systemctl", lambda _module, *_arguments: shown(ActiveState=active))
    answer = ask(DOCUMENT)
    assert (answer["current"], answer["running"]) == (active == "failed", active != "failed")


def test_keys_as_an_earlier_release_kept_them_are_still_to_be_removed(instance: Path) -> None:
    assert ask(DOCUMENT)["settled"] is True
    (instance / "keys").mkdir()
    assert ask(DOCUMENT)["settled"] is False


def test_a_target_that_does_not_start_at_boot_is_not_settled(instance: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "\n\n".join([shown().partition("\n\n")[0], shown(UnitFileState="disabled").partition("\n\n")[0]])
    monkeypatch.setattr(vllm_service_changes, "systemctl", lambda _module, *_arguments: text)
    assert ask(DOCUMENT)["settled"] is False


@pytest.mark.parametrize(
    ("active", "label", "refused"),
    [("active", "other", True), ("inactive", "other", True), ("active", made_of().digest, False)],
)
@pytest.mark.parametrize("place", ["states", "run"])
def test_an_instance_is_not_stopped_where_its_state_or_the_engine_has_no_room(
    instance: Path, monkeypatch: pytest.MonkeyPatch, active: str, label: str, refused: bool, place: str
) -> None:
    monkeypatch.setattr(containers, "look", lambda _module, _name: container(label))
    monkeypatch.setattr(vllm_service_changes, "systemctl", lambda _module, *_arguments: shown(ActiveState=active))
    monkeypatch.setattr(states, "STATES", instance.parents[1] / "states")
    monkeypatch.setattr(startable, "RUN", instance.parents[1] / "run")
    kernel = os.statvfs

    def statvfs(path: Path) -> os.statvfs_result | SimpleNamespace:
        return full() if path == instance.parents[1] / place else kernel(path)

    states.STATES.mkdir()
    startable.RUN.mkdir()
    monkeypatch.setattr(os, "statvfs", statvfs)
    answer = ask(DOCUMENT)
    assert answer.get("failed", False) is refused
    if refused:
        assert answer["msg"].startswith(f"tiny was left as it is, because {instance.parents[1] / place}/")


def test_missing_weights_are_refused_unless_they_come_before_it_counts(instance: Path, tmp_path: Path) -> None:
    nowhere = str(tmp_path / "nowhere")
    answer = ask(DOCUMENT, weights=nowhere)
    assert answer["failed"] is True
    assert answer["msg"].startswith(f"tiny needs weights in {nowhere} of this node, and there is no config.json.")
    assert ask(DOCUMENT, weights=nowhere, weights_coming=True)["failed"] is True
    assert "failed" not in ask(DOCUMENT, weights=nowhere, weights_coming=True, _ansible_check_mode=True)


@pytest.fixture
def failed_before(instance: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An instance whose plan failed there, and which went back to another."""
    monkeypatch.setattr(containers, "image_id", lambda _module, _name: "sha256:1")
    monkeypatch.setattr(AnsibleModule, "get_bin_path", lambda _module, name, *_more, **_options: name)
    monkeypatch.setattr(AnsibleModule, "run_command", lambda *_command, **_options: (1, "", "no driver"))
    files = {name: (instance / name).read_text() for name in ("plan.json", "environment")}
    start = decisions.StartsFrom("sha256:1", "", weights_digest([instance.parents[1] / "weights"]))
    failed = decisions.Failed("The server ended by itself.", "2026-01-31T08:00:00Z", "", start)
    kept = decisions.fails([], files, failed)
    place = InstancePaths("tiny", states.STATES / "tiny")
    place.keep(kept, ())
    place.go_back(decisions.Back(kept.digest, "b" * 64, failed.reason, failed.at, ""))
    return instance.parents[1]


def test_a_plan_that_failed_is_refused_and_nothing_is_touched(failed_before: Path) -> None:
    answer = ask(DOCUMENT)
    assert answer["failed"] is True
    assert answer["refused_id"] == "plan_failed_before"
    assert "failed at 2026-01-31T08:00:00Z: The server ended by itself." in answer["msg"]
    assert "-e retry=true" in answer["msg"]


def test_a_plan_that_failed_is_tried_again_when_a_person_says_so(failed_before: Path) -> None:
    assert ask(DOCUMENT, retry=True)["way_back_over"] is True


@pytest.mark.parametrize("what", ["plan", "image", "weights", "driver"])
def test_a_plan_that_failed_may_be_tried_once_what_it_starts_from_changed(
    failed_before: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    plan = DOCUMENT
    if what == "plan":
        plan = other(arguments=[*DOCUMENT["arguments"], "--max-num-seqs", "64"])
    elif what == "image":
        monkeypatch.setattr(containers, "image_id", lambda _module, _name: "sha256:2")
    elif what == "driver":
        monkeypatch.setattr(AnsibleModule, "run_command", lambda *_command, **_options: (0, "1.24.1-30\n", ""))
    else:
        (failed_before / "weights/model.safetensors").write_text("other data")
    answer = ask(plan)
    assert "failed" not in answer
    assert answer["way_back_over"] is True


def test_a_plan_that_failed_is_refused_before_its_driver_comes_again(
    failed_before: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = InstancePaths("tiny", states.STATES / "tiny")
    (kept,) = place.kept()[0]
    assert kept.failed is not None
    start = replace(kept.failed.starts_from, driver="1.22.2-97ec1a4")
    place.keep(decisions.fails([], kept.files, replace(kept.failed, starts_from=start)), ())
    monkeypatch.setattr(AnsibleModule, "run_command", lambda *_command, **_options: (0, "1.21.3-bfcec49\n", ""))
    assert "failed" not in ask(DOCUMENT)
    assert ask(DOCUMENT, coming_driver="1.22.2-32")["refused_id"] == "plan_failed_before"
    assert "failed" not in ask(DOCUMENT, coming_driver="1.24.1-482")
    assert "failed" not in ask(DOCUMENT, coming_driver="1.22.2-32", retry=True)


def test_what_an_instance_went_back_to_is_settled(failed_before: Path, instance: Path) -> None:
    place = InstancePaths("tiny", states.STATES / "tiny")
    (kept,) = place.kept()[0]
    place.keep(decisions.serves([], kept.files, kept.starts_from, "2026-01-31T08:00:00Z"), ())
    place.go_back(decisions.Back("b" * 64, kept.digest, "it exits", "2026-01-31T08:00:00Z", ""))
    answer = ask(DOCUMENT)
    assert (answer["way_back_over"], answer["outdated"], answer["settled"]) == (False, False, True)


def test_a_damaged_way_back_counts_no_more(failed_before: Path) -> None:
    (states.STATES / "tiny/back.json").write_text("{")
    assert ask(DOCUMENT, retry=True)["way_back_over"] is True


def test_an_instance_is_not_stopped_for_weights_that_are_not_whole(instance: Path) -> None:
    plan = other(arguments=[*DOCUMENT["arguments"], "--max-num-seqs", "64"])
    (instance.parents[1] / "weights/model.safetensors").unlink()
    assert "tiny was left as it is, because its weights are not: " in ask(plan)["msg"]
    # What runs and is not touched goes on.
    assert ask(DOCUMENT)["outdated"] is False
