"""The command line: python -m simulator.vm up | down | status."""

from __future__ import annotations

import argparse
import sys

from simulator import engine, host
from simulator.settings import SimulatorError
from simulator.vm import image
from simulator.vm.machine import VirtualMachine, machines


def main() -> int:
    """Do what was asked; a SimulatorError's text is for people and needs no traceback."""
    parser = argparse.ArgumentParser(prog="python -m simulator.vm", description="Simulated virtual machines.")
    parser.add_argument("action", choices=["up", "down", "status"])
    parser.add_argument("name", nargs="?", default="vm", help="name of the machine (default: vm)")
    parser.add_argument("--package", action="append", default=[], help="one more of Debian's packages on its disk")
    chosen = parser.parse_args()
    try:
        if chosen.action == "status":
            for machine in machines():
                print(f"{machine.name}: {'running' if machine.process else 'off'}, {machine.inventory}")
        elif chosen.action == "down":
            VirtualMachine(chosen.name).down()
        else:
            with host.in_use():
                disk = image.ensure(engine.ensure(_say), chosen.package, _say)
            VirtualMachine(chosen.name).up(disk, _say)
    except SimulatorError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
