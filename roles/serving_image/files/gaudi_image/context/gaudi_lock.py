"""Add what pip reports to the lock of the image: gaudi_lock REPORT LOCK [--gone NAME] ...

Runs inside a build, on the image's own Python.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from gaudi.image.lock import added, installed


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser()
    parser.add_argument("report", type=Path)
    parser.add_argument("lock", type=Path)
    parser.add_argument("--gone", action="append", default=[])
    options = parser.parse_args()
    lines = installed(json.loads(options.report.read_text(encoding="utf-8")))
    before = options.lock.read_text(encoding="utf-8") if options.lock.exists() else ""
    options.lock.parent.mkdir(parents=True, exist_ok=True)
    options.lock.write_text(added(before, lines, options.gone), encoding="utf-8")


if __name__ == "__main__":
    main()
