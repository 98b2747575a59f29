"""Break what SECURITY.md promises, a few words at a time, and require that the named test fails.

    python -m tests.breaks                   every break of tests/breaks.yml; make test-all runs this
    python -m tests.breaks --only TEXT       those whose promise, description, file or test contains the text
    python -m tests.breaks --jobs 2          two at a time, each in a copy of its own

Breaks are applied to a temporary copy of the checkout, never to the checkout itself. First the named tests have to pass
without any break. The status is 0 only if they do, and if every break is caught.
"""

from __future__ import annotations

import argparse
import os
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parent.parent
LIST = Path(__file__).with_suffix(".yml")
# Seconds that one named test may take. A broken program that hangs is not caught: the test itself has to end.
TEST_SECONDS = 300
# Exit statuses of pytest, from its documentation.
PASSED, FAILED = 0, 1
HUNG = -1


@dataclass(frozen=True)
class Break:
    """One break: ``before`` occurs once in ``file``, and with ``after`` in its place ``test`` must fail.

    promise: the words in bold in the row of SECURITY.md. breaks: what the change does.
    """

    promise: str
    breaks: str
    file: str
    before: str
    after: str
    test: str

    @property
    def title(self) -> str:
        """The promise and what breaks it."""
        return f"{self.promise}: {self.breaks}"

    def contains(self, text: str) -> bool:
        """Whether the promise, the description, the file or the test contains a text."""
        return any(text in part for part in (self.promise, self.breaks, self.file, self.test))

    def broken(self, content: str) -> str:
        """Return the content of the file with the break. Raises ValueError where ``before`` is not there once."""
        if content.count(self.before) != 1:
            raise ValueError(f"{self.title}: {self.file} has {content.count(self.before)} times {self.before!r}")
        return content.replace(self.before, self.after)


def load(text: str) -> list[Break]:
    """Read the list. Raises TypeError for an entry with other keys."""
    names = {field.name for field in fields(Break)}
    entries = yaml.safe_load(text)
    if wrong := [entry for entry in entries if set(entry) != names]:
        raise TypeError(f"A break has the keys {', '.join(sorted(names))}, and no others: {wrong[0]}")
    return [Break(**entry) for entry in entries]


def copy_checkout(target: Path) -> None:
    """Copy the files that git tracks or would track, as they are in the working tree."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    for name in listed.stdout.split("\0"):
        source = ROOT / name
        if name and (source.is_file() or source.is_symlink()):
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target / name, follow_symlinks=False)


def run_tests(tests: Sequence[str], checkout: Path, seconds: float) -> tuple[int, str]:
    """Run tests in a checkout; return pytest's status, or HUNG, and what it printed."""
    # Without compiled files: a break may leave a file as long as it was, and within the same second.
    environment = {
        **os.environ,
        "ANSIBLE_CONFIG": str(checkout / "ansible.cfg"),
        "PYTHONDONTWRITEBYTECODE": "1",
        "COLUMNS": "120",
    }
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests]
    with subprocess.Popen(
        command, cwd=checkout, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, errors="replace", start_new_session=True,
    ) as running:  # fmt: skip
        try:
            printed, _ = running.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            os.killpg(running.pid, signal.SIGKILL)
            printed, _ = running.communicate()
            return HUNG, printed
        return running.returncode, printed


def try_break(each: Break, checkout: Path) -> str | None:
    """Run the test of a break in a checkout that has it meanwhile. Return why it was not caught; None if it was."""
    file = checkout / each.file
    content = file.read_bytes()
    try:
        broken = each.broken(content.decode())
    except ValueError as error:
        return str(error)
    try:
        file.write_text(broken, encoding="utf-8")
        status, printed = run_tests([each.test], checkout, TEST_SECONDS)
    finally:
        file.write_bytes(content)
    if status == FAILED:
        return None
    if status == PASSED:
        return f"{each.test} passes"
    return (
        f"{each.test} does not end within {TEST_SECONDS} s"
        if status == HUNG
        else f"pytest ended with {status}:\n{printed}"
    )


def run_breaks(breaks: Sequence[Break], checkouts: Sequence[Path]) -> int:
    """Try breaks, one in each checkout at a time; print a line for each; return how many were caught."""
    free: queue.SimpleQueue[Path] = queue.SimpleQueue()
    for checkout in checkouts:
        free.put(checkout)

    def attempt(each: Break) -> tuple[float, str | None]:
        checkout, begun = free.get(), time.monotonic()
        try:
            why = try_break(each, checkout)
            return time.monotonic() - begun, why
        finally:
            free.put(checkout)

    caught = 0
    pool = ThreadPoolExecutor(len(checkouts))
    try:
        for each, (seconds, why) in zip(breaks, pool.map(attempt, breaks), strict=True):
            caught += why is None
            mark = "✓" if why is None else "✗"
            print(f"  {mark} {each.title}  {seconds:.0f} s", flush=True)
            if why is not None:
                print(f"      not caught: {why}", flush=True)
    finally:
        # Where this is ended, nothing new begins; the test that runs ends within its time.
        pool.shutdown(cancel_futures=True)
    return caught


def main() -> int:
    """Try the breaks that are asked for; 1 if a test fails without a break, or does not fail with one."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.breaks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", metavar="TEXT", default="", help="breaks with this text in promise, file or test")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="how many at a time (1)")
    options = parser.parse_args()
    breaks = [each for each in load(LIST.read_text(encoding="utf-8")) if each.contains(options.only)]
    # Ended by make or a timeout, it removes its copies as well.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))
    if not breaks:
        parser.error(f"no break contains {options.only!r}")
    with tempfile.TemporaryDirectory(prefix="gaudi-breaks-") as folder:
        checkouts = [Path(folder, str(number)) for number in range(max(options.jobs, 1))]
        for checkout in checkouts:
            copy_checkout(checkout)
        tests = list(dict.fromkeys(each.test for each in breaks))
        status, printed = run_tests(tests, checkouts[0], TEST_SECONDS * 4)
        if status != PASSED:
            print(f"The tests do not pass without a break:\n{printed}")
            return 1
        print(f"  ✓ {len(tests)} tests pass without a break", flush=True)
        caught = run_breaks(breaks, checkouts)
    print(f"{caught} of {len(breaks)} breaks caught")
    return int(caught < len(breaks))


if __name__ == "__main__":
    sys.exit(main())
