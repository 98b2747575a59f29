#!/usr/bin/env python3
"""Measure a model for static FP8 in the serving image: the work of gaudi-job@calibrate.NAME.

    calibrate.py DESCRIPTION [--again]

DESCRIPTION is a JSON document of the role fp8_calibration. The tool writes into TARGET.partial/measured, and into
nothing else of the node. When it has ended, its files are not trusted: links and pipes are refused, the wanted files
are moved out, and the rest is removed. Then an earlier TARGET is kept under a dated name and the new one takes its
place. Earlier measurements are never deleted and stay where they are until then, whatever happens.

A file beside it, with .peer.json instead of .json, names a node that has measured, and has that node's record. The
measurements are then received from there by rsync, compared with the record, and published in the same way. The role
removes that file and the token it names afterwards.

Python 3.9, its standard library, and the library gaudi beside this program. Exit status: 0 measured (or measured
before), 1 refused or failed (one sentence as the last line), 2 wrong usage, 130 stopped.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import hashlib
import io
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from gaudi.base.documents import Damaged, misfit
from gaudi.base.printable import printable
from gaudi.base.refusal import Refusal
from gaudi.calibration.run import OWN, WRITTEN
from gaudi.faults.causes import explain_log
from gaudi.faults.facts import Facts
from gaudi.faults.tracebacks import ServerLog
from gaudi.node import beneath, documents, folders, long_work
from gaudi.node.files import sync_folder, write_json, write_text
from gaudi.node.long_work import lines_of
from gaudi.node.weight_folders import missing_weights
from gaudi.node.weights.measurements import check_npz
from gaudi.node.weights.pinned import not_as_pinned
from gaudi.preflight.pins import code_differs
from gaudi.serving.failure import Failure
from gaudi.serving.plan import NO_ENTRY_POINT, PlanCard, mount, resource_limits, tmpfs, ulimits
from gaudi.serving.plan_cards import card_indexes

# Bytes of a measurement file; those of the largest models take some ten megabytes.
LARGEST = 1_000_000_000
RECORD = "calibration.json"
LABEL = "gaudi-serving.calibration"
# Bytes that have to be free: three files a card of some ten megabytes for the largest models, and what a tool keeps.
ROOM = 2_000_000_000
# A bar of the tool: "Processed prompts:  12%|#2        | 61/512 [...]".
BAR = re.compile(r"prompts[^|]{0,100}\|[^|]{0,300}\|\s{0,8}(\d{1,9})/(\d{1,9})(?!\d)")
# Characters of the tool's last line that are quoted.
LAST = 200
# What a description has to say.
DESCRIBED = (
    "model", "release", "image", "tool", "prompts", "dataset", "tensor_parallel_size", "weights", "modules", "target",
    "expected", "written", "dump_stats_path", "files", "guarded", "pins", "environment", "container", "command",
)  # fmt: skip
# Keys that the file about a peer must have. manifest: the peer's record.
PEER = ("name", "address", "password_file", "manifest")
# The form of the record of a measurement.
MEASURED = {"digest": str, "measurements": {str: {"bytes": int}}}


class CalibrationInterrupt(Exception):
    """Asked to end."""


def read_json(path: Path, keys: tuple[str, ...], advice: str) -> dict[str, Any]:
    """A JSON object that has these keys, from a file; Refusal with the advice when it is none."""
    try:
        content: dict[str, Any] | None = documents.read_json(path)
    except Damaged as damaged:
        raise Refusal("record_damaged", f"{damaged}; {advice}") from damaged
    if content is None:
        raise Refusal("not_there", f"{path} is not there; {advice}")
    missing = [key for key in keys if key not in content]
    if missing:
        raise Refusal("missing_key", f"{path} does not say {', '.join(missing)}; {advice}")
    return content


def digest(document: dict[str, Any]) -> str:
    """Stands for what is measured: the same weights with the same tool in the same way.

    Cards, container and node do not count. The weights count by the files in the record of their conversion or fetch,
    if they have one, not by when they were fetched or verified.
    """
    counted = ("model", "release", "image", "tool", "prompts", "dataset", "tensor_parallel_size", "weights", "files")
    content = {key: document[key] for key in counted}
    folder = Path(document["weights"]).resolve()
    for name, files in (("fp8.json", "shards"), ("manifest.json", "files")):
        record = folder / OWN / name
        try:
            read = documents.read_json(record, place=folder)
        except Damaged as wrong:
            raise Refusal(
                "record_damaged",
                f"the weights' record {record} cannot be read ({wrong.what}); playbooks/verify_weights.yml says more",
            ) from wrong
        if read is not None:
            content[name] = read.get(files)
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def check_files(folder: Path, expected: list[str], place: Path) -> dict[str, dict[str, Any]]:
    """Size and SHA-256 of every expected file in a folder beneath a place.

    Raises Refusal when one is missing, empty, too large, not what its name says, or holds anything but arrays.
    """
    sizes = {name: folders.size_of(folder / name, place) or 0 for name in expected}
    missing = [name for name, size in sizes.items() if not size]
    if missing:
        raise Refusal(
            "measurements_missing",
            f"the tool ended well, but {len(missing)} of {len(expected)} measurement files are missing or empty, first "
            f"{missing[0]}: what it left is in {folder}",
        )
    found: dict[str, dict[str, Any]] = {}
    for name in expected:
        path = folder / name
        with beneath.open_file(path, place) as stream:
            data = stream.read(LARGEST + 1)
        try:
            if len(data) > LARGEST:
                raise ValueError(f"it is larger than {LARGEST} bytes")
            if name.endswith(".json"):
                json.loads(data)
        # RecursionError: JSON that is nested without end.
        except (ValueError, RecursionError) as wrong:
            raise Refusal(
                "measurement_damaged", f"the measurement file {path} cannot be read ({wrong}); measure again"
            ) from wrong
        if name.endswith(".npz"):
            # What is in it is the container's, or another node's: a server would run it.
            check_npz(io.BytesIO(data), str(path))
        found[name] = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    return found


def check_written(folder: Path, document: dict[str, Any], place: Path) -> None:
    """The server's own configuration has to be there and to point to where the server will see the measurements."""
    for name in document["written"]:
        path = folder / name
        try:
            read = documents.read_json(path, place=place)
        except Damaged as wrong:
            raise Refusal(
                "configuration_missing", f"the tool ended well, but {path} is missing or no JSON object ({wrong.what})"
            ) from wrong
        if read is None:
            raise Refusal("configuration_missing", f"the tool ended well, but {path} is missing")
        says = read.get("dump_stats_path")
        wanted = document["dump_stats_path"]
        if says != wanted:
            raise Refusal(
                "measurements_elsewhere",
                f"{path} looks for measurements at {says}, but the server has them at {wanted}",
            )


