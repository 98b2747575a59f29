"""Paths of ours on a node: the table against what the code says of them."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from ansible.module_utils.gaudi.base import owned_paths, paths

from tests.unit.preflight.test_contracts import load

ROOT = Path(__file__).resolve().parents[3]
TABLE = {owned.path: owned for owned in owned_paths.TABLE}
ROLES = sorted(path.name for path in (ROOT / "roles").iterdir() if path.is_dir())
SOURCES = sorted(
    path
    for pattern in (
        *("library/*.py", "module_utils/gaudi/**/*.py", "action_plugins/*.py", "roles/*/files/**/*"),
        *("roles/*/templates/*", "roles/*/tasks/*.yml", "roles/*/vars/*.yml", "roles/*/defaults/*.yml"),
    )
    for path in ROOT.glob(pattern)
    if path.is_file() and path.suffix != ".pyc"
)
_LITERAL = re.compile(rf"(?:{'|'.join(paths.ROOTS)})(?![\w-]|\.\w)(?:/[\w.<>*@-]+)*")
_EXPRESSION = re.compile(r"\{\{.*?\}\}|\{[\w.]+\}", re.DOTALL)
# How pages and comments write a name that stands for many.
_ANY = re.compile(r"(?<=/)(?:[A-Z]+|<\w+>)(?=/|$|\.)")


class MadePath(NamedTuple):
    """A path that a task of a role makes."""

    role: str
    path: str
    mode: str


def general(path: str) -> str:
    """A path with "*" for every name that is worked out."""
    return _ANY.sub("*", _EXPRESSION.sub("*", path)).rstrip("./")


def literals(text: str) -> set[str]:
    """The paths of ours that a text names."""
    return {general(found) for found in _LITERAL.findall(_EXPRESSION.sub("*", text))}


def variables(role: str) -> dict[str, str]:
    """The role's variables that hold a path of ours, those in a mapping too."""
    file = ROOT / "roles" / role / "vars/main.yml"
    known: dict[str, str] = {}
    for name, value in (load(file) if file.is_file() else {}).items():
        entries = value.items() if isinstance(value, dict) else [("", value)]
        known |= {f"{name}.{key}".rstrip("."): text for key, text in entries if isinstance(text, str)}
    return known


def resolved(text: str, known: Mapping[str, str], item: Any = None) -> str:
    """A text of a task with the role's variables and the loop's item put in."""
    for _ in range(3):
        text = re.sub(r"\{\{\s*([\w.]+)\s*\}\}", lambda found: known.get(found[1], found[0]), text)
        text = re.sub(
            r"\{\{\s*([\w.]+) \| (dirname|splitext \| first)\s*\}\}",
            lambda found: (
                known[found[1]].rpartition("/" if found[2] == "dirname" else ".")[0] if found[1] in known else found[0]
            ),
            text,
        )
    if isinstance(item, dict):
        text = re.sub(r"\{\{\s*item\.(\w+)\s*\}\}", lambda found: str(item.get(found[1], found[0])), text)
    elif isinstance(item, str):
        text = text.replace("{{ item }}", item).replace("{{ item | basename }}", item.rpartition("/")[2])
    # What a loop's items bring is resolved, too.
    return resolved(text, known) if item is not None else text


def tasks(entries: Any) -> Iterator[dict[str, Any]]:
    """Every task, those in blocks too."""
    for entry in entries or []:
        yield entry
        for part in ("block", "rescue", "always"):
            yield from tasks(entry.get(part))


def mappings(value: Any) -> Iterator[dict[str, Any]]:
    """Every mapping in what a task says: its options, and the files that some modules take a list of."""
    if isinstance(value, dict):
        yield value
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from mappings(inner)


def written(role: str) -> Iterator[tuple[dict[str, Any], Any]]:
    """Options that may write a file, with the item of the loop they are in: of the role's tasks and its variables."""
    folder = ROOT / "roles" / role
    for file in sorted((folder / "tasks").glob("*.yml")):
        for task in tasks(load(file)):
            loop = task.get("loop")
            for item in loop if isinstance(loop, list) else [None]:
                for options in mappings({name: value for name, value in task.items() if name != "loop"}):
                    yield options, item
    for file in (folder / "vars").glob("main.yml"):
        yield from ((options, None) for options in mappings(load(file)))


