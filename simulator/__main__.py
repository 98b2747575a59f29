"""Gaudi nodes without an accelerator: simulated, and driven over ssh as real ones are."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from pathlib import Path

import docker

from simulator import apt, cleaning, demo, engine, host, nodes, world
from simulator.settings import Scope, SimulatorError
from simulator.standins import description


def main() -> int:
    """Run one command; a failure is one sentence and status 1."""
    arguments = _parser().parse_args()
    command, uses = _COMMANDS[arguments.command]
    try:
        with host.in_use() if uses else contextlib.nullcontext():
            command(arguments)
    except SimulatorError as error:
        print(error, file=sys.stderr)
        return 1
    except docker.errors.APIError as error:
        print(f"The Docker engine refuses: {error.explanation or error}", file=sys.stderr)
        return 1
    return 0


def _engine(_: argparse.Namespace) -> None:
    version = engine.ensure().version()["Version"]
    print(f"Docker engine {version} answers")


def _images(_: argparse.Namespace) -> None:
    world.build(engine.ensure(), print)


def _up(arguments: argparse.Namespace) -> None:
    scope = Scope(arguments.scope)
    names = arguments.node or [nodes.DEFAULT_NAME]
    releases = [] if arguments.no_vault else arguments.release or [world.wanted_release()]
    started = world.up(
        *(engine.ensure(), scope, names, arguments.describe, print, releases, arguments.share),
        system=arguments.system,
        machine_settings=arguments.machine_settings,
        buildable=arguments.buildable,
        measuring=arguments.measuring,
        packages=arguments.packages,
    )
    for node in started:
        print(f"Simulated node {node.name} is up ({node.description}): ssh -F {_ssh_config(scope)} {node.name}")


def _down(arguments: argparse.Namespace) -> None:
    client = engine.existing()
    removed = world.down(client, Scope(arguments.scope), arguments.node) if client else []
    print(f"Removed {', '.join(removed)}" if removed else "Nothing to remove")


def _status(arguments: argparse.Namespace) -> None:
    scope = Scope(arguments.scope)
    client = engine.existing()
    if client is None:
        print("No Docker engine answers, so no simulated node runs")
        return
    for container in nodes.containers(client, scope):
        print(f"{container.name}  {container.status}")


def _demo(arguments: argparse.Namespace) -> None:
    try:
        demo.run(Scope(arguments.scope), arguments.release or world.wanted_release(), arguments.describe)
    except KeyboardInterrupt:
        raise SimulatorError(demo.INTERRUPTED) from None


def _clean(arguments: argparse.Namespace) -> None:
    cleaning.clean(None if arguments.all else [Scope(arguments.scope)], print)


def _ssh_config(scope: Scope) -> Path:
    path = scope.directory / "ssh_config"
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def _described(value: str) -> str | Path:
    """A description is named, or given as a file."""
    return Path(value) if "/" in value or value.endswith((".yml", ".yaml")) else value


def _system(value: str) -> str:
    """One of the systems that nodes have; also checked where it comes from the environment."""
    if value not in apt.SUITES:
        raise argparse.ArgumentTypeError(f"no node has the system {value!r}. Known: {', '.join(apt.SUITES)}.")
    return value


# Each with whether it uses what another checkout's clean could remove.
_COMMANDS = {
    "engine": (_engine, False),
    "images": (_images, True),
    "up": (_up, True),
    "down": (_down, False),
    "status": (_status, False),
    "demo": (_demo, True),
    "clean": (_clean, False),
}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m simulator", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("engine", help="make sure a Docker engine answers")
    commands.add_parser("images", help="build what nodes and the vault need, and start nothing")
    up = commands.add_parser("up", help="start simulated nodes, or find them running")
    down = commands.add_parser("down", help="remove simulated nodes")
    status = commands.add_parser("status", help="list simulated nodes")
    show = commands.add_parser("demo", help="a bare simulated node, site.yml, and a question answered")
    clean = commands.add_parser("clean", help="remove every trace, nothing else")
    clean.add_argument("--all", action="store_true", help="of every scope")
    for command in (up, down, status, show, clean):
        command.add_argument(
            "--scope",
            default=os.environ.get("GAUDI_SIMULATOR_SCOPE", Scope().name),
            help="set of nodes that belong together (GAUDI_SIMULATOR_SCOPE, or demo)",
        )
    for command in (up, down):
        command.add_argument("--node", action="append", metavar="NAME", help="may be given several times")
    up.add_argument(
        "--describe",
        type=_described,
        default=description.DEFAULT,
        metavar="NAME|FILE",
        help="what the nodes look like (%(default)s)",
    )
    up.add_argument(
        "--system",
        type=_system,
        metavar="|".join(apt.SUITES),
        default=os.environ.get("GAUDI_SIMULATOR_SYSTEM", apt.SYSTEM),
        help="the nodes' operating system (GAUDI_SIMULATOR_SYSTEM, or %(default)s)",
    )
    show.add_argument("--describe", type=_described, metavar="NAME|FILE", help="what the node looks like (a bare one)")
    show.add_argument("--release", metavar="RELEASE", help="of the catalogue (the inventory's)")
    up.add_argument(
        "--release", action="append", metavar="RELEASE", help="its serving image is in the vault (the inventory's)"
    )
    up.add_argument("--share", metavar="DIRECTORY", help="is the same on all nodes of the scope that have it")
    up.add_argument(
        "--machine-settings",
        action="store_true",
        help="kernel settings of the node are those of this machine, and not copies of them",
    )
    up.add_argument(
        "--buildable",
        action="store_true",
        help="nodes build their images: git host, index and base image instead of a ready one",
    )
    up.add_argument(
        "--measuring",
        action="store_true",
        help="the vault holds a small image that measures the bandwidth between cards and serves nothing",
    )
    up.add_argument("--packages", action="store_true", help="a repository with stand-ins for the driver's packages")
    up.add_argument("--no-vault", action="store_true", help="nodes only")
    return parser


if __name__ == "__main__":
    sys.exit(main())
