"""The job of a calibration against a docker and an hl-smi of our own: what is kept, refused, checked, published."""

from __future__ import annotations

import hashlib
import io
import itertools
import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import calibrate
import pytest
from gaudi.base.refusal import Refusal
from gaudi.node.weights import measurements

from tests import compiled
from tests.unit.node.damages import FOR_PROGRAMS, damage

PROGRAM = Path(calibrate.__file__)
# On a node it lies in a folder beside the program.
TAKING = PROGRAM.parents[2] / "model_weights" / "files"
CARDS = 2
CONFIGURATION = "maxabs_quant_g2.json"
NAMES = [f"m_hooks_maxabs_{rank}_{CARDS}{end}" for rank in range(CARDS) for end in (".json", ".npz", "_mod_list.json")]

# An array of one number, as numpy writes it.
HEADER = b"{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }".ljust(117) + b"\n"
ARRAY = b"\x93NUMPY\x01\x00" + len(HEADER).to_bytes(2, "little") + HEADER + bytes(4)


class CommandPickle:
    """Does something when it is read."""

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.system, ("id",)


def evil() -> bytes:
    """An archive of arrays that runs something when numpy reads it."""
    header = HEADER.replace(b"'<f4'", b"'|O' ")
    array = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + pickle.dumps(CommandPickle())
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("arr_0.npy", array)
    return content.getvalue()


# A docker that does what its orders say: the mount named "partial" is where a tool would write.
DOCKER = """#!{python}
import contextlib, io, json, os, signal, sys, time, zipfile
from pathlib import Path
home = Path({home!r})
with (home / "docker.log").open("a") as log:
    log.write(json.dumps(sys.argv[1:]) + "\\n")
running = home / "running"
if sys.argv[1] == "ps":
    if (home / "left_over").exists():
        print((home / "left_over").read_text())
    sys.exit(0)
if sys.argv[1] != "run":
    if running.exists():
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(running.read_text()), signal.SIGKILL)
    sys.exit(0)
running.write_text(str(os.getpid()))
(home / "variables").write_text(Path(sys.argv[sys.argv.index("--env-file") + 1]).read_text())
orders = json.loads((home / "orders.json").read_text())
target = next(Path(w.split("source=")[1].split(",")[0]) for w in sys.argv if "partial" in w)
print("loading the model", flush=True)
for number in range(1, 5):
    print(f"\\rProcessed prompts:  25%|#    | {{number}}/4 [00:01]", end="", flush=True)
    if orders.get("hang_at") == number:
        (home / "hanging").touch()
        time.sleep(60)
print()
for name in orders["writes"]:
    path = target / name
    if name.endswith(".npz"):
        content = io.BytesIO()
        with zipfile.ZipFile(content, "w") as archive:
            archive.writestr("a.npy", {array!r})
        path.write_bytes(content.getvalue())
    else:
        path.write_text("{{}}")
for name, text in orders.get("damaged", {{}}).items():
    (target / name).write_text(text)
for name, leads in orders.get("copies", {{}}).items():
    (target / name).write_bytes(Path(leads).read_bytes())
for name, leads in orders.get("links", {{}}).items():
    (target / name).unlink(missing_ok=True)
    (target / name).parent.mkdir(exist_ok=True)
    (target / name).symlink_to(leads)
(home / "mode_above").write_text(f"{{target.parent.stat().st_mode & 0o777:o}}")
for name, mode in orders.get("modes", {{}}).items():
    (target / name).chmod(mode)
for name in orders.get("pipes", []):
    (target / name).unlink(missing_ok=True)
    os.mkfifo(target / name)
if orders.get("says"):
    print(orders["says"])
sys.exit(orders.get("status", 0))
"""
HL_SMI = "#!/bin/sh\nprintf '5, 0, S0\\n3, 1, S1\\n'\n"


