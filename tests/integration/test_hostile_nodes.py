"""A node that reports anything ends no playbook for the other nodes: real runs, whose modules a stand-in answers."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.unit.doctor.test_status import EMPTY
from tests.unit.fabric.pages import pairs
from tests.unit.preflight.test_templates import task_of

ROOT = Path(__file__).resolve().parents[2]
# In place of every module of the project: it returns what the test has for it and for the node, and keeps what it was
# asked. The node is known by its temporary folder.
MODULE = """#!/usr/bin/python
WANT_JSON = True
import json, pathlib, sys, time
options = json.load(open(sys.argv[1]))
node = pathlib.Path(options["_ansible_remote_tmp"])
answers = json.loads((node / "answers.json").read_text())
name = options["_ansible_module_name"].rpartition(".")[2]
asked = {key: value for key, value in options.items() if not key.startswith("_")}
with open(node / "asked.jsonl", "a") as log:
    log.write(json.dumps([name, asked]) + chr(10))
answer = answers[name]
if isinstance(answer, dict):
    time.sleep(answer.pop("hangs", 0))
print(answer if isinstance(answer, str) else json.dumps(answer))
"""
GOOD = {
    "instance": "qwen",
    "active": "active",
    "load": "loaded",
    "state": {},
    "damaged": "",
    "drop_ins": [],
    "let_through": [],
}


# A key as the playbook draws it.
KEY = re.compile(r"gaudi-[A-Za-z0-9_-]{43}(?![A-Za-z0-9_-])")


class Nodes:
    """Nodes that are this machine, each with its own answers."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "library").mkdir()

    def run(
        self, playbook: str, nodes: Mapping[str, Mapping[str, Any]], **variables: str
    ) -> tuple[str, dict[str, int]]:
        """Run a playbook; return what it prints, and how many of a node's tasks failed."""
        hosts = {}
        for node, answers in nodes.items():
            (self.folder / node).mkdir(exist_ok=True)
            (self.folder / node / "answers.json").write_text(json.dumps(answers))
            hosts[node] = {"ansible_remote_tmp": str(self.folder / node)}
            for module in answers:
                (self.folder / "library" / f"{module}.py").write_text(MODULE)
        given = {
            "ansible_connection": "local",
            "ansible_python_interpreter": sys.executable,
            "ansible_become": False,
        }
        inventory = {"all": {"children": {"gaudi_nodes": {"hosts": hosts}}, "vars": given}}
        (self.folder / "hosts.json").write_text(json.dumps(inventory))
        environment = {
            **os.environ,
            "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
            "ANSIBLE_LIBRARY": str(self.folder / "library"),
            "ANSIBLE_STDOUT_CALLBACK": "ansible.builtin.default",
        }
        done = subprocess.run(
            [
                *(str(Path(sys.executable).with_name("ansible-playbook")), "-i", str(self.folder / "hosts.json")),
                *("-e", json.dumps(variables), str(ROOT / "playbooks" / playbook)),
            ],
            cwd=ROOT,
            env=environment,
            check=False,
            capture_output=True,
            text=True,
            timeout=600,
        )
        said = done.stdout + done.stderr
        assert "PLAY RECAP" in said, said
        failed = {}
        for line in done.stdout.partition("PLAY RECAP")[2].splitlines():
            if " : " in line:
                node, _, counts = line.partition(" : ")
                found = dict(each.split("=") for each in counts.split())
                failed[node.strip()] = int(found["failed"]) + int(found["unreachable"])
        return said, failed

    def asked(self, node: str, module: str) -> list[dict[str, Any]]:
        """What a module was asked on a node, in order."""
        log = self.folder / node / "asked.jsonl"
        lines = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
        return [options for name, options in lines if name == module]


@pytest.fixture
def nodes(tmp_path: Path) -> Nodes:
    return Nodes(tmp_path)


HOSTILE: tuple[Any, ...] = ([{"x": 1}], "qwen", {"instance": 1}, [None, 7, [{"instance": "x"}]], None)


