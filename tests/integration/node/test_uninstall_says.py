"""What playbooks/uninstall.yml says of weights that stay, and what it asks before anything goes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import yaml
from ansible.module_utils.gaudi.model.headers import CONVERTED

from tests.unit.preflight.test_templates import evaluate

ROOT = Path(__file__).parents[3]


def uninstall_weights(tmp_path: Path, *arguments: str) -> str:
    """Run what the playbook does about weights in tmp_path/there and tmp_path/gone; return what it printed."""
    (play,) = yaml.safe_load((ROOT / "playbooks/uninstall.yml").read_text(encoding="utf-8"))
    names = [task["name"] for task in play["tasks"]]
    tasks = play["tasks"][names.index("Read which weights there are") :]
    play.update(hosts="all", become=False, connection="local")
    play["tasks"] = [task for task in tasks if task["name"] != "Ensure our folders are gone"]
    (tmp_path / "said.yml").write_text(yaml.safe_dump([play]), encoding="utf-8")
    command = [str(Path(sys.executable).parent / "ansible-playbook"), "-i", "there,gone,", str(tmp_path / "said.yml")]
    command += ["-e", f"gaudi_weights_root={tmp_path}/{{{{ inventory_hostname }}}}"]
    command += ["-e", f"ansible_python_interpreter={sys.executable}", *arguments]
    ran = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return " ".join(ran.stdout.split())


def test_weights_stay_unless_asked_for_and_those_of_others_always_do(tmp_path: Path) -> None:
    for folder in ("Fetched-7B.partial/.gaudi-serving", "Converted-7B/.gaudi-serving", "Theirs-7B"):
        (tmp_path / "there" / folder).mkdir(parents=True)
    (tmp_path / "there/Converted-7B" / CONVERTED).write_text("{}")
    said = uninstall_weights(tmp_path)
    assert "Converted-7B, Fetched-7B.partial, Theirs-7B" in said
    assert "uninstall_weights=true" in said
    assert f"in {tmp_path}/gone" not in said
    said = uninstall_weights(tmp_path, "-e", "uninstall_weights=true")
    assert "Theirs-7B" in said
    assert "Converted-7B," not in said
    assert [path.name for path in (tmp_path / "there").iterdir()] == ["Theirs-7B"]


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


def test_a_node_has_no_more_instances_removed_than_a_node_has_and_each_by_a_valid_name() -> None:
    (play,) = yaml.safe_load((ROOT / "playbooks/uninstall.yml").read_text(encoding="utf-8"))
    (task,) = [task for task in play["tasks"] if task.get("vars", {}).get("vllm_service_instance")]
    reported = ["chat", "../etc", "x" * 49, 7, None, *(f"more-{number}" for number in range(5000))]
    found = {"instances": [{"instance": name} for name in reported]}
    named = evaluate("vllm_service", task["loop"], uninstall_found=found)
    assert named[:2] == ["chat", "more-0"]
    assert len(named) <= 1024
