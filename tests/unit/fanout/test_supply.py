"""What a run fetches is decided on the controller: a node reports what it lacks, and that concerns this node alone."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from ansible.errors import AnsibleError
from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.gaudi.base.refusal import Refusal
from ansible.module_utils.gaudi.fanout.supply import weights_faults, weights_to_bring, weights_wanted
from ansible.module_utils.gaudi.weights import source_plan
from hypothesis import given
from hypothesis import strategies as st

from filter_plugins.fanout import weights_fault
from tests.unit.preflight.test_contracts import ROOT, load, tasks
from tests.unit.preflight.test_templates import evaluate, fact_of, results, task_of, trusted
from tests.unit.weights.reports import reporting
from tests.unit.weights.test_modules import run_main

ROLE = ROOT / "roles/weights_supply/tasks"
SHA256 = "ab" * 32
WEIGHTS: dict[str, Any] = {
    "directory": "DeepSeek-R1",
    "repositories": {
        "huggingface": {
            "repository": "deepseek-ai/DeepSeek-R1",
            "revision": "c0" * 20,
            "files": {"config.json": SHA256},
        }
    },
    "bytes": 700,
    "measured_cards": 0,
}
MEASURED = {
    "directory": "DeepSeek-R1-measured",
    "repositories": {"huggingface": {"repository": "intel/measured", "revision": "d0" * 20, "files": {}}},
    "bytes": 0,
    "measured_cards": 8,
}
EVIL = {"huggingface": {"repository": "evil/DeepSeek-R1", "revision": "ee" * 20, "files": {}}}
PLANS = ({"fetch": WEIGHTS, "convert": None}, {"fetch": MEASURED, "convert": None})
CONVERT = {"source": "DeepSeek-R1", "target": "DeepSeek-R1-G2", "tool": "fp8_block", "bytes": 700}


def host(
    lacks: Any = (), plans: Any = ({"fetch": WEIGHTS, "convert": None},), fetch: Any = True, **more: Any
) -> dict[str, Any]:
    """A host after the preflight: the plans of the controller, and the answer of the node."""
    return {
        "gaudi_weights_fetch": fetch,
        "preflight_serving": {"source_plans": {"r1": copy.deepcopy(list(plans))}},
        "preflight_node": {"missing_weights": list(lacks) if isinstance(lacks, tuple) else lacks, "node": {}},
        **more,
    }


def of_host(playbook: str, hosts: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Every item that one host handles, by directory, as the playbook and the role evaluate it."""
    (given,) = [
        task["vars"]
        for task in tasks(load(ROOT / playbook))
        if task.get("ansible.builtin.import_role", {}).get("name") == "weights_supply"
    ]
    (loop,) = [
        task
        for task in tasks(load(ROLE / "missing.yml"))
        if task.get("ansible.builtin.include_tasks", {}).get("file") == "fetch.yml"
    ]
    variables = {
        "hostvars": hosts,
        "ansible_play_hosts": list(hosts),
        "inventory_hostname": name,
        **hosts[name],
        **trusted(given),
    }
    found = evaluate("weights_supply", str(loop["loop"]), **variables)
    item = str(loop["vars"]["weights_supply_item"])
    items = [evaluate("weights_supply", item, **variables, folder=folder) for folder in found]
    return {str(each["directory"]): each for each in items}


def record_of(item: Mapping[str, Any], root: Path) -> dict[str, Any]:
    """The folder and the record that a node would read for another one, as the role asks the module."""
    (task,) = [task for task in tasks(load(ROLE / "serve.yml")) if "weights_giving" in task]
    given = {"weights_supply_item": item, "weights_supply_root": str(root), "omit": "OMITTED"}
    asked = {key: evaluate("weights_supply", str(task["weights_giving"][key]), **given) for key in ("folder", "record")}
    return {key: value for key, value in asked.items() if value != "OMITTED"}


def sent(asked: Mapping[str, Any], root: Path) -> dict[str, Any]:
    """What the node returns for another one; nothing is served."""
    served = {"configuration": "", "unit": "", "port": 1, "_ansible_check_mode": True}
    return run_main(
        "weights_giving", {**served, **asked, "directory": str(root / "giving"), "unit_path": str(root / "unit")}
    )


