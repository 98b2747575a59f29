"""Rewrite a requirement file of a checkout, and those that it includes: gaudi_build FILE [--replaced NAME] ...

Runs inside a build, on the image's own Python.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from gaudi.base.refusal import Refusal
from gaudi.image.requirements import included, rewritten


def rewrite(file: Path, replaced: list[str], dropped: list[str]) -> None:
    """Rewrite a file and what it includes, in place. setup.py reads the same files."""
    text = file.read_text(encoding="utf-8")
    file.write_text(rewritten(text, file.name, replaced, dropped), encoding="utf-8")
    for name in included(text):
        rewrite(file.parent / name, replaced, dropped)


def main() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser()
    parser.add_argument("file", type=Path)
    parser.add_argument("--replaced", action="append", default=[])
    parser.add_argument("--dropped", action="append", default=[])
    options = parser.parse_args()
    try:
        rewrite(options.file, options.replaced, options.dropped)
    except FileNotFoundError as error:
        print(f"gaudi-image refused no_requirement_file: The checkout has no {error.filename}.", file=sys.stderr)
        return 1
    except Refusal as refusal:
        print(f"gaudi-image refused {refusal.id}: {refusal}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
