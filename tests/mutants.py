"""Compare how many small defects of the product two suites of tests notice, and which branches they reach.

    python -m tests.mutants --collect --before OLD --after NEW -n 2     once a commit: which test runs which line
    python -m tests.mutants --before OLD --after NEW --seed 38 --count 120 --jobs 2
    python -m tests.mutants ... --tests tests/unit/base tests/unit/model     a part of both suites alone

OLD and NEW are checkouts with everything committed. The changes (tests/mutations.py) are drawn from product files that
are equal in both, an equal number of each kind. Each change is made in a clone of each checkout, never in the checkout
itself. There the tests that cover its line run, those of the file's own subject first, until one fails. A test that
fails also without the change is left out, and the others run again. The outcomes are

    killed        a test fails, or a file of tests cannot be imported
    timeout       a test runs ten times as long as before, and at least two minutes; it counts as killed
    survived      every test that covers the line passes
    not covered   no test runs the line

Which tests cover a line: inside of functions, those in whose context coverage.py saw it, programs and modules that a
test starts included (tests/covering.py). A line outside of functions runs once, at import: there it is the tests that
run a line of the product that names what the statement defines, and the files of tests that name it.

Records are kept in .cache/mutants by commit, outcomes in .cache/mutants/seed-N.jsonl. What is there is not done again,
so that an interrupted run goes on. Branch coverage is of all product files, programs included, as one number.

Coverage.py measures with its C tracer: sys.monitoring has no contexts. --collect takes twice as long as the suite
without it. A change takes 3 to 20 seconds in each suite where a test notices it, and as long as all its tests where
none does: minutes for what everything uses.

A change can make a program do anything that the user may do. Run this where nothing can be lost.
"""

from __future__ import annotations

import argparse
import array
import contextlib
import functools
import hashlib
import json
import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from coverage import Coverage, CoverageData
from coverage.exceptions import CoverageWarning

from tests import covering, mutations
from tests.mutations import Mutant
from tests.naming import Names

ROOT = Path(__file__).resolve().parent.parent
PRODUCT = ("module_utils", "library", "plugin_utils", "filter_plugins", "action_plugins", "callback_plugins")
TESTS = ("tests/unit", "tests/golden", "tests/integration")
KILLED, TIMEOUT, SURVIVED, NOT_COVERED = "killed", "timeout", "survived", "not covered"
# Exit statuses of pytest, from its documentation: all passed; no test is left.
PASSED, NO_TESTS = 0, 5
# Seconds that a test has at least, and how often as long as without a change. The import of all files has the most.
TEST_SECONDS, TEST_TIMES, IMPORT_SECONDS = 120.0, 10, 600.0
# Bytes of memory that a program may ask for: a changed loop must not take the machine's.
MEMORY = 12 << 30

INI = """\
[run]
branch = True
core = ctrace
parallel = True
data_file = {folder}/parts/data
include =
    */gaudi/*
    */ansible/legacy/*
{products}
{more}
[paths]
library =
    {checkout}/module_utils/gaudi
    */gaudi
modules =
    {checkout}/library
    */ansible/legacy
"""
PROGRAMS = f"patch = fork, _exit\ncontext = ${{{covering.CONTEXT}}}\n"


def git(checkout: Path, *arguments: str) -> str:
    """Return what git prints."""
    return subprocess.run(
        ["git", "-C", str(checkout), *arguments], check=True, stdout=subprocess.PIPE, text=True
    ).stdout.strip()


