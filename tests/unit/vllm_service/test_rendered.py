"""What the role writes, rendered by the real Templar, against golden files and systemd's own reading."""

from __future__ import annotations

import copy
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.module_utils.gaudi.base import paths
from ansible.module_utils.gaudi.node import instances, iommu
from ansible.module_utils.gaudi.serving.keys import digest_of
from ansible.module_utils.gaudi.serving.plan import Plan

from library import node_files
from tests.unit.preflight import test_templates as templates
from tests.unit.preflight.test_templates import results, task_of
from tests.unit.vllm_service.made import guarded, make_plan

ROOT = Path(__file__).resolve().parents[3]
ROLE = ROOT / "roles/vllm_service"
GOLDEN = Path(__file__).resolve().parent / "golden"

PLAN = make_plan(30001, Path("/data/models/Tiny"))
PLAN["container"]["mounts"].append({"source": "/data/recipe_cache/tiny", "target": "/cache", "read_only": False})
PLAN["environment"]["JSON"] = '{"a": "100 %", "b": [1, "$HOME"]}'
PLAN["explain"], PLAN["warnings"] = [], []


GUARDED = guarded(PLAN, Path("/x"))


def evaluate(source: str, plan: dict[str, Any], **given: Any) -> Any:
    """Evaluate a template of the role, or an expression, with its own defaults and variables."""
    known = results("vllm_service", vllm_service_changes={"way_back_over": False})
    # A plan comes from a module, so that nothing in it is ever a template.
    return templates.evaluate("vllm_service", source, **{"vllm_service_plan": plan, **known, **given})


def asked(file: str, module: str, option: str, plan: dict[str, Any], **given: Any) -> Any:
    """What the role gives a module for one of its options."""
    return evaluate(task_of("vllm_service", file, module)[module][option], plan, **given)


def written(plan: dict[str, Any], **given: Any) -> list[dict[str, Any]]:
    """All that the role writes for an instance."""
    return list(asked("install", "node_files", "files", plan, **given))


def render(source: str, plan: dict[str, Any], **given: Any) -> str:
    """The same as text."""
    return str(evaluate(source, plan, **given))


def file_text(option: str, plan: dict[str, Any], **given: Any) -> str:
    """The text of a file as the role has it compared: unit, plan_text or environment_text."""
    return str(asked("compare", "vllm_service_changes", option, plan, **given))


def drop_in(plan: dict[str, Any]) -> str:
    """The drop-in as the role writes it."""
    (file,) = (file for file in written(plan) if file["path"].endswith("/50-plan.conf"))
    return str(file["content"])


@pytest.mark.parametrize(
    ("name", "rendered"),
    [
        ("vllm.service", file_text("unit", PLAN)),
        ("environment", file_text("environment_text", PLAN)),
        ("plan.conf", drop_in(PLAN)),
    ],
)
def test_rendered_as_agreed(name: str, rendered: str) -> None:
    assert rendered == (GOLDEN / name).read_text()


def test_buckets_that_follow_from_a_start_are_no_part_of_what_a_container_is_made_of() -> None:
    def texts(buckets: dict[str, Any] | None) -> tuple[str, dict[str, Any]]:
        """The plan as the container is made of it, and its explanation."""
        named = {Path(file["path"]).name: file.get("content") for file in written({**PLAN, "buckets": buckets})}
        return str(named["plan.json"]), json.loads(str(named["explanation.json"]))

    plan, explanation = texts({"graphs": 2})
    assert json.loads(plan)["buckets"] == {"graphs": 2}
    assert "buckets" not in explanation
    seen = set()
    for blocks in (100, 200):
        part = {"graphs": 2, "kv_blocks": blocks, "kv_blocks_from": "this node's last start"}
        plan, explanation = texts(part)
        seen.add(plan)
        assert explanation["buckets"] == part
    assert len(seen) == 1
    assert json.loads(texts(None)[0])["buckets"] is None


def odd_plan(weights: str) -> dict[str, Any]:
    """A plan whose weights lie in an odd place."""
    plan = copy.deepcopy(PLAN)
    plan["requires"]["weights_path"] = weights
    return plan


