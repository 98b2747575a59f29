"""Run an Ansible module's main() in this process, with the programs it would start answered from a script."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from ansible.module_utils import basic
from ansible.module_utils.gaudi.node import containers, engine_config
from ansible.module_utils.testing import patch_module_args

Answer = tuple[int, str, str]


PS = "timeout --kill-after=5 20 docker ps"
INFO = "timeout --kill-after=5 20 docker info"
# An engine that runs as its unit says: systemd names no process of it, so that none is looked at. It runs no container.
# Nothing that systemd knows is to be mounted.
QUIET: Mapping[str, Answer] = {
    "systemctl show docker.service": (0, "MainPID=0\n", ""),
    "systemctl show *.mount": (0, "", ""),
    PS: (0, "", ""),
    INFO: (1, "", "Cannot connect to the Docker daemon"),
}


class ScriptedNode:
    """A node on which only scripted programs exist; ``ran`` is what was started, in order."""

    def __init__(self, answers: Mapping[str, Answer | Callable[[], Answer]]) -> None:
        self.answers = answers
        self.ran: list[str] = []

    def has(self, program: str) -> bool:
        return any(command.split()[0] == program for command in self.answers)

    def run(self, command: Sequence[str]) -> Answer:
        line = " ".join(command)
        self.ran.append(line)
        matching = [start for start in self.answers if line.startswith(start)]
        if not matching:
            raise AssertionError(f"nobody expected: {line}")
        answer = self.answers[max(matching, key=len)]
        return answer() if callable(answer) else answer


class ModuleRun:
    """What a module printed, and what it started."""

    def __init__(self, printed: dict[str, Any], node: ScriptedNode) -> None:
        self.result = printed
        self.commands = node.ran

    def __getitem__(self, key: str) -> Any:
        return self.result[key]


Run = Callable[..., ModuleRun]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a module's main() with arguments; it ends as it would on a node."""
    # The unit of the engine of this machine has no part in it.
    monkeypatch.setattr(engine_config, "UNIT_FOLDERS", [])

    def start(
        module: ModuleType,
        arguments: Mapping[str, Any],
        answers: Mapping[str, Answer | Callable[[], Answer]] | None = None,
        check: bool = False,
    ) -> ModuleRun:
        node = ScriptedNode({**QUIET, **(answers or {})})
        monkeypatch.setattr(basic.AnsibleModule, "run_command", lambda _, command, **__: node.run(command))
        monkeypatch.setattr(containers, "run_limited", lambda command, *_: node.run(command))

        def get_bin_path(_: Any, program: str, required: bool = False, opt_dirs: Any = None) -> str | None:
            return program if node.has(program) or required else None

        monkeypatch.setattr(basic.AnsibleModule, "get_bin_path", get_bin_path)
        with patch_module_args({**arguments, "_ansible_check_mode": check}), pytest.raises(SystemExit):
            module.main()
        return ModuleRun(json.loads(capsys.readouterr().out), node)

    return start


@pytest.fixture
def record(tmp_path: Path) -> Path:
    return tmp_path / "state" / "images.json"