def test_a_node_vetoes_no_command_for_an_instance_of_other_nodes(nodes: Nodes) -> None:
    shown = {"lines": ["the plans of qwen"]}
    evil: dict[str, Any] = {
        f"evil{n}": {"vllm_service_info": {"instances": each, **shown}} for n, each in enumerate(HOSTILE)
    }
    answers: dict[str, Any] = {**evil, "good1": {"vllm_service_info": {"instances": [GOOD], **shown}}}
    said, failed = nodes.run("history.yml", answers, instance="qwen")
    assert failed["good1"] == 0, said
    assert nodes.asked("good1", "vllm_service_info") == [{}, {"instances": ["qwen"], "history": True}]


def test_a_node_vetoes_no_measurement_of_an_instance_of_other_nodes(nodes: Nodes) -> None:
    found = dict(enumerate([*HOSTILE, [GOOD]]))
    answers = {f"node{n}": {"vllm_service_info": {"instances": each}} for n, each in found.items()}
    said, _ = nodes.run("bench.yml", answers, instance="other")
    assert "No node of this play has an instance other. There are: qwen." in said


def test_a_node_vetoes_no_batch_of_other_nodes(nodes: Nodes) -> None:
    request = {"custom_id": "1", "method": "POST", "url": "/v1/completions", "body": {"model": "tiny", "prompt": "x"}}
    (nodes.folder / "input.jsonl").write_text(json.dumps(request) + "\n")
    earlier = {"there": False, "answered": False}
    embed = {"instance": "embed", "active": "active", "state": {"status": "serving"}, "damaged": ""}
    honest = {
        "instances": {"instances": [embed]},
        "plans": {"plans": {"embed": {"up": True, "text": '{"served_model_name": "bge-m3"}'}}},
    }
    unnamed = {**embed, "instance": "../x"}
    instances: list[Any] = [
        {"instances": [{"x": 1}]},
        {"instances": [unnamed]},
        {"instances": "tiny"},
        {"error": 7},
        [],
    ]
    plans: list[Any] = [{"plans": [embed]}, {"plans": {"tiny": 1}}, {"error": "Too late."}]
    odd = [*({"instances": each} for each in instances), *({"plans": each} for each in plans)]
    reports = {f"evil{n}": {**honest, **changes} for n, changes in enumerate(odd)}
    answers: dict[str, Any] = {
        node: {"node_report": {"report": report}, "batch_answers": earlier}
        for node, report in {**reports, "evil10": 7, "good1": honest}.items()
    }
    answers["evil11"] = {"node_report": {"report": honest}, "batch_answers": {"there": []}}
    # Modules of tasks that are not reached.
    unused: dict[str, Any] = dict.fromkeys(path.stem for path in (ROOT / "library").glob("*.py"))
    answers["good1"] = unused | answers["good1"]
    said, _ = nodes.run("batch.yml", answers, input=str(nodes.folder / "input.jsonl"))
    assert "No instance that runs serves tiny." in said
    assert "There are: embed, of bge-m3: serving." in said
    checked = said.partition("Check what the node reports]")[2].partition("TASK [")[0]
    assert set(re.findall(r"fatal: \[(\w+)\]: FAILED!", checked)) == answers.keys() - {"good1"}