@pytest.fixture
def giving(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A node that has the weights, and a secret of root's elsewhere."""
    monkeypatch.setattr(AnsibleModule, "run_command", lambda *_, **__: (0, "", ""))
    (tmp_path / "models/DeepSeek-R1/.gaudi-serving").mkdir(parents=True)
    (tmp_path / "models/DeepSeek-R1/.gaudi-serving/manifest.json").write_text('{"files": []}')
    (tmp_path / "secret.json").write_text('{"auths": {"registry": "password"}}')
    return tmp_path


PLAYBOOKS = pytest.mark.parametrize("playbook", ["site.yml", "playbooks/serve.yml"])


@PLAYBOOKS
@pytest.mark.parametrize("whole", [False, True])
def test_a_node_that_names_a_record_reads_no_file_of_another(playbook: str, whole: bool, giving: Path) -> None:
    record = str(giving / "secret.json")
    item = (
        {**WEIGHTS, "record": record} if whole else {"directory": "DeepSeek-R1", "repositories": {}, "record": record}
    )
    hosts = {"evil": host([{"fetch": item, "convert": None}], plans=()), "good": host()}
    try:
        items = of_host(playbook, hosts, "good")
    except AnsibleError:
        items = {}
    read = [sent(record_of(each, giving / "models"), giving) for each in items.values()]
    assert "password" not in json.dumps(read)


@PLAYBOOKS
def test_a_node_that_names_pins_replaces_none_of_another(playbook: str) -> None:
    claimed = {**MEASURED, "repositories": EVIL, "measured_cards": 0}
    hosts = {"evil": host([{"fetch": claimed}]), "good": host(["DeepSeek-R1-measured"])}
    plans = [{"fetch": MEASURED, "convert": None}]
    for one in hosts.values():
        one["preflight_serving"]["source_plans"]["r1"] = plans
    try:
        items = of_host(playbook, hosts, "good")
    except AnsibleError:
        items = {}
    assert list(items.values()) in ([], [MEASURED])


def test_what_a_node_reports_of_its_own_directories_is_what_it_brings() -> None:
    plans = [{"fetch": WEIGHTS, "convert": CONVERT}, {"fetch": MEASURED, "convert": None}]
    hosts = {
        "all": host(("DeepSeek-R1", "DeepSeek-R1-G2", "DeepSeek-R1-measured"), plans),
        "converts": host(("DeepSeek-R1-G2",), plans),
        "none": host((), plans),
        "published": host(("DeepSeek-R1",), [{"fetch": WEIGHTS, "convert": None}]),
        "other": host((), ()),
    }
    brought = {name: [(s["fetch"], s["convert"]) for s in weights_to_bring(one)] for name, one in hosts.items()}
    assert brought == {
        "all": [(WEIGHTS, CONVERT), (MEASURED, None)],
        "converts": [(None, CONVERT)],
        "none": [],
        "published": [(WEIGHTS, None)],
        "other": [],
    }
    assert weights_wanted(hosts, hosts) == [WEIGHTS, MEASURED]
    assert weights_wanted(hosts, ["converts", "none"]) == []


@PLAYBOOKS
def test_every_node_of_the_play_handles_the_same_directory_with_the_same_item(playbook: str) -> None:
    hosts = {"lacks": host(("DeepSeek-R1",)), "has": host(), "other": host(plans=())}
    assert [of_host(playbook, hosts, name) for name in hosts] == [{"DeepSeek-R1": WEIGHTS}] * 3


@pytest.mark.parametrize(
    "reported",
    [["Other"], ["../../etc"], ["DeepSeek-R1", "Other"], [{"fetch": WEIGHTS}], "DeepSeek-R1", {"a": 1}, 7, [None]],
)
def test_a_directory_that_the_node_does_not_use_is_refused(reported: Any) -> None:
    hosts = {"good": host(("DeepSeek-R1",)), "evil": host(reported)}
    (fault,) = weights_faults(hosts, hosts).items()
    assert (fault[0], fault[1].id) == ("evil", "weights_not_planned")
    assert "DeepSeek-R1" in str(fault[1])
    assert weights_fault(hosts, "evil", hosts).endswith("[weights_not_planned]")
    with pytest.raises(Refusal, match="missing weights"):
        weights_wanted(hosts, hosts)
    # A node that has left the play concerns nobody.
    assert weights_wanted(hosts, ["good"]) == [WEIGHTS]


@pytest.mark.parametrize("fetch", [False, "no", "maybe", None, []])
def test_a_node_starts_no_fetch_that_the_inventory_does_not_want(fetch: Any) -> None:
    hosts = {"evil": host(("DeepSeek-R1",), fetch=fetch)}
    assert weights_to_bring(hosts["evil"]) == []
    assert weights_faults(hosts, hosts)["evil"].id == "weights_not_planned"


OTHERS: dict[str, dict[str, Any]] = {
    "repositories.huggingface.repository": {"repository": "mirror/DeepSeek-R1"},
    "repositories.huggingface.revision": {"revision": "c1" * 20},
    "repositories.huggingface.files.config.json": {"files": {"config.json": "cd" * 32}},
}


@pytest.mark.parametrize("key", OTHERS)
@pytest.mark.parametrize("lacks", ["a", "b"])
def test_two_nodes_that_differ_end_the_run_with_both_names(key: str, lacks: str) -> None:
    source = {**WEIGHTS["repositories"]["huggingface"], **OTHERS[key]}
    plans = [{"fetch": {**WEIGHTS, "repositories": {"huggingface": source}}, "convert": None}]
    hosts = {"a": host(), "other": host(), "b": host((), plans)}
    assert weights_faults(hosts, hosts) == {}
    hosts[lacks]["preflight_node"]["missing_weights"] = ["DeepSeek-R1"]
    faults = weights_faults(hosts, hosts)
    assert {name: fault.id for name, fault in faults.items()} == {"a": "weights_differ", "b": "weights_differ"}
    sentence = str(faults["a"])
    assert sentence.startswith(
        "a (instance 'r1') and b (instance 'r1') both use the directory DeepSeek-R1, but differ in " + key + ": "
    )
    with pytest.raises(Refusal, match="differ in"):
        weights_wanted(hosts, hosts)


def test_sizes_that_differ_are_estimates_and_another_conversion_is_a_difference() -> None:
    larger = [{"fetch": {**WEIGHTS, "bytes": 900}, "convert": CONVERT}]
    hosts = {"a": host(("DeepSeek-R1",)), "b": host(("DeepSeek-R1", "DeepSeek-R1-G2"), larger)}
    assert weights_faults(hosts, hosts) == {}
    hosts["c"] = host((), [{"fetch": WEIGHTS, "convert": {**CONVERT, "tool": "fp8_dynamic"}}])
    assert set(weights_faults(hosts, hosts)) == {"b", "c"}
    assert "differ in tool" in str(weights_faults(hosts, hosts)["c"])


def test_the_preflight_reports_it_before_anything_is_changed() -> None:
    """The report of a node has what only all nodes together show."""
    hosts = {"good": host(("DeepSeek-R1",)), "evil": host(["Other"])}
    for one in hosts.values():
        one["preflight_node"]["report"] = ""
    (task,) = [
        task for task in tasks(load(ROOT / "roles/preflight/tasks/report.yml")) if "ansible.builtin.assert" in task
    ]
    asked = task_of("preflight", "root", "command")["register"]
    given = {"hostvars": hosts, "ansible_play_hosts": list(hosts), asked: {"failed": False}}
    said = {
        name: evaluate(
            "preflight", task["ansible.builtin.assert"]["fail_msg"], **given, **hosts[name], inventory_hostname=name
        )
        for name in hosts
    }
    assert said["good"] == ""
    assert said["evil"].startswith(
        "evil: 1 problem, nothing was changed.\n  1. The node reports missing weights in 'Other'"
    )


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.just("DeepSeek-R1"),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.sampled_from([*WEIGHTS, "fetch", "convert"]), inner),
    max_leaves=8,
)


