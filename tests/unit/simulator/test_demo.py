"""What the demo runs, and what it says where that fails."""

from __future__ import annotations

import contextlib
import io
import sys
from pathlib import Path

import pytest

from simulator import demo
from simulator.report import Report
from simulator.settings import ROOT, Scope, SimulatorError


def test_a_run_that_ended_early_names_the_file_with_all_that_it_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo, "_prepare", lambda *_: None)
    monkeypatch.setattr(demo, "_playbook", lambda *_: (2, tmp_path / "site.log"))
    with pytest.raises(SimulatorError, match=r"ended with status 2. All it said: .*site\.log"):
        demo._show(Scope("x"), "1.22", "gaudi2-oam8", Report(io.StringIO(), io.StringIO()), 0.0)


@pytest.mark.parametrize(
    ("statuses", "complaint"),
    [
        ([0, 0, 0], "The change that cannot serve did not fail. All it said: .*change.log"),
        ([0, 2, 3], "status.yml ended with status 3. All it said: .*status.log"),
        ([0, 2, 0], ""),
    ],
)
def test_the_change_of_the_demo_has_to_fail_and_the_node_to_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, statuses: list[int], complaint: str
) -> None:
    ran: list[tuple[str, ...]] = []

    def playbook(_scope: Scope, _report: Report, name: str, *options: str) -> tuple[int, Path]:
        ran.append((name, *options))
        return statuses[len(ran) - 1], tmp_path / ("change.log" if options else f"{name}.log")

    monkeypatch.setattr(demo, "_prepare", lambda *_: None)
    monkeypatch.setattr(demo, "_playbook", playbook)
    with pytest.raises(SimulatorError, match=complaint) if complaint else contextlib.nullcontext():
        demo._show(Scope("x"), "1.22", "gaudi2-oam8", Report(io.StringIO(), io.StringIO()), 0.0)
    assert ran[1][-2:] == ("-e", demo.FAILING_CHANGE)
    assert (ROOT / demo.FAILING_CHANGE.lstrip("@")).is_file()


def test_a_playbook_runs_in_the_scope_and_says_what_it_says_into_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    play = tmp_path / "ansible-playbook"
    play.write_text('#!/bin/sh\necho "$GAUDI_SIMULATOR_SCOPE $LC_ALL $*" > "$ANSIBLE_LOG_PATH"\nexit 4\n')
    play.chmod(0o755)
    # Ansible refuses to run with it, before it has a log.
    monkeypatch.setenv("LC_ALL", "C")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setattr(Scope, "directory", tmp_path)
    report = Report(io.StringIO(), io.StringIO())
    assert demo._playbook(Scope("x"), report, "site") == (4, tmp_path / "site.log")
    assert (tmp_path / "site.log").read_text() == "x C.UTF-8 -i inventories/simulated site.yml\n"
    assert demo._playbook(Scope("x"), report, "site", "--tags", "summary") == (4, tmp_path / "change.log")
    assert demo._playbook(Scope("x"), report, "status") == (4, tmp_path / "status.log")
    assert (tmp_path / "status.log").read_text() == "x C.UTF-8 -i inventories/simulated playbooks/status.yml\n"


def test_a_release_that_has_no_image_made_from_the_built_one_is_refused() -> None:
    with pytest.raises(SimulatorError, match=r"shows releases 1.22 and 1.21 and those with .*, not 1.18"):
        demo.run(Scope("x"), "1.18")


@pytest.mark.parametrize(
    ("release", "described", "start"),
    [
        ("1.22", None, "From a bare node to"),
        ("1.24.1", demo.BARE, "From a bare node to"),
        ("1.24.1", "gaudi3-oam8", "From a node with its driver to"),
        ("1.24.1", None, "From a node with its driver to"),
    ],
)
def test_the_headline_says_what_the_node_starts_with(
    monkeypatch: pytest.MonkeyPatch, release: str, described: str | None, start: str
) -> None:
    monkeypatch.setattr(demo, "_prepare", lambda *_: None)
    monkeypatch.setattr(demo, "_playbook", lambda _scope, _report, _name, *options: (2 if options else 0, Path("log")))
    said = io.StringIO()
    demo._show(Scope("x"), release, described, Report(said, io.StringIO()), 0.0)
    assert said.getvalue().strip().startswith(start)
