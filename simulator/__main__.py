"""Command line: python -m simulator engine | ..."""

from __future__ import annotations

import argparse
import sys

from simulator import engine
from simulator.settings import SimulatorError


def main() -> int:
    """Run one command; a failure is one sentence and status 1."""
    parser = argparse.ArgumentParser(prog="python -m simulator", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("engine", help="make sure a Docker engine answers")
    parser.parse_args()
    try:
        client = engine.ensure()
        version = client.version()["Version"]
        print(f"Docker engine {version} answers")
    except SimulatorError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