class CalibrationNode:
    """A place with a model, a data set, and stand-ins for docker and hl-smi."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.target = home / "measurements"
        (home / "bin").mkdir()
        for name, text in (
            ("docker", DOCKER.format(python=sys.executable, home=str(home), array=ARRAY)),
            ("hl-smi", HL_SMI),
        ):
            (home / "bin" / name).write_text(text)
            (home / "bin" / name).chmod(0o755)
        weights = home / "weights"
        weights.mkdir()
        (weights / "config.json").write_text("{}")
        (weights / "model.safetensors").write_bytes(b"x")
        (home / "dataset").mkdir()
        (home / "dataset" / "data.parquet").write_bytes(b"x")
        self.document: dict[str, Any] = {
            "schema": 1,
            "model": "m",
            "release": "deepseek-r1",
            "image": "vault/image:1",
            "tool": "run_example_tp.py",
            "prompts": 4,
            "dataset": str(home / "dataset"),
            "tensor_parallel_size": CARDS,
            "weights": str(weights),
            "modules": [{"module_id": 0, "serial": "S0"}, {"module_id": 1, "serial": "S1"}],
            "target": str(self.target),
            "expected": NAMES,
            "written": [],
            "dump_stats_path": "/in/container/m",
            "files": {".gaudi-serving/measure.json": "{}\n"},
            "guarded": [],
            "pins": [],
            "environment": {"QUANT_CONFIG": "/x", "HABANA_VISIBLE_DEVICES": "ALL"},
            "container": {
                "name": "gaudi-calibrate-m",
                "runtime": "habana",
                "capabilities": ["SYS_NICE"],
                "ulimits": {"nofile": 1024},
                "ipc": "private",
                "shm_mib": 2048,
                "pids": 512,
                "network": "host",
                "read_only": True,
                "tmpfs": [{"path": "/scratch", "size_mib": 64, "mode": "1777"}],
                "working_directory": "/scratch",
                "mounts": [
                    {"source": f"{self.target}.partial/measured", "target": "/in/container", "read_only": False}
                ],
            },
            "command": ["python3", "/opt/x.py"],
        }
        self.orders(writes=NAMES)

    def orders(self, **orders: Any) -> None:
        (self.home / "orders.json").write_text(json.dumps(orders))

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        (self.home / "document.json").write_text(json.dumps(self.document))
        environment = {
            "PATH": f"{self.home}/bin:{os.environ['PATH']}",
            "PYTHONPATH": os.pathsep.join([str(TAKING), *sys.path]),
            "GAUDI_JOB_PROGRESS": str(self.home / "progress.json"),
            "GAUDI_JOB_RESULT": str(self.home / "result.json"),
            **compiled.SETTINGS,
        }
        command = [sys.executable, str(PROGRAM), str(self.home / "document.json"), *arguments]
        return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def run(self, *arguments: str) -> tuple[int, str]:
        work = self.start(*arguments)
        said, _ = work.communicate(timeout=300)
        return work.returncode, said

    def refused(self, *arguments: str) -> str:
        status, said = self.run(*arguments)
        assert status == 1, said
        last = said.rstrip().splitlines()[-1]
        assert last.startswith("calibrate: "), said
        return last

    def docker(self) -> list[list[str]]:
        log = self.home / "docker.log"
        return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []

    def runs(self) -> list[list[str]]:
        return [words for words in self.docker() if words[0] == "run"]

    def kept(self) -> list[Path]:
        return sorted(self.home.glob("measurements.until-*"))


@pytest.fixture
def node(tmp_path: Path) -> CalibrationNode:
    return CalibrationNode(tmp_path)


@pytest.fixture
def old(node: CalibrationNode) -> CalibrationNode:
    """A node that somebody measured by hand before."""
    node.target.mkdir()
    (node.target / "old.json").write_text("hours of work")
    return node


# --- the way it goes ---------------------------------------------------------------------------------------


def test_measurements_appear_with_their_record(node: CalibrationNode) -> None:
    status, said = node.run()
    assert status == 0, said
    assert sorted(p.name for p in node.target.iterdir() if p.name != ".gaudi-serving") == sorted(NAMES)
    record = json.loads((node.target / ".gaudi-serving" / "calibration.json").read_text())
    assert sorted(record["measurements"]) == sorted(NAMES)
    assert record["measurements"][NAMES[0]]["bytes"] == 2
    assert (record["tensor_parallel_size"], record["prompts"], record["validated_on_hardware"]) == (2, 4, False)
    assert json.loads((node.home / "result.json").read_text()) == {
        "target": str(node.target), "files": 6, "kept": None,
    }  # fmt: skip
    assert not Path(f"{node.target}.partial").exists()


def test_the_container_gets_device_numbers_of_the_cards_and_the_confinement(node: CalibrationNode) -> None:
    assert node.run()[0] == 0
    (words,) = node.runs()
    # Modules 0 and 1 are devices 5 and 3 on this node; what the plan said of devices is not passed on.
    assert [w for w in words if w.startswith("HABANA_VISIBLE_DEVICES")] == ["HABANA_VISIBLE_DEVICES=3,5"]
    assert "--read-only" in words
    assert words[words.index("--cap-drop") + 1] == "ALL"
    limits = [after for before, after in itertools.pairwise(words) if before == "--ulimit"]
    assert limits == ["core=0:0", "nofile=1024:1024"]
    assert "no-new-privileges" in words
    assert words[-5:] == ["--entrypoint", "", "vault/image:1", "python3", "/opt/x.py"]


@pytest.mark.parametrize("left", [[], ["c" * 64]])
def test_a_container_that_a_killed_run_left_is_removed_and_nobody_elses(node: CalibrationNode, left: list[str]) -> None:
    (node.home / "left_over").write_text("\n".join(left))
    assert node.run()[0] == 0
    listing, *rest = node.docker()
    assert listing[0] == "ps"
    filters = [word for before, word in itertools.pairwise(listing) if before == "--filter"]
    assert filters == ["name=^/gaudi-calibrate-m$", "label=gaudi-serving.calibration"]
    assert [words for words in rest if words[0] == "rm"] == [["rm", "--force", "--volumes", *left]] * bool(left)


def test_progress_counts_prompts(node: CalibrationNode) -> None:
    assert node.run()[0] == 0
    progress = json.loads((node.home / "progress.json").read_text())
    assert (progress["phase"], progress["done"], progress["total"], progress["unit"]) == ("measure", 4, 4, "prompts")


def test_a_second_run_measures_nothing(node: CalibrationNode) -> None:
    assert node.run()[0] == 0
    status, said = node.run()
    assert (status, len(node.runs())) == (0, 1)
    assert "nothing to do" in said


@pytest.mark.parametrize("change", ["prompts", "weights", "again"])
def test_other_prompts_other_weights_or_a_wish_measure_again_and_keep_the_earlier_ones(
    node: CalibrationNode, change: str
) -> None:
    assert node.run()[0] == 0
    first = (node.target / NAMES[0]).stat().st_ino
    if change == "prompts":
        node.document["prompts"] = 5
    elif change == "weights":
        (node.home / "weights" / ".gaudi-serving").mkdir()
        (node.home / "weights" / ".gaudi-serving" / "fp8.json").write_text("{}")
    assert node.run(*["--again"] if change == "again" else [])[0] == 0
    (kept,) = node.kept()
    assert (kept / NAMES[0]).stat().st_ino == first
    assert (node.target / NAMES[0]).stat().st_ino != first
    assert json.loads((node.home / "result.json").read_text())["kept"] == str(kept)


def test_measurements_of_somebody_else_are_kept_under_a_dated_name(old: CalibrationNode) -> None:
    assert old.run()[0] == 0
    (kept,) = old.kept()
    assert (kept / "old.json").read_text() == "hours of work"
    assert (old.target / NAMES[0]).exists()


def test_dated_names_do_not_meet(tmp_path: Path) -> None:
    now = datetime(2026, 1, 31, 8, 0, 0, tzinfo=UTC)
    first = calibrate.dated(tmp_path / "m", now)
    assert first.name == "m.until-20260131T080000Z"
    first.mkdir()
    assert calibrate.dated(tmp_path / "m", now).name == "m.until-20260131T080000Z.2"


def test_variables_of_the_tool_are_in_no_argument(node: CalibrationNode) -> None:
    node.document["environment"]["HTTPS_PROXY"] = "http://bob:hunter2@proxy.example:3128"
    assert node.run()[0] == 0
    assert "hunter2" not in json.dumps(node.docker())
    variables = (node.home / "variables").read_text().splitlines()
    assert variables == ["HTTPS_PROXY=http://bob:hunter2@proxy.example:3128", "QUANT_CONFIG=/x"]


def test_a_bar_with_figures_without_end_ends_nothing(node: CalibrationNode) -> None:
    node.orders(writes=NAMES, says=f"prompts: 1%|#| 1/{'9' * 5000}")
    status, said = node.run()
    assert status == 0, said


def test_the_container_ends_with_whatever_ends_the_work(node: CalibrationNode, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_progress: object, _line: str) -> None:
        raise RuntimeError("no room")

    monkeypatch.setenv("PATH", f"{node.home}/bin:{os.environ['PATH']}")
    monkeypatch.setattr(calibrate.CalibrationProgress, "read", broken)
    with pytest.raises(RuntimeError, match="no room"):
        calibrate.run_tool(node.document, [0, 1])
    assert ["stop", "--time", "20", "gaudi-calibrate-m"] in node.docker()


# --- what goes wrong ---------------------------------------------------------------------------------------


TOOL = "/opt/vllm/scripts/run_example_tp.py"


@pytest.mark.parametrize(
    ("orders", "said"),
    [
        ({"writes": NAMES, "status": 1, "says": "boom"}, "run_example_tp.py ended with status 1: its last words"),
        ({"writes": [], "status": 1, "says": "synStatus=20 [Device already acquired]"}, "held by another process"),
        ({"writes": [], "status": 1, "says": "OSError: No space left on device"}, "[disk-full]"),
        (
            {"writes": [], "status": 1, "says": "Couldn't reach 'NeelNanda/pile-10k' on the Hub"},
            "fp8_calibration_dataset",
        ),
        ({"writes": [], "status": 2, "says": f"python3: can't open file '{TOOL}'"}, "[calibration-tool-missing]"),
        ({"writes": [], "status": 125, "says": "Unable to find image"}, "[image-missing]"),
        ({"writes": NAMES[:-1]}, "1 of 6 measurement files are missing or empty, first m_hooks_maxabs_1_2_mod_list"),
        ({"writes": []}, "6 of 6 measurement files are missing"),
        ({"writes": NAMES, "damaged": {NAMES[1]: ""}}, "1 of 6 measurement files are missing or empty"),
        ({"writes": NAMES, "damaged": {NAMES[0]: "{"}}, "cannot be read"),
        ({"writes": NAMES, "damaged": {NAMES[1]: "no archive"}}, "does not begin as an archive"),
    ],
)
def test_a_tool_that_fails_or_ends_well_with_too_little_leaves_the_old_ones(
    old: CalibrationNode, orders: dict[str, Any], said: str
) -> None:
    old.orders(**orders)
    assert said in old.refused()
    assert (old.target / "old.json").read_text() == "hours of work"
    assert not old.kept()
    # And the next run, with a tool that works, is not held up by what was left.
    old.orders(writes=NAMES)
    assert old.run()[0] == 0


def test_the_servers_configuration_has_to_point_to_where_the_measurements_are(node: CalibrationNode) -> None:
    node.document["written"] = ["maxabs_quant_g2.json"]
    assert "maxabs_quant_g2.json is missing" in node.refused()
    node.orders(writes=NAMES, damaged={"maxabs_quant_g2.json": '{"dump_stats_path": "/else/where"}'})
    assert "at /else/where, but the server has them at /in/container/m" in node.refused()
    node.orders(writes=NAMES, damaged={"maxabs_quant_g2.json": '{"dump_stats_path": "/in/container/m"}'})
    assert node.run()[0] == 0


def test_a_missing_data_set_is_refused_before_anything_is_run(old: CalibrationNode) -> None:
    (old.home / "dataset" / "data.parquet").unlink()
    assert "is an empty folder" in old.refused()
    (old.home / "dataset").rmdir()
    assert "is not there; put it on the node" in old.refused()
    assert not old.runs()


def test_missing_weights_are_refused_before_anything_is_run(node: CalibrationNode) -> None:
    (node.home / "weights" / "model.safetensors").unlink()
    assert "holds no weights" in node.refused()
    assert not node.runs()


@pytest.mark.parametrize(
    ("card", "id_", "says"),
    [
        ({"module_id": 1, "serial": "S9"}, "serial_changed", "cards were exchanged"),
        ({"module_id": 2, "serial": "S1"}, "no_such_module", "The card of module 2 (serial S1) is not there"),
    ],
)
def test_another_card_in_the_slot_and_none_are_refused(
    node: CalibrationNode, card: dict[str, object], id_: str, says: str
) -> None:
    node.document["modules"][1] = card
    assert says in node.refused()
    assert json.loads((node.home / "result.json").read_text())["refused_id"] == id_
    assert not node.runs()


def test_cards_that_cannot_be_asked_are_refused_with_what_their_tool_said(node: CalibrationNode) -> None:
    (node.home / "bin" / "hl-smi").write_text("#!/bin/sh\necho 'no driver is loaded' >&2\nexit 9\n")
    assert "hl-smi failed with status 9: no driver is loaded" in node.refused()
    assert not node.runs()


def test_a_file_where_measurements_would_go_is_refused(node: CalibrationNode) -> None:
    node.target.write_text("mine")
    assert f"{node.target} is no folder; move it away" in node.refused()
    assert node.target.read_text() == "mine"


def test_too_little_room_is_refused_before_anything_is_run(
    node: CalibrationNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.statvfs(node.home)
    monkeypatch.setattr(os, "statvfs", lambda _path: os.statvfs_result((*real[:3], 1, 1, *real[5:])))
    with pytest.raises(Refusal, match=r"2\.0 GB are needed"):
        calibrate.check_before(node.document, node.target)


def test_a_folder_of_somebody_else_in_the_way_is_not_touched(node: CalibrationNode) -> None:
    partial = Path(f"{node.target}.partial")
    partial.mkdir()
    (partial / "mine").write_text("mine")
    assert "was not made by this program" in node.refused()
    assert (partial / "mine").read_text() == "mine"


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_killed_midway_the_old_ones_are_there_and_the_next_run_measures(
    old: CalibrationNode, how: signal.Signals
) -> None:
    old.orders(writes=NAMES, hang_at=2)
    work = old.start()
    deadline = time.monotonic() + 300
    while not (old.home / "hanging").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    work.send_signal(how)
    assert work.wait(timeout=300) == (130 if how == signal.SIGTERM else -signal.SIGKILL)
    if how == signal.SIGTERM:
        said = work.stdout.read() if work.stdout else ""
        assert "earlier measurements are where they were" in said
        assert ["stop", "--time", "20", "gaudi-calibrate-m"] in old.docker()
    assert (old.target / "old.json").read_text() == "hours of work"
    assert not old.kept()
    old.orders(writes=NAMES)
    assert old.run()[0] == 0
    (kept,) = old.kept()
    assert (kept / "old.json").exists()


def test_killed_between_the_two_renames_the_new_ones_get_their_name(node: CalibrationNode) -> None:
    assert node.run()[0] == 0
    node.target.rename(f"{node.target}.partial")
    status, said = node.run()
    assert (status, len(node.runs())) == (0, 1)
    assert "nothing to do" in said
    assert (node.target / NAMES[0]).exists()


def test_two_at_a_time_exclude_each_other(node: CalibrationNode) -> None:
    with calibrate.only_one(node.target):
        assert "another measurement into" in node.refused()


@pytest.mark.parametrize("name", ["fp8.json", "manifest.json"])
def test_weights_are_the_same_wherever_and_whenever_they_came(node: CalibrationNode, name: str) -> None:
    record = node.home / "weights" / ".gaudi-serving" / name
    record.parent.mkdir()

    def stands_for(files: object, **more: str) -> str:
        record.write_text(json.dumps({"shards": files, "files": files, **more}))
        return calibrate.digest(node.document)

    assert stands_for(1, fetched="today") == stands_for(1, fetched="before", verified="every byte") != stands_for(2)
    record.write_text("{")
    assert f"the weights' record {record} cannot be read" in node.refused()


# --- a container that wants more ---------------------------------------------------------------------------


@pytest.fixture
def victim(node: CalibrationNode) -> Path:
    """A file of the node that only root may read and write."""
    (node.home / "shadow").write_text("{}")
    return node.home / "shadow"


@pytest.mark.parametrize("name", ["calibration.json.writing", "calibration.json"])
def test_the_record_is_not_written_where_the_container_says(node: CalibrationNode, victim: Path, name: str) -> None:
    node.orders(writes=NAMES, links={f".gaudi-serving/{name}": str(victim)})
    assert node.run()[0] == 0
    assert victim.read_text() == "{}"
    assert json.loads((node.target / ".gaudi-serving" / "calibration.json").read_text())["measurements"]
    assert not [path for path in node.target.rglob("*") if path.is_symlink()]


@pytest.mark.parametrize("name", NAMES[:3])
def test_a_link_for_a_measurement_is_not_read(old: CalibrationNode, victim: Path, name: str) -> None:
    old.orders(writes=NAMES, links={name: str(victim)})
    assert f"first {name}" in old.refused()
    assert (old.target / "old.json").read_text() == "hours of work"


def test_a_linked_folder_of_measurements_is_not_read(node: CalibrationNode) -> None:
    (node.home / "root").mkdir()
    node.document["expected"] = [f"g2/{name}" for name in NAMES]
    for name in NAMES:
        (node.home / "root" / name).write_text("{}")
    node.orders(writes=[], links={"g2": str(node.home / "root")})
    assert "6 of 6 measurement files are missing" in node.refused()
    assert len(list((node.home / "root").iterdir())) == 6


@pytest.mark.parametrize("name", [NAMES[0], NAMES[1], "maxabs_quant_g2.json"])
def test_a_pipe_keeps_nobody_waiting(node: CalibrationNode, name: str) -> None:
    node.document["written"] = ["maxabs_quant_g2.json"]
    configuration = {"maxabs_quant_g2.json": '{"dump_stats_path": "/in/container/m"}'}
    node.orders(writes=NAMES, damaged=configuration, pipes=[name])
    assert name in node.refused()


def test_a_linked_configuration_is_not_read(node: CalibrationNode) -> None:
    node.document["written"] = ["maxabs_quant_g2.json"]
    (node.home / "elsewhere").write_text('{"dump_stats_path": "/in/container/m"}')
    node.orders(writes=NAMES, links={"maxabs_quant_g2.json": str(node.home / "elsewhere")})
    assert "maxabs_quant_g2.json is missing or no JSON object (it is a link" in node.refused()


def test_nothing_else_that_the_container_left_is_published(node: CalibrationNode) -> None:
    node.orders(writes=[*NAMES, "libsurprise.so"])
    assert node.run()[0] == 0
    kept = {path.relative_to(node.target).as_posix() for path in node.target.rglob("*") if path.is_file()}
    assert kept == {*NAMES, ".gaudi-serving/started", ".gaudi-serving/measure.json", ".gaudi-serving/calibration.json"}


def test_no_user_of_the_node_runs_what_the_container_wrote_with_the_rights_of_root(node: CalibrationNode) -> None:
    node.orders(writes=NAMES, modes={NAMES[0]: 0o4755})
    assert node.run()[0] == 0
    assert (node.home / "mode_above").read_text() == "700"
    assert {(node.target / name).stat().st_mode & 0o7777 for name in NAMES} == {0o644}


def test_an_archive_that_unpacks_without_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measurements, "MOST_BYTES", 100_000)
    with zipfile.ZipFile(tmp_path / "m.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.npy", bytes(1_000_000))
    with pytest.raises(Refusal, match="is larger than 100000 bytes"):
        calibrate.check_files(tmp_path, ["m.npz"], tmp_path)


def test_what_the_container_wrote_runs_nothing_in_the_server(old: CalibrationNode, tmp_path: Path) -> None:
    (tmp_path / "evil").write_bytes(evil())
    old.orders(writes=NAMES, copies={NAMES[1]: str(tmp_path / "evil")})
    assert "is no plain file of numpy arrays" in old.refused()
    assert json.loads((old.home / "result.json").read_text())["refused_id"] == "measurements_unsafe"
    assert [path.name for path in old.target.iterdir()] == ["old.json"]


def test_a_lock_that_is_a_link_is_not_emptied(node: CalibrationNode, victim: Path) -> None:
    victim.write_text("years of work")
    node.target.with_name(f".{node.target.name}.lock").symlink_to(victim)
    assert "is a link" in node.refused()
    assert victim.read_text() == "years of work"


def test_a_folder_that_others_write_to_is_refused(node: CalibrationNode) -> None:
    node.home.chmod(0o777)
    assert f"{node.home} can be written by everybody" in node.refused()
    assert not node.runs()


# --- taken from another node -------------------------------------------------------------------------------


RSYNC = """#!{python}
import os, shutil, sys, time
from pathlib import Path
word = next(a for a in sys.argv if a.startswith("--password-file=")).partition("=")[2]
assert Path(word).read_text() == "secret"
assert sys.argv[-2] == "rsync://receiver@10.0.0.7:8730/weights/"
Path({home!r}, "asked").write_text(chr(10).join([*sys.argv, *sys.stdin.read().split(chr(0))]))
{fault}
shutil.copytree({given!r}, sys.argv[-1], dirs_exist_ok=True)
{after}
"""


@pytest.fixture
def receiver(node: CalibrationNode, tmp_path: Path) -> CalibrationNode:
    """A node with the same weights as one that has measured them."""
    assert node.run()[0] == 0
    (tmp_path / "second").mkdir()
    other = CalibrationNode(tmp_path / "second")
    other.document |= {key: node.document[key] for key in ("weights", "dataset")}
    give(other, node)
    return other


def recorded(folder: Path) -> dict[str, Any]:
    """The record of measurements."""
    made: dict[str, Any] = json.loads((folder / ".gaudi-serving/calibration.json").read_text())
    return made


def give(receiver: CalibrationNode, seed: CalibrationNode, fault: str = "", after: str = "") -> None:
    """Say, as the role does, that another node gives, and what is to go wrong meanwhile."""
    home, given = str(receiver.home), str(seed.target)
    text = RSYNC.format(python=sys.executable, home=home, given=given, fault=fault, after=after)
    (receiver.home / "bin" / "rsync").write_text(text)
    (receiver.home / "bin" / "rsync").chmod(0o755)
    (receiver.home / "token").write_text("secret")
    named = {"name": "gaudi-01", "address": "rsync://receiver@10.0.0.7:8730"}
    content = {**named, "password_file": str(receiver.home / "token"), "manifest": recorded(seed.target)}
    (receiver.home / "document.peer.json").write_text(json.dumps(content))


def test_what_another_node_measured_is_taken_and_recorded_as_there(
    receiver: CalibrationNode, node: CalibrationNode
) -> None:
    status, said = receiver.run()
    assert status == 0, said
    assert receiver.docker() == []
    names = [*NAMES, ".gaudi-serving/calibration.json"]
    assert all((receiver.target / name).read_bytes() == (node.target / name).read_bytes() for name in names)
    assert json.loads((receiver.home / "result.json").read_text())["files"] == len(NAMES)
    asked = (receiver.home / "asked").read_text().splitlines()
    # Its record comes through the controller.
    assert names[-1] not in asked
    assert {*NAMES, "--files-from=-", f"--max-size={calibrate.LARGEST}"} <= {*asked}
    assert "--recursive" not in asked
    assert "nothing to do" in receiver.run()[1]


def test_what_is_there_is_not_taken_again_unless_that_is_wished(
    receiver: CalibrationNode, node: CalibrationNode
) -> None:
    assert receiver.run()[0] == 0
    (receiver.home / "asked").unlink()
    give(receiver, node)
    assert receiver.run()[0] == 0
    assert not (receiver.home / "asked").exists()
    give(receiver, node)
    assert receiver.run("--again")[0] == 0
    assert (receiver.home / "asked").exists()
    assert len(receiver.kept()) == 1


def test_others_may_read_it_whatever_the_unit_says(node: CalibrationNode) -> None:
    # The rsync that gives it to another node runs as nobody.
    before = os.umask(0o077)
    try:
        assert node.run()[0] == 0
    finally:
        os.umask(before)
    for path in (node.target, node.target / ".gaudi-serving", node.target / ".gaudi-serving" / "calibration.json"):
        assert path.stat().st_mode & 0o004, path


@pytest.mark.parametrize(
    ("fault", "after", "id_", "says"),
    [
        ("sys.exit('no')", "", "rsync_failed", "gaudi-01 did not give its measurements (rsync, status 1: no)\n"),
        (
            *("sys.exit(35)", "", "rsync_failed"),
            "(rsync, status 35: ). Nodes of a site must reach each other at 10.0.0.7:8730",
        ),
        (
            *("sys.exit('@ERROR: chdir failed')", "", "folder_gone"),
            "gaudi-01 has its measurements no more (rsync: @ERROR: chdir failed). Run this again\n",
        ),
        (
            # No measurements are larger than the free space that is required.
            *("", f"os.truncate(Path(sys.argv[-1], {NAMES[0]!r}), 1 << 33); time.sleep(60); sys.exit('no')"),
            *("peer_sends_too_much", "gaudi-01 sent more than its record of its measurements has"),
        ),
        (
            *("", f"Path(sys.argv[-1], {NAMES[0]!r}).write_text('[]')", "not_as_recorded"),
            "gaudi-01 gave files that its record has otherwise",
        ),
        (
            *("", f"Path(sys.argv[-1], {NAMES[0]!r}).unlink()", "other_measurements"),
            "gaudi-01 gave what was measured of other weights, or in",
        ),
    ],
)
def test_what_cannot_be_taken_leaves_what_was_there(
    receiver: CalibrationNode, node: CalibrationNode, fault: str, after: str, id_: str, says: str
) -> None:
    receiver.target.mkdir()
    (receiver.target / "old.json").write_text("hours of work")
    give(receiver, node, fault, after)
    assert says in receiver.refused() + "\n"
    assert json.loads((receiver.home / "result.json").read_text())["refused_id"] == id_
    assert [path.name for path in receiver.target.iterdir()] == ["old.json"]
    assert receiver.kept() == []
    # The role removes what names the node that gives; then it measures by itself.
    (receiver.home / "document.peer.json").unlink()
    assert receiver.run()[0] == 0
    assert len(receiver.runs()) == 1


def test_what_another_node_recorded_runs_nothing_here(receiver: CalibrationNode, node: CalibrationNode) -> None:
    """Its record is right: that node, or who measured there, has made both."""
    exchange(node.target, NAMES[1], evil())
    give(receiver, node)
    assert "is no plain file of numpy arrays" in receiver.refused()
    assert json.loads((receiver.home / "result.json").read_text())["refused_id"] == "measurements_unsafe"
    assert not receiver.target.exists()


def exchange(folder: Path, name: str, content: bytes) -> None:
    """Give a file of measurements another content, and the record its checksum."""
    (folder / name).write_bytes(content)
    made = recorded(folder)
    part = made["measurements" if name in NAMES else "written"]
    part[name] = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    (folder / ".gaudi-serving/calibration.json").write_text(json.dumps(made))


def arrays(name: str) -> bytes:
    """An archive with one array."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr(f"{name}.npy", ARRAY)
    return content.getvalue()