@pytest.mark.parametrize(
    "weights",
    ["/data/models/Tiny", "/data/50% off/%i %n", '/data/a "quoted" one', "/data/back\\slash", "/data/${HOME} $HOME"],
)
def test_systemd_reads_the_unit_as_meant(tmp_path: Path, weights: str) -> None:
    analyze = shutil.which("systemd-analyze")
    assert analyze, "systemd-analyze is part of systemd, which these tests need"
    unit = tmp_path / "vllm-tiny.service"
    unit.write_text(file_text("unit", odd_plan(weights)))
    beside = tmp_path / "vllm-tiny.service.d/50-plan.conf"
    beside.parent.mkdir()
    beside.write_text(drop_in(odd_plan(weights)))
    shutil.copy(ROLE / "files/gaudi-serving.target", tmp_path)
    done = subprocess.run(
        [analyze, "verify", "--man=no", str(unit), str(tmp_path / "gaudi-serving.target")],
        capture_output=True,
        text=True,
        check=False,
        env={"SYSTEMD_UNIT_PATH": f"{tmp_path}:", "PATH": "/usr/bin:/bin", "SYSTEMD_LOG_LEVEL": "warning"},
    )
    complaints = [
        line for line in done.stderr.splitlines() if str(unit) in line or "vllm-tiny" in line or "gaudi" in line
    ]
    # The supervisor and the engine are not installed where the tests run.
    assert [line for line in complaints if "not executable" not in line and "docker.service" not in line] == []


def test_the_unit_lets_the_supervisor_write_to_the_kernels_memory_settings(tmp_path: Path) -> None:
    """Before a start it writes to /proc/sys/vm, which this directive would make read only."""
    unit = tmp_path / "vllm-tiny.service"
    unit.write_text(file_text("unit", PLAN))
    command = ["systemd-analyze", "security", "--offline=true", "--no-pager", "--json=short", str(unit)]
    listed = json.loads(subprocess.run(command, capture_output=True, text=True, check=False).stdout)
    found = {entry["name"]: entry["set"] for entry in listed}
    assert found["ProtectKernelTunables="] is False
    assert found["NoNewPrivileges="] is True


@pytest.mark.parametrize("dropped", [True, False])
def test_dropping_caches_is_an_option_of_the_supervisor_and_no_part_of_the_plan(dropped: bool) -> None:
    unit = file_text("unit", PLAN, vllm_service_drop_caches=dropped)
    assert ("--recipes-gib 80 --drop-caches\n" in unit) is dropped
    assert (unit == file_text("unit", PLAN)) is not dropped
    assert file_text("plan_text", PLAN, vllm_service_drop_caches=dropped) == file_text("plan_text", PLAN)


def test_an_environment_value_stays_one_line_as_it_is() -> None:
    plan = copy.deepcopy(PLAN)
    plan["environment"] = {"A": "{{ 7 * 7 }}", "B": "; rm -rf / #", "C": " lead and trail ", "D": ""}
    plan["container"]["environment"] = {}
    assert file_text("environment_text", plan) == "A={{ 7 * 7 }}\nB=; rm -rf / #\nC= lead and trail \nD=\n"


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:30001"),
        ("0.0.0.0", "http://127.0.0.1:30001"),
        ("::", "http://[::1]:30001"),
        ("10.1.2.3", "http://10.1.2.3:30001"),
    ],
)
def test_where_the_instance_is_asked(host: str, url: str) -> None:
    plan = copy.deepcopy(PLAN)
    plan["listen"]["host"] = host
    assert asked("verify", "vllm_service_verify", "url", plan).strip() == url
    assert Plan.from_document(plan).endpoint == url


def test_words_do_not_restart_an_instance() -> None:
    wordier = copy.deepcopy(PLAN)
    wordier["explain"], wordier["warnings"] = [{"value": "x"}], ["a warning"]
    wordier["ask"] = {"dimensions": 3}
    texts = [file_text("plan_text", plan) for plan in (wordier, PLAN)]
    assert texts[0] == texts[1]
    assert "explain" not in texts[1]


def refused(plan: dict[str, Any], **given: Any) -> str:
    """Why the role does not take a plan; empty where it does."""
    check = task_of("vllm_service", "preflight", "Refuse a plan that cannot be served")["ansible.builtin.assert"]
    said = str(evaluate(check["fail_msg"], plan, **given))
    assert evaluate(f"{{{{ {check['that']} }}}}", plan, **given) is not bool(said)
    return said


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, ""),
        ({"refused": "No room.", "refused_id": "no_room"}, "No room. [no_room]"),
        ({"schema": 2}, "is not one of the action serving_plan (schema 1)"),
        ({"instance": "tiny\n"}, "is not one of the action serving_plan (schema 1)"),
        ({"instance": "../tiny"}, "is not one of the action serving_plan (schema 1)"),
        ({"environment": {"A": "1\n2"}}, "is not one of the action serving_plan (schema 1)"),
        ({"environment": {"A-B": "1"}}, "is not one of the action serving_plan (schema 1)"),
        ({"requires": {"weights_path": "models/Tiny"}}, "is not one of the action serving_plan (schema 1)"),
    ],
)
def test_a_plan_that_cannot_be_written_down_is_refused(changes: dict[str, Any], said: str) -> None:
    sentence = refused({**copy.deepcopy(PLAN), **changes})
    assert said in sentence
    assert bool(sentence) is bool(said)
    assert sentence.endswith("[plan_malformed]") is ("serving_plan" in said)