@pytest.mark.parametrize("found", [{"lines": []}, {"verdict": 7}, {"verdict": {"state": "accepted"}}])
def test_a_node_without_a_verdict_ends_no_page_of_other_nodes(tmp_path: Path, found: dict[str, Any]) -> None:
    seen = task_of("fabric_check", "pairs", "fabric_pair")["register"]
    page = {"name": "fabric_check", "tasks_from": "page", "public": True}
    outcome = {"csv": "", "results": pairs(), "good": True, "lines": []}
    play = [
        {
            "hosts": "all",
            "gather_facts": False,
            "connection": "local",
            "vars": {
                "fabric_check_page": str(tmp_path / "page.html"),
                "fabric_check_pairs_results": str(tmp_path / "pairs"),
            },
            "tasks": [
                {"ansible.builtin.set_fact": dict.fromkeys(("fabric_check_found", seen), "{{ found }}")},
                {"ansible.builtin.include_role": page},
                {"ansible.builtin.set_fact": {"fabric_check_pairs_found": outcome}},
                task_of("fabric_check", "pairs", "Write the results on the controller"),
            ],
        }
    ]
    hosts = {"evil1": {"found": found}, "good1": {"found": {"verdict": {}}}}
    (tmp_path / "play.yml").write_text(json.dumps(play))
    (tmp_path / "hosts.json").write_text(json.dumps({"all": {"hosts": hosts}}))
    command = [str(Path(sys.executable).with_name("ansible-playbook")), "-i", str(tmp_path / "hosts.json")]
    command += ["-e", json.dumps({"ansible_python_interpreter": sys.executable}), str(tmp_path / "play.yml")]
    done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "page.html").exists()
    assert (tmp_path / "pairs.html").exists()


KEYS = {
    "keys": [{"name": "alice", "origin": "playbook", "ends": None}],
    "lines": ["alice (playbook)"],
    "exported": [],
    "guarded": True,
    "unread": "",
    "of_inventory": False,
}


def test_a_node_vetoes_no_revocation_on_other_nodes(nodes: Nodes) -> None:
    hostile: list[dict[str, Any]] = [{"keys": [{}]}, {"keys": 7}, {"guarded": [[]]}, {"keys": [[1]]}]
    # Ansible's own key for statistics of the whole run.
    hostile += [{"ansible_stats": 7}, {"ansible_stats": {"data": [7]}}]
    answers = {f"evil{n}": {"instance_keys": {**KEYS, **changes}} for n, changes in enumerate(hostile)}
    said, failed = nodes.run("keys.yml", {**answers, "good1": {"instance_keys": KEYS}}, instance="chat", revoke="alice")
    assert failed["good1"] == 0, said
    assert [options for options in nodes.asked("good1", "instance_keys") if options.get("revoke")], said


def test_a_node_that_fails_keeps_no_key_from_being_revoked_on_others(nodes: Nodes) -> None:
    answers = {"down1": {"instance_keys": {"failed": True, "msg": "no disk"}}, "good1": {"instance_keys": KEYS}}
    said, failed = nodes.run("keys.yml", answers, instance="chat", revoke="alice")
    assert failed == {"down1": 1, "good1": 0}, said
    assert [options for options in nodes.asked("good1", "instance_keys") if options.get("revoke")], said


def test_a_node_without_a_key_of_that_name_is_named(nodes: Nodes) -> None:
    """It may have the same key under another name."""
    other = {**KEYS, "keys": [{"name": "inventory-1", "origin": "inventory", "ends": None}]}
    answers = {"good1": {"instance_keys": KEYS}, "other1": {"instance_keys": other}}
    said, _ = nodes.run("keys.yml", answers, instance="chat", revoke="alice")
    assert "other1 has no key alice of chat" in " ".join(said.split())
    assert "good1 has no key" not in said


@pytest.mark.parametrize("entry", ["sha256:zz", "{{ nobody_defined_this }}"])
def test_a_wrong_entry_of_the_inventory_keeps_no_key_from_being_revoked(nodes: Nodes, entry: str) -> None:
    answers = {"good1": {"instance_keys": KEYS}}
    said, failed = nodes.run("keys.yml", answers, instance="chat", revoke="alice", vllm_service_api_keys=entry)
    assert [options for options in nodes.asked("good1", "instance_keys") if options.get("revoke")], said
    # Nobody can tell whether it comes back.
    assert failed == {"good1": 1}
    assert "cannot be read" in said


def limited(playbook: str, folder: Path) -> str:
    """A copy of a playbook whose tasks are given up after five seconds, where they have a limit."""
    text = re.sub(r"(?m)^  timeout: \d+$", "  timeout: 5", (ROOT / "playbooks" / playbook).read_text())
    (folder / playbook).write_text(text)
    return str(folder / playbook)