@dataclass(frozen=True)
class Suite:
    """The tests of one checkout. tests: folders and files, relative to it."""

    checkout: Path
    commit: str
    tests: tuple[str, ...]
    folder: Path

    @classmethod
    def of(cls, checkout: Path, only: Sequence[str]) -> Suite:
        """Read a checkout; ``only``: a part of its tests. Raises ValueError where something is not committed."""
        if git(checkout, "status", "--porcelain"):
            raise ValueError(f"{checkout} has changes that are not committed. Commit them: records are kept by commit.")
        commit = git(checkout, "rev-parse", "HEAD")
        tests = tuple(each for each in only or TESTS if (checkout / each).exists())
        part = hashlib.sha256(" ".join(sorted(tests)).encode()).hexdigest()[:8] if only else "all"
        return cls(checkout, commit, tests, ROOT / ".cache" / "mutants" / f"{commit[:12]}-{part}")

    def clone(self, target: Path) -> None:
        """Make a clone of the commit that shares the checkout's objects and tools."""
        command = ["git", "clone", "--quiet", "--shared", "--no-checkout", str(self.checkout), str(target)]
        subprocess.run(command, check=True)
        git(target, "checkout", "--quiet", "--detach", self.commit)
        if (self.checkout / ".venv").exists():
            (target / ".venv").symlink_to((self.checkout / ".venv").resolve())

    def product(self) -> dict[str, str]:
        """The object of each product file."""
        listed = git(self.checkout, "ls-tree", "-r", self.commit, *PRODUCT)
        rows = (line.partition("\t") for line in listed.splitlines() if line.endswith(".py"))
        return {name: entry.split()[2] for entry, _, name in rows}

    def source(self, file: str) -> bytes:
        """The content of a file in the commit."""
        command = ["git", "-C", str(self.checkout), "cat-file", "blob", f"{self.commit}:{file}"]
        return subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout


def equal_sources(before: Suite, after: Suite) -> dict[str, bytes]:
    """Return the content of the product files that are the same, byte for byte, in both."""
    theirs = after.product()
    return {file: before.source(file) for file, entry in before.product().items() if theirs.get(file) == entry}