@pytest.mark.parametrize(
    ("name", "id_"), [("b", "not_as_recorded"), ("another", "other_measurements")], ids=["same size", "another size"]
)
def test_who_listens_at_the_port_of_the_transfer_sends_no_other_measurements(
    receiver: CalibrationNode, node: CalibrationNode, tmp_path: Path, name: str, id_: str
) -> None:
    """A user of the node that has measured did so before rsync; the record that he sends fits his files."""
    theirs = shutil.copytree(node.target, tmp_path / "theirs")
    exchange(theirs, NAMES[1], arrays(name))
    give(receiver, node, after=f"shutil.copytree({str(theirs)!r}, sys.argv[-1], dirs_exist_ok=True)")
    receiver.refused()
    assert json.loads((receiver.home / "result.json").read_text())["refused_id"] == id_
    assert not receiver.target.exists()


@pytest.fixture
def configured(tmp_path: Path) -> tuple[CalibrationNode, CalibrationNode]:
    """A node that takes and one that has measured, with a tool that writes the server's configuration as well."""
    nodes = []
    for name in ("receiving", "measured"):
        (tmp_path / name).mkdir()
        nodes.append(CalibrationNode(tmp_path / name))
        nodes[-1].document["written"] = [CONFIGURATION]
    taking, seed = nodes
    seed.orders(writes=NAMES, damaged={CONFIGURATION: '{"dump_stats_path": "/in/container/m"}'})
    assert seed.run()[0] == 0
    taking.document |= {key: seed.document[key] for key in ("weights", "dataset")}
    give(taking, seed)
    return taking, seed