def test_a_node_that_hangs_keeps_no_key_from_being_revoked_on_others(nodes: Nodes, tmp_path: Path) -> None:
    answers = {"down1": {"instance_keys": {**KEYS, "hangs": 60}}, "good1": {"instance_keys": KEYS}}
    said, failed = nodes.run(limited("keys.yml", tmp_path), answers, instance="chat", revoke="alice")
    assert failed == {"down1": 1, "good1": 0}, said
    assert [options for options in nodes.asked("good1", "instance_keys") if options.get("revoke")], said


def test_a_node_that_hangs_ends_no_page_of_other_nodes(nodes: Nodes, tmp_path: Path) -> None:
    found = {"instances": [GOOD], "strangers": [], "lost_weights": {}, "covers": {}}
    good: dict[str, Any] = {"report": {**EMPTY, "instances": found}}
    answers = {"down1": {"node_report": {**good, "hangs": 60}}, "good1": {"node_report": good}}
    said, failed = nodes.run(limited("status.yml", tmp_path), answers)
    assert failed == {"down1": 1, "good1": 0}, said
    assert "qwen" in said


def test_no_key_is_drawn_that_a_node_cannot_take(nodes: Nodes) -> None:
    answers = {"down1": {"instance_keys": {"failed": True, "msg": "no disk"}}, "good1": {"instance_keys": KEYS}}
    said, _ = nodes.run("keys.yml", answers, instance="chat", create="bob", show_in_log="true")
    assert "down1 cannot take the key" in " ".join(said.split())
    assert KEY.findall(said) == []
    asked = [options["add"]["digest"] for options in nodes.asked("good1", "instance_keys") if options.get("add")]
    assert set(asked) <= {"0" * 64}


def test_a_report_that_cannot_be_written_ends_no_page_of_other_nodes(nodes: Nodes) -> None:
    deep: Any = "x"
    for _ in range(240):
        deep = [deep]

    def report(**instances: Any) -> dict[str, Any]:
        found = {"instances": [GOOD], "strangers": [], "lost_weights": {}, "covers": {}, **instances}
        return {"report": {**EMPTY, "instances": found}}

    hostile = {
        "deep1": report(instances=[{**GOOD, "x": deep}]),
        "large1": report(instances=["x" * 300_000]),
        "other1": {"report": {**EMPTY, "instances": [[1]]}},
        "none1": {},
    }
    answers = {node: {"node_report": found} for node, found in {**hostile, "good1": report()}.items()}
    output = nodes.folder / "status.json"
    said, failed = nodes.run("status.yml", answers, status_output=str(output))
    assert not any(failed.values()), said
    assert "qwen" in said
    written = json.loads(output.read_text())
    assert written["good1"] == [GOOD]
    assert not {"deep1", "large1"} & set(written)


def test_facts_in_an_answer_are_no_variables_and_no_path_on_the_controller(nodes: Nodes) -> None:
    found = {"instances": [GOOD], "strangers": [], "lost_weights": {}, "covers": {}}
    chosen = nodes.folder / "chosen.json"
    facts = {"status_output": str(chosen)}
    answers = {"evil1": {"node_report": {"report": {**EMPTY, "instances": found}, "ansible_facts": facts}}}
    said, failed = nodes.run("status.yml", answers)
    assert failed == {"evil1": 0}, said
    assert not chosen.exists()


