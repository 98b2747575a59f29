"""What the role writes, rendered by the real Templar, against golden files and systemd's own reading."""

from __future__ import annotations

import copy
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template

from tests.unit.vllm_service.node import make_plan

ROOT = Path(__file__).resolve().parents[3]
ROLE = ROOT / "roles/vllm_service"
GOLDEN = Path(__file__).resolve().parent / "golden"

PLAN = make_plan(30001, Path("/data/models/Tiny"))
PLAN["container"]["mounts"].append({"source": "/data/recipe_cache/tiny", "target": "/cache", "read_only": False})
PLAN["environment"]["JSON"] = '{"a": "100 %", "b": [1, "$HOME"]}'
PLAN["explain"], PLAN["warnings"] = [], []


def trusted(value: Any) -> Any:
    """Mark what comes from the role's own files as templates, as Ansible does when it loads them."""
    if isinstance(value, dict):
        return {key: trusted(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [trusted(inner) for inner in value]
    return trust_as_template(value) if isinstance(value, str) else value


def render(source: str, plan: dict[str, Any], **results: Any) -> str:
    """Render a template of the role, or an expression, with its own defaults and variables."""
    variables: dict[str, Any] = dict(results)
    for part in ("defaults", "vars"):
        variables.update(trusted(yaml.safe_load((ROLE / part / "main.yml").read_text())))
    # Not trusted: a plan comes from a module, and nothing in it is ever a template.
    variables["vllm_service_plan"] = plan
    templar = Templar(loader=DataLoader(), variables=variables)
    return str(templar.template(trust_as_template(source)))


def render_file(name: str, plan: dict[str, Any]) -> str:
    """Render templates/<name> the way the template module does."""
    return render((ROLE / "templates" / name).read_text(), plan)


@pytest.mark.parametrize("name", ["vllm.service", "environment"])
def test_rendered_as_agreed(name: str) -> None:
    assert render_file(f"{name}.j2", PLAN) == (GOLDEN / name).read_text()


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
    unit.write_text(render_file("vllm.service.j2", odd_plan(weights)))
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


def test_an_environment_value_stays_one_line_as_it_is() -> None:
    plan = copy.deepcopy(PLAN)
    plan["environment"] = {"A": "{{ 7 * 7 }}", "B": "; rm -rf / #", "C": " lead and trail ", "D": ""}
    plan["container"]["environment"] = {}
    assert render_file("environment.j2", plan) == "A={{ 7 * 7 }}\nB=; rm -rf / #\nC= lead and trail \nD=\n"


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
    import vllm_plan

    plan = copy.deepcopy(PLAN)
    plan["listen"]["host"] = host
    assert render("{{ __vllm_service_url }}", plan).strip() == url
    assert vllm_plan.Plan.from_document(plan).endpoint == url


def test_words_do_not_restart_an_instance() -> None:
    wordier = copy.deepcopy(PLAN)
    wordier["explain"], wordier["warnings"] = [{"value": "x"}], ["a warning"]
    document = "{{ __vllm_service_plan_document | to_nice_json }}"
    assert render(document, wordier) == render(document, PLAN)
    assert "explain" not in render(document, PLAN)


ANSWERS = [
    ("generate", "/v1/chat/completions", {"choices": [{"message": {"content": "Paris."}}]}, "Paris."),
    (
        "generate",
        "/v1/chat/completions",
        {"choices": [{"message": {"content": None, "reasoning_content": "Hm."}}]},
        "Hm.",
    ),
    ("complete", "/v1/completions", {"choices": [{"text": " Paris"}]}, " Paris"),
    ("embed", "/v1/embeddings", {"data": [{"embedding": [0.1, 0.2, 0.3]}]}, "an embedding of 3 numbers"),
    ("score", "/v1/rerank", {"results": [{"relevance_score": 0.97}]}, "a relevance of 0.97"),
]


@pytest.mark.parametrize(("task", "path", "answer", "text"), ANSWERS)
def test_a_model_is_asked_what_it_is_for(task: str, path: str, answer: dict[str, Any], text: str) -> None:
    plan = {**PLAN, "task": task}
    assert render("{{ __vllm_service_ask.path }}", plan) == path
    assert "What is the capital of France?" in render("{{ __vllm_service_ask.body | to_json }}", plan)
    assert render("{{ __vllm_service_answer }}", plan, __vllm_service_reply={"json": answer}) == text


@pytest.mark.parametrize(
    ("answer", "finished"),
    [({"choices": [{"finish_reason": "abort"}]}, "abort"), ({"data": []}, "stop")],
)
def test_how_an_answer_ended(answer: dict[str, Any], finished: str) -> None:
    assert render("{{ __vllm_service_finished }}", PLAN, __vllm_service_reply={"json": answer}) == finished


def test_numbers_in_a_question_stay_numbers() -> None:
    body = yaml.safe_load(render("{{ __vllm_service_ask.body | to_json }}", PLAN))
    assert (body["max_tokens"], body["temperature"]) == (32, 0)
