"""Damage every file of ours on this node, and have look whoever reads it: nothing ends what serves.

    damaged.py FOLDER [every]

FOLDER has the modules as Ansible sends them to a node, AnsiballZ_NAME.py. Each file is damaged in some of the ways, and
all ways are among them; with "every", each in every way. Whoever looks ends within a minute, without a traceback, and
either well or with the name of the file. Afterwards the file is as it was, and so is what serves. Prints what is
otherwise; the status is 1 where something is.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from damages import DAMAGES, damage

sys.path.append("/usr/local/lib/gaudi-serving")
from gaudi.base.paths import CONFIGURATION, INSTANCE_STATES, INSTANCES, JOBS, PROGRAMS, RESERVATIONS, STATE

INSTANCE = "simulated-tiny"
UNIT = f"vllm-{INSTANCE}.service"
MODEL = "simulated-tiny-qwen2"
JOB = "fetch.damaged"
SECONDS = 60
# What a reader could wait for, follow, or end at.
HARD = ("nested", "a directory", "a pipe")

Looks = Callable[[Path], "tuple[int, str]"]


def run(*command: str) -> tuple[int, str]:
    """Run a command; its status and all it said. Raises TimeoutExpired."""
    done = subprocess.run(command, check=False, capture_output=True, timeout=SECONDS, stdin=subprocess.DEVNULL)
    return done.returncode, (done.stdout + done.stderr).decode(errors="replace")


def program(*command: str) -> Looks:
    """A program of ours that looks."""
    return lambda _folder: run("env", f"PYTHONPATH={PROGRAMS}", *command)


def module(name: str) -> Looks:
    """A module that looks."""

    def look(folder: Path) -> tuple[int, str]:
        (sent,) = folder.glob(f"**/AnsiballZ_{name}.py")
        return run("python3", "-B", str(sent))

    return look


def supervisor(_folder: Path) -> tuple[int, str]:
    """Have the supervisor hand over, and wait until it does, or says why not."""
    asked = ("journalctl", "--quiet", "--no-pager", "--output=cat", f"--unit={UNIT}")
    cursor = run(*asked, "--lines=1", "--show-cursor")[1].rpartition("-- cursor: ")[2].strip()
    status, said = run("systemctl", "reload", UNIT)
    follow = [*asked, f"--after-cursor={cursor}", "--follow", "--lines=all"]
    with subprocess.Popen(["timeout", str(SECONDS), *follow], stdout=subprocess.PIPE, text=True) as journal:
        for line in journal.stdout or ():
            said += line
            if "Not handing over" in line or "gaudi-serving: Serving " in line:
                break
        else:
            raise subprocess.TimeoutExpired(follow, SECONDS)
        journal.terminate()
    return status, said


JOB_PROGRAM = program("python3", "-B", f"{PROGRAMS}/gaudi_job.py", JOB)
# Who reads a file, by its row in base/owned_paths.py.
LOOKS: dict[str, tuple[Looks, ...]] = {
    f"{INSTANCES}/*/plan.json": (module("vllm_service_info"), supervisor),
    f"{INSTANCES}/*/environment": (supervisor,),
    f"{INSTANCES}/*/explanation.json": (module("vllm_service_info"),),
    f"{INSTANCES}/*/guard/keys.json": (supervisor,),
    f"{CONFIGURATION}/weights/*.json": (
        program(
            f"{PROGRAMS}/hub-venv/bin/python", "-m", "gaudi_weights", "verify", f"{CONFIGURATION}/weights/{MODEL}.json"
        ),
    ),
    RESERVATIONS: (module("card_reservation"),),
    f"{RESERVATIONS}.guard": (module("card_reservation"),),
    f"{STATE}/host_tuning.json": tuple(
        program("python3", "-B", f"{PROGRAMS}/host_tuning.py", ask) for ask in ("waits", "allow")
    ),
    f"{STATE}/images.json": (module("serving_image"),),
    # Before others that the supervisor looks at: it draws its token again where the two do not belong together.
    f"{INSTANCE_STATES}/*/probe": (supervisor,),
    f"{INSTANCE_STATES}/*/door/probe": (supervisor,),
    f"{INSTANCE_STATES}/*/door/closed": (supervisor,),
    f"{INSTANCE_STATES}/*/pace.json": (module("vllm_service_info"),),
    f"{INSTANCE_STATES}/*/state.json": (module("vllm_service_info"), supervisor),
    f"{JOBS}/*/cancelled": (JOB_PROGRAM,),
    f"{JOBS}/*/job.json": (module("node_report"), JOB_PROGRAM),
    f"{JOBS}/*/log": (JOB_PROGRAM,),
    f"{JOBS}/*/progress.json": (module("node_report"), JOB_PROGRAM),
    f"{JOBS}/*/result.json": (JOB_PROGRAM,),
    f"{JOBS}/*/state.json": (module("node_report"), JOB_PROGRAM),
}


def place(row: str) -> Path:
    """The file of a row on this node."""
    named = {JOBS: JOB, f"{CONFIGURATION}/weights": MODEL}
    return Path(row.replace("*", next((name for root, name in named.items() if row.startswith(root)), INSTANCE)))


def serves() -> list[str]:
    """What serves: the container and its process, and the supervisor's."""
    container = run(
        "docker", "container", "inspect", "--format={{.Id}} {{.State.StartedAt}} {{.State.Pid}}", f"vllm-{INSTANCE}"
    )
    return [container[1], run("systemctl", "show", UNIT, "--property=MainPID,NRestarts,ActiveState")[1]]


