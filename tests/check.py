"""make check: in under a minute, what most often goes wrong with what was touched.

    python tests/check.py              what differs from the last commit; the last commit where nothing does
    python tests/check.py --base REV   what differs from another commit

Ruff and mypy look at everything (mypy remembers), ansible-lint and the unit tests only at what was touched. What a
change breaks elsewhere, make test finds.
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
UNIT = ROOT / "tests" / "unit"
PLUGINS = ("library", "action_plugins", "callback_plugins", "filter_plugins", "plugin_utils")
# Contracts over all modules, and over all places that give a refusal.
CONTRACTS = {
    "library": ("tests/unit/test_module_pages.py", "tests/unit/base/test_refusals.py", "tests/unit/base/test_paths.py"),
    "action_plugins": ("tests/unit/base/test_refusals.py",),
    "module_utils": (
        "tests/unit/base/test_refusals.py",
        "tests/unit/families/test_families.py",
        "tests/unit/test_rooms.py",
    ),
    "roles": ("tests/unit/base/test_paths.py",),
}
# What ansible-lint looks at.
LINTED = ("roles/", "playbooks/", "molecule/", "inventories/", "site.yml")
# Documents that a test holds against the code.
DOCUMENTS = {
    "docs/compatibility.md": "tests/unit/preflight/test_compatibility.py",
    "docs/design.md": "tests/unit/test_rooms.py",
    "docs/refusals.md": "tests/unit/base/test_refusals.py",
    "SECURITY.md": "tests/unit/test_security_page.py",
}
# Packages that nearly all others import.
ROOTS = ("module_utils/gaudi/base", "module_utils/gaudi/node")
# Where else a folder is tested than in the folder of tests that carries its name.
TESTED_BY = {
    "catalog": ("catalogue", "planning"),
    "playbooks": ("catalogue",),
    "simulator": ("simulator", "standins"),
    "roles/container_runtime": ("engine", "preflight"),
    "roles/fabric_check": ("fabric", "library"),
    "roles/fp8_calibration": ("calibration",),
    "roles/fp8_weights": ("fp8", "fp8_dynamic"),
    "roles/gaudi_driver": ("driver",),
    "roles/host_tuning": ("host",),
    "roles/model_weights": ("weights",),
    "roles/node_job": ("jobs",),
    "roles/node_library": ("base",),
    "roles/offline_batch": ("batch", "jobs"),
    "roles/serving_image": ("image",),
    "roles/summary": ("preflight",),
    "roles/weights_supply": ("weights",),
    "module_utils/gaudi/model": ("planning",),
    "module_utils/gaudi/families": ("planning",),
    "module_utils/gaudi/request": ("planning", "catalogue"),
    "module_utils/gaudi/rules": ("planning",),
    "module_utils/gaudi/fanout": ("weights", "calibration"),
    "module_utils/gaudi/engine": ("preflight",),
    "module_utils/gaudi/base": ("cards", "request"),
    "module_utils/gaudi/pages": ("planning", "vllm_service"),
    "module_utils/gaudi/serving": ("calibration", "vllm_service"),
}


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


def chosen_tests(names: Iterable[str], tests: Iterable[PurePosixPath]) -> list[str]:
    """Test files and folders for touched files: the folder of their package or role, and tests that name a plugin.

    ``names`` and ``tests`` are relative to the checkout. A touched test is itself; a helper of tests is its folder.
    What all packages build on (ROOTS) is tested by those tests of the others that import the very module.
    """
    tests = list(tests)
    folders = {test.parts[2] for test in tests if len(test.parts) > 3}
    found: set[str] = set()
    for name in names:
        path = PurePosixPath(name)
        top = path.parts[0]
        if name.startswith("tests/unit/"):
            found.add(name if path.name.startswith("test_") else str(path.parent))
            continue
        if top in PLUGINS:
            found |= naming(rf"\b{re.escape(path.stem)}\b", tests)
            continue
        if str(path.parent) in ROOTS:
            found |= naming(rf"gaudi\.{path.parent.name}(\.| import [^\n]*\b){re.escape(path.stem)}\b", tests)
        own = path.parts[1:3] if top in ("module_utils", "roles") else ()
        others = next((said for place, said in TESTED_BY.items() if name.startswith(f"{place}/")), ())
        found |= {f"tests/unit/{subject}" for subject in (*own, *others) if subject in folders}
    return sorted(name for name in found if not any(name.startswith(f"{other}/") for other in found))


def naming(pattern: str, tests: Iterable[PurePosixPath]) -> set[str]:
    """The tests in whose text something is found."""
    word = re.compile(pattern)
    return {str(test) for test in tests if word.search((ROOT / test).read_text(encoding="utf-8"))}


def contracts(names: Iterable[str]) -> set[str]:
    """Tests that hold something of every file of a kind, for touched files."""
    names = list(names)
    held = {DOCUMENTS[name] for name in names if name in DOCUMENTS}
    return held | {test for name in names for test in CONTRACTS.get(PurePosixPath(name).parts[0], ())}


def main() -> int:
    """1 when anything failed; every part runs, so that one round shows all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", metavar="REV", help="look at what differs from this commit")
    names = touched(parser.parse_args().base)
    print(f"{len(names)} touched files")
    there = [PurePosixPath(path.relative_to(ROOT)) for path in sorted(UNIT.rglob("test_*.py"))]
    tests = sorted({*chosen_tests(names, there), *contracts(names)})
    yaml = [name for name in names if name.endswith((".yml", ".yaml")) and name.startswith(LINTED)]
    parts = {
        "ruff check": ["ruff", "check", "--quiet", "."],
        "ruff format": ["ruff", "format", "--quiet", "--check", "."],
        "mypy": ["mypy", "--no-error-summary"],
        "ansible-lint": ["ansible-lint", "--strict", "-q", *yaml] if yaml else [],
        "unit tests": [sys.executable, "-m", "pytest", "-q", "-n", "2", *tests] if tests else [],
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
