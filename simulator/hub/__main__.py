"""Serve folders as a simulated hub: python -m simulator.hub --address 0.0.0.0 --name HOST owner/name=FOLDER ..."""

from __future__ import annotations

import argparse
import signal
import tempfile
from pathlib import Path

from simulator.hub import git
from simulator.hub.modelscope import ModelScopeFront
from simulator.hub.server import Front, HubHandler, running


def main() -> None:
    """Serve until told to end."""
    parser = argparse.ArgumentParser(prog="python -m simulator.hub", description="Serve folders as a simulated hub.")
    parser.add_argument("--kind", choices=["huggingface", "modelscope", "git"], default="huggingface")
    parser.add_argument("--address", default="127.0.0.1", help="where to listen")
    parser.add_argument("--name", help="under what name clients reach it; the address by default")
    parser.add_argument("--port", type=int, default=8090, help="port of the hub; the delivery network has the next")
    parser.add_argument("--rate", type=int, default=0, help="bytes per second, 0 for no limit")
    parser.add_argument("--token", action="append", default=[], help="one that is known; others are refused")
    parser.add_argument("--private", action="append", default=[], metavar="OWNER/NAME", help="for known tokens alone")
    parser.add_argument("--xet", action="store_true", help="have large files in Xet storage, too")
    parser.add_argument("--commit", help="what it calls its commit, whatever that holds: a mirror that lies")
    parser.add_argument("repositories", nargs="+", metavar="OWNER/NAME=FOLDER")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="gaudi-hub-") as bare:
        fronts: dict[str, type[HubHandler]] = {
            "huggingface": Front,
            "modelscope": ModelScopeFront,
            "git": type("Host", (git.GitHost,), {"root": Path(bare)}),
        }
        where = {"address": arguments.address, "name": arguments.name}
        ports = {"port": arguments.port, "cdn_port": arguments.port + 1 if arguments.port else 0}
        with running(**where, **ports, front=fronts[arguments.kind]) as hub:
            hub.rate = arguments.rate
            hub.xet = arguments.xet
            hub.say = lambda text: print(text, flush=True)
            hub.tokens |= set(arguments.token)
            for item in arguments.repositories:
                name, _, folder = item.partition("=")
                private = name in arguments.private
                if arguments.kind == "git":
                    made = git.publish(hub, name, Path(folder), Path(bare), private=private)
                else:
                    made = hub.repository(name, Path(folder), private=private)
                    if arguments.commit:
                        made.rename(arguments.commit)
                print(f"{hub.endpoint}/{name} at {made.main}", flush=True)
            signal.sigwait({signal.SIGTERM, signal.SIGINT})


if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
    main()