@given(reported=JSON | st.lists(JSON), node=JSON, more=st.dictionaries(st.text(), JSON))
def test_whatever_a_node_reports_the_items_of_others_are_the_controllers(reported: Any, node: Any, more: Any) -> None:
    answer = {**more, "missing_weights": reported, "node": node}
    hosts = {
        "evil": {**host(), "preflight_node": answer},
        "good": host(("DeepSeek-R1-measured",), PLANS),
        "has": host((), PLANS),
    }
    for name in ("good", "has"):
        assert weights_fault(hosts, name, hosts) == ""
    assert [source["fetch"] for source in weights_to_bring(hosts["good"])] == [MEASURED]
    try:
        wanted = weights_wanted(hosts, hosts)
    except Refusal as refusal:
        assert refusal.id == "weights_not_planned"
    else:
        assert sorted(each["directory"] for each in wanted) in (
            ["DeepSeek-R1", "DeepSeek-R1-measured"],
            ["DeepSeek-R1-measured"],
        )
        assert all(each in (WEIGHTS, MEASURED) for each in wanted)


SOURCES = st.dictionaries(
    st.sampled_from(["one", "two"]),
    st.lists(
        st.sampled_from([{"fetch": WEIGHTS, "convert": None}, {"fetch": WEIGHTS, "convert": CONVERT}, *PLANS]),
        max_size=3,
    ),
)


