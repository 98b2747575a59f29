"""Run the measurements: all of them, or those that are named.

    python -m benchmarks              every module of this folder
    python -m benchmarks plan fp8     two of them
    python -m benchmarks --list       what there is

A measurement is a module with a ``main()`` that prints its table and returns 0 when it keeps its own limits.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import time
from pathlib import Path


def names() -> list[str]:
    """Measurements in this folder: modules with a ``main``; private ones (``_x``) are their helpers."""
    folder = Path(__file__).parent
    modules = sorted(path.stem for path in folder.glob("*.py") if not path.stem.startswith("_"))
    return [name for name in modules if hasattr(importlib.import_module(f"benchmarks.{name}"), "main")]


def about(name: str) -> str:
    """The first line of a measurement's documentation."""
    return (importlib.import_module(f"benchmarks.{name}").__doc__ or "").strip().partition("\n")[0]


def main() -> int:
    """Run what is asked for; 1 when a measurement missed its limits."""
    known = names()
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of {', '.join(known)}")
    parser.add_argument("--list", action="store_true", help="show what there is and end")
    options = parser.parse_args()
    unknown = sorted(set(options.names) - set(known))
    if unknown:
        parser.error(f"there is no measurement {', '.join(unknown)}; there are {', '.join(known)}")
    if options.list:
        for name in known:
            print(f"{name:16} {about(name)}")
        return 0
    missed = []
    for name in options.names or known:
        print(f"\n== {name}: {about(name)}", flush=True)
        begun = time.monotonic()
        # A measurement reads its own options, if it has any, from an empty command line.
        sys.argv = [f"python -m benchmarks.{name}"]
        if importlib.import_module(f"benchmarks.{name}").main():
            missed.append(name)
        print(f"-- {name} took {time.monotonic() - begun:.1f} s", flush=True)
    if missed:
        print(f"\nlimits missed by: {', '.join(missed)}")
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
