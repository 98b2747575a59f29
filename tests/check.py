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
    "roles": (
        "tests/unit/base/test_paths.py",
        "tests/unit/preflight/test_borders.py",
        "tests/unit/preflight/test_contracts.py",
    ),
}
# As make test does (tests/parts.py).
COMPILED = ("env", "-u", "PYTHONDONTWRITEBYTECODE", f"PYTHONPYCACHEPREFIX={ROOT / '.cache/compiled'}")
# What ansible-lint looks at.
LINTED = ("roles/", "playbooks/", "molecule/", "inventories/", "site.yml")
# Documents that a test holds against the code.
DOCUMENTS = {
    "docs/compatibility.md": "tests/unit/preflight/test_compatibility.py",
    "docs/design.md": "tests/unit/test_rooms.py",
    "docs/faults.md": "tests/unit/faults/test_known.py",
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


# Modules of module_utils/gaudi that have no test file of their own name, with the files that test them. A module that
# is a step of something larger is tested by what comes out of it: to ask each step alone would repeat the rules.
_PLANS = ("test_every_plan.py", "planning/test_releases.py")
_TOPOLOGY = ("cards/test_document.py",)
_PLUGIN_BUCKETS = ("plugin_buckets/test_cases.py", "plugin_buckets/test_restated.py")
TESTED_IN: dict[str, tuple[str, ...]] = {
    # Sentences, checks and words that many modules share, in the tests of those.
    "base/absent": ("planning/test_refusals.py",),
    "base/checks": ("base/test_entering.py",),
    "base/listeners": ("node/test_listening.py",),
    "base/measured": ("calibration/test_run.py",),
    "base/refusal": ("base/test_refusals.py",),
    "base/units": ("jobs/test_decisions.py",),
    # What one reader of hl-smi and /sys contributes to the topology.
    **dict.fromkeys(("cards/findings", "cards/query", "cards/sources"), _TOPOLOGY),
    # Catalogue files are tested where they are read.
    "catalogue/build": ("image/test_recipe.py",),
    "catalogue/fabric": ("fabric/test_asked.py",),
    "catalogue/surface": ("planning/test_releases.py",),
    "catalogue/typed": ("planning/test_releases.py",),
    # The fields of an entry of the list of faults, and its sentence.
    **dict.fromkeys(("faults/entry", "faults/words"), ("faults/test_known.py",)),
    # One listing of apt, dpkg or DKMS each.
    "driver/apt_files": ("driver/test_packages.py",),
    "driver/boot": ("driver/test_module.py", "driver/test_troubles.py"),
    "driver/dkms": ("driver/test_kernels.py",),
    "driver/offered": ("driver/test_packages.py",),
    "engine/openpgp": ("base/test_values.py", "simulator/test_packages.py"),
    "node/engine_config": ("engine/test_engine_config.py",),
    "node/engine_look": ("engine/test_origin.py",),
    "node/package_look": ("engine/test_transaction.py",),
    # Parts of one report, one measurement, one look at links.
    "fabric/burn_in": ("fabric/test_nics.py", "library/test_fabric_check.py"),
    "fabric/drawing": ("fabric/test_report.py",),
    "fabric/gaudinet": ("fabric/test_static.py",),
    "fabric/markup": ("fabric/test_report.py",),
    "fabric/measuring": ("library/test_fabric_check.py",),
    # Families: the canonical plans and the vendor's cases hold their rules.
    **{f"families/{name}": _PLANS for name in ("defaults", "formulas", "shared")},
    **{f"families/{name}": (*_PLANS, "serving_cases/test_vendor_cases.py") for name in ("deepseek", "r121", "r122")},
    "families/base": ("families/test_plugin.py",),
    "families/registry": ("families/test_families.py",),
    "families/plugin_warmup": ("planning/test_buckets.py",),
    # Sentences about a host are tested through the module that says them, and through the program on nodes.
    "host/document": ("host/test_program.py",),
    "host/inspection": ("host/test_info.py",),
    "host/shell": ("host/test_grub.py",),
    # What is said of images, in the tests of the module that says it, and of the recipe.
    "image/comparison": ("image/test_contents.py",),
    "image/parts": ("image/test_recipe.py",),
    "image/table": ("image/test_contents.py",),
    # Reading and writing is tested by the modules that read and write.
    "node/apt": ("apt/test_config.py", "apt/test_faults.py", "apt/test_sources.py"),
    "node/containers": ("vllm_service/test_changes.py", "node/test_run_once.py"),
    "node/driver_look": ("driver/test_module.py",),
    "node/files": ("node/test_beneath.py", "node/test_documents.py"),
    "node/folders": ("node/test_beneath.py", "preflight/test_modules.py"),
    "node/instances": ("node/test_damaged.py", "preflight/test_modules.py"),
    "node/kept": ("vllm_service/test_rollback.py",),
    "node/links": ("library/test_fabric_check.py",),
    "node/reservations": ("cards/test_card_reservation.py", "node/test_damaged.py"),
    "node/tuning": ("host/test_info.py",),
    "node/weight_folders": ("weights/test_modules.py",),
    "pages/history": ("serving/test_kept.py",),
    "pages/written": ("vllm_service/test_changes.py",),
    # Steps of one plan.
    **{
        f"planning/{name}": (*_PLANS, "planning/test_refusals.py")
        for name in ("arguments", "chosen_cards", "merging", "network", "planner", "subject", "weights")
    },
    "planning/moved": ("families/test_plugin.py",),
    "planning/shared_card": ("planning/test_many.py",),
    # The same buckets, from each of the rules together.
    **{
        f"plugin_buckets/{name}": _PLUGIN_BUCKETS
        for name in ("made", "padding", "ranges", "server", "shapes", "strategies", "unified", "versions")
    },
    "preflight/keys": ("preflight/test_ranges.py",),
    "preflight/values": ("base/test_values.py",),
    # Records that the plan fills.
    **{f"request/{name}": _PLANS for name in ("node", "resolved")},
    "rules/draft": ("families/test_plugin.py",),
    "rules/memory": ("rules/test_manual_numbers.py",),
    "serving/cgroup": ("node/test_listening.py",),
    "serving/confinement": ("vllm_service/test_verify.py",),
    "serving/last_start": ("planning/test_buckets.py",),
    "serving/state": ("serving/test_kept.py",),
    "weights/how_to_get": ("weights/test_source_plan.py",),
    "weights/hub_kinds": ("weights/test_sources.py",),
    "weights/record": ("weights/test_modules.py",),
    "weights/table": ("weights/test_modules.py",),
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


def all_tests() -> list[PurePosixPath]:
    """Every file of tests, relative to the checkout, sorted."""
    found = (path for tier in TIERS for path in (ROOT / "tests" / tier).rglob("test_*.py"))
    return sorted(PurePosixPath(path.relative_to(ROOT)) for path in found)


def chosen_tests(names: Iterable[str], tests: Iterable[PurePosixPath]) -> list[str]:
    """Test files and folders for touched files: the folder of their package or role, and tests that name a plugin.

    ``names`` and ``tests`` are relative to the checkout. A touched test is itself; a helper of tests is its folder.
    What all packages build on (ROOTS) is tested by those tests of the others that import the very module.
    """
    tests = list(tests)
    folders = {str(test.parents[-4]) for test in tests if len(test.parts) > 3}
    found: set[str] = set()
    for name in names:
        path = PurePosixPath(name)
        top = path.parts[0]
        if name.startswith(tuple(f"tests/{tier}/" for tier in TIERS)):
            found.add(name if path.name.startswith("test_") else str(path.parent))
            continue
        if top in PLUGINS:
            found |= naming(rf"\b{re.escape(path.stem)}\b", tests)
            continue
        module = "/".join(path.with_suffix("").parts[2:])
        named = TESTED_IN.get(module, ()) if top == "module_utils" else ()
        found |= {str(test) for test in tests if "/".join(test.parts[2:]) in named}
        if str(path.parent) in ROOTS:
            found |= naming(rf"gaudi\.{path.parent.name}(\.| import [^\n]*\b){re.escape(path.stem)}\b", tests)
        own = path.parts[1:3] if top in ("module_utils", "roles") else ()
        if top == "catalog":
            found.add("tests/golden")
        others = next((said for place, said in TESTED_BY.items() if name.startswith(f"{place}/")), ())
        found |= {f"tests/{tier}/{subject}" for tier in TIERS for subject in (*own, *others)} & folders
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
    tests = sorted({*chosen_tests(names, all_tests()), *contracts(names)})
    yaml = [name for name in names if name.endswith((".yml", ".yaml")) and name.startswith(LINTED)]
    parts = {
        "ruff check": ["ruff", "check", "--quiet", "."],
        "ruff format": ["ruff", "format", "--quiet", "--check", "."],
        "mypy": ["mypy", "--no-error-summary"],
        "ansible-lint": ["ansible-lint", "--strict", "-q", *yaml] if yaml else [],
        "tests": [*COMPILED, sys.executable, "-m", "pytest", "-q", "-n", "2", *tests] if tests else [],
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