def measured(target: Path, wanted: str) -> dict[str, Any] | None:
    """The record of a finished measurement of the same thing, whole; None for anything else."""
    folder = target.resolve()
    try:
        made: dict[str, Any] | None = documents.read_json(folder / OWN / RECORD, MEASURED, place=folder)
    except Damaged as damaged:
        print(f"{damaged}; the earlier measurement counts as none", flush=True)
        return None
    return made if made is not None and made["digest"] == wanted and whole(made, folder) else None


def whole(made: dict[str, Any], folder: Path) -> bool:
    """Whether the measurements of a record are in a folder, by their sizes."""
    sizes = folders.sizes_in(folder, made["measurements"])
    return all(sizes[name] == facts["bytes"] for name, facts in made["measurements"].items())


def dated(target: Path, now: datetime) -> Path:
    """A free name beside the target, with the time until which these measurements were in use."""
    name = target.with_name(f"{target.name}.until-{now.strftime('%Y%m%dT%H%M%SZ')}")
    number = 1
    while name.exists():
        number += 1
        name = target.with_name(f"{target.name}.until-{now.strftime('%Y%m%dT%H%M%SZ')}.{number}")
    return name


def publish(staging: Path, target: Path) -> Path | None:
    """Give the measurements their name; returns where earlier ones are kept now."""
    kept = None
    if target.exists():
        kept = dated(target, datetime.now(timezone.utc))
        beneath.rename(target, target, kept, kept)
    staging.chmod(0o755)
    beneath.rename(staging, staging, target, target)
    sync_folder(target.parent)
    return kept


