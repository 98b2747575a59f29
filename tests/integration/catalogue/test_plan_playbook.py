"""playbooks/plan.yml as a person runs it: from another directory, for a machine that is not there."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]
TOPOLOGY = ROOT / "docs" / "examples" / "topologies" / "hl-288e-mixed-slots.yml"


def plan(folder: Path, inventory: str = "localhost,", **extra: Any) -> subprocess.CompletedProcess[str]:
    """Run the playbook in a directory of its own, where relative names belong."""
    environment = {**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "PWD": str(folder)}
    command = [str(Path(sys.executable).parent / "ansible-playbook"), str(ROOT / "playbooks" / "plan.yml")]
    return subprocess.run(
        [*command, "-i", inventory, "-e", json.dumps(extra)],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_first_command_of_the_documentation_runs_from_a_fresh_checkout() -> None:
    document = (ROOT / "docs" / "models.md").read_text(encoding="utf-8")
    command = re.search(r"^    (ansible-playbook .*\\\n.*)$", document, re.MULTILINE)
    assert command
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    run = subprocess.run(
        ["bash", "-euc", command.group(1)],
        cwd=ROOT,
        env={**os.environ, "PATH": path, "GAUDI_SIMULATOR_SCOPE": "none-of-that-name"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert "for qwen3-8b" in run.stdout


def test_a_file_without_a_name_is_refused(tmp_path: Path) -> None:
    run = plan(tmp_path, topology_file=str(TOPOLOGY), plan_requests=[{"model": "qwq-32b"}], plan_output="")
    assert run.returncode != 0
    assert "plan_output is empty" in run.stdout + run.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("option", ["model", "model_config"])
def test_an_option_that_only_every_release_reads_is_refused_without_it(tmp_path: Path, option: str) -> None:
    run = plan(tmp_path, topology_file=str(TOPOLOGY), **{option: "qwq-32b"})
    assert run.returncode != 0
    assert "every_release=true" in run.stdout + run.stderr


@pytest.mark.parametrize(("option", "sentence"), [("model", "every_release=true"), ("gaudi_release", "topology_file=")])
def test_without_a_node_the_sentence_that_helps_comes_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, option: str, sentence: str
) -> None:
    monkeypatch.setenv("GAUDI_SIMULATOR_SCOPE", "none-of-that-name")
    run = plan(tmp_path, str(ROOT / "inventories" / "simulated"), **{option: "1.23"})
    assert run.returncode != 0
    assert sentence in run.stdout
    for other in ("Task failed", "remote_addr", "neither true nor false"):
        assert other not in run.stdout + run.stderr


def test_the_answers_of_every_release_are_written(tmp_path: Path) -> None:
    asked = {"topology_file": str(TOPOLOGY), "plan_output": "answers.json"}
    run = plan(tmp_path, every_release=True, model="qwen3-8b", **asked)
    assert run.returncode == 0, run.stdout + run.stderr
    answers = json.loads((tmp_path / "answers.json").read_text(encoding="utf-8"))
    assert {answer["cards_of"] for answer in answers} == {"HL-288E"}
    assert {"release", "status", "cards", "because", "options", "notes", "refused_id"} <= answers[0].keys()


@pytest.mark.parametrize("said", ["maybe", "", 2, "truee"])
def test_every_release_is_true_or_false(tmp_path: Path, said: object) -> None:
    run = plan(tmp_path, every_release=said, topology_file=str(TOPOLOGY), model="qwen3-8b")
    assert run.returncode != 0
    assert "neither true nor false" in run.stdout + run.stderr


def test_plans_and_refusals_are_written_in_the_order_of_the_requests(tmp_path: Path) -> None:
    (tmp_path / "node.yml").write_text(TOPOLOGY.read_text(encoding="utf-8"), encoding="utf-8")
    requests = [{"model": "qwq-32b"}, {"model": "qwq-33b"}, {"model": "qwen3-8b", "modules": [0, 2]}]
    run = plan(tmp_path, topology_file="node.yml", plan_requests=requests, plan_output="plans.json")
    # The file has what could be planned; without a page the refusals are printed.
    assert run.returncode != 0
    assert " ".join(run.stdout.split()).count("Did you mean qwq-32b or") == run.stdout.count("[not_in_catalogue]") == 1
    assert (tmp_path / "plans.json").stat().st_mode & 0o077 == 0
    first, second, third = json.loads((tmp_path / "plans.json").read_text(encoding="utf-8"))
    assert [module["module_id"] for module in first["modules"]] == [0, 2]
    assert first["cpu_binding"][-1] == "0"
    assert second["refused"].startswith('There is no model "qwq-33b" in catalog/models. Did you mean qwq-32b or ')
    # Questions take nothing from each other.
    assert [module["module_id"] for module in third["modules"]] == [0, 2]


def test_a_page_for_people_with_plans_and_refusals(tmp_path: Path) -> None:
    requests = '[{"model":"qwen3-8b","instance":"mine"},{"weights":"/m/tuned","tensor_paralel_size":2}]'
    run = plan(tmp_path, topology_file=str(TOPOLOGY), plan_requests=requests)
    assert run.returncode != 0
    assert "1 of 2 requests" in run.stdout
    for words in ("8 x HL-288E", "NUMA node 0, CPUs 0-47, 96-143", "for mine", "mine: http://127.0.0.1:30001", "Why"):
        assert words in run.stdout
    assert "request 2, tuned" in run.stdout
    assert run.stdout.count("Did you mean tensor_parallel_size?") == run.stdout.count("[unknown_key]") == 1
    assert "changed=0" in run.stdout


def test_without_requests_the_inventory_says_what_is_planned(tmp_path: Path) -> None:
    inventory = tmp_path / "inventory.yml"
    wanted = {"gaudi_release": "1.21", "gaudi_weights_root": "/w", "gaudi_serving_instances": [{"model": "qwen3-8b"}]}
    inventory.write_text(json.dumps({"gaudi_nodes": {"hosts": {"node-1": wanted}}}), encoding="utf-8")
    run = plan(tmp_path, str(inventory), topology_file=str(TOPOLOGY))
    assert run.returncode == 0, run.stdout + run.stderr
    for words in ("release      1.21", "/w/Qwen3-8B", "for qwen3-8b"):
        assert words in run.stdout


def test_a_file_that_cannot_be_read_is_one_sentence(tmp_path: Path) -> None:
    """What else is refused, and which kinds of requests are taken: test_action.py, without a process."""
    run = plan(tmp_path, topology_file="absent.yml", plan_requests=[])
    assert run.returncode != 0
    assert "absent.yml cannot be read: No such file or directory." in " ".join(run.stdout.split())
    assert "Traceback" not in run.stdout + run.stderr