def test_a_report_of_another_form_ends_the_plans_of_its_node_alone(nodes: Nodes) -> None:
    """Deeper than Python reads, of another type, and one that claims to be planned already."""
    cards = [{"module_id": number, "name": "HL-225"} for number in range(8)]
    honest = {
        "cards": {"schema": 1, "cards": cards},
        "last_starts": {},
        "reservations": {"reservations": {}, "damage": ""},
        "weights": {"/data/models/Qwen3-8B": {"there": False}},
    }
    deep = f'{{"changed": false, "report": {"[" * 100_000}{"]" * 100_000}}}'
    claims = {"report": honest, "plans": [{"image": "evil"}], "source_plans": {"a": [{"fetch": "evil"}]}}
    reports: dict[str, Any] = {"deep1": deep, "list1": {"report": []}, "none1": {"report": {**honest, "cards": {}}}}
    answers = {node: {"node_report": told} for node, told in {**reports, "good1": claims}.items()}
    output = str(nodes.folder / "{{ inventory_hostname }}.json")
    said, failed = nodes.run("plan.yml", answers, plan_requests='[{"model": "qwen3-8b"}]', plan_output=output)
    assert failed == {"deep1": 1, "list1": 1, "good1": 0, "none1": 1}, said
    assert "Traceback" not in said
    (plan,) = json.loads((nodes.folder / "good1.json").read_text())
    assert [module["module_id"] for module in plan["modules"]] == [0, 1]
    assert "evil" not in json.dumps(plan)
    (refused,) = json.loads((nodes.folder / "none1.json").read_text())
    assert refused["refused_id"]


# What runs of a role for a node in its turn, and whatever happens to it what comes after it.
TURN = """
- hosts: gaudi_nodes
  gather_facts: false
  serial: 1
  tasks:
    - name: Take what the first node compiled
      ansible.builtin.include_role:
        name: vllm_service
        tasks_from: carry_turn
        rolespec_validate: false
      vars:
        vllm_service_plan: {instance: chat}
        vllm_service_compiled: {key: key, value: {honest: chat, hostile: chat}}
        __vllm_service_first: hostile
        gaudi_weights_root: /nowhere
      when: inventory_hostname == 'honest'

    - name: Start the instance
      ansible.builtin.debug:
        msg: "{{ inventory_hostname }} starts"
"""


@pytest.mark.parametrize(
    "answer", [{"unreachable": True, "msg": "no route"}, {"failed": True, "msg": "not today"}, "{"]
)
@pytest.mark.parametrize("module", ["carried_recipes", "weights_giving"])
def test_a_node_that_gives_no_recipes_keeps_no_instance_of_another_from_its_start(
    nodes: Nodes, tmp_path: Path, module: str, answer: Any
) -> None:
    good = {"carried_recipes": {"files": 0}, "weights_giving": {"token": "t" * 43, "manifest": {}}, "node_files": {}}
    playbook = tmp_path / "turn.yml"
    playbook.write_text(TURN)
    said, failed = nodes.run(str(playbook), {"hostile": {**good, module: answer}, "honest": good})
    assert failed["honest"] == 0, said
    assert "honest starts" in said


# Two nodes of one batch wait for a reboot. The first one fails, for it finds no systemctl.
REBOOT = """
- hosts: gaudi_nodes
  gather_facts: false
  environment: {PATH: /nowhere}
  tasks:
    - name: Reboot where that is needed
      ansible.builtin.include_role:
        name: host_tuning
        tasks_from: reboot_in_turn
        rolespec_validate: false
      vars:
        host_tuning_reboot: if_needed
        __host_tuning_waits: reboot
        __host_tuning_wanted: {}
        __host_tuning_paths: {}

    - name: Start the instance
      ansible.builtin.debug:
        msg: "{{ inventory_hostname }} starts"
"""


def test_a_node_that_fails_in_its_reboot_ends_the_turn_of_no_other_and_no_other_reboots(
    nodes: Nodes, tmp_path: Path
) -> None:
    playbook = tmp_path / "reboot.yml"
    playbook.write_text(REBOOT)
    waits = {"host_tuning_info": {"reboot": ["a parameter of the kernel"]}}
    said, failed = nodes.run(str(playbook), {"one": waits, "two": waits})
    # Ansible promises no order between hosts: whichever comes first fails.
    (first,) = (node for node, failures in failed.items() if failures)
    (other,) = failed.keys() - {first}
    assert failed == {first: 1, other: 0}, said
    assert f"{other} does not reboot, because {first}" in said
    assert f"{other} starts" in said