def test_the_configuration_that_a_tool_wrote_is_taken(configured: tuple[CalibrationNode, CalibrationNode]) -> None:
    taking, seed = configured
    assert taking.run()[0] == 0
    assert (taking.target / CONFIGURATION).read_bytes() == (seed.target / CONFIGURATION).read_bytes()
    assert recorded(taking.target) == recorded(seed.target)


def test_who_listens_at_the_port_of_the_transfer_sends_no_other_configuration(
    configured: tuple[CalibrationNode, CalibrationNode], tmp_path: Path
) -> None:
    taking, seed = configured
    theirs = shutil.copytree(seed.target, tmp_path / "theirs")
    exchange(theirs, CONFIGURATION, b'{"dump_stats_path": "/in/container/m", "mode": "NONE"}')
    give(taking, seed, after=f"shutil.copytree({str(theirs)!r}, sys.argv[-1], dirs_exist_ok=True)")
    assert "gaudi-01 gave files that its record has otherwise" in taking.refused()
    assert not taking.target.exists()


def forget_configurations(folder: Path) -> dict[str, Any]:
    """Write a record as earlier releases did, and return it."""
    made = recorded(folder)
    del made["written"]
    (folder / ".gaudi-serving/calibration.json").write_text(json.dumps(made))
    return made