@functools.cache
def made(role: str) -> tuple[MadePath, ...]:
    """What a role writes or makes, with the mode it gives."""
    return tuple(made_by(role))


def made_by(role: str) -> Iterator[MadePath]:
    known = variables(role)
    for options, item in written(role):
        path = resolved(str(options.get("dest") or options.get("path") or ""), known, item)
        if path.startswith(paths.ROOTS) and "mode" in options:
            mode = resolved(str(options["mode"]), known, item)
            # One that depends on something names the mode it has where it is not left as it is.
            yield MadePath(role, general(path), next(iter(re.findall(r"\b0\d{3}\b", mode)), mode))


def rows_of(role: str, path: str) -> list[owned_paths.OwnedPath]:
    """What a path stands for whose last name comes from a loop that only a run can work out."""
    folder, _, name = path.rpartition("/")
    below = [owned for owned in owned_paths.TABLE if owned.path.rpartition("/")[0] == folder and owned.owner == role]
    return below if name == "*" else []


def test_every_path_in_the_code_is_in_the_table() -> None:
    assert not [
        f"{source.relative_to(ROOT)}: {path}"
        for source in SOURCES
        for path in sorted(literals(source.read_text(encoding="utf-8")) - set(TABLE))
    ]


def differing(found: MadePath) -> Iterator[str]:
    """How what a role makes differs from the table."""
    rows = [TABLE[found.path]] if found.path in TABLE else rows_of(found.role, found.path)
    if not rows:
        yield f"{found.path}, which {found.role} makes, has no owner"
    for owned in rows:
        if found.role not in (owned.owner, *owned.ensured_by):
            yield f"{found.role} makes {owned.path}, which is of {owned.owner}"
        if found.mode != owned.mode:
            yield f"{found.role} gives {owned.path} the mode {found.mode}, not {owned.mode}"


def test_who_makes_a_path_and_its_mode_are_the_tables() -> None:
    assert not [fault for role in ROLES for found in made(role) for fault in differing(found)]


def test_the_tasks_are_read_as_they_are_meant() -> None:
    everything = {found for role in ROLES for found in made(role)}
    assert MadePath("host_tuning", f"{paths.PROGRAMS}/host_tuning.py", "0755") in everything
    assert MadePath("weights_supply", f"{paths.CONFIGURATION}/weights/peer.password", "0600") in everything
    assert MadePath("fp8_calibration", f"{paths.PROGRAMS}/calibrate.py", "0644") in everything
    assert MadePath("fp8_calibration", f"{paths.STATE}/calibrations", "0700") in everything
    assert MadePath("node_job", paths.JOBS, "0700") in everything
    assert len(everything) >= 30


def imported(role: str) -> set[str]:
    """The role, and the roles whose tasks it has done."""
    everything = [task for file in (ROOT / "roles" / role / "tasks").glob("*.yml")
                  for task in tasks(load(file))]  # fmt: skip
    return {role} | {task["ansible.builtin.import_role"]["name"] for task in everything
                     if "ansible.builtin.import_role" in task}  # fmt: skip


def test_a_directory_is_not_made_on_the_way_to_a_closed_one() -> None:
    """It would get the rights of that one, and other programs could not read what lies beside it."""
    folders = {owned.path.rpartition("/")[0] for owned in owned_paths.TABLE}
    offenders = []
    for role in ROLES:
        here = {found.path for name in imported(role) for found in made(name)}
        for found in made(role):
            above = TABLE.get(found.path.rpartition("/")[0])
            if found.path in folders and above and above.mode != found.mode and above.path not in here:
                offenders.append(f"{role} makes {found.path}, but not {above.path} before it")
    assert not offenders


