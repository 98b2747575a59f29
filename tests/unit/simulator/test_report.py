from __future__ import annotations

import io

from simulator.report import Report


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_pipe_and_the_log_get_plain_lines_only() -> None:
    stream, log = io.StringIO(), io.StringIO()
    times = iter([1.0, 3.5])
    report = Report(stream, log, lambda: next(times))
    with report.phase("Docker engine"):
        report.passing("something passing")
    report.line("bold", style="1")
    assert stream.getvalue() == log.getvalue()
    assert "\033" not in stream.getvalue()
    assert "passing" not in stream.getvalue()
    assert stream.getvalue().splitlines()[0].split() == ["✓", "Docker", "engine", "2.5", "s"]


def test_a_terminal_sees_what_goes_on_and_the_log_does_not() -> None:
    stream, log = Terminal(), io.StringIO()
    report = Report(stream, log)
    report.passing("pulling")
    report.line("done", style="1")
    assert "pulling" in stream.getvalue()
    assert "\033[1mdone\033[0m\n" in stream.getvalue()
    assert log.getvalue() == "done\n"


def test_a_phase_shows_its_steps_with_their_own_times() -> None:
    stream = io.StringIO()
    times = iter([0.0, 1.0, 4.0, 4.0, 9.0, 9.5])
    report = Report(stream, io.StringIO(), lambda: next(times))
    with report.phase("Node") as say:
        say("Build")
        say("Push")
    assert [line.split() for line in stream.getvalue().splitlines()] == [
        ["·", "Build", "3.0", "s"],
        ["·", "Push", "5.0", "s"],
        ["✓", "Node", "9.5", "s"],
    ]