def test_a_configuration_that_a_record_of_an_earlier_release_lacks_is_not_taken(
    configured: tuple[CalibrationNode, CalibrationNode],
) -> None:
    taking, seed = configured
    forget_configurations(seed.target)
    give(taking, seed)
    assert (
        "gaudi-01 gave files that its record has otherwise, or does not have; measure there again" in taking.refused()
    )
    assert not taking.target.exists()


def test_a_record_of_an_earlier_release_is_taken_where_the_tool_wrote_no_configuration(
    receiver: CalibrationNode, node: CalibrationNode
) -> None:
    made = forget_configurations(node.target)
    give(receiver, node)
    assert receiver.run()[0] == 0
    assert recorded(receiver.target) == made


FACTS = {"bytes": 2, "sha256": "0" * 64}


def check_recorded(node: CalibrationNode, **changed: Any) -> None:
    """Check received files against a record of them in which something is changed."""
    given = node.home / "given"
    given.mkdir(exist_ok=True)
    for name in NAMES:
        (given / name).write_bytes(arrays("a") if name.endswith(".npz") else b"{}")
    made = {
        "digest": calibrate.digest(node.document),
        "measurements": calibrate.check_files(given, NAMES, given),
        "written": {},
    }
    calibrate.check_given(node.document, {"name": "gaudi-01", "manifest": {**made, **changed}}, given, given)


