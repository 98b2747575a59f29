"""ansible-playbook with an ansible-core, or a configuration, that is not supported."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# ansible-playbook as an older ansible-core has it: another version, and without a method that came
# with 2.19.
OLDER = """
import sys, ansible.release, ansible.plugins.callback
from ansible.cli.playbook import main
ansible.release.__version__ = "2.18.9"
del ansible.plugins.callback.CallbackBase._handle_warnings_and_exception
main(["ansible-playbook", "-i", "localhost,", *sys.argv[1:]])
"""


@pytest.mark.report("N05")
@pytest.mark.parametrize("callback", ["phases", "default"])
def test_an_older_ansible_ends_before_the_first_task(callback: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", OLDER, str(ROOT / "playbooks/plan.yml"), "-e", "topology_file=x"],
        capture_output=True,
        text=True,
        check=False,
        env={"LC_ALL": "C.UTF-8", "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "ANSIBLE_STDOUT_CALLBACK": callback},
    )
    assert ran.returncode == 1
    assert ran.stdout == ""
    (line,) = (line for line in ran.stderr.splitlines() if not line.startswith("[WARNING]"))
    assert "ansible-core 2.18.9, but 2.19 is needed" in line


@pytest.mark.parametrize("callback", ["phases", "default"])
def test_a_configuration_by_which_nodes_set_variables_ends_before_the_first_task(tmp_path: Path, callback: str) -> None:
    ran = subprocess.run(
        [str(Path(sys.executable).with_name("ansible-playbook")), "-i", "localhost,", str(ROOT / "site.yml")],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={"LC_ALL": "C.UTF-8", "HOME": str(tmp_path), "ANSIBLE_STDOUT_CALLBACK": callback}
        | ({"ANSIBLE_CALLBACK_PLUGINS": str(ROOT / "callback_plugins")} if callback == "phases" else {}),
    )
    assert ran.returncode == 1
    assert ran.stdout == ""
    assert "set ANSIBLE_INJECT_FACT_VARS=false" in ran.stderr