def command(document: dict[str, Any], indexes: list[int], variables: str) -> list[str]:
    """The docker run vector; nothing in it is read by a shell. variables: docker's env-file.

    An address in a variable may have an account, and everybody on the node sees arguments.
    """
    box = document["container"]
    words = [
        "docker",
        "run",
        "--rm",
        "--pull",
        "never",
        "--name",
        box["name"],
        "--label",
        f"{LABEL}={document['model']}",
    ]
    words += ["--runtime", box["runtime"], "--network", box["network"], "--ipc", box["ipc"]]
    words += [*resource_limits(box), "--cap-drop", "ALL"]
    for capability in box["capabilities"]:
        words += ["--cap-add", capability]
    words += ["--security-opt", "no-new-privileges"]
    words += ["--read-only"] if box["read_only"] else []
    for entry in box["tmpfs"]:
        words += ["--tmpfs", tmpfs(entry)]
    words += ulimits(box)
    for item in box["mounts"]:
        words += ["--mount", mount(item["source"], item["target"], item["read_only"])]
    words += ["--env-file", variables]
    words += ["--env", "HABANA_VISIBLE_DEVICES=" + ",".join(str(index) for index in sorted(indexes))]
    words += ["--workdir", box["working_directory"], *NO_ENTRY_POINT]
    return [*words, document["image"], *document["command"]]


class CalibrationProgress:
    """How far the tool is, for the follower."""

    def __init__(self, prompts: int) -> None:
        self.path = long_work.progress_file()
        self.started = time.monotonic()
        self.total = prompts
        self.report("load the model", 0)

    def report(self, phase: str, done: int) -> None:
        """Write it."""
        seconds = time.monotonic() - self.started
        rate = done / seconds if seconds else 0.0
        state = {
            "phase": phase,
            "done": done,
            "total": self.total,
            "unit": "prompts",
            "rate": round(rate, 3),
            "eta": round((self.total - done) / rate, 1) if rate else None,
        }
        long_work.tell_progress(self.path, state)

    def read(self, line: str) -> None:
        """Take a line of the tool's."""
        bars = BAR.findall(line)
        if bars:
            self.total = int(bars[-1][1])
            self.report("measure", int(bars[-1][0]))


def remove_left_over(document: dict[str, Any]) -> None:
    """Remove the container of a run that was killed with its job: it holds the cards and still writes.

    A container of that name without our label is somebody else's; docker run then says that the name is taken.
    """
    name = document["container"]["name"]
    ours = ["--filter", f"name=^/{name}$", "--filter", f"label={LABEL}"]
    listed = subprocess.run(
        ["docker", "ps", "--all", "--quiet", "--no-trunc", *ours], capture_output=True, text=True, check=False
    )
    if found := listed.stdout.split():
        subprocess.run(["docker", "rm", "--force", "--volumes", *found], capture_output=True, check=False)


def run_tool(document: dict[str, Any], indexes: list[int]) -> None:
    """Run the tool's container to its end; Refusal with its last words when it fails."""
    name = document["container"]["name"]
    progress = CalibrationProgress(document["prompts"])
    log = ServerLog()
    with tempfile.NamedTemporaryFile("w", encoding="utf-8") as variables:
        for variable, value in sorted(document["environment"].items()):
            variables.write(f"{variable}={value}\n" if variable != "HABANA_VISIBLE_DEVICES" else "")
        variables.flush()
        words = command(document, indexes, variables.name)
        status = follow(words, name, progress, log)
    if status:
        cause = explain_log(log, Facts(release=document["release"], status=status))
        known = f"[{cause.id}] {cause.cause} {cause.remedy}" if cause.id else "its last words are above."
        last = cause.lines[-1] if cause.lines else "it printed nothing"
        raise Refusal("tool_failed", f"{document['tool']} ended with status {status}: {known} ({last[-LAST:]})")