@pytest.mark.parametrize(("key", "wrong"), [("a" * 16, False), ("a" * 15, True), ("a b" * 8, True)])
def test_keys_that_are_none_are_refused(key: str, wrong: bool) -> None:
    said = refused(GUARDED, vllm_service_api_keys={"tiny": [key]})
    assert bool(said) is wrong
    assert key not in said


def test_keys_for_a_plan_without_a_guard_are_refused() -> None:
    """Such a plan was made without looking at the keys: its server would be open."""
    said = refused(PLAN, vllm_service_api_keys=["a-key-of-sixteen"])
    assert ("asks for none" in said, said.endswith("[keys_not_asked_for]")) == (True, True)
    assert refused(PLAN, vllm_service_api_keys={"other": ["a-key-of-sixteen"]}) == ""
    assert "is not one of the action" in refused({**PLAN, "guarded": None})


@pytest.mark.parametrize("keys", [[], ["a-key-of-sixteen"]])
def test_what_the_role_writes_is_a_list_that_the_module_takes(keys: list[str]) -> None:
    files = written(PLAN, vllm_service_api_keys=keys)
    known = set(node_files.ARGUMENT_SPEC["files"]["options"])
    assert all(set(file) <= known for file in files)
    paths = [file["path"] for file in files]
    assert len(paths) == len(set(paths))
    by_path = {file["path"]: file for file in files}
    etc = "/etc/gaudi-serving/instances/tiny"
    assert by_path["/data/recipe_cache/tiny"] == {
        "path": "/data/recipe_cache/tiny",
        "state": "directory",
        "mode": "0750",
    }
    assert by_path["/etc/systemd/system/vllm-tiny.service"]["content"] == (GOLDEN / "vllm.service").read_text()
    assert by_path[f"{etc}/environment"]["content"] == (GOLDEN / "environment").read_text()
    assert by_path[f"{etc}/plan.json"]["content"].endswith("}\n")
    programs = "/usr/local/lib/gaudi-serving"
    for name in ("vllm_supervisor.py", "guard/gaudi_guard.py"):
        assert by_path[f"{programs}/{name}"]["content"] == (ROLE / "files" / name).read_text()
    # The supervisor of the former release imports them.
    for path in (f"{programs}/vllm_plan.py", f"{programs}/vllm_signs.py"):
        assert by_path[path] == {"path": path, "state": "absent"}
        assert paths.index(path) > paths.index(f"{programs}/vllm_supervisor.py")
    # A supervisor of an earlier release leaves it where it is killed.
    left = "/var/lib/gaudi-serving/instances/tiny/.state.json.new"
    assert by_path[left] == {"path": left, "state": "absent"}
    # What was written before the plan, so that no way back leads away from it.
    assert [path for path in paths if path.endswith("back.json")] == []
    over = written(PLAN, **results("vllm_service", vllm_service_changes={"way_back_over": True}))
    back = {"path": "/var/lib/gaudi-serving/instances/tiny/back.json", "state": "absent"}
    assert over.index(back) < [file["path"] for file in over].index(f"{etc}/plan.json")
    assert by_path["/etc/systemd/system/vllm-tiny.service.d/50-plan.conf"]["content"] == (
        (GOLDEN / "plan.conf").read_text()
    )
    # No key, and no digest of one, goes this way; keys as 0.1 kept them stay until the container that reads them ended.
    assert "a-key-of-sixteen" not in str(files)
    assert not [path for path in paths if "/keys" in path]


def test_a_node_is_told_digests_and_no_keys() -> None:
    (told,) = asked("install", "instance_keys", "inventory", GUARDED, vllm_service_api_keys=["a-key-of-sixteen"])
    assert told == {"name": "inventory-1", "digest": digest_of("a-key-of-sixteen"), "ends": None}


