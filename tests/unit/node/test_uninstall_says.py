"""What playbooks/uninstall.yml says of weights that stay, and what it asks before anything goes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import yaml

from tests.unit.preflight.test_templates import evaluate

ROOT = Path(__file__).parents[3]


def test_weights_are_said_to_stay_only_where_they_are(tmp_path: Path) -> None:
    (play,) = yaml.safe_load((ROOT / "playbooks/uninstall.yml").read_text(encoding="utf-8"))
    names = [task["name"] for task in play["tasks"]]
    last = play["tasks"][names.index("Ensure our folders are gone") + 1 :]
    play.update(hosts="all", become=False, connection="local", tasks=last)
    (tmp_path / "said.yml").write_text(yaml.safe_dump([play]), encoding="utf-8")
    (tmp_path / "there").mkdir()
    command = [str(Path(sys.executable).parent / "ansible-playbook"), "-i", "there,gone,", str(tmp_path / "said.yml")]
    command += ["-e", f"gaudi_weights_root={tmp_path}/{{{{ inventory_hostname }}}}"]
    command += ["-e", f"ansible_python_interpreter={sys.executable}"]
    ran = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "Stays: weights" in ran.stdout
    assert f"{tmp_path}/there" in ran.stdout
    assert f"{tmp_path}/gone" not in ran.stdout


def test_packages_of_every_part_are_judged_before_anything_goes() -> None:
    removing = {}
    for file in sorted(ROOT.glob("roles/*/tasks/*.yml")):
        for task in yaml.safe_load(file.read_text(encoding="utf-8")):
            given = task.get("brought_packages", {})
            if given.get("state") == "removed" or (given and "removed" in task.get("loop", [])):
                removing[given["part"]] = given.get("keep_needed", False)
    assert {"engine", "driver"} <= removing.keys()
    (play,) = yaml.safe_load((ROOT / "playbooks/uninstall.yml").read_text(encoding="utf-8"))
    (at,) = (index for index, task in enumerate(play["tasks"]) if "brought_packages" in task)
    assert not [task for task in play["tasks"][:at] if "ansible.builtin.include_role" in task or "node_files" in task]
    asked = play["tasks"][at]
    assert (asked["brought_packages"]["state"], asked["check_mode"]) == ("removed", True)
    keep = asked["brought_packages"]["keep_needed"]
    assert {part: evaluate("container_runtime", keep, item=part) for part in asked["loop"]} == removing