def follow(words: list[str], name: str, progress: CalibrationProgress, log: ServerLog) -> int:
    """Run a container of a name to its end; return its status."""
    work = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        for line in map(printable, filter(str.strip, lines_of(work.stdout))):
            print(line, flush=True)
            log.add(line)
            progress.read(line)
        return work.wait()
    except BaseException:
        # Whatever ended this: the container holds the cards, and would go on.
        subprocess.run(["docker", "stop", "--time", "20", name], capture_output=True, check=False)
        work.wait()
        raise


def check_before(document: dict[str, Any], target: Path) -> None:
    """Refuse what cannot work before anything is changed."""
    if target.exists() and not target.is_dir():
        raise Refusal("target_not_a_folder", f"{target} is no folder; move it away")
    lacking = missing_weights(Path(document["weights"]))
    if lacking:
        raise Refusal("weights_unfit", f"the weights cannot be measured: {lacking}")
    dataset = document["dataset"]
    if dataset.startswith("/") and not Path(dataset).exists():
        raise Refusal(
            "dataset_missing", f"the data set {dataset} is not there; put it on the node, or leave it out to fetch it"
        )
    if dataset.startswith("/") and Path(dataset).is_dir() and not any(Path(dataset).iterdir()):
        raise Refusal("dataset_empty", f"the data set {dataset} is an empty folder")
    check_content(document)
    check_room(target)


def check_content(document: dict[str, Any]) -> None:
    """Refuse what may run as code where users other than root could change it, and weights that differ from pins."""
    for path in document["guarded"]:
        beneath.refuse_writers_within(Path(path))
    for known in document["pins"]:
        folder = Path(known["folder"])
        if not folder.is_dir():
            continue
        beneath.refuse_writers_within(folder)
        if names := not_as_pinned(folder, known["repositories"], known["written"]):
            raise Refusal("code_differs", code_differs(document["model"], str(folder), names))


def check_room(target: Path) -> None:
    """Refuse a file system with too little room."""
    room = os.statvfs(target.parent)
    free = room.f_bavail * room.f_frsize
    if free < ROOM:
        raise Refusal(
            "no_room",
            f"{free / 1e9:.1f} GB are free on the file system of {target}, {ROOM / 1e9:.1f} GB are needed; free some",
        )


def look_up_cards(document: dict[str, Any]) -> list[int]:
    """Device numbers of the plan's cards at this moment; Refusal where one of them is not there."""
    asked = ["hl-smi", "-Q", "index,module_id,serial", "-f", "csv,noheader"]
    try:
        seen = subprocess.run(asked, capture_output=True, text=True, timeout=60, check=False)
    except FileNotFoundError as missing:
        raise Refusal("hl_smi_missing", "hl-smi is not installed: the driver of the cards is missing") from missing
    if seen.returncode:
        raise Refusal(
            "hl_smi_failed",
            f"hl-smi failed with status {seen.returncode}: {seen.stderr.strip() or seen.stdout.strip()}",
        )
    try:
        return card_indexes(seen.stdout, tuple(PlanCard(m["module_id"], m["serial"]) for m in document["modules"]))
    except Failure as failure:
        # A supervisor has kinds for the same two things; they stand in the state files of instances.
        if failure.reason.kind == "card-replaced":
            raise Refusal("serial_changed", str(failure)) from failure
        raise Refusal("no_such_module", str(failure)) from failure


