"""What the demo runs, and what it says where that fails."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from simulator import demo
from simulator.report import Report
from simulator.settings import Scope, SimulatorError


def test_a_run_that_ended_early_names_the_file_with_all_that_it_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo, "_prepare", lambda *_: None)
    monkeypatch.setattr(demo, "_site", lambda _scope, said: said.write_text("It failed.") and 2)
    monkeypatch.setattr(Scope, "directory", tmp_path)
    with pytest.raises(SimulatorError, match=r"ended with status 2. All it said: .*site\.log"):
        demo._show(Scope("x"), "1.22", "gaudi2-oam8", Report(io.StringIO(), io.StringIO()), 0.0)
    assert (tmp_path / "site.log").read_text() == "It failed."


def test_site_yml_runs_in_the_scope_and_says_what_it_says_into_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    play = tmp_path / "ansible-playbook"
    play.write_text('#!/bin/sh\necho "$GAUDI_SIMULATOR_SCOPE $*" > "$ANSIBLE_LOG_PATH"\nexit 4\n')
    play.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    assert demo._site(Scope("x"), tmp_path / "log") == 4
    assert (tmp_path / "log").read_text() == "x -i inventories/simulated site.yml\n"


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
    monkeypatch.setattr(demo, "_site", lambda *_: 0)
    said = io.StringIO()
    demo._show(Scope("x"), release, described, Report(said, io.StringIO()), 0.0)
    assert said.getvalue().strip().startswith(start)
