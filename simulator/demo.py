"""The demo: a bare, simulated node, without driver, engine or image; site.yml; and an answer of a real vLLM.

Then a change that cannot serve, which the node takes back.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from simulator import engine, nodes, world
from simulator.report import Report
from simulator.settings import ROOT, Scope, SimulatorError
from simulator.standins import description

BOLD = "1"
# Cards on the PCI bus, and nothing of the vendor's.
BARE = "gaudi2-oam8-bare"
# A change of the inventory whose server exits at once.
FAILING_CHANGE = "@simulator/failing_change.yml"
INTERRUPTED = "\nInterrupted. make demo goes on from here; make demo-clean takes everything away."


def run(scope: Scope, release: str, described: str | Path | None = None) -> None:
    """Run the demo on a scope's default node, which is reused when it is there already.

    The inventory's release is built on the node, which is bare unless another one is named; of another release the
    vault holds the image ready, and the node has its driver.
    """
    if not world.from_built(release):
        raise SimulatorError(
            f"The demo shows releases {world.wanted_release()} and {world.FORK} and those with the plugin, 1.23 and "
            f"later, not {release}."
        )
    directory = scope.directory
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / "demo.log").open("w") as log:
        report = Report(sys.stdout, log)
        started = time.monotonic()
        _show(scope, release, described, report, started)


def _show(scope: Scope, release: str, described: str | Path | None, report: Report, started: float) -> None:
    report.line()
    report.line(_headline(described or (BARE if release == world.wanted_release() else None)), style=BOLD)
    report.line()
    _prepare(scope, release, described, report)
    report.line()
    status, said = _playbook(scope, report, "site")
    if status:
        raise SimulatorError(f"site.yml ended with status {status}. All it said: {_relative(said)}")
    report.total(time.monotonic() - started)
    report.line()
    report.line("  The words mean nothing: the simulated model is random numbers. What serves it is a real vLLM.")
    report.line()
    _change(scope, report)
    _what_next(scope, report)


def _change(scope: Scope, report: Report) -> None:
    """Make a change that cannot serve, and show that the node serves as before."""
    report.line("A change that cannot serve: a chat template that is not there. The run fails; the node takes it back.")
    report.line()
    status, said = _playbook(scope, report, "site", "--tags", "vllm_service", "-e", FAILING_CHANGE)
    if not status:
        raise SimulatorError(f"The change that cannot serve did not fail. All it said: {_relative(said)}")
    status, said = _playbook(scope, report, "status")
    if status:
        raise SimulatorError(f"status.yml ended with status {status}. All it said: {_relative(said)}")


def _headline(described: str | Path | None) -> str:
    start = "a bare node" if described == BARE else "a node with its driver"
    return f"From {start} to an answered question. The node and its cards are simulated."


def _prepare(scope: Scope, release: str, described: str | Path | None, report: Report) -> None:
    with report.phase("Docker engine") as say:
        client = engine.ensure(say)
    name, wanted = nodes.DEFAULT_NAME, release == world.wanted_release()
    described = described or (BARE if wanted else description.DEFAULT)
    with report.phase(f"Simulated node {name} ({described}), and vault") as say:
        world.up(client, scope, [name], described, say, [release], buildable=wanted, packages=described == BARE)


def _playbook(scope: Scope, report: Report, name: str, *options: str) -> tuple[int, Path]:
    """Run a playbook where everybody sees it: its status, and the file that takes what it prints, too."""
    playbook = "site.yml" if name == "site" else f"playbooks/{name}.yml"
    command = ["ansible-playbook", "-i", "inventories/simulated", playbook, *options]
    said = scope.directory / f"{'change' if options else name}.log"
    said.unlink(missing_ok=True)
    report.line(" ".join(command), style=BOLD)
    report.line()
    environment = {
        **os.environ,
        "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
        "ANSIBLE_LOG_PATH": str(said),
        "GAUDI_SIMULATOR_SCOPE": scope.name,
        # Ansible ends at once where it is another encoding's, and says so in no log.
        "LC_ALL": "C.UTF-8",
        # The virtual environment's ansible-playbook, also for who did not activate it.
        "PATH": f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}",
    }
    with subprocess.Popen(command, cwd=ROOT, env=environment) as running:
        try:
            status = running.wait()
        except KeyboardInterrupt:
            # The terminal sent it to both. Ansible ends its workers first.
            running.wait()
            raise
    report.line()
    return status, said


def _what_next(scope: Scope, report: Report) -> None:
    ssh = f"ssh -F {_relative(scope.directory / 'ssh_config')} {nodes.DEFAULT_NAME}"
    report.line("What a curious reader would type next:", style=BOLD)
    report.line(f"  {ssh} hl-smi")
    report.line(f"  {ssh} curl -s http://127.0.0.1:30001/v1/models")
    report.line("  .venv/bin/ansible-playbook -i inventories/simulated site.yml             # again: changed=0")
    report.line("  .venv/bin/ansible-playbook -i inventories/simulated playbooks/plan.yml   # what, and why")
    report.line("  make demo-clean                                                          # all of it but .venv")
    report.line()


def _relative(path: Path) -> str:
    return os.path.relpath(path, ROOT)