def stage(document: dict[str, Any], staging: Path) -> Path:
    """Make a folder with our configuration files, and in it the empty one that the tool writes to, which is returned.

    What an interrupted run measured cannot be continued.
    """
    if beneath.look(staging, staging) and not beneath.is_file(staging / OWN / "started", staging):
        raise Refusal("staging_not_ours", f"{staging} exists and was not made by this program; move it away")
    beneath.remove_tree(staging, staging)
    written = staging / WRITTEN
    # Our configurations are mounted there, for the tool to read.
    beneath.make_folders(written / OWN, staging)
    beneath.make_folders(staging / OWN, staging)
    # Root of the container is root where a file of it is run: until it has ended, no user of the node gets there.
    staging.chmod(0o700)
    write_text(staging / OWN / "started", "", place=staging)
    for name, content in document["files"].items():
        write_text(staging / name, content, place=staging)
    return written


def move_out(names: list[str], written: Path, staging: Path) -> None:
    """Move checked files to their places, and remove what else a tool has left, or another node has given.

    They get the mode of data: a tool may have made one that runs with the rights of root.
    """
    for name in names:
        beneath.make_folders((staging / name).parent, staging)
        beneath.rename(written / name, staging, staging / name)
        with beneath.open_file(staging / name, staging) as moved:
            os.fchmod(moved.fileno(), 0o644)
    beneath.remove_tree(written, staging)


@contextlib.contextmanager
def only_one(target: Path) -> Iterator[None]:
    """Two measurements into one folder exclude each other."""
    beneath.refuse_writers(target.parent)
    target.parent.mkdir(parents=True, exist_ok=True)
    path = target.with_name(f".{target.name}.lock")
    with beneath.open_lock(path, path) as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as held:
            raise Refusal(
                "measurement_running", f"another measurement into {target} is running; wait for it or stop it first"
            ) from held
        yield


def calibrate(document: dict[str, Any], again: bool) -> dict[str, Any]:
    """Measure, check, publish; returns the result."""
    target = Path(document["target"])
    staging = target.with_name(target.name + ".partial")
    wanted = digest(document)
    with only_one(target):
        kept = None
        # Killed between two renames: the measurements are whole, only their name is missing.
        if not target.exists() and measured(staging, wanted):
            publish(staging, target)
        made = measured(target, wanted)
        if made is None or again:
            check_before(document, target)
            indexes = look_up_cards(document)
            remove_left_over(document)
            written = stage(document, staging)
            started = datetime.now(timezone.utc)
            run_tool(document, indexes)
            check_written(written, document, staging)
            measurements = check_files(written, document["expected"], staging)
            move_out([*measurements, *document["written"]], written, staging)
            made = {
                "schema": 1,
                "tool": document["tool"],
                "digest": wanted,
                **{key: document[key] for key in ("model", "release", "image", "prompts", "dataset", "weights")},
                "tensor_parallel_size": document["tensor_parallel_size"],
                "started": started.isoformat(timespec="seconds"),
                "ended": datetime.now(timezone.utc).isoformat(timespec="seconds"),
                "cards": document["modules"],
                "measurements": measurements,
                "written": check_files(staging, document["written"], staging),
                "validated_on_hardware": False,
            }
            write_json(staging / OWN / RECORD, made, place=staging)
            kept = publish(staging, target)
            print(f"{target}: {len(made['measurements'])} measurement files of {document['model']}.")
        else:
            print(f"{target} holds these measurements already; nothing to do.")
    return {"target": str(target), "files": len(made["measurements"]), "kept": str(kept) if kept else None}


def receive(seed: dict[str, Any], staging: Path, names: list[str]) -> None:
    """Receive the seed's files of some names with rsync; raises Refusal with rsync's own words."""
    # The downloader's program. Only nodes that receive have it.
    from gaudi_weights import rsync

    try:
        rsync.receive(
            rsync.Peer(seed["name"], seed["address"], Path(seed["password_file"])),
            staging,
            "its measurements",
            # What is missing is named when the files are checked.
            ["--ignore-missing-args"],
            names,
            rsync.Limit.of(staging, names, LARGEST, ROOM),
        )
    except rsync.MissingPeerFolder as gone:
        raise Refusal("folder_gone", str(gone)) from gone