@given(plans=SOURCES, there=st.sets(st.sampled_from(["DeepSeek-R1", "DeepSeek-R1-G2", "DeepSeek-R1-measured"])))
def test_names_are_enough_to_know_what_is_missing(plans: Any, there: set[str]) -> None:
    todo = source_plan.all_missing(plans, there)
    one = {"gaudi_weights_fetch": True, "preflight_serving": {"source_plans": plans}}
    assert weights_to_bring({**one, "preflight_node": {"missing_weights": source_plan.lacking(todo)}}) == todo


def test_the_record_that_is_sent_is_no_choice_of_a_folders_item(giving: Path) -> None:
    """Also of one that another road leads here."""
    item = {"directory": "DeepSeek-R1", "record": str(giving / "secret.json")}
    assert sent(record_of(item, giving / "models"), giving)["manifest"] == {"files": []}


def test_what_a_node_brought_does_not_depend_on_the_plans_that_follow() -> None:
    """A plan that is refused after the weights came has no source plan, so its node would have brought nothing."""
    *_, last = tasks(load(ROLE / "missing.yml"))
    assert last["when"] == "weights_supply_bring | length > 0"
    followed = list(tasks(load(ROLE / last["ansible.builtin.include_tasks"]["file"])))
    assert [task["ansible.builtin.assert"]["that"] for task in followed if "ansible.builtin.assert" in task]
    assert "weights_supply_" not in json.dumps(followed)


@pytest.mark.parametrize(
    ("source", "took", "offers"),
    [(True, False, True), (False, True, True), (False, False, False)],
    ids=["chosen", "received", "reports it"],
)
def test_a_node_that_reports_a_folder_is_no_source_of_it(source: bool, took: bool, offers: bool) -> None:
    """Where others chose the source, a further one has to have received the folder in this run."""
    begins = task_of("weights_supply", "fetch", "Begin with no round")["ansible.builtin.set_fact"]
    given = {
        **begins,
        **results("weights_supply", node_report=reporting([{"status": "whole", "revision": "any"}])),
        "ansible_play_hosts_all": [],
        "hostvars": {},
        "inventory_hostname": "a",
        "weights_supply_item": {"directory": "recipes.carried", "repositories": {}},
        "weights_supply_needed": False,
        "weights_supply_source": source,
        fact_of("weights_supply", "take", "Remember that it was taken"): took,
    }
    (said,) = task_of("weights_supply", "round", "Say what this node has")["ansible.builtin.set_fact"].values()
    assert evaluate("weights_supply", said, **given)["has"] is offers


def test_a_node_has_received_a_folder_only_once_its_job_has_ended_well() -> None:
    """A job that fails leaves the block before its last task."""
    (block,) = load(ROLE / "take.yml")
    names = [
        next(key for key in task if key in ("node_job", "ansible.builtin.set_fact")) for task in block["block"][-2:]
    ]
    assert names == ["node_job", "ansible.builtin.set_fact"]
    assert block["block"][-2]["node_job"]["state"] == "followed"
