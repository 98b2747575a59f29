"""Run the parts of the tests side by side, and end with the logs of what failed.

    python -m tests.parts                    what make test runs
    python -m tests.parts --all              what make test-all runs
    python -m tests.parts lint molecule:vm   some of them
    python -m tests.parts --molecule torch   the scenarios of make test, and others that are named
    python -m tests.parts --stop             what make test runs, and begin nothing after a failure
    python -m tests.parts --record           what make test runs, and write how long each part took

No part needs another one's result: each brings up nodes of its own. Images are built once, before the first part that
wants nodes. tests/part.sh runs a part and writes its log. After a failure the others run all the same, but for those
that would begin too late for CI, and those with nodes where there are no images. With V=1, where parts print all they
have to say, they run one after the other.

The longest part begins first, by tests/durations.json, which --record writes. There is a part for each core, and one
more, up to twice as many, whenever the cores had nothing to do for part of the time: many parts wait for nodes.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path

from simulator import host

ROOT = Path(__file__).resolve().parent.parent
CORES = os.cpu_count() or 1
# What one more part needs: nodes with servers in them take up to 5 GiB of memory.
MOST = 2 * CORES
# Seconds between two looks at the cores, and the share of their time without work that another part may fill.
LOOK = 20.0
IDLE = 0.3
# After a failure no part of make test begins later, in seconds after the first: the longest takes 20 minutes, and CI,
# which ends at 90, has to print the logs.
LATEST = 3600.0
DURATIONS = ROOT / "tests" / "durations.json"
PYTEST = (sys.executable, "-m", "pytest", "-q")
MOLECULE = ("molecule", "test", "--scenario-name")
SYSTEM = "GAUDI_SIMULATOR_SYSTEM"


@dataclass(frozen=True)
class SuitePart:
    """One line of make test.

    nodes: it starts simulated nodes or a virtual machine, so the images come first.
    """

    name: str
    command: tuple[str, ...]
    nodes: bool = False

    @property
    def scenario(self) -> str:
        """The Molecule scenario, whose nodes and files are the same on every system: one such part at a time."""
        kind, _, rest = self.name.partition(" ")
        return rest.split(" ")[0] if kind == "molecule" else ""

    @property
    def argument(self) -> str:
        """What names it on the command line; make cuts words at spaces."""
        return self.name.replace(" ", ":")


def scenario(name: str, *, system: str = "") -> SuitePart:
    """A Molecule scenario as a part; system: the nodes' operating system where it is not the scenario's own."""
    command = (*MOLECULE, name)
    if system:
        return SuitePart(f"molecule {name} {system}", ("env", f"{SYSTEM}={system}", *command), nodes=True)
    return SuitePart(f"molecule {name}", command, nodes=True)


IMAGES = SuitePart("images", (sys.executable, "-m", "simulator", "images"))

TEST = (
    SuitePart("lint", ("bash", "tests/lint.sh")),
    # tests/unit and tests/golden.
    SuitePart("unit", (*PYTEST, "-n", "2", "--ignore=tests/integration")),
    SuitePart("integration", (*PYTEST, "-n", "2", "tests/integration")),
    scenario("default"),
    scenario("vm"),
    scenario("changes"),
    scenario("refusals"),
    scenario("bare"),
    scenario("lived_in"),
    SuitePart("readme", (sys.executable, "tests/readme.py"), nodes=True),
    scenario("topology"),
    scenario("fabric"),
    SuitePart("torch", (*PYTEST, "tests/fp8_torch.py", "tests/compute_torch.py")),
)

# The long loops of what runs in test as a sample, and the proof that tests of promises can fail.
MORE = (
    scenario("weights"),
    scenario("host_tuning"),
    scenario("fabric_pairs"),
    scenario("bare_faults"),
    scenario("fanout"),
    scenario("calibration"),
    scenario("images"),
    scenario("nfs"),
    scenario("interrupted"),
    scenario("day_two"),
    scenario("plugin"),
    SuitePart("pages", (sys.executable, "tests/readme.py", "pages"), nodes=True),
    # Each on the system that it does not have in make test.
    scenario("bare", system="debian12"),
    scenario("default", system="debian13"),
    SuitePart("molecule vm untune", ("env", "GAUDI_VM_LAST=untune.yml", *MOLECULE, "vm"), nodes=True),
    SuitePart("plans", (sys.executable, "-m", "tests.golden.canonical_plans")),
    SuitePart("breaks", (sys.executable, "-m", "tests.breaks")),
    SuitePart("kills fp8", ("env", "GAUDI_FP8_KILLS=50", *PYTEST, "-s", "tests/integration/fp8", "-k", "killed")),
    SuitePart("kills weights", ("env", "GAUDI_WEIGHTS_KILLS=20", *PYTEST, "-s", "tests/unit/weights", "-k", "killed")),
)


def ordered(parts: Sequence[SuitePart], seconds: Mapping[str, float]) -> list[SuitePart]:
    """Put the images first if a part wants nodes, then lint, which fails in two minutes, then the longest.

    seconds is how long each part took; a part without an entry is new, and begins before those.
    """
    images = [IMAGES] if any(part.nodes for part in parts) else []
    lint = [part for part in parts if part.name == "lint"]
    others = [part for part in parts if part not in (*images, *lint)]
    return [*images, *lint, *sorted(others, key=lambda part: -seconds.get(part.argument, float("inf")))]


class Cores:
    """How much of their time the machine's cores had nothing to do since the look before."""

    def __init__(self) -> None:
        """Take the first look."""
        self._before = self._read()

    @staticmethod
    def _read() -> tuple[int, int]:
        """Idle and all time of all cores in clock ticks; the first fields of /proc/stat, proc_stat(5)."""
        user, nice, system, idle, waiting, *rest = map(
            int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]
        )
        return idle + waiting, user + nice + system + idle + waiting + sum(rest)

    def idle(self) -> float:
        """Return the share, from 0 to 1."""
        before, self._before = self._before, self._read()
        idle, time = (now - then for now, then in zip(self._before, before, strict=True))
        return idle / time if time else 0.0