def check_given(document: dict[str, Any], seed: dict[str, Any], given: Path, staging: Path) -> None:
    """Refuse received files unless they are those of the seed's record, which came over ssh, and of this measurement.

    A user of the seed can listen at the port of the transfer before its rsync does, and send other files.
    """
    made = seed["manifest"]
    fits = misfit(made, MEASURED) is None and made["digest"] == digest(document)
    if not fits or {*made["measurements"]} != {*document["expected"]} or not whole(made, given):
        raise Refusal(
            "other_measurements",
            f"{seed['name']} gave what was measured of other weights, or in another way, or it is not whole; "
            "run playbooks/calibrate.yml with --limit and this node's name to measure here",
        )
    check_written(given, document, staging)
    for key, names in (("measurements", document["expected"]), ("written", document["written"])):
        # Without configurations, a record of an earlier release is complete.
        if check_files(given, names, staging) != made.get(key, {}):
            raise Refusal(
                "not_as_recorded",
                f"{seed['name']} gave files that its record has otherwise, or does not have; measure there again",
            )


def take(document: dict[str, Any], seed: dict[str, Any], again: bool) -> dict[str, Any]:
    """Have what another node measured, checked and published; returns the result."""
    target = Path(document["target"])
    staging = target.with_name(target.name + ".partial")
    with only_one(target):
        kept = None
        made = measured(target, digest(document))
        if made is None or again:
            check_room(target)
            given = stage(document, staging)
            names = [*document["expected"], *document["written"]]
            receive(seed, given, names)
            check_given(document, seed, given, staging)
            made = seed["manifest"]
            move_out(names, given, staging)
            write_json(staging / OWN / RECORD, made, place=staging)
            kept = publish(staging, target)
            print(f"{target}: {len(made['measurements'])} measurement files, taken from {seed['name']}.")
        else:
            print(f"{target} holds these measurements already; nothing to do.")
    return {"target": str(target), "files": len(made["measurements"]), "kept": str(kept) if kept else None}


def work(description: Path, again: bool) -> dict[str, Any]:
    """Measure, or take the measurements of a seed if a file beside the description names one."""
    advice = "run playbooks/calibrate.yml, which writes it"
    document = read_json(description, DESCRIBED, advice)
    named = description.with_suffix(".peer.json")
    if not named.exists():
        return calibrate(document, again)
    return take(document, read_json(named, PEER, advice), again)


def _stop(signum: int, _frame: Any) -> None:
    raise CalibrationInterrupt(signum)


def refusal_of(error: Refusal | OSError) -> Refusal:
    """What ended the work, with an id."""
    if isinstance(error, Refusal):
        return error
    return Refusal("system_error", f"{error.filename or 'the file system'}: {error.strerror or error}")


def main(arguments: list[str]) -> int:
    """Entry point; returns the exit status."""
    parser = argparse.ArgumentParser(prog="calibrate.py", description="Measure a model for static FP8.")
    parser.add_argument("description", type=Path, help="document of the role fp8_calibration")
    parser.add_argument("--again", action="store_true", help="measure even what is measured already")
    given = parser.parse_args(arguments)
    # Measurements are for the server to read, and for other nodes to take.
    os.umask(0o022)
    signal.signal(signal.SIGTERM, _stop)
    signal.signal(signal.SIGINT, _stop)
    try:
        result = work(given.description, given.again)
    except (Refusal, OSError) as error:
        refusal = refusal_of(error)
        print(f"calibrate: {refusal}", file=sys.stderr)
        long_work.tell_refusal(refusal)
        return 1
    except CalibrationInterrupt:
        print("calibrate: stopped; earlier measurements are where they were. Run it again", file=sys.stderr)
        return 130
    long_work.tell_result(result)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
