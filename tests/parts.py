"""Run the parts of the tests, two at a time, and end with the log of what failed.

    python -m tests.parts                    what make test runs
    python -m tests.parts --all              what make test-all runs
    python -m tests.parts lint molecule:vm   some of them
    python -m tests.parts --molecule torch   the scenarios of make test, and others that are named

No part needs another one's result: each brings up nodes of its own. Images are built once, before the first part that
wants nodes. tests/part.sh runs a part and writes its log; after a failure nothing new begins. With V=1, where parts
print all they have to say, they run one after the other.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path

from simulator import host

ROOT = Path(__file__).resolve().parent.parent
# Two cores hold two parts: most of a part is one program that waits for another.
AT_ONCE = 2
# Tests, and the programs that they start hundreds of times, are compiled once, into a folder that git does not see.
COMPILED = ("env", "-u", "PYTHONDONTWRITEBYTECODE", f"PYTHONPYCACHEPREFIX={ROOT / '.cache/compiled'}")
PYTEST = (*COMPILED, sys.executable, "-m", "pytest", "-q")
SYSTEM = "GAUDI_SIMULATOR_SYSTEM"


@dataclass(frozen=True)
class Part:
    """One line of make test.

    nodes: it starts simulated nodes or a virtual machine, so the images come first.
    tunes: it sets kernel settings, which are the whole machine's, and looks what they were: one such part at a time.
    """

    name: str
    command: tuple[str, ...]
    nodes: bool = False
    tunes: bool = False

    @property
    def scenario(self) -> str:
        """The Molecule scenario, whose nodes and files are the same on every system: one such part at a time."""
        kind, _, rest = self.name.partition(" ")
        return rest.split(" ")[0] if kind == "molecule" else ""

    @property
    def argument(self) -> str:
        """What names it on the command line; make cuts words at spaces."""
        return self.name.replace(" ", ":")


def scenario(name: str, *, tunes: bool = False, system: str = "") -> Part:
    """A Molecule scenario as a part; system: the nodes' operating system where it is not the scenario's own."""
    command = ("molecule", "test", "--scenario-name", name)
    if system:
        return Part(f"molecule {name} {system}", ("env", f"{SYSTEM}={system}", *command), nodes=True, tunes=tunes)
    return Part(f"molecule {name}", command, nodes=True, tunes=tunes)


IMAGES = Part("images", (sys.executable, "-m", "simulator", "images"))

# In this order they begin: what finds most mistakes, then the longest, so that the last ones end together.
TEST = (
    Part("lint", ("bash", "tests/lint.sh")),
    # tests/unit and tests/golden.
    Part("unit", (*PYTEST, "-n", "2", "--ignore=tests/integration")),
    Part("integration", (*PYTEST, "-n", "2", "tests/integration")),
    scenario("default", tunes=True),
    scenario("weights"),
    scenario("vm"),
    scenario("moved"),
    scenario("host_tuning", tunes=True),
    scenario("refusals"),
    scenario("rollback"),
    scenario("bare"),
    scenario("lived_in"),
    scenario("upgrade"),
    Part("readme", (sys.executable, "tests/readme.py"), nodes=True, tunes=True),
    scenario("topology"),
    scenario("fabric"),
    scenario("fabric_pairs"),
    Part("torch", (*PYTEST, "tests/fp8_torch.py")),
)

# The long loops of what runs in test as a sample, and the proof that tests of promises can fail.
MORE = (
    scenario("bare_faults"),
    scenario("fanout"),
    scenario("calibration"),
    scenario("images"),
    scenario("nfs"),
    scenario("interrupted", tunes=True),
    scenario("day_two"),
    # Each on the system that it does not have in make test.
    scenario("bare", system="debian12"),
    scenario("default", tunes=True, system="debian13"),
    Part("plans", (sys.executable, "-m", "tests.golden.canonical_plans")),
    Part("breaks", (sys.executable, "-m", "tests.breaks")),
    Part("kills fp8", ("env", "GAUDI_FP8_KILLS=50", *PYTEST, "-s", "tests/integration/fp8", "-k", "killed")),
    Part("kills weights", ("env", "GAUDI_WEIGHTS_KILLS=20", *PYTEST, "-s", "tests/unit/weights", "-k", "killed")),
)


def with_images(parts: Sequence[Part]) -> list[Part]:
    """Put the images before the parts, as the first of all, if one of them wants nodes."""
    return [IMAGES, *parts] if any(part.nodes for part in parts) else list(parts)


def next_part(waiting: Sequence[Part], running: Sequence[Part]) -> Part | None:
    """Choose the first part that may begin beside those that run; None if all have to wait."""
    building = IMAGES in running or IMAGES in waiting
    tuning = any(part.tunes for part in running)
    scenarios = {part.scenario for part in running} - {""}

    def may_begin(part: Part) -> bool:
        return not (part.nodes and building) and not (part.tunes and tuning) and part.scenario not in scenarios

    return next((part for part in waiting if may_begin(part)), None)


def run(parts: Sequence[Part], at_once: int, start: Callable[[Part], tuple[int, str]]) -> list[str]:
    """Run parts to their end and print a line for each; give what those that failed said.

    start runs one part and gives its status and what it printed; the first line is the part's own.
    """
    waiting, running, failed = list(parts), dict[Future[tuple[int, str]], Part](), list[str]()
    with ThreadPoolExecutor(at_once) as pool:
        while running or (waiting and not failed):
            while len(running) < at_once and not failed and (part := next_part(waiting, list(running.values()))):
                waiting.remove(part)
                running[pool.submit(start, part)] = part
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                del running[future]
                status, said = future.result()
                line, _, rest = said.partition("\n")
                print(line, flush=True)
                if status:
                    failed.append(rest)
    return failed


def start(part: Part) -> tuple[int, str]:
    """Run one part through part.sh."""
    command = ["bash", "tests/part.sh", part.name, *part.command]
    done = subprocess.run(command, cwd=ROOT, check=False, stdout=subprocess.PIPE, text=True, errors="replace")
    return done.returncode, done.stdout


def shown(part: Part) -> tuple[int, str]:
    """Run one part where everybody sees it."""
    return subprocess.run(["bash", "tests/part.sh", part.name, *part.command], cwd=ROOT, check=False).returncode, ""


def main() -> int:
    """Run what is asked for; 1 when something failed."""
    known = {part.argument: part for part in (IMAGES, *TEST, *MORE)}
    parser = argparse.ArgumentParser(prog="python -m tests.parts", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(known))
    parser.add_argument("--all", action="store_true", help="the long loops, too")
    parser.add_argument("--molecule", action="store_true", help="the Molecule scenarios of make test")
    options = parser.parse_args()
    if unknown := [name for name in options.parts if name not in known]:
        parser.error(f"there is no part {', '.join(unknown)}; there are {', '.join(known)}")
    everything = (*TEST, *MORE) if options.all else TEST
    scenarios = [part for part in TEST if part.name.startswith("molecule ")] if options.molecule else []
    named = [known[name] for name in options.parts]
    chosen = [*scenarios, *(part for part in named if part not in scenarios)] or list(everything)
    loud = os.environ.get("V") == "1"
    # Between the images and the first node, and between two scenarios, nothing else shows that they are needed.
    with host.in_use() if any(part.nodes for part in chosen) else contextlib.nullcontext():
        failed = run(with_images(chosen), 1 if loud else AT_ONCE, shown if loud else start)
    for said in failed:
        print(said, end="")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
