"""docs/from-the-manuals.md: its letters are those of the scripts, and its commands plan what the manuals start."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/from-the-manuals.md").read_text()
# The options of getopts in the scripts at the pins, without -h.
LETTERS = {
    "1.21": "wnmupdiotlbecrsfza",
    "1.22": "wtmadqipobguelcsf",
    "1.22-2025.11": "wtmadqxpbguelcsf",
    "deepseek-r1": "wuplbcsq",
}
BLOCK = re.compile(r"```sh\n(ansible-playbook playbooks/plan.yml .*?)```", re.DOTALL)
# What plans; one more asks every release about a model, which test_plan_playbook.py does.
COMMANDS = [match[1].replace("\\\n", " ") for match in BLOCK.finditer(PAGE) if "plan_requests" in match[1]]
# Of each example in its order: its release, and words of its server's command line.
STARTED = [
    ("1.21", ["--max-num-batched-tokens", "8192", "--max-model-len", "8192"]),
    ("1.22", ["--tensor-parallel-size", "2"]),
    ("1.22", ["--limit-mm-per-prompt", '{"image":5,"video":5}', "--mm-processor-kwargs", '{"max_pixels":1003520}']),
    ("deepseek-r1", ["--max-model-len", "16384", "--max-num-seqs", "128", "--kv-cache-dtype", "fp8_inc"]),
    ("1.18", ["--tensor-parallel-size", "1"]),
    ("1.16", ["--block-size", "128"]),
]


def test_each_letter_of_each_script_has_its_option() -> None:
    part = PAGE.split("## Letters of the start scripts")[1].split("\n## ")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in part.splitlines() if line.startswith("|")]
    names = rows[0][1:]
    found = {
        name: sorted("".join(re.findall(r"`-(\w)`", " ".join(row[place + 1] for row in rows[2:]))))
        for place, name in enumerate(names)
    }
    # -a of 1.22 is two options.
    assert {name: sorted(set(letters)) for name, letters in found.items()} == {
        name: sorted(letters) for name, letters in LETTERS.items()
    }


@pytest.mark.parametrize("place", range(len(COMMANDS)))
def test_the_examples_plan(place: int, tmp_path: Path) -> None:
    plans = tmp_path / "plans.json"
    program = Path(sys.executable).with_name("ansible-playbook")
    done = subprocess.run(
        [program, *shlex.split(COMMANDS[place])[1:], "-e", f"plan_output={plans}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (plan,) = json.loads(plans.read_text())
    assert "refused" not in plan, plan
    release, words = STARTED[place]
    assert plan["release"] == release
    assert any(plan["arguments"][at : at + 2] == words[:2] for at in range(len(plan["arguments"])))
    assert set(words) <= set(plan["arguments"])


def test_there_is_an_example_for_each_manual() -> None:
    assert len(COMMANDS) == len(STARTED)
    assert {"1.16", "1.18", "1.21", "1.22"} <= {release for release, _ in STARTED}
