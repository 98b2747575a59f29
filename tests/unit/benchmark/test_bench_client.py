"""What runs in the serving image: the client, once for each concurrency, and its figures as lines."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import bench_client
import pytest

# Writes what it was given, as a client writes its results.
CLIENT = """
import json, os, sys
from pathlib import Path
given = sys.argv[1:]
folder = given[given.index("--result-dir") + 1]
print("  0%|          | 0/4", file=sys.stderr)
if "--fail" in given:
    sys.exit("client: it failed")
Path(folder, "openai.json").write_text(json.dumps(
    {"completed": 4, "model": "m", "itls": [1.0], "key": os.environ.get("OPENAI_API_KEY"), "seen": len(given)}))
Path(folder, "given").write_text(json.dumps(given))
"""


class Box:
    """A folder as the container sees it."""

    def __init__(self, home: Path) -> None:
        self.home = home
        (home / "client.py").write_text(CLIENT)
        self.asked: dict[str, Any] = {
            "program": str(home / "client.py"),
            "seed": 7,
            "input_tokens": 5,
            "prompts": "",
            "steps": [self.step(1), self.step(4)],
        }

    def step(self, number: int, *more: str) -> dict[str, Any]:
        folder = str(self.home / "results" / str(number))
        return {
            "concurrency": number,
            "requests": 4 * number,
            "results": folder,
            "arguments": ["--result-dir", folder, *more],
        }

    def run(self) -> subprocess.CompletedProcess[str]:
        (self.home / "asked.json").write_text(json.dumps(self.asked))
        return subprocess.run(
            [sys.executable, "-B", bench_client.__file__, str(self.home)],
            capture_output=True,
            text=True,
            check=False,
            env={"PATH": os.environ["PATH"]},
        )

    def given(self, number: int) -> list[str]:
        return list(json.loads((self.home / "results" / str(number) / "given").read_text()))


@pytest.fixture
def box(tmp_path: Path) -> Box:
    return Box(tmp_path)


def test_each_concurrency_is_a_line_of_numbers_behind_the_clients_words(box: Box) -> None:
    done = box.run()
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    results = [line for line in lines if line.startswith("RESULT ")]
    # Numbers alone: neither the model, nor what was answered.
    assert [json.loads(line[len("RESULT ") :]) for line in results] == [{"completed": 4, "seen": 4}] * 2
    # Bars and words come as one stream, in their order.
    assert lines.index("  0%|          | 0/4") < lines.index(results[0])
    # Another seed each: the prompts of one would be known from the other.
    assert (box.given(1)[-2:], box.given(4)[-2:]) == (["--seed", "7"], ["--seed", "8"])


def test_a_token_is_in_the_clients_environment_and_nowhere_else(box: Box) -> None:
    (box.home / "token").write_text("sk-secret\n")
    done = box.run()
    assert done.returncode == 0, done.stderr
    written = json.loads((box.home / "results/1/openai.json").read_text())
    assert written["key"] == "sk-secret"
    assert "sk-secret" not in done.stdout + done.stderr
    assert "sk-secret" not in str(box.given(1))


def test_a_client_that_fails_ends_it_with_its_status_and_its_words_last(box: Box) -> None:
    box.asked["steps"] = [box.step(1), box.step(2, "--fail"), box.step(4)]
    done = box.run()
    assert done.returncode == 1
    assert done.stdout.count("RESULT ") == 1
    assert done.stdout.rstrip().endswith("client: it failed")


def test_a_command_that_is_not_in_the_image_ends_it(box: Box) -> None:
    box.asked["program"] = "no-such-client"
    done = box.run()
    assert done.returncode != 0
    assert "no-such-client" in done.stderr


def test_old_clients_get_conversations_of_so_many_words(box: Box) -> None:
    box.asked["prompts"] = str(box.home / "prompts.json")
    assert box.run().returncode == 0
    conversations = json.loads((box.home / "prompts.json").read_text())
    prompts = [each["conversations"][0]["value"] for each in conversations]
    assert {len(prompt.split()) for prompt in prompts} == {5}
    # One for each request of the largest burst.
    assert len(prompts) == 16
    assert len(set(prompts)) == 16