def remove(path: Path) -> None:
    """Remove whatever lies at a path, and what it was moved to."""
    for there in (path, *path.parent.glob(f"{path.name}.was-a-directory*")):
        if there.is_dir() and not there.is_symlink():
            shutil.rmtree(there)
        elif there.is_symlink() or there.exists():
            there.unlink()


def faults(file: Path, look: Looks, folder: Path) -> Iterator[str]:
    """What is wrong with how a file's damage is seen."""
    try:
        status, said = look(folder)
    except subprocess.TimeoutExpired as hangs:
        yield f"hangs: {hangs.cmd}"
        return
    if "Traceback" in said:
        yield f"a traceback: {said[-600:]}"
    elif status != 0 and str(file) not in said:
        yield f"status {status} without its name: {said[-600:]}"


def kinds(turn: int) -> Iterator[str]:
    """The damages of the file in this place: the hard ones, and others in turn."""
    for number, kind in enumerate(DAMAGES):
        if kind in HARD or number % 6 == turn % 6:
            yield kind


def main(folder: Path, *, every: bool) -> int:
    """Damage, look, put back."""
    (Path(JOBS) / JOB).mkdir(mode=0o700)
    content = {"digest": "0", "command": ["true"], "environment": {}}
    (Path(JOBS) / JOB / "job.json").write_text(json.dumps(content), encoding="utf-8")
    before, found = serves(), []
    for turn, (row, looks) in enumerate(LOOKS.items()):
        file = place(row)
        made = not file.parent.exists()  # An open instance has no guard, and one that was guarded before may have one.
        file.parent.mkdir(mode=0o700, exist_ok=True)
        kept = (file.read_bytes(), file.stat().st_mode & 0o777) if file.exists() else None
        for kind in DAMAGES if every else kinds(turn):
            for look in looks:
                remove(file)
                damage(file, kind)
                for fault in faults(file, look, folder):
                    found.append(fault)
                    print(f"{file}, {kind}: {fault}", flush=True)
        remove(file)
        if kept:
            file.write_bytes(kept[0])
            file.chmod(kept[1])
        if made:
            file.parent.rmdir()
    shutil.rmtree(Path(JOBS) / JOB)
    after = serves()
    if before != after:
        print(f"What serves is another: {before}, now {after}")
    return int(bool(found) or before != after)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), every="every" in sys.argv[2:]))
