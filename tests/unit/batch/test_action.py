"""What the action batch_input does with files of the controller."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import pytest
from ansible.module_utils.gaudi.base.refusal import Refusal
from ansible.module_utils.gaudi.batch import lines

from action_plugins import batch_input

LINE = json.dumps(
    {"custom_id": "one", "method": "POST", "url": "/v1/completions", "body": {"model": "tiny", "prompt": "Hello"}}
)


def test_a_file_is_read_once_with_its_digest(tmp_path: Path) -> None:
    given = tmp_path / "in.jsonl"
    given.write_text(f"{LINE}\n\nwrong")
    asked, digest = batch_input.read(given)
    assert (asked.requests, asked.names) == (2, {"one"})
    assert asked.faults[0].startswith("line 3: ")
    assert digest == hashlib.sha256(given.read_bytes()).hexdigest()


def test_what_is_no_file_is_refused_and_not_opened(tmp_path: Path) -> None:
    given, pipe = tmp_path / "in.jsonl", tmp_path / "pipe"
    given.write_text(LINE)
    os.mkfifo(pipe)
    batch_input.check(given, tmp_path / "out.jsonl")
    for pair in ((pipe, given), (given, pipe), (tmp_path, given), (tmp_path / "none", given), (given, tmp_path)):
        with pytest.raises(Refusal) as refused:
            batch_input.check(*pair)
        assert refused.value.id == "batch_no_file"


def test_answers_do_not_take_the_place_of_requests(tmp_path: Path) -> None:
    given, link = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    given.write_text(LINE)
    link.symlink_to(given)
    for output in (given, link):
        with pytest.raises(Refusal) as refused:
            batch_input.check(given, output)
        assert refused.value.id == "batch_same_file"


def test_answers_of_before_are_counted_as_they_are_asked_now(tmp_path: Path) -> None:
    """Of an edited file, what is asked as before is not asked again."""
    output = tmp_path / "out.jsonl"
    assert batch_input.count_kept(lines.Input.read([LINE]), output) == 0
    output.write_text(json.dumps(lines.answered(lines.read_request(LINE), 200, {})) + "\n")
    more = LINE.replace('"custom_id": "', '"custom_id": "another-')
    assert batch_input.count_kept(lines.Input.read([LINE, more]), output) == 1
    assert batch_input.count_kept(lines.Input.read([LINE.replace('"body": {', '"body": {"seed": 1, ')]), output) == 0


def test_a_line_without_end_is_no_answer_and_is_not_kept_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is from a node, in an earlier run."""
    monkeypatch.setattr(lines, "LONGEST_LINE", 1000)
    output, another = tmp_path / "out.jsonl", LINE.replace('"custom_id": "', '"custom_id": "another-')
    long, short = (lines.answered(lines.read_request(LINE), 200, {"text": text}) for text in ("x" * 5000, "x"))
    other = lines.answered(lines.read_request(another), 200, {})
    asked = lines.Input.read([LINE, another])
    for first, count in ((long, 1), (short, 2)):
        output.write_text(f"{json.dumps(first)}\n{json.dumps(other)}\n")
        assert batch_input.count_kept(asked, output) == count
