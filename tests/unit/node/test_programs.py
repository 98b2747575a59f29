"""What a supervisor runs with: its program, its library and its unit."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible.module_utils.gaudi.node import programs

ARGUMENTS = ["/usr/bin/python3", "-s", "-E", "vllm_supervisor.py", "run", "tiny", "--attempts", "5"]
EXEC_START = (
    "ExecStart={ path=/usr/bin/python3 ; argv[]=/usr/bin/python3 -s -E vllm_supervisor.py run tiny --attempts 5 ;"
    " ignore_errors=no ; start_time=[n/a] ; stop_time=[n/a] ; pid=0 ; code=(null) ; status=0/0 }\n"
)


@pytest.mark.parametrize(
    ("shown", "arguments", "runs"),
    [
        (f"NeedDaemonReload=no\n{EXEC_START}", ARGUMENTS, True),
        # The unit was written, and systemd has not read it.
        (f"NeedDaemonReload=yes\n{EXEC_START}", ARGUMENTS, False),
        # A predecessor became this process, with the arguments it had.
        (f"NeedDaemonReload=no\n{EXEC_START}", [*ARGUMENTS[:-1], "4"], False),
        ("", ARGUMENTS, False),
    ],
)
def test_a_process_runs_as_its_unit_says(shown: str, arguments: list[str], runs: bool) -> None:
    assert programs.runs_as(shown, arguments) is runs


def test_drop_ins_belong_to_a_unit(tmp_path: Path) -> None:
    unit, drop_in = tmp_path / "vllm-tiny.service", tmp_path / "own.conf"
    unit.write_text("[Service]\n")
    drop_in.write_text("[Service]\nNice=5\n")
    alone = programs.unit_digest(f"FragmentPath={unit}\nDropInPaths=\n")
    both = programs.unit_digest(f"FragmentPath={unit}\nDropInPaths={drop_in}\n")
    drop_in.write_text("[Service]\nNice=6\n")
    changed = programs.unit_digest(f"FragmentPath={unit}\nDropInPaths={drop_in}\n")
    assert len({alone, both, changed, ""}) == 4
    assert programs.unit_digest("FragmentPath=\nDropInPaths=\n") == programs.unit_digest("") == ""


@pytest.mark.parametrize("name", ["vllm_supervisor.py", "gaudi_supervisor/run.py", "gaudi_supervisor/new.py"])
def test_every_file_of_the_program_counts(tmp_path: Path, name: str) -> None:
    (tmp_path / "gaudi_supervisor").mkdir()
    for file in ("vllm_supervisor.py", "gaudi_supervisor/run.py"):
        (tmp_path / file).write_text("one\n")
    before = programs.supervisor_digest(tmp_path)
    (tmp_path / name).write_text("two\n")
    assert programs.supervisor_digest(tmp_path) != before


def test_the_library_is_what_it_holds(tmp_path: Path) -> None:
    for name in ("library-one", "library-two"):
        (tmp_path / name / "gaudi/base").mkdir(parents=True)
        (tmp_path / name / "gaudi/base/units.py").write_text("GIB = 1\n")
    one, two = (programs.library_digest(tmp_path / name / "gaudi") for name in ("library-one", "library-two"))
    (tmp_path / "library-two/gaudi/base/units.py").write_text("GIB = 2\n")
    assert one == two != programs.library_digest(tmp_path / "library-two/gaudi")