@pytest.mark.parametrize(
    "changed",
    [
        {"digest": None},
        {"digest": "0" * 64},
        {"measurements": []},
        {"measurements": {}},
        {"measurements": dict.fromkeys(NAMES, 2)},
        {"measurements": {name: {**FACTS, "bytes": True} for name in NAMES}},
        {"measurements": {name: {**FACTS, "bytes": "2"} for name in NAMES}},
        {"measurements": {name: {**FACTS, "bytes": 1 << 62} for name in NAMES}},
        {"measurements": dict.fromkeys(NAMES[1:], FACTS)},
        {"measurements": dict.fromkeys([*NAMES, "../../shadow"], FACTS)},
        {"measurements": dict.fromkeys([*NAMES, "\0"], FACTS)},
    ],
    ids=str,
)
def test_a_record_of_something_else_is_refused(node: CalibrationNode, changed: dict[str, Any]) -> None:
    check_recorded(node)
    with pytest.raises(Refusal, match="gaudi-01 gave what was measured of other weights, or in another way"):
        check_recorded(node, **changed)


@pytest.mark.parametrize("written", [None, [], {CONFIGURATION: FACTS}], ids=str)
def test_a_record_with_configurations_that_the_tool_does_not_write_is_refused(
    node: CalibrationNode, written: object
) -> None:
    with pytest.raises(Refusal, match="gaudi-01 gave files that its record has otherwise"):
        check_recorded(node, written=written)


