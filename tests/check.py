"""make check: in under a minute, what most often goes wrong with what was touched.

    python tests/check.py              what differs from the last commit; the last commit where nothing does
    python tests/check.py --base REV   what differs from another commit

Ruff and mypy look at everything (mypy remembers), ansible-lint and the tests only at what was touched. What a change
breaks elsewhere, make test finds.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parent.parent
# Folders of tests, each with a folder a subject.
TIERS = ("unit", "golden", "integration")
# What ansible-lint looks at.
LINTED = ("roles/", "playbooks/", "molecule/", "inventories/", "site.yml")


def git(*arguments: str) -> list[str]:
    """The lines git prints."""
    done = subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True)
    return done.stdout.splitlines()


def touched(base: str | None) -> list[str]:
    """Names of the files that differ from a commit and still exist, sorted."""
    if base is None:
        base = "HEAD" if git("status", "--porcelain") else "HEAD~1"
    names = {*git("diff", "--name-only", base), *git("ls-files", "--others", "--exclude-standard")}
    return sorted(name for name in names if (ROOT / name).is_file())


def all_tests() -> list[PurePosixPath]:
    """Every file of tests, relative to the checkout, sorted."""
    found = (path for tier in TIERS for path in (ROOT / "tests" / tier).rglob("test_*.py"))
    return sorted(PurePosixPath(path.relative_to(ROOT)) for path in found)


def chosen_tests(names: Iterable[str], tests: Iterable[PurePosixPath]) -> list[str]:
    """Test files and folders for touched files: those of the same name, and those that name the file.

    ``names`` and ``tests`` are relative to the checkout. A touched test is itself, a helper of tests its folder. Any
    other file is tested by the folder of tests that is called as its own folder is, and by every test that imports it
    or has its name. Tests in tests/unit itself are about all files, and are always among them.
    """
    tests = list(tests)
    folders = {str(test.parents[-4]) for test in tests if len(test.parts) > 3}
    found = {str(test) for test in tests if len(test.parts) == 3 and test.parts[1] == "unit"}
    for name in names:
        path = PurePosixPath(name)
        if name.startswith(tuple(f"tests/{tier}/" for tier in TIERS)):
            found.add(name if path.name.startswith("test_") else str(path.parent))
            continue
        # Every plan follows from these.
        found |= {"tests/golden"} if path.parts[0] in ("catalog", "module_utils") else set()
        found |= {f"tests/{tier}/{path.parent.name}" for tier in TIERS} & folders
        found |= naming(path, tests)
    return sorted(name for name in found if not any(name.startswith(f"{other}/") for other in found))


def naming(path: PurePosixPath, tests: Iterable[PurePosixPath]) -> set[str]:
    """The tests that name a file: a module by its package, a plugin or program by its stem, others by their name."""
    package = re.escape(path.parent.name)
    stem = re.escape(path.stem)
    if path.parts[0] == "roles" and path.suffix != ".py":
        stem = re.escape(path.parts[1])
        package = "roles"
    word = re.compile(
        rf"\b{package}\.{stem}\b|\b{package} import [^\n]*\b{stem}\b|\b{package}/{stem}\b"
        if path.parts[0] in ("module_utils", "roles", "simulator")
        else rf"\b{stem}\b"
        if path.suffix == ".py"
        else rf"\b{re.escape(path.name)}"
    )
    return {str(test) for test in tests if word.search((ROOT / test).read_text(encoding="utf-8"))}


def main() -> int:
    """1 when anything failed; every part runs, so that one round shows all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", metavar="REV", help="look at what differs from this commit")
    names = touched(parser.parse_args().base)
    print(f"{len(names)} touched files")
    tests = chosen_tests(names, all_tests())
    yaml = [name for name in names if name.endswith((".yml", ".yaml")) and name.startswith(LINTED)]
    parts = {
        "ruff check": ["ruff", "check", "--quiet", "."],
        "ruff format": ["ruff", "format", "--quiet", "--check", "."],
        "mypy": ["mypy", "--no-error-summary"],
        "ansible-lint": ["ansible-lint", "--strict", "-q", *yaml] if yaml else [],
        "tests": [sys.executable, "-m", "pytest", "-q", "-n", "2", *tests] if tests else [],
    }
    failed = []
    for part, command in parts.items():
        if not command:
            print(f"  - {part}: nothing touched")
            continue
        begun = time.monotonic()
        status = subprocess.run(command, cwd=ROOT, check=False).returncode
        print(f"  {'✗' if status else '✓'} {part}: {time.monotonic() - begun:.0f} s")
        failed += [part] if status else []
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