def start_pytest(arguments: Sequence[str], checkout: Path, plugin: Path, printed: Path, **more: str) -> Any:
    """Start pytest with the plugin in a checkout, in a process group of its own; ``printed`` gets what it prints."""
    shutil.copy(covering.__file__, plugin / "gaudi_covering.py")
    environment = {
        **os.environ,
        "ANSIBLE_CONFIG": str(checkout / "ansible.cfg"),
        # A change may leave a file as long as it was, and within the same second.
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONPATH": str(plugin),
        "COLUMNS": "120",
        **more,
    }
    command = ["prlimit", f"--data={MEMORY}", sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    with printed.open("w", encoding="utf-8") as stream:
        return subprocess.Popen(
            [*command, "-p", "gaudi_covering", "--hypothesis-seed=0", *arguments], cwd=checkout, env=environment,
            stdin=subprocess.DEVNULL, stdout=stream, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip


def end(running: Any, mark: Path) -> None:
    """End a pytest and what it started: its process group, and programs with this path in their environment."""
    with contextlib.suppress(ProcessLookupError):  # Nothing of it is left.
        os.killpg(running.pid, signal.SIGKILL)
    running.wait()
    for process in Path("/proc").glob("[0-9]*"):
        # A process may end meanwhile, and those of other users are not ours.
        with contextlib.suppress(OSError):
            if f"={mark}\0".encode() in (process / "environ").read_bytes():
                os.kill(int(process.name), signal.SIGKILL)


# What covers what.


def collect(suite: Suite, workers: int) -> None:
    """Run a suite with coverage.py, and keep which test runs which line."""
    if (suite.folder / "record.json").exists():
        return
    shutil.rmtree(suite.folder, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix="gaudi-mutants-") as folder:
        checkout, measured, plugin = (Path(folder, name) for name in ("checkout", "measured", "plugin"))
        suite.clone(checkout)
        (measured / "parts").mkdir(parents=True)
        plugin.mkdir()
        products = "\n".join(f"    {checkout}/{name}/*" for name in PRODUCT)
        for name, more in (("tests", ""), ("programs", PROGRAMS)):
            text = INI.format(folder=measured, checkout=checkout, products=products, more=more)
            (measured / f"{name}.ini").write_text(text, encoding="utf-8")
        begun, printed = time.monotonic(), Path(folder, "printed")
        more_workers = ["-n", str(workers)] if workers > 1 else []
        started = start_pytest(
            [*more_workers, *suite.tests], checkout, plugin, printed, **{covering.FOLDER: str(measured)}
        )
        try:
            status = started.wait()
        finally:
            end(started, measured)
        seconds = time.monotonic() - begun
        if status not in (0, 1):
            raise RuntimeError(f"pytest ended with {status}:\n{printed.read_text(errors='replace')[-4000:]}")
        record = merged(json.loads(path.read_text()) for path in sorted(measured.glob("record-*.json")))
        record |= {"root": str(checkout), "commit": suite.commit, "tests": suite.tests, "suite_seconds": seconds}
        record |= combine(measured, checkout, [*suite.product()])
        record["failed"] = fail_alone(suite, checkout, record["failed"])
        suite.folder.mkdir(parents=True)
        shutil.copy(measured / "data", suite.folder / "data")
        shutil.copy(printed, suite.folder / "printed")
        (suite.folder / "record.json").write_text(json.dumps(record), encoding="utf-8")


def merged(records: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Join what the workers of one run recorded."""
    users: dict[str, set[str]] = {}
    seconds: dict[str, float] = {}
    failed: set[str] = set()
    for record in records:
        for context, names in record["users"].items():
            users.setdefault(context, set()).update(names)
        seconds |= record["seconds"]
        failed |= set(record["failed"])
    return {"users": {each: sorted(users[each]) for each in users}, "seconds": seconds, "failed": sorted(failed)}


def combine(measured: Path, checkout: Path, files: Iterable[str]) -> dict[str, Any]:
    """Join the data of all processes; return how many branches and lines there are, and how many were reached."""
    ini = measured / "combine.ini"
    ini.write_text((measured / "tests.ini").read_text().replace("/parts/data", "/data").replace("parallel", "#"))
    whole = Coverage(config_file=str(ini))
    with warnings.catch_warnings():
        # A program that a test kills may leave an unfinished file.
        warnings.filterwarnings("ignore", "Data file .* isn't a coverage data file", CoverageWarning)
        whole.combine([str(measured / "parts")])
    whole.get_data().touch_files([str(checkout / file) for file in files])
    whole.save()
    report = measured / "report.json"
    whole.json_report(outfile=str(report), include=[f"{checkout}/{name}/*" for name in PRODUCT])
    totals = json.loads(report.read_text())["totals"]
    return {
        "branches": [totals["covered_branches"], totals["num_branches"]],
        "lines": [totals["covered_lines"], totals["num_statements"]],
    }


def fail_alone(suite: Suite, checkout: Path, failed: Sequence[str]) -> list[str]:
    """Return which of some tests fail without coverage.py, too."""
    with tempfile.TemporaryDirectory(prefix="gaudi-mutants-") as folder:
        return [test for test in failed if attempt(checkout, [test], {}, Path(folder)).status != PASSED]


class CoveringTests:
    """Which tests cover a line, from the record of a suite."""

    def __init__(self, suite: Suite) -> None:
        path = suite.folder / "record.json"
        if not path.exists():
            raise ValueError(f"There is no record of {suite.commit[:12]} yet. Run --collect first.")
        self.record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        self.seconds: dict[str, float] = self.record["seconds"]
        self.failed = set(self.record["failed"])
        self.data = CoverageData(basename=str(suite.folder / "data"))
        self.data.read()
        self.names = Names(suite.source, suite.product(), self._test_files(suite))
        self.lock = threading.Lock()
        self._lines: dict[str, dict[int, array.array[int]]] = {}
        self._numbers: dict[str, int] = {}
        self._contexts: list[str] = []

    def _test_files(self, suite: Suite) -> list[str]:
        return sorted({test.partition("::")[0] for test in self.seconds} & set(git(suite.checkout, "ls-files").split()))

    @functools.cached_property
    def by_file(self) -> dict[str, set[str]]:
        """The tests of each file."""
        found: dict[str, set[str]] = {}
        for test in self.seconds:
            found.setdefault(test.partition("::")[0], set()).add(test)
        return found

    def contexts(self, file: str, line: int) -> set[str]:
        """The contexts a line of a file ran in."""
        if file not in self._lines:
            contexts = self.data.contexts_by_lineno(f"{self.record['root']}/{file}")
            # Numbers, since a line that everything uses has thousands of contexts.
            self._lines[file] = {
                number: array.array(
                    "l", (self._numbers.setdefault(each, len(self._numbers)) for each in contexts[number])
                )
                for number in contexts
            }
            self._contexts = list(self._numbers)
        return {self._contexts[number] for number in self._lines[file].get(line, ())}

    def tests(self, mutant: Mutant) -> set[str]:
        """Return the tests that cover a change."""
        with self.lock:  # The data is one connection.
            found = self._within(mutant.file, mutant.line, mutant.last)
            found = found or self._within(mutant.file, *mutant.statement)
            if not self.names.in_function(mutant.file, mutant.line) or self._at_import(mutant):
                found |= self._named(mutant.file, mutant.line, set())
            return found - self.failed

    def _at_import(self, mutant: Mutant) -> bool:
        """Whether a function runs while its module is imported."""
        lines = range(mutant.line, mutant.last + 1)
        seen = {context for line in lines for context in self.contexts(mutant.file, line)}
        return any(not context or context.startswith("file ") for context in seen)

    def _within(self, file: str, first: int, last: int) -> set[str]:
        """The tests that run a line, or use what did; outside of functions, those that import the file themselves."""
        found = set[str]()
        for line in range(first, last + 1):
            here = self.contexts(file, line) - {""}
            if not self.names.in_function(file, line):
                here = {context for context in here if not context.startswith("file ")}
            found |= here
        return users(found, self.record["users"]) & self.seconds.keys()

    def _named(self, file: str, line: int, known: set[tuple[str, int]]) -> set[str]:
        """The tests that use what the outermost statement at a line defines."""
        defined = self.names.outermost(file, line)
        if (file, defined.first) in known:
            return set()
        known.add((file, defined.first))
        found: set[str] = set()
        for place, number in self.names.uses(file, defined):
            if self.names.in_function(place, number):
                found |= self._within(place, number, number)
            else:
                found |= self._named(place, number, known)
        for tests in self.names.test_files(file, defined):
            found |= self.by_file.get(tests, set())
        return found


def users(contexts: Iterable[str], using: Mapping[str, Sequence[str]]) -> set[str]:
    """Return contexts with all that use what ran in them, directly or not."""
    found, waiting = set[str](), list(contexts)
    while waiting:
        context = waiting.pop()
        if context not in found:
            found.add(context)
            waiting += using.get(context, ())
    return found


def in_order(tests: Iterable[str], file: str, seconds: Mapping[str, float]) -> list[str]:
    """Sort tests by file: those in the folder of a product file's package or of its name first, then the quickest."""
    files: dict[str, list[str]] = {}
    for test in sorted(tests):
        files.setdefault(test.partition("::")[0], []).append(test)
    path = Path(file)
    own = {path.stem, path.parent.name}

    def rank(name: str) -> tuple[bool, float, str]:
        words = {*Path(name).parent.parts, Path(name).stem.removeprefix("test_")}
        return not (own & words), sum(seconds.get(test, 0) for test in files[name]), name

    return [test for name in sorted(files, key=rank) for test in files[name]]


# What notices a change.


@dataclass(frozen=True)
class Attempt:
    """How pytest ended. status: pytest's, or None where it took too long. test: what failed, or ran too long."""

    status: int | None
    test: str
    printed: str


def attempt(checkout: Path, tests: Sequence[str], seconds: Mapping[str, float], folder: Path) -> Attempt:
    """Run tests in a checkout, in their order, until one fails. ``seconds``: how long each took before."""
    chosen, printed = folder / "chosen.txt", folder / "printed"
    running, failed = chosen.with_suffix(".running"), chosen.with_suffix(".failed")
    for path in (running, failed):
        path.unlink(missing_ok=True)
    chosen.write_text("\n".join(tests), encoding="utf-8")
    files = list(dict.fromkeys(test.partition("::")[0] for test in tests))
    started = start_pytest(["-x", *files], checkout, folder, printed, **{covering.CHOSEN: str(chosen)})
    begun = time.time()
    try:
        while True:
            try:
                status: int | None = started.wait(timeout=1)
                break
            except subprocess.TimeoutExpired:
                test, since, limit = "", begun, IMPORT_SECONDS
                if running.exists():
                    test, since = running.read_text(), running.stat().st_mtime
                    limit = max(TEST_SECONDS, TEST_TIMES * seconds.get(test, 0))
                if time.time() - since > limit:
                    return Attempt(None, test or "the import of its files", printed.read_text(errors="replace"))
    finally:
        end(started, chosen)
    test = failed.read_text() if failed.exists() else ""
    return Attempt(status, test, printed.read_text(errors="replace"))


@dataclass(frozen=True)
class Bench:
    """A clone of one suite's checkout to make changes in, and a folder for what runs there."""

    checkout: Path
    folder: Path


def judged(mutant: Mutant, covered: CoveringTests, bench: Bench) -> dict[str, Any]:
    """Make a change, run the tests that cover it, undo it; return the outcome."""
    tests = in_order(covered.tests(mutant), mutant.file, covered.seconds)
    number = len(tests)
    file = bench.checkout / mutant.file
    content = file.read_bytes()
    while tests:
        try:
            file.write_bytes(mutant.applied(content))
            tried = attempt(bench.checkout, tests, covered.seconds, bench.folder)
        finally:
            file.write_bytes(content)
        if tried.status in (PASSED, NO_TESTS):
            return {"outcome": SURVIVED, "by": "", "tests": number}
        # Without the change: the test that failed, or the tests of a file that could not be imported, or any one.
        culprit = tried.test
        again = [test for test in tests if test == culprit or test.startswith(f"{culprit}::")] or tests[:1]
        if attempt(bench.checkout, again, covered.seconds, bench.folder).status == PASSED:
            outcome = TIMEOUT if tried.status is None else KILLED
            return {"outcome": outcome, "by": culprit or "conftest.py", "tests": number}
        print(f"    {culprit} fails without a change: left out", flush=True)
        covered.failed.update(again)
        tests = [test for test in tests if test not in covered.failed]
    return {"outcome": NOT_COVERED, "by": "", "tests": number}


class Results:
    """Outcomes as JSON lines, kept as they come."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lock = threading.Lock()
        self.known: dict[tuple[str, str], dict[str, Any]] = {}
        if path.exists():
            text = path.read_text(encoding="utf-8")
            # The last line is not whole where a run was cut off.
            for line in text[: text.rfind("\n") + 1].splitlines():
                self._add(json.loads(line))
            path.write_text(text[: text.rfind("\n") + 1], encoding="utf-8")

    def _add(self, row: dict[str, Any]) -> None:
        self.known[(row["suite"], row["key"])] = row

    def add(self, row: dict[str, Any]) -> None:
        """Keep an outcome."""
        with self.lock:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a", encoding="utf-8") as stream:
                stream.write(json.dumps(row) + "\n")
            self._add(row)


def run(suite: Suite, mutants: Sequence[Mutant], jobs: int, results: Results) -> None:
    """Find the outcomes of a suite that are not known yet, some at a time."""
    name = suite.folder.name
    waiting = [mutant for mutant in mutants if (name, mutant.key) not in results.known]
    if not waiting:
        return
    covered = CoveringTests(suite)
    with tempfile.TemporaryDirectory(prefix="gaudi-mutants-") as top:
        free: queue.SimpleQueue[Bench] = queue.SimpleQueue()
        for number in range(min(jobs, len(waiting))):
            bench = Bench(Path(top, f"checkout{number}"), Path(top, f"folder{number}"))
            suite.clone(bench.checkout)
            bench.folder.mkdir()
            free.put(bench)

        def one(mutant: Mutant) -> None:
            bench, begun = free.get(), time.monotonic()
            try:
                outcome = judged(mutant, covered, bench)
            finally:
                free.put(bench)
            seconds = round(time.monotonic() - begun, 1)
            row = {"suite": name, "key": mutant.key, **asdict(mutant), **outcome, "seconds": seconds}
            results.add(row)
            shown = f"{outcome['outcome']}{' by ' if outcome['by'] else ''}{outcome['by']}"
            print(
                f"  {mutant.file}:{mutant.line} {mutant.change}: {shown}, {outcome['tests']} tests, {seconds:.0f} s",
                flush=True,
            )

        pool = ThreadPoolExecutor(jobs)
        try:
            list(pool.map(one, waiting))
        finally:
            pool.shutdown(cancel_futures=True)


def percent(reached: Sequence[int]) -> str:
    """The share of two numbers."""
    return f"{100 * reached[0] / reached[1]:.2f} % ({reached[0]} of {reached[1]})"


def table(mutants: Sequence[Mutant], suites: Sequence[Suite], results: Results) -> Iterator[str]:
    """Yield the lines of the table."""
    rows = [[results.known[(suite.folder.name, mutant.key)] for mutant in mutants] for suite in suites]
    records = [json.loads((suite.folder / "record.json").read_text(encoding="utf-8")) for suite in suites]

    def counted(*outcomes: str) -> str:
        return " | ".join(str(sum(row["outcome"] in outcomes for row in each)) for each in rows)

    yield f"| | before ({suites[0].commit[:8]}) | after ({suites[1].commit[:8]}) |"
    yield "| --- | ---: | ---: |"
    yield f"| changes | {len(mutants)} | {len(mutants)} |"
    yield f"| killed | {counted(KILLED, TIMEOUT)} |"
    yield f"| of these by a timeout | {counted(TIMEOUT)} |"
    yield f"| survived | {counted(SURVIVED)} |"
    yield f"| not covered | {counted(NOT_COVERED)} |"
    yield f"| branch coverage | {' | '.join(percent(record['branches']) for record in records)} |"
    yield f"| line coverage | {' | '.join(percent(record['lines']) for record in records)} |"
    yield f"| tests | {' | '.join(str(len(record['seconds'])) for record in records)} |"
    yield ""
    yield "| survivor | change | before | after |"
    yield "| --- | --- | --- | --- |"
    for mutant, *each in zip(mutants, *rows, strict=True):
        if any(row["outcome"] in (SURVIVED, NOT_COVERED) for row in each):
            change = re.sub(r"([|`])", r"\\\1", mutant.change)
            yield f"| {mutant.file}:{mutant.line} | {change} | {' | '.join(row['outcome'] for row in each)} |"


def main() -> int:
    """Collect, or run the changes and print the table."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.mutants", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--before", type=Path, required=True, metavar="PATH", help="checkout with the old suite")
    parser.add_argument("--after", type=Path, required=True, metavar="PATH", help="checkout with the new suite")
    parser.add_argument("--seed", type=int, default=38, metavar="N", help="what the changes are drawn with (38)")
    parser.add_argument("--count", type=int, default=120, metavar="N", help="how many changes (120)")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="how many changes at a time (1)")
    parser.add_argument("--collect", action="store_true", help="only record which test covers which line")
    parser.add_argument("-n", type=int, default=1, metavar="N", help="workers that collect (1)")
    parser.add_argument("--tests", nargs="+", default=[], metavar="PATH", help="a part of the tests")
    options = parser.parse_args()
    # Ended by make or a timeout, it removes its clones as well.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))
    try:
        suites = [Suite.of(path.resolve(), options.tests) for path in (options.before, options.after)]
        if options.collect:
            for suite in suites:
                collect(suite, options.n)
                record = json.loads((suite.folder / "record.json").read_text(encoding="utf-8"))
                print(f"{suite.commit[:8]}: {len(record['seconds'])} tests, {record['suite_seconds']:.0f} s,")
                print(f"  branches {percent(record['branches'])}, lines {percent(record['lines'])}")
                print("".join(f"  fails without a change: {test}\n" for test in record["failed"]), end="")
            return 0
        mutants = mutations.draw(equal_sources(*suites), options.seed, options.count)
        results = Results(ROOT / ".cache" / "mutants" / f"seed-{options.seed}.jsonl")
        print(f"{len(mutants)} changes, seed {options.seed}; {' '.join(options.tests or ['all tests'])}")
        for suite in suites:
            run(suite, mutants, options.jobs, results)
        print("\n".join(table(mutants, suites, results)))
    except ValueError as error:
        parser.error(str(error))
    return 0


if __name__ == "__main__":
    sys.exit(main())