def test_keys_come_before_the_plan_and_old_ones_go_after_the_start() -> None:
    install, run = (yaml.safe_load((ROLE / f"tasks/{name}.yml").read_text()) for name in ("install", "run"))
    keys = next(place for place, task in enumerate(install) if "instance_keys" in task)
    assert keys < next(place for place, task in enumerate(install) if "node_files" in task)
    assert install[keys]["no_log"] is True
    started = run[-1]["block"]
    gone = {name: evaluate(value, PLAN) for name, value in started[-1]["ansible.builtin.file"].items()}
    assert gone == {"path": "/etc/gaudi-serving/instances/tiny/keys", "state": "absent"}
    assert any(task.get("vllm_service_info", {}).get("follow") for task in started[:-1])


@pytest.mark.parametrize(
    ("wrote", "changes", "settled"),
    [
        ({}, {}, True),
        ({"written": ["/usr/local/lib/gaudi-serving/vllm_supervisor.py"]}, {}, False),
        ({"library_changed": True}, {}, False),
        ({}, {"settled": False}, False),
        # A run that was cut off has written everything, so that this one writes nothing.
        ({}, {"outdated": True}, False),
        ({}, {"current": False}, False),
    ],
)
def test_an_instance_is_settled_by_what_runs(wrote: dict[str, Any], changes: dict[str, bool], settled: bool) -> None:
    known = results(
        "vllm_service",
        node_files={"written": [], "library_changed": False, **wrote},
        vllm_service_changes={"settled": True, "outdated": False, "current": True, **changes},
    )
    starts = task_of("vllm_service", "main", "Start the instance")
    assert templates.runs("vllm_service", starts, vllm_service_plan=PLAN, **known) is not settled


def test_nothing_that_this_run_wrote_decides_a_restart() -> None:
    """A run that was cut off has written the files already; the next one writes nothing."""
    tasks = (ROLE / "tasks/run.yml").read_text() + (ROLE / "tasks/hand_over.yml").read_text()
    assert task_of("vllm_service", "install", "node_files")["register"] not in tasks
    assert "is changed" not in tasks


@pytest.mark.parametrize("said", [[], ["driver: found 1.21.3-1a2b3c4, wanted 1.22 (1.22.2-32)"]])
def test_what_was_let_through_is_written_beside_the_plan_and_costs_no_restart(said: list[str]) -> None:
    """The digest of the container is made of plan.json and environment alone."""
    files = {file["path"]: file for file in written(PLAN, vllm_service_let_through=said)}
    beside = files.pop(f"/etc/gaudi-serving/instances/tiny/{paths.LET_THROUGH}")
    if said:
        assert json.loads(beside["content"]) == {"let_through": said}
        assert beside["mode"] == "0600"
    else:
        assert beside["state"] == "absent"
    for option in ("plan_text", "environment_text", "guard_text", "unit"):
        assert file_text(option, PLAN, vllm_service_let_through=said) == file_text(option, PLAN)


@pytest.mark.parametrize("said", [[], ["iommu: found DMA, wanted identity, or no IOMMU"]])
def test_what_the_site_allows_is_there_for_later_starts(said: list[str], tmp_path: Path) -> None:
    """Also where nothing differed when the instance was set up."""
    given = {"vllm_service_let_through": said, "vllm_service_allow_mismatch": ["iommu"]}
    files = {file["path"]: file for file in written(PLAN, **given)}
    beside = files[f"/etc/gaudi-serving/instances/tiny/{paths.LET_THROUGH}"]
    assert json.loads(beside["content"]) == {"let_through": said, "allowed": ["iommu"]}
    (tmp_path / paths.LET_THROUGH).write_text(beside["content"])
    assert iommu.allowed(tmp_path) == ["iommu"]
    assert instances.let_through(tmp_path) == said


@pytest.mark.parametrize(
    ("playbook", "play"), [("site.yml", "Bring up node by node, and serve"), ("playbooks/serve.yml", "Serve one model")]
)
def test_playbooks_hand_on_what_was_let_through(playbook: str, play: str) -> None:
    (plays,) = [each for each in yaml.safe_load((ROOT / playbook).read_text()) if each["name"] == play]
    given = [task["vars"] for task in plays["tasks"] if "vllm_service_plan" in task.get("vars", {})]
    assert [each["vllm_service_let_through"] for each in given] == ["{{ preflight_node.let_through }}"]
    assert [each["vllm_service_allow_mismatch"] for each in given] == ["{{ preflight_node.allowed }}"]
