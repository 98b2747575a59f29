"""Following work from the controller: a connection that breaks is a sentence, and the work goes on."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from ansible.errors import AnsibleConnectionFailure

from action_plugins import node_job
from action_plugins import vllm_service_info as following

# What Ansible makes of a module that printed nothing.
CUT = {
    "failed": True,
    "msg": "Module result deserialization failed: No start of json char found",
    "module_stdout": "",
    "module_stderr": "Warning: ...\nConnection to 10.0.0.1 closed by remote host.\n",
    "rc": 255,
}
JOB = {"key": "fetch.tiny", "status": "running", "text": "", "progress": {}, "state": {}}
BEGUN = {"changed": True, "job": JOB, "digest": "d"}


def follow(action: Any, arguments: dict[str, Any], *answers: Any) -> dict[str, Any]:
    """Run an action whose modules answer, or raise, these one after the other."""
    left = list(answers)

    class ScriptedFollower(action.ActionModule):  # type: ignore[misc]
        def __init__(self) -> None:
            self._task = SimpleNamespace(args=arguments, check_mode=False, diff=False, async_val=0)
            self._connection = SimpleNamespace(_shell=SimpleNamespace(tmpdir=None))

        def _execute_module(self, **_options: Any) -> dict[str, Any]:
            answer = left.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return dict(answer)

    said: dict[str, Any] = ScriptedFollower().run(None, {"inventory_hostname": "gaudi-01"})
    return said


BROKEN = AnsibleConnectionFailure("Failed to connect to the host via ssh: Connection refused")


@pytest.mark.parametrize(
    ("answer", "seen", "unreachable"),
    [
        (CUT, "Connection to 10.0.0.1 closed by remote host", True),
        ({**CUT, "module_stderr": ""}, "status 255", True),
        ({**CUT, "rc": 137, "module_stderr": "Killed"}, "Killed", False),
        (BROKEN, "Failed to connect to the host via ssh: Connection refused", True),
    ],
)
def test_a_broken_connection_is_said_and_how_to_go_on(answer: Any, seen: str, unreachable: bool) -> None:
    said = follow(following, {"follow": True, "instances": ["tiny"]}, answer)
    assert said["msg"] == (
        f"gaudi-01 gave no answer while the start of tiny was followed ({seen}). "
        "The work is the node's own and goes on. "
        "Run the playbook again to follow further, or look with playbooks/status.yml."
    )
    # Of a block, the rescue and the end are for what failed, not for work that goes on out of reach.
    assert ("failed" in said, "unreachable" in said) == (not unreachable, unreachable)
    said = follow(node_job, {"key": "fetch.tiny"}, BEGUN, answer)
    assert said["msg"] == (
        f"gaudi-01 gave no answer while fetch.tiny was followed ({seen}). The work is the node's own and goes on. "
        "Run this again to follow further, or ansible-playbook playbooks/jobs.yml --limit gaudi-01 "
        "-e job_key=fetch.tiny."
    )


@pytest.mark.parametrize(("wish", "says"), [("finished", "nothing is written of how"), ("followed", "never started")])
def test_work_that_could_write_nothing_down_is_not_said_to_be_none(wish: str, says: str) -> None:
    ended = {"changed": False, "job": {**JOB, "status": "absent"}, "digest": "e"}
    said = follow(node_job, {"key": "fetch.tiny", "state": wish}, BEGUN, ended)
    assert said["failed"]
    assert says in said["msg"]


def test_what_a_module_refuses_itself_is_left_as_it_is() -> None:
    said = follow(following, {"follow": True, "instances": ["tiny"]}, {"failed": True, "msg": "systemctl is not there"})
    assert said["msg"] == "systemctl is not there"


def test_an_instance_that_is_not_followed_is_read_once() -> None:
    found = {"instances": [{"instance": "tiny"}], "digest": "d"}
    assert follow(following, {"instances": ["tiny"]}, found)["instances"] == found["instances"]
