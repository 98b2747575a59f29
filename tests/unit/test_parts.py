"""make test runs parts side by side: none needs another one's result, and none disturbs another."""

from __future__ import annotations

import json
import re
import threading
from pathlib import Path

import pytest
import yaml

from simulator import apt
from tests import parts
from tests.parts import DURATIONS, IMAGES, MORE, ROOT, SYSTEM, TEST, SuitePart, next_part, ordered, run, scenario

PLAIN, OTHER = SuitePart("plain", ()), SuitePart("other", ())
NODES = SuitePart("molecule nodes", (), nodes=True)


def busy() -> float:
    """Cores that are never idle."""
    return 0.0


SCENARIOS = {part.scenario: part for part in (*TEST, *MORE) if part.scenario}


@pytest.mark.parametrize(
    ("waiting", "running", "chosen"),
    [
        ([NODES, PLAIN], [], NODES),
        ([NODES, PLAIN], [IMAGES], PLAIN),
        ([IMAGES, NODES], [], IMAGES),
        ([NODES, IMAGES], [PLAIN], IMAGES),
        ([NODES], [IMAGES], None),
        ([scenario("bare", system="debian12"), PLAIN], [scenario("bare")], PLAIN),
        ([scenario("bare", system="debian12")], [scenario("bare_faults")], scenario("bare", system="debian12")),
        ([], [PLAIN], None),
    ],
)
def test_the_first_part_that_disturbs_nobody_begins(
    waiting: list[SuitePart], running: list[SuitePart], chosen: SuitePart | None
) -> None:
    assert next_part(waiting, running) == chosen


def test_the_images_come_first_then_lint_then_what_is_new_then_the_longest() -> None:
    lint = SuitePart("lint", ())
    assert ordered([PLAIN, OTHER, NODES, lint], {"plain": 1, "molecule:nodes": 2, "lint": 0}) == [
        *(IMAGES, lint, OTHER, NODES, PLAIN)
    ]
    assert ordered([PLAIN], {}) == [PLAIN]


def test_every_part_of_make_test_has_its_seconds() -> None:
    known = json.loads(DURATIONS.read_text(encoding="utf-8"))
    assert {part.argument for part in (IMAGES, *TEST)} <= set(known)
    assert set(known) <= {part.argument for part in (IMAGES, *TEST, *MORE)}


def test_two_run_at_once_and_every_part_has_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    # Each waits for the other: one after the other, neither would end.
    together = threading.Barrier(2, timeout=60)

    def start(part: SuitePart) -> tuple[int, str]:
        together.wait()
        return 0, f"{part.name} passed\n"

    assert run([PLAIN, OTHER], (2, 2), start, busy).failed == []
    assert sorted(capsys.readouterr().out.splitlines()) == ["other passed", "plain passed"]


