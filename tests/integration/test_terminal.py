"""No text of a node controls the terminal of the person who runs a playbook: real runs, with such text everywhere."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.unit.terminal import on_a_terminal

ROOT = Path(__file__).resolve().parents[2]
# Renames the window, hides what follows, clears the screen, and the same as a single character of 8 bits.
HOSTILE = "\x1b]0;OWNED\x07\x1b[8m\x1b[2J\x9b2Jwords"
# A module of a node on which an attacker is root: it may print anything.
MODULE = f"""#!/usr/bin/python
# -*- coding: utf-8 -*-
WANT_JSON = True
import json, sys
words = {HOSTILE!r}
options = json.load(open(sys.argv[1]))
result = {{
    "changed": True, "failed": bool(options.get("fail")), "msg": words, "stdout": words, "words": words,
    "warnings": [words + " warned"], "deprecations": [{{"msg": words + " will go", "version": "99.0"}}],
    "diff": [{{"before": words + "\\n", "after": "new " + words + "\\n", "before_header": words}},
             {{"prepared": words}}],
    words: words,
}}
sys.stdout.write(json.dumps(result))
sys.stdout.flush()
sys.stdout.buffer.write(("\\n" + words + " after the result\\n").encode())
sys.stderr.buffer.write(words.encode())
"""
# Ansible's own colours, and what shows and removes the line at the bottom.
OURS = re.compile(r"\x1b\[(?:0|2|0;3\d|1;3\d|38;5;\d+)m|\r\x1b\[K")
TASKS: list[dict[str, Any]] = [
    {"name": "Ask", "hostile": {}, "register": "node", "notify": "React"},
    {"name": "Fetch {{ node.words }}", "hostile": {}},
    {"name": "Take each", "hostile": {}, "loop": ["{{ node.words }}"]},
    {"name": "Skip each", "hostile": {}, "loop": ["{{ node.words }}"], "when": False},
    {"name": "Fail each", "hostile": {"fail": True}, "loop": ["{{ node.words }}"], "ignore_errors": True},
    {"name": "Fail", "hostile": {"fail": True}, "ignore_errors": True},
    {"name": "Try", "hostile": {"fail": True}, "retries": 1, "delay": 0, "until": "false", "ignore_errors": True},
    {"name": "Wait", "hostile": {}, "async": 60, "poll": 1},
    {"name": "Include", "ansible.builtin.include_tasks": "more.yml", "loop": ["{{ node.words }}"]},
    {"name": "Tell", "ansible.builtin.debug": {"msg": "{{ node.words }}"}},
    {"name": "Tell a result", "ansible.builtin.debug": {"var": "node"}},
    {"name": "Count", "ansible.builtin.set_stats": {"data": {"words": "{{ node.words }}"}}},
    {"name": "Delegate", "ansible.builtin.command": {"argv": ["true"]}, "delegate_to": "{{ node.words }}"},
    {"name": "Refuse {{ node.words }}", "ansible.builtin.fail": {"msg": "{{ node.words }}"}},
]


def seen(folder: Path, *options: str, **variables: str) -> str:
    """Run the tasks on this machine as its own node, and return what a terminal gets."""
    (folder / "library").mkdir()
    (folder / "library" / "hostile.py").write_text(MODULE)
    (folder / "more.yml").write_text(json.dumps([{"name": "Do {{ item }}", "hostile": {}}]))
    handlers = [{"name": "React", "hostile": {}}]
    play = {"name": "A play", "hosts": "all", "gather_facts": False, "tasks": TASKS, "handlers": handlers}
    (folder / "play.yml").write_text(json.dumps([play]))
    here = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    (folder / "hosts.json").write_text(json.dumps({"all": {"hosts": {"a": here}, "vars": here}}))
    environment = {
        **os.environ,
        "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
        "ANSIBLE_DEPRECATION_WARNINGS": "1",
        "ANSIBLE_LIBRARY": str(folder / "library"),
        "ANSIBLE_SHOW_CUSTOM_STATS": "1",
        "COLUMNS": "120",
        "TERM": "xterm",
        **variables,
    }
    command = [str(Path(sys.executable).with_name("ansible-playbook")), "-i", str(folder / "hosts.json"), "--diff"]
    status, text = on_a_terminal([*command, *options, str(folder / "play.yml")], ROOT, environment)
    assert status == 2
    return text


def test_no_text_of_a_node_controls_it_with_another_callback(tmp_path: Path) -> None:
    text = seen(tmp_path, "-v", ANSIBLE_STDOUT_CALLBACK="ansible.builtin.default")
    for words in ("words warned", "words after the result", "words will go", "+new ", "Fetch ", "Refuse "):
        assert words in text
    assert [line for line in OURS.sub("", text).replace("\r\n", "\n").split("\n") if not line.isprintable()] == []


@pytest.mark.parametrize("options", [(), ("-v",), ("-vvv",)], ids=["plain", "v", "vvv"])
def test_no_text_of_a_node_controls_the_terminal(tmp_path: Path, options: tuple[str, ...]) -> None:
    text = seen(tmp_path, *options)
    # Each exit was used: a warning, one that Ansible prints itself, a deprecation, a difference with its colours,
    # names, a failure.
    differences = ("\x1b[0;32m+new ", "\x1b[0;31m-")
    for words in ("words warned", "words after the result", "words will go", *differences, "Fetch ", "Refuse "):
        assert words in text
    assert [line for line in OURS.sub("", text).replace("\r\n", "\n").split("\n") if not line.isprintable()] == []
