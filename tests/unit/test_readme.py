"""What the README's demo leaves behind is found; what other demos and scenarios have up is not taken for it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from ansible.module_utils.gaudi.jobs.decisions import progress_text

import simulator.__main__ as simulator_command
from simulator import demo, engine, nodes, world
from simulator.settings import IMAGES, LABEL, Scope, SimulatorError
from tests import readme

# Says that it runs, then waits until it may end.
WAITS = "print('runs', flush=True); input()"


@pytest.mark.parametrize(
    ("what", "scope", "ours"),
    [
        ("containers", readme.SCOPE, True),
        ("volumes", "", True),
        ("volumes", IMAGES, True),
        ("containers", IMAGES, False),
        ("networks", "demo", False),
        ("volumes", "molecule-weights", False),
    ],
)
def test_another_scope_is_no_trace(what: str, scope: str, *, ours: bool) -> None:
    assert readme.could_be_ours(what, scope) is ours


def test_the_transcript_and_the_demo_show_the_verdict_and_its_page() -> None:
    transcript = (readme.ROOT / "README.md").read_text(encoding="utf-8")
    (line,) = readme.ACCEPTED.findall(transcript)
    assert readme.unsaid(transcript, f"2026-11-25 p=1 u=root | {line}\n") == []
    assert readme.unsaid(transcript, line.replace("accepted", "FAILED")) == ["the demo"]
    assert readme.unsaid("", "cards and links: accepted at now") == ["README.md", "the demo"]


def test_the_transcript_shows_a_build_as_runs_do() -> None:
    transcript = (readme.ROOT / "README.md").read_text(encoding="utf-8")
    bar, shown = re.findall(r"image\S+\] \[([#.]+)\] (build: .*)$", transcript, re.MULTILINE)[0]
    progress = {"phase": "build: the vLLM fork", "began": 1.0, "done": 7, "total": 11, "unit": "steps"}
    assert shown == progress_text(progress, now=33.0)
    assert bar.count("#") == 7 * len(bar) // 11


def test_a_second_demo_begins_as_the_first_and_runs_what_the_readme_types_next(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    script = readme.demo_twice((readme.ROOT / "README.md").read_text(encoding="utf-8"))
    assert script.index("make demo\n") < script.index(readme.SECOND) < script.index("inventories/simulated site.yml\n")
    with pytest.raises(ValueError, match=r"no make demo with site.yml after it"):
        readme.demo_twice("```sh\nmake demo\n```\n")
    # The same node, and the same beside it.
    asked: list[tuple[str, list[str], str, dict[str, bool]]] = []

    def up(_client: object, scope: Scope, names: list[str], described: str, *_: object, **more: bool) -> None:
        asked.append((scope.name, names, described, more))

    monkeypatch.setattr(world, "up", up)
    monkeypatch.setattr(engine, "ensure", lambda *_: None)
    monkeypatch.setattr(Scope, "directory", tmp_path)
    monkeypatch.setattr(demo, "_playbook", lambda *_: (2, tmp_path))
    with pytest.raises(SimulatorError):
        demo.run(Scope("x"), world.wanted_release())
    chosen = simulator_command._parser().parse_args([*readme.SECOND.split()[3:], "--scope", "x"])
    beside = {"buildable": chosen.buildable, "packages": chosen.packages}
    assert asked == [(chosen.scope, [nodes.DEFAULT_NAME], chosen.describe, beside)]


def test_a_second_demo_that_builds_again_is_told() -> None:
    recap = "2026-11-26 | INFO|   simulated-gaudi-1 : ok=104 changed={} unreachable=0 failed=0 skipped=57\n"
    assert readme.built_again(recap.format(0) + "\n" + recap.format(7)) == []
    assert readme.built_again(recap.format(2)) == ["site.yml changed something after the demo"]
    building = "… [simulated-gaudi-1: image.1.22-378920fd3377] [###....] build: numactl\n"
    assert len(readme.built_again(building + recap.format(1))) == 2
    assert readme.built_again("") == ["site.yml did not end well after the demo"]


def test_a_page_is_read_for_the_demo() -> None:
    said = "-i inventories/mysite playbooks/logs.yml --limit gaudi-01 -e instance=chat\n"
    done = "-i inventories/simulated playbooks/logs.yml --limit simulated-gaudi-1 -e instance=simulated-tiny\n"
    assert readme.on_the_demo(said) == done


def test_what_two_pages_show_is_run_once_and_in_order() -> None:
    assert readme.once("make demo\nplay site.yml\nplay site.yml --check   # what would\nplay site.yml   # again\n") == (
        "make demo\nplay site.yml\nplay site.yml --check\n"
    )


def test_every_page_of_a_task_has_commands_and_names_the_next_playbooks() -> None:
    """What is no command block is run by nobody; and a playbook that is named has to be there."""
    _, _, one_page_a_task = (readme.ROOT / "README.md").read_text(encoding="utf-8").partition("One page a task:")
    for name in readme.PAGES:
        text = (readme.ROOT / f"docs/{name}.md").read_text(encoding="utf-8")
        assert readme.commands(text), name
        assert f"[{name}](docs/{name}.md)" in one_page_a_task, name
        named = re.findall(r"playbooks/\w+\.yml", text)
        assert [path for path in named if not (readme.ROOT / path).is_file()] == []


def test_the_labels_are_the_simulators() -> None:
    assert (readme.LABEL, readme.SHARED) == (LABEL, IMAGES)


@pytest.mark.parametrize(
    ("scope", "argument", "ours"),
    [
        (readme.SCOPE, "site.yml", True),
        ("demo", f"scopes/{readme.SCOPE}/ssh_config", True),
        ("molecule-weights", f"{readme.ROOT}/site.yml", False),
    ],
)
def test_a_process_is_known_by_its_scope(scope: str, argument: str, *, ours: bool) -> None:
    """Another scenario's processes name files of this checkout, too."""
    command = [sys.executable, "-c", WAITS, argument]
    environment = {**os.environ, "GAUDI_SIMULATOR_SCOPE": scope}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"runs\n"
        assert (" ".join(command) in readme.processes()) is ours
        process.communicate(b"\n")