def test_one_more_runs_where_the_cores_are_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each waits for all three: with two at once they would not end."""
    monkeypatch.setattr(parts, "LOOK", 0.01)
    together = threading.Barrier(3, timeout=60)

    def start(part: SuitePart) -> tuple[int, str]:
        together.wait()
        return 0, f"{part.name}\n"

    ended = run([PLAIN, OTHER, NODES], (2, 3), start, lambda: 0.9)
    assert set(ended.seconds) == {"plain", "other", "molecule:nodes"}


def test_after_a_failure_the_others_run_and_the_logs_come_last(capsys: pytest.CaptureFixture[str]) -> None:
    def start(part: SuitePart) -> tuple[int, str]:
        return int(part is not OTHER), f"{part.name}\nlog of {part.name}\n"

    assert run([PLAIN, OTHER, NODES], (1, 1), start, busy).failed == ["log of plain\n", "log of molecule nodes\n"]
    assert capsys.readouterr().out == "plain\nother\nmolecule nodes\n"


@pytest.mark.parametrize(
    ("failing", "latest", "begun", "left_out"),
    [
        (IMAGES, float("inf"), [IMAGES, PLAIN], "molecule:nodes"),
        (IMAGES, 0.0, [IMAGES], "plain, molecule:nodes"),
        (PLAIN, 0.0, [IMAGES, PLAIN], "molecule:nodes"),
    ],
)
def test_after_a_failure_what_has_no_images_and_what_is_too_late_is_named(
    failing: SuitePart, latest: float, begun: list[SuitePart], left_out: str, capsys: pytest.CaptureFixture[str]
) -> None:
    started = []

    def start(part: SuitePart) -> tuple[int, str]:
        started.append(part)
        return int(part == failing), f"{part.name}\n"

    run([IMAGES, PLAIN, NODES], (1, 1), start, busy, latest)
    assert started == begun
    assert capsys.readouterr().out.splitlines()[-1] == f"  - after a failure not begun: {left_out}"


def test_a_failure_names_its_log(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["parts", "broken"])
    monkeypatch.setattr(parts, "MORE", (SuitePart("broken", ("sh", "-c", "echo why it broke; exit 3")),))
    monkeypatch.delenv("V", raising=False)
    assert parts.main() == 1
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("  ✗ broken ")
    assert said[1:] == ["why it broke", "broken failed with status 3. All it printed: .cache/test/broken.log"]
    Path(ROOT, ".cache/test/broken.log").unlink()


def test_what_failed_is_said_again_at_the_end_of_a_long_log(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["parts", "broken"])
    long = "printf 'fatal: [n]: \\033[31mno card\\033[0m\\n'; seq 300; exit 3"
    monkeypatch.setattr(parts, "MORE", (SuitePart("broken", ("sh", "-c", long)),))
    monkeypatch.delenv("V", raising=False)
    assert parts.main() == 1
    said = capsys.readouterr().out.splitlines()
    assert said[-14:-1] == ["fatal: [n]: no card", *map(str, range(1, 13))]
    Path(ROOT, ".cache/test/broken.log").unlink()


def test_both_systems_run_the_way_from_bare_and_the_whole_site() -> None:
    """make test has one of the two, make test-all the other as well."""
    for name, own, other in (("bare", "debian13", "debian12"), ("default", "debian12", "debian13")):
        assert scenario(name) in TEST
        again = scenario(name, system=other)
        assert again in MORE
        assert f"{SYSTEM}={other}" in again.command
        environment = yaml.safe_load((ROOT / "molecule" / name / "molecule.yml").read_text(encoding="utf-8"))
        chosen = environment["ansible"]["env"].get(SYSTEM, f"${{{SYSTEM}:-{apt.SYSTEM}}}")
        assert chosen == f"${{{SYSTEM}:-{own}}}"


def test_every_scenario_is_a_part() -> None:
    assert sorted(SCENARIOS) == sorted(path.parent.name for path in ROOT.glob("molecule/*/molecule.yml"))


def test_runs_are_cut_off_at_tasks_that_exist() -> None:
    """A task with another name by now is never reached: the run ends whole, minutes later."""
    names = [
        line.split("name:", 1)[1].strip().strip("\"'")
        for path in ROOT.glob("roles/*/tasks/*.yml")
        for line in path.read_text(encoding="utf-8").splitlines()
        if line.lstrip().startswith("- name:")
    ]
    files = sorted(ROOT.glob("molecule/**/*.yml"))
    text = "\n".join(path.read_text(encoding="utf-8") for path in files)
    wanted = re.findall(r"^ +KILL_AT: ([^\"\n]+)$", text, re.MULTILINE)
    (play,) = yaml.safe_load((ROOT / "molecule/interrupted/two_places.yml").read_text(encoding="utf-8"))
    wanted += play["vars"]["places"]
    assert len(wanted) > 5
    assert [name for name in wanted if not any(task.endswith(name) for task in names)] == []


def test_one_scenario_sets_the_settings_of_this_machine() -> None:
    """Two of them would take what the other one sets for a change of their own nodes."""
    creates = ROOT.glob("molecule/*/*.yml")
    assert {path.parent.name for path in creates if "--machine-settings" in path.read_text()} == {"host_tuning"}


def test_the_scenarios_of_make_test_have_a_word_for_all_of_them(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The Makefile repeated their names."""
    begun: list[str] = []

    def start(part: SuitePart) -> tuple[int, str]:
        begun.append(part.argument)
        return 0, f"{part.name}\n"

    monkeypatch.setattr("sys.argv", ["parts", "--molecule", "torch"])
    monkeypatch.setattr(parts, "start", start)
    monkeypatch.delenv("V", raising=False)
    assert parts.main() == 0
    scenarios = [part.argument for part in TEST if part.name.startswith("molecule ")]
    assert sorted(begun) == sorted(["images", *scenarios, "torch"])
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert "tests.parts --molecule torch\n" in makefile
    assert "molecule:" not in makefile.replace("\nmolecule: venv", "")


def playbooks_of(file: Path) -> set[Path]:
    """The playbook of each step of a scenario; of ${NAME:-DEFAULT} the default."""
    scenario = yaml.safe_load(re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", file.read_text()))
    common = yaml.safe_load((ROOT / ".config/molecule/config.yml").read_text())
    placed = {**common["ansible"]["playbooks"], **scenario.get("ansible", {}).get("playbooks", {})}
    steps = [step.split() for step in scenario["scenario"]["test_sequence"] if step != "idempotence"]
    own = {placed.get(action, f"{action}.yml") for action, *_ in steps}
    return {file.parent / name for name in own.union(words[-1] for words in steps if len(words) > 1)}


def test_every_step_of_a_scenario_has_its_playbook() -> None:
    """Where there is none, or none of the step's own name, Molecule runs nothing and calls the scenario successful."""
    files = ROOT.glob("molecule/*/molecule.yml")
    missing = [str(path) for file in files for path in playbooks_of(file) if not path.is_file()]
    assert not missing


def test_the_way_back_of_the_virtual_machine_has_its_playbook() -> None:
    (again,) = (part for part in MORE if part.name == "molecule vm untune")
    last = [word.partition("=")[2] for word in again.command if word.startswith("GAUDI_VM_LAST=")]
    assert [(ROOT / "molecule/vm" / name).is_file() for name in last] == [True]
    assert "${GAUDI_VM_LAST:-" in (ROOT / "molecule/vm/molecule.yml").read_text()


def test_no_scenario_shadows_a_file_of_a_role() -> None:
    """Ansible looks for a role's import_tasks beside the playbook as well, and may find the scenario's file first."""
    scenarios = {file.name for file in (ROOT / "molecule").glob("*/tasks/*.yml")}
    roles = {file.name for file in (ROOT / "roles").glob("*/tasks/*.yml")}
    assert scenarios & roles == set()