def test_nothing_else_that_another_node_has_is_published(receiver: CalibrationNode, node: CalibrationNode) -> None:
    (node.target / "m_hooks_maxabs_0_8.npz").write_bytes(evil())
    (node.target / ".gaudi-serving/measure.json").write_text("theirs")
    assert receiver.run()[0] == 0
    kept = {path.relative_to(receiver.target).as_posix() for path in receiver.target.rglob("*") if path.is_file()}
    assert kept == {*NAMES, ".gaudi-serving/started", ".gaudi-serving/measure.json", ".gaudi-serving/calibration.json"}
    assert (receiver.target / ".gaudi-serving/measure.json").read_text() == "{}\n"


def test_measurements_of_other_weights_are_not_taken(receiver: CalibrationNode) -> None:
    receiver.document["prompts"] = 5
    assert "gaudi-01 gave what was measured of other weights, or in another way" in receiver.refused()
    assert not receiver.target.exists()


def test_a_line_without_end_of_a_models_code_is_cut(node: CalibrationNode) -> None:
    node.orders(writes=NAMES, says="x" * (4 << 20))
    status, said = node.run()
    assert status == 0
    assert said.count("x") < 1 << 16


def test_a_bar_is_read_from_a_line() -> None:
    assert calibrate.BAR.findall("Processed prompts:  12%|#2   | 61/512 [x]") == [("61", "512")]