def test_a_path_in_a_text_is_found() -> None:
    said = (
        "/etc/gaudi-serving/instances/{{ name }}/plan.json, f'/var/lib/gaudi-serving/jobs/{key}', /etc/gaudi-serving."
    )
    assert literals(said) == {f"{paths.INSTANCES}/*/plan.json", f"{paths.JOBS}/*", paths.CONFIGURATION}
    assert literals("/var/lib/gaudi-serving-others/x and /run/gaudi-serving/y") == set()


def test_each_path_has_one_owner_who_is_there() -> None:
    assert len(TABLE) == len(owned_paths.TABLE)
    programs = {path.name for path in ROOT.glob("roles/*/files/*.py")}
    modules = {path.stem for path in ROOT.glob("library/*.py")}
    for owned in owned_paths.TABLE:
        assert {owned.owner, *owned.ensured_by} <= {*ROLES, *programs, *modules, "long_work"}, owned
        assert owned.path.startswith(paths.ROOTS), owned
        assert re.fullmatch(r"0[0-7]{3}", owned.mode), owned


def test_what_lies_in_a_directory_has_that_directory_in_the_table() -> None:
    assert {owned.path.rpartition("/")[0] for owned in owned_paths.TABLE if owned.path not in paths.ROOTS} <= set(TABLE)


def tree(*changes: tuple[str, str, str]) -> list[owned_paths.ObservedPath]:
    """A node's tree that is as the table says, but for these (path, user, mode)."""
    seen = {owned.path.replace("*", "x"): ("root:root", owned.mode) for owned in owned_paths.TABLE}
    seen |= {path: (user, mode) for path, user, mode in changes}
    return [owned_paths.ObservedPath(path, *rights) for path, rights in seen.items()]


def test_a_tree_as_the_table_says_has_no_faults() -> None:
    below = (f"{paths.PROGRAMS}/library-12ab/gaudi/base/units.py", f"{paths.PROGRAMS}/hub-venv/bin/python")
    compiled = (f"{paths.PROGRAMS}/gaudi_fp8/__pycache__", f"{paths.PROGRAMS}/gaudi_fp8/__pycache__/e4m3.pyc")
    assert owned_paths.faults(tree(*((path, "root:root", "0640") for path in (*below, *compiled)))) == []


def test_what_a_kill_leaves_for_the_next_write_is_no_fault() -> None:
    names = ("calibrate.py.writing", "incomplete-x1", "incomplete-x1/library/gaudi/one.py")
    left = (*(f"{paths.PROGRAMS}/{name}" for name in names), f"{paths.JOBS}/x/progress.json.writing")
    assert owned_paths.faults(tree(*((path, "root:root", "0600") for path in left))) == []


@pytest.mark.parametrize(
    ("path", "user", "mode", "said"),
    [
        (f"{paths.INSTANCE_STATES}/x/.state.json.new", "root:root", "0600", "has no owner."),
        (f"{paths.PROGRAMS}/left.py", "root:root", "0644", "has no owner."),
        (f"{paths.PROGRAMS}/vllm_plan.py", "root:root", "0644", "has no owner."),
        (f"{paths.JOBS}/fetch.x/core", "root:root", "0600", "has no owner."),
        (f"{paths.INSTANCES}/tiny/guard/keys.json", "root:root", "0644", "of instance_keys is root:root 0644, not"),
        (f"{paths.PROGRAMS}/calibrate.py", "1000:root", "0644", "of fp8_calibration is 1000:root 0644, not"),
        (f"{paths.PROGRAMS}/gaudi", "root:root", "0700", "of node_files is root:root 0700, not root:root 0755."),
        # The row that says most counts.
        (f"{paths.PROGRAMS}/gaudi_fp8/block", "root:root", "0644", "of fp8_weights is root:root 0644, not"),
    ],
)  # fmt: skip
def test_what_is_not_as_the_table_says_is_named(path: str, user: str, mode: str, said: str) -> None:
    (fault,) = owned_paths.faults(tree((path, user, mode)))
    assert fault.startswith(f"{path} {said}")
