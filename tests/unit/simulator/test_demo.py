"""What the demo says where Ansible ends before it comes to a host."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from simulator import demo, playbook
from simulator.report import Report
from simulator.settings import Scope, SimulatorError

REASON = "ERROR: Ansible requires the locale encoding to be UTF-8; Detected None."


def test_a_run_that_came_to_no_host_is_shown_with_its_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    output = tmp_path / "stdout"
    output.write_text(f"\x1b[0;31m{REASON}\x1b[0m\n\n")
    monkeypatch.setattr(demo, "_prepare", lambda *_: None)
    monkeypatch.setattr(playbook, "run", lambda *_, **__: playbook.Outcome(1, False, playbook.Progress(), output))
    shown, log = io.StringIO(), io.StringIO()
    monkeypatch.setattr(Scope, "directory", tmp_path)
    with pytest.raises(SimulatorError, match="ended with status 1"):
        demo._show(Scope("x"), "1.22", "gaudi2-oam8", Report(shown, log), 0.0)
    assert REASON in shown.getvalue().splitlines()


def test_only_the_last_lines_of_a_long_output_are_shown(tmp_path: Path) -> None:
    output = tmp_path / "stdout"
    output.write_text("".join(f"line {number}\n" for number in range(100)))
    lines = demo._last_words(output).splitlines()
    assert (lines[-1], len(lines)) == ("line 99", demo.LAST_WORDS)
    assert demo._last_words(tmp_path / "nothing") == "ansible-playbook said nothing."


def test_a_release_that_has_no_image_made_from_the_built_one_is_refused() -> None:
    with pytest.raises(SimulatorError, match=r"shows release 1.22 and those with the plugin, .*, not 1.21"):
        demo.run(Scope("x"), "1.21")