def test_a_damaged_archive_is_found(tmp_path: Path) -> None:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("a.npy", b"0123456789")
    data = bytearray(content.getvalue())
    data[data.index(b"0123456789")] ^= 1
    (tmp_path / "x.npz").write_bytes(bytes(data))
    with pytest.raises(Refusal, match="is no plain file of numpy arrays"):
        calibrate.check_files(tmp_path, ["x.npz"], tmp_path)


# --- documents that are damaged ----------------------------------------------------------------------------


@pytest.mark.parametrize("content", ["{", "{}", "[]", '{"digest": 1, "measurements": []}'])
@pytest.mark.parametrize("options", [[], ["--again"]], ids=str)
def test_a_damaged_record_counts_as_not_measured(node: CalibrationNode, content: str, options: list[str]) -> None:
    assert node.run()[0] == 0
    record = node.target / ".gaudi-serving" / "calibration.json"
    record.write_text(content)
    status, said = node.run(*options)
    assert status == 0, said
    assert "is damaged" in said or options
    assert json.loads(record.read_text())["measurements"]
    (kept,) = node.kept()
    assert (kept / ".gaudi-serving" / "calibration.json").read_text() == content


@pytest.mark.parametrize(
    ("content", "said"),
    [("{", "cut off or no JSON"), ("[]", "holds a list"), ("{}", "does not say model, release")],
)
def test_a_damaged_description_is_said(tmp_path: Path, content: str, said: str) -> None:
    path = tmp_path / "document.json"
    path.write_text(content)
    command = [sys.executable, "-B", str(PROGRAM), str(path)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 1
    assert result.stderr.startswith(f"calibrate: {path} ")
    assert said in result.stderr
    assert result.stderr.endswith("; run playbooks/calibrate.yml, which writes it\n")


@pytest.mark.parametrize("kind", FOR_PROGRAMS)
def test_every_damage_of_a_description_is_refused(tmp_path: Path, kind: str) -> None:
    """That of the work, and that of the node that has measured already."""
    path = tmp_path / "document.json"
    damage(path, kind)
    for keys in (calibrate.DESCRIBED, calibrate.PEER):
        with pytest.raises(Refusal) as refused:
            calibrate.read_json(path, keys, "run the playbook")
        assert refused.value.id in ("record_damaged", "missing_key")
        assert str(refused.value).startswith(f"{path} ")


def test_a_damaged_deflated_file_is_said(tmp_path: Path) -> None:
    path = tmp_path / "m.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.npy", bytes(range(256)) * 100)
    data = bytearray(path.read_bytes())
    data[40:52] = b"XXXXXXXXXXXX"
    path.write_bytes(data)
    with pytest.raises(Refusal, match=r"m\.npz is no plain file of numpy arrays"):
        calibrate.check_files(tmp_path, ["m.npz"], tmp_path)


@pytest.mark.parametrize("writable", ["weights/modeling.py", "weights", "data.pkl"])
def test_what_may_run_as_code_is_only_for_root_to_write(node: CalibrationNode, writable: str) -> None:
    (node.home / "weights/modeling.py").write_text("")
    (node.home / "data.pkl").write_bytes(b"x")
    node.document["dataset"] = str(node.home / "data.pkl")
    node.document["guarded"] = [str(node.home / "weights"), str(node.home / "data.pkl")]
    (node.home / writable).chmod(0o777)
    assert "everybody" in node.refused()
    assert node.runs() == []
    (node.home / writable).chmod(0o755)
    assert node.run()[0] == 0


def test_weights_that_differ_from_their_pins_are_not_run(node: CalibrationNode) -> None:
    (node.home / "weights/modeling.py").write_text("another")
    repository = {"repository": "a/b", "files": {"config.json": hashlib.sha256(b"{}").hexdigest()}}
    node.document["pins"] = [{"folder": str(node.home / "weights"), "repositories": [repository], "written": []}]
    assert "modeling.py" in node.refused()
    assert node.runs() == []
    (node.home / "weights/modeling.py").unlink()
    assert node.run()[0] == 0
