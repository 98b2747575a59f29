"""The log of an instance: what journalctl is asked, what is shown of its answer, and how it is followed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.gaudi.serving import log
from ansible.utils.display import Display

from action_plugins import vllm_service_log
from library import vllm_service_info
from plugin_utils.following import Following
from tests.unit.host.modules import run_main

JOURNALCTL = r"""#!/bin/bash
echo "$@" >> "$0.asked"
if [[ " $* " == *" --since=nonsense "* ]]; then echo 'Failed to parse timestamp: nonsense' >&2; exit 1; fi
if [[ " $* " == *" --reverse "* ]]; then
    [[ " $* " == *" --since=today "* ]] && printf '%s\n' '{"__CURSOR":"s=9"}' '{"__CURSOR":"s=8"}'
    exit 0
fi
if [[ " $* " == *" --after-cursor="* ]]; then
    # The second look finds a line.
    [ "$(grep --count after-cursor "$0.asked")" -gt 1 ] || exit 0
    printf '%s\n' '2026-01-31T08:00:01+0000 gaudi-1 vllm-a[1]: serving' '-- cursor: s=2'
    exit 0
fi
printf '%s\n' $'2026-01-31T08:00:00+0000 gaudi-1 vllm-a[1]: \e[31mwarm-up' '-- cursor: s=1'
"""


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A journalctl that answers like the real one, and the file with what it was asked."""
    program = tmp_path / "journalctl"
    program.write_text(JOURNALCTL)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(vllm_service_info, "INTERVAL", 0.01)
    return tmp_path / "journalctl.asked"


def read(wait: int = 0, **options: Any) -> dict[str, Any]:
    """Run the module for the log of the instance a."""
    return run_main(vllm_service_info.__name__, {"log": {"instance": "a", **options}, "wait": wait})


def test_the_last_lines_of_the_unit_are_asked_for() -> None:
    """A time goes along as one argument, whatever is in it."""
    assert log.command("a", 5, "10 min ago; reboot", "")[-2:] == ["--lines=5", "--since=10 min ago; reboot"]
    assert "--unit=vllm-a.service" in log.command("a", 5, "", "")
    assert not [each for each in log.command("a", 5, "", "") if each.startswith("--since")]


def test_of_the_lines_since_a_time_the_last_are_shown(asked: Path) -> None:
    """journalctl 252 alone would show the first ones; so it is asked backwards where they begin."""
    assert len(read(since="today", lines=2)["lines"]) == 1
    first, second = asked.read_text().splitlines()
    assert first.endswith("--reverse --lines=2 --since=today")
    assert second.endswith("--no-pager --cursor=s=8")


def test_where_nothing_is_so_new_the_end_of_the_journal_is_found_as_ever(asked: Path) -> None:
    """A follower needs a cursor."""
    assert read(since="tomorrow")["cursor"] == "s=1"
    assert asked.read_text().splitlines()[1].endswith("--lines=100 --since=tomorrow")


def test_an_earlier_answer_counts_more_than_number_and_time() -> None:
    """A follower misses no line, and sees none twice."""
    arguments = log.command("a", 5, "today", "s=1")
    assert arguments[-1] == "--after-cursor=s=1"
    assert not [each for each in arguments if each.startswith(("--since", "--lines"))]


def test_the_cursor_is_no_line(asked: Path) -> None:
    """The last hundred lines, unless told otherwise."""
    found = read()
    assert (len(found["lines"]), found["cursor"]) == (1, "s=1")
    assert "--lines=100" in asked.read_text()


def test_a_follower_waits_for_the_next_line(asked: Path) -> None:
    """The first look finds nothing."""
    found = read(after="s=1", wait=60)
    assert (found["lines"], found["cursor"]) == (["2026-01-31T08:00:01+0000 gaudi-1 vllm-a[1]: serving"], "s=2")
    assert asked.read_text().count("\n") == 2


def test_a_follower_that_waited_in_vain_goes_on_from_where_it_was(asked: Path) -> None:
    """No line, and the cursor of before."""
    found = read(after="s=1")
    assert (found["lines"], found["cursor"]) == ([], "s=1")


def test_a_time_that_journalctl_does_not_know_is_said(asked: Path) -> None:
    """In journalctl's own words."""
    found = read(since="nonsense")
    assert found["failed"]
    assert (
        found["msg"]
        == "journalctl cannot read the log of a: Failed to parse timestamp: nonsense. " + vllm_service_info.MARKS
    )


@pytest.mark.parametrize("printed", ["", "-- No entries --\n"])
def test_a_journal_without_a_line_has_no_cursor(printed: str) -> None:
    """--quiet leaves the second out; an older journalctl might not."""
    assert log.lines_and_cursor(printed)[1] == ""


class LogNode:
    """What the action asks of the node, and what is answered, one after the other."""

    def __init__(self, *answers: dict[str, Any]) -> None:
        self.answers, self.asked = list(answers), list[dict[str, Any]]()

    def look(self, _module: str, arguments: dict[str, Any], *_rest: Any, **_words: Any) -> dict[str, Any]:
        self.asked.append(dict(arguments))
        return self.answers.pop(0)


def shown(node: LogNode, monkeypatch: pytest.MonkeyPatch, **options: Any) -> tuple[dict[str, Any], list[str]]:
    """What the action returns and what it shows."""
    lines: list[str] = []
    action = object.__new__(vllm_service_log.ActionModule)
    arguments = {"instance": "a", "lines": 100, "since": "", "follow": False, **options}
    monkeypatch.setattr(action, "_task", type("Task", (), {"check_mode": False}), raising=False)
    monkeypatch.setattr(Following, "run", lambda *_: {})
    monkeypatch.setattr(action, "validate_argument_spec", lambda **_: (None, arguments), raising=False)
    monkeypatch.setattr(action, "look", node.look, raising=False)
    monkeypatch.setattr(Display, "display", lambda _, text: lines.append(text))
    return action.run(task_vars={"inventory_hostname": "gaudi-1"}), lines


def test_what_is_shown_is_printable(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server's colours, and worse, do not reach the terminal of who looks."""
    node = LogNode({"lines": ["\x1b[31mred\x07"], "cursor": "s=1"})
    assert shown(node, monkeypatch) == ({"changed": False, "shown": 1}, ["[gaudi-1: a] red?"])
    assert node.asked == [{"log": {"instance": "a", "lines": 100, "since": ""}}]


def test_following_goes_on_from_each_answer_until_the_node_gives_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """No line is shown twice."""
    lost = {"unreachable": True, "msg": "gone"}
    node = LogNode({"lines": ["1"], "cursor": "s=1"}, {"lines": ["2", "3"], "cursor": "s=3"}, lost)
    assert shown(node, monkeypatch, follow=True) == (lost, ["[gaudi-1: a] 1", "[gaudi-1: a] 2", "[gaudi-1: a] 3"])
    assert [each["log"].get("after") for each in node.asked] == [None, "s=1", "s=3"]
