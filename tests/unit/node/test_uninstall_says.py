"""What playbooks/uninstall.yml says of weights that stay, and what it asks before anything goes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

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
    ran = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "Stays: weights" in ran.stdout
    assert f"{tmp_path}/there" in ran.stdout
    assert f"{tmp_path}/gone" not in ran.stdout


def tasks_of(path: Path) -> Iterator[dict[str, Any]]:
    """The tasks of a file, with those of files of its role that it imports."""
    for task in yaml.safe_load(path.read_text(encoding="utf-8")):
        file = task.get("ansible.builtin.import_tasks")
        yield from tasks_of(path.parent / file) if file else [task]


def parts_of(task: dict[str, Any]) -> dict[str, bool]:
    """The parts whose packages a task removes, and whether packages that others need stay."""
    given: dict[str, Any] = task["brought_packages"]
    found: dict[str, bool] = {}
    for item in task.get("loop", [""]):
        values = {
            name: evaluate("container_runtime", value, item=item) if isinstance(value, str) else value
            for name, value in given.items()
            if name in ("part", "state", "keep_needed")
        }
        if values["state"] == "removed":
            found[values["part"]] = values.get("keep_needed", False)
    return found


def asked(tasks: Iterable[dict[str, Any]]) -> tuple[dict[str, bool], dict[str, bool]]:
    """The parts that are judged before anything changes, and those that are removed later."""
    judged: dict[str, bool] = {}
    removed: dict[str, bool] = {}
    begun = False
    for task in tasks:
        if "brought_packages" not in task:
            reads = {"ansible.builtin.assert", "ansible.builtin.find", "ansible.builtin.stat"}
            info = any(name.endswith("_info") or name in reads for name in task)
            begun = begun or not (info or task.get("ansible.builtin.import_role", {}).get("tasks_from") == "idle")
        elif task.get("check_mode"):
            judged.update({} if begun else parts_of(task))
        else:
            begun = True
            removed.update(parts_of(task))
    return judged, removed


def test_packages_of_every_part_are_judged_before_anything_goes() -> None:
    removing: dict[str, bool] = {}
    for file in sorted(ROOT.glob("roles/*/tasks/remove.yml")):
        judged, removed = asked(tasks_of(file))
        assert judged == removed, file
        removing.update(removed)
    assert {"engine", "driver", "kernel", "weights"} <= removing.keys()
    (play,) = yaml.safe_load((ROOT / "playbooks/uninstall.yml").read_text(encoding="utf-8"))
    assert asked(play["tasks"]) == (removing, {})
