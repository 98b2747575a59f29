"""The benchmark of a build starts, asks for what it says it measures, and judges by the limit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import image
from tests.integration.image.test_build import BuildNode
from tests.unit.preflight.test_templates import evaluate, task_of

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize(("turn", "order"), [(0, ["ours", "ours", "plain"]), (1, ["plain", "ours", "ours"])])
def test_each_turn_builds_both_ways_from_nothing(tmp_path: Path, turn: int, order: list[str]) -> None:
    node = BuildNode(tmp_path)
    node.answers["builder"] = (0, "", {})
    requests = tmp_path / "requests"
    requests.mkdir()
    node.request(proxies={}).rename(requests / "request.json")
    for name, content in (("answers.json", node.answers), ("there.json", node.there)):
        (tmp_path / name).write_text(json.dumps(content))
    library = os.pathsep.join([str(ROOT / "module_utils"), str(ROOT / "roles/serving_image/files")])
    program, arguments = image.on_node(library, str(requests), turn)
    environment = {"PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-", *arguments]
    done = subprocess.run(command, input=program, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    measured = image.rows(json.loads(done.stdout))
    assert 0 < measured[image.BASE_LOOK] + measured[image.LABELS] < measured[image.WHOLE]
    assert measured[image.PLAIN] > 0
    # The program builds the image and adds its labels; docker build is asked for the image by its name.
    did = [words for words in node.asked if words[0] in ("build", "builder")]
    builds = ["ours" if "--progress=plain" in words else "plain" for words in did if words[0] == "build"]
    assert builds == order
    (plain,) = [words for words in did if words[0] == "build" and "--progress=plain" not in words]
    assert f"--tag={node.reference}" in plain
    # Nothing of one is left for the other.
    prunes = [number for number, words in enumerate(did) if words == ["builder", "prune", "--all", "--force"]]
    assert prunes == [0, 3 if turn == 0 else 2]


@pytest.mark.parametrize(
    ("whole", "look", "plain", "missed"),
    [
        # Ten seconds, or 5 %; the look into the base image is no part of it.
        (40.0, 2.0, 30.0, False),
        (43.0, 2.0, 30.0, True),
        (1060.0, 20.0, 1000.0, False),
        (1080.0, 20.0, 1000.0, True),
    ],
)
def test_the_limit_is_five_per_cent_or_ten_seconds(whole: float, look: float, plain: float, missed: bool) -> None:
    turn = {image.WHOLE: whole, image.BASE_LOOK: look, image.LABELS: 1.0, image.PLAIN: plain}
    lines, said = image.table([turn, turn, {**turn, image.WHOLE: 9000.0}])
    assert said is missed
    assert lines[-1] == f"| added, without the check | {whole - look - plain:.1f} |"


def test_it_starts() -> None:
    command = [sys.executable, "-m", "benchmarks.image", "--help"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert "--scope" in done.stdout
    assert "--runs" in done.stdout
    assert (ROOT / image.SITE).is_file()
    # Where the role puts them.
    job = task_of("serving_image", "build", "node_job")["node_job"]
    written = evaluate("serving_image", {"library": job["environment"]["PYTHONPATH"], "requests": job["mounts_for"]})
    assert written == {"library": str(image.LIBRARY), "requests": [str(image.REQUESTS)]}