def next_part(waiting: Sequence[SuitePart], running: Sequence[SuitePart]) -> SuitePart | None:
    """Choose the first part that may begin beside those that run; None if all have to wait."""
    building = IMAGES in running or IMAGES in waiting
    scenarios = {part.scenario for part in running} - {""}

    def may_begin(part: SuitePart) -> bool:
        return not (part.nodes and building) and part.scenario not in scenarios

    return next((part for part in waiting if may_begin(part)), None)


@dataclass
class PartsResult:
    """What became of the parts: the logs of those that failed, and the seconds of each."""

    failed: list[str] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)


def run(
    parts: Sequence[SuitePart],
    at_once: tuple[int, int],
    start: Callable[[SuitePart], tuple[int, str]],
    idle: Callable[[], float],
    latest: float = LATEST,
) -> PartsResult:
    """Run parts to their end and print a line for each.

    at_once is how many run side by side, and how many at most while cores are idle. start runs one part and gives its
    status and what it printed; the first line is the part's own. idle gives the share of idle time since it was asked.
    After a failure no part begins later than latest, in seconds after the first.
    """
    waiting, running, ended = list(parts), dict[Future[tuple[int, str]], tuple[SuitePart, float]](), PartsResult()
    began, imageless, left_out = time.monotonic(), False, list[SuitePart]()
    least, most = at_once
    allowed = least
    with ThreadPoolExecutor(most) as pool:
        while running or waiting:
            while len(running) < allowed and (part := next_part(waiting, [part for part, _ in running.values()])):
                waiting.remove(part)
                running[pool.submit(start, part)] = part, time.monotonic()
            allowed = least
            done = wait(running, timeout=LOOK if waiting and most > least else None, return_when=FIRST_COMPLETED).done
            for future in done:
                part, begun = running.pop(future)
                status, said = future.result()
                line, _, rest = said.partition("\n")
                print(line, flush=True)
                ended.seconds[part.argument] = time.monotonic() - begun
                if status:
                    ended.failed.append(rest)
                    imageless |= part == IMAGES
            late = bool(ended.failed) and time.monotonic() - began >= latest
            left_out += [part for part in waiting if late or (imageless and part.nodes)]
            waiting = [part for part in waiting if part not in left_out]
            if idle() > IDLE and not done:
                allowed = min(most, max(least, len(running) + 1))
    if left_out:
        print(f"  - after a failure not begun: {', '.join(part.argument for part in left_out)}", flush=True)
    return ended


def start(part: SuitePart) -> tuple[int, str]:
    """Run one part through part.sh."""
    command = ["bash", "tests/part.sh", part.name, *part.command]
    done = subprocess.run(command, cwd=ROOT, check=False, stdout=subprocess.PIPE, text=True, errors="replace")
    return done.returncode, done.stdout


def shown(part: SuitePart) -> tuple[int, str]:
    """Run one part where everybody sees it."""
    return subprocess.run(["bash", "tests/part.sh", part.name, *part.command], cwd=ROOT, check=False).returncode, ""


def main() -> int:
    """Run what is asked for; 1 when something failed."""
    known = {part.argument: part for part in (IMAGES, *TEST, *MORE)}
    parser = argparse.ArgumentParser(prog="python -m tests.parts", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(known))
    parser.add_argument("--all", action="store_true", help="the long loops, too")
    parser.add_argument("--molecule", action="store_true", help="the Molecule scenarios of make test")
    parser.add_argument("--stop", action="store_true", help="after a failure begin nothing")
    parser.add_argument("--record", action="store_true", help=f"write the seconds of each part to {DURATIONS.name}")
    options = parser.parse_args()
    if unknown := [name for name in options.parts if name not in known]:
        parser.error(f"there is no part {', '.join(unknown)}; there are {', '.join(known)}")
    everything = (*TEST, *MORE) if options.all else TEST
    scenarios = [part for part in TEST if part.name.startswith("molecule ")] if options.molecule else []
    named = [known[name] for name in options.parts]
    chosen = [*scenarios, *(part for part in named if part not in scenarios)] or list(everything)
    loud = os.environ.get("V") == "1"
    # Between the images and the first node, and between two scenarios, nothing else shows that they are needed.
    recorded = json.loads(DURATIONS.read_text(encoding="utf-8"))
    with host.in_use() if any(part.nodes for part in chosen) else contextlib.nullcontext():
        ended = run(
            ordered(chosen, recorded),
            (1, 1) if loud else (CORES, MOST),
            shown if loud else start,
            Cores().idle,
            0.0 if options.stop else float("inf") if options.all else LATEST,
        )
    for said in ended.failed:
        print(said, end="")
    if options.record and not ended.failed:
        seconds = recorded | {name: round(taken) for name, taken in ended.seconds.items()}
        kept = {name: seconds[name] for name in sorted(seconds) if name in known}
        DURATIONS.write_text(json.dumps(kept, indent=2) + "\n", encoding="utf-8")
    return int(bool(ended.failed))


if __name__ == "__main__":
    sys.exit(main())
