"""What an earlier commit set up is taken over by the working tree without a restart."""

from __future__ import annotations

import contextlib
import io
import json
import shutil
import signal
from typing import Any

import pytest
from ansible.module_utils.gaudi.node import containers, states
from ansible.module_utils.testing import patch_module_args

from library import vllm_service_changes
from tests.integration.vllm_service.node import HERE, PATIENCE, SupervisedNode
from tests.integration.vllm_service.record import EngineRecord
from tests.integration.vllm_service.takeover import CASES, FOLDER, planned, rendered

UNITS = "\n".join(
    "".join(f"{name}={value}\n" for name, value in vllm_service_changes.SETTLED.items()) for _ in range(2)
)


def set_up(node: SupervisedNode, case: str, plan: dict[str, Any]) -> str:
    """Lay out a case's files, have its container run, and return the label of that."""
    shutil.copytree(FOLDER / case, node.root, dirs_exist_ok=True)
    guard = node.root / "programs/guard/gaudi_guard.py"
    guard.parent.mkdir(parents=True)
    guard.write_text(rendered(plan)["guard"])
    node.port = plan["listen"]["port"]
    node.scenario(model=plan["served_model_name"], image=plan["image"])
    labels = json.loads((node.root / "labels.json").read_text())
    node.run_container(EngineRecord(plan["container"]["name"], 0, labels))
    return str(labels["gaudi-serving.plan"])


def compared(node: SupervisedNode, plan: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the role finds of an instance before it writes a plan."""
    etc = node.instances.parent
    for module, name, path in (
        (vllm_service_changes, "PLANS", etc),
        (vllm_service_changes, "UNITS", node.root / "units"),
        (states, "PLANS", etc),
        (states, "STATES", node.state_file.parents[1]),
    ):
        monkeypatch.setattr(module, name, path)
    # The container's process sees this machine's directories.
    monkeypatch.setattr(containers, "outlived", lambda *_arguments: [])
    monkeypatch.setenv("PATH", str(HERE / "bin"), prepend=":")
    monkeypatch.setenv("FAKE_NODE", str(node.root))
    (node.root / "systemctl").write_text(UNITS)
    texts = {name if name == "unit" else f"{name}_text": text for name, text in rendered(plan).items()}
    arguments = {"instance": "tiny", "plan": plan, "weights": str(node.weights), **texts}
    output = io.StringIO()
    with patch_module_args(arguments), contextlib.redirect_stdout(output), pytest.raises(SystemExit):
        vllm_service_changes.main()
    return dict(json.loads(output.getvalue()))


@pytest.mark.parametrize("case", CASES)
def test_plan_and_environment_have_the_bytes_that_were_set_up(case: str) -> None:
    texts = rendered(planned(case))
    for name, file in (("plan", "plan.json"), ("environment", "environment")):
        assert texts[name] == (FOLDER / case / "etc/instances/tiny" / file).read_text()


@pytest.mark.parametrize("case", CASES)
def test_instance_that_was_set_up_is_taken_over(
    case: str, node: SupervisedNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = planned(case)
    label = set_up(node, case, plan)
    before, pid = node.state, node.container_pid()
    found = compared(node, plan, monkeypatch)
    assert (found["running"], found["outdated"], found["settled"], found["way_back_over"]) == (True, False, True, False)
    assert found["label"] == label
    process = node.start()
    node.wait_for(lambda: "READY=1" in node.messages or process.poll() is not None, "READY=1 or the end")
    # The role's reload, after which the program on the disk goes on.
    node.messages.clear()
    process.send_signal(signal.SIGHUP)
    node.wait_for(lambda: "READY=1" in node.messages or process.poll() is not None, "READY=1 or the end")
    assert (process.poll(), node.container_pid()) == (None, pid)
    kept = ("container_id", "container_started", "started", "cards", "plan")
    assert {name: node.state[name] for name in kept} == {name: before[name] for name in kept}
    assert {call[0] for call in node.calls} <= {"version", "container", "image", "attach"}
    if case == "guarded":
        assert set(node.tokens) == {(node.state_file.parent / "probe").read_text().strip()}
    process.terminate()
    assert process.wait(PATIENCE) == 0
