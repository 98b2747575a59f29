"""playbooks/explain.yml: which files and options it takes, and what it prints and writes."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.gaudi.base.refusal import Refusal

from plugin_utils import releases

ROOT = Path(__file__).resolve().parents[3]
BUSY = "RuntimeError: synStatus=20 [Device already acquired] Device acquire failed."


def plugin() -> Any:
    spec = importlib.util.spec_from_file_location("explain_log_action", ROOT / "action_plugins/explain_log.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


ACTION = plugin()


def run(folder: Path, *options: str, configuration: bool = True) -> subprocess.CompletedProcess[str]:
    """The playbook, started in another directory than the checkout's."""
    environment = {**os.environ, "ANSIBLE_NOCOLOR": "1", "COLUMNS": "120", "HOME": str(folder)}
    environment["ANSIBLE_CONFIG"] = str(ROOT / "ansible.cfg")
    if not configuration:
        del environment["ANSIBLE_CONFIG"]
    program = Path(sys.executable).with_name("ansible-playbook")
    words = [str(program), "-i", "localhost,", str(ROOT / "playbooks/explain.yml"), *options]
    return subprocess.run(words, cwd=folder, env=environment, check=False, capture_output=True, text=True)


def test_a_log_is_explained_on_the_terminal_and_as_json(tmp_path: Path) -> None:
    (tmp_path / "server.log").write_text(f"\x1b[2J{BUSY}\x1b]0;owned\x07\n")
    options = ("-e", "log=server.log", "-e", "release=1.24.1", "-e", "status=1", "-e", "output=cause.json")
    done = run(tmp_path, *options)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "[card-busy]" in done.stdout
    assert "What to do: " in done.stdout
    assert not {"\x1b", "\x07"} & set(done.stdout)
    written = json.loads((tmp_path / "cause.json").read_text(encoding="utf-8"))
    assert (written["id"], written["retry"], written["lines"]) == ("card-busy", True, [BUSY])
    assert all(written[key] for key in ("cause", "remedy"))
    again = run(tmp_path, *options)
    assert "changed=0" in again.stdout
    (tmp_path / "cause.json").unlink()
    assert "changed=1" in run(tmp_path, "--check", *options).stdout
    assert not (tmp_path / "cause.json").exists()


def test_the_checkouts_configuration_is_not_needed(tmp_path: Path) -> None:
    (tmp_path / "server.log").write_text(BUSY)
    done = run(tmp_path, "-e", "log=server.log", configuration=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "[card-busy]" in done.stdout


def test_an_unknown_cause_is_no_failure_of_the_run_and_a_missing_log_is(tmp_path: Path) -> None:
    (tmp_path / "server.log").write_text("ValueError: nobody has seen this before\n")
    done = run(tmp_path, "-e", "log=server.log")
    assert (done.returncode, "[unknown]" in done.stdout) == (0, True)
    assert "nobody has seen this before" in done.stdout
    for options in ((), ("-e", "log=other.log"), ("-e", '{"log": 5}'), ("-e", "log=server.log", "-e", "status=one")):
        done = run(tmp_path, *options)
        assert done.returncode == 2
        assert "Traceback" not in done.stdout + done.stderr
        assert "-e log=FILE" in done.stdout or "exit status" in done.stdout


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        (("-e", "log=server.log", "-e", "relase=1.22"), "no variable relase. Did you mean release?"),
        (("-e", '{"log": "server.log", "Status": 1}'), "no variable Status. Did you mean status?"),
        (("-e", "log=server.log", "-e", "driver=1.22"), "no variable driver. The playbook reads"),
    ],
)
def test_a_variable_that_nothing_reads_is_refused(tmp_path: Path, typed: tuple[str, ...], meant: str) -> None:
    (tmp_path / "server.log").write_text(BUSY)
    done = run(tmp_path, *typed)
    assert done.returncode == 2
    assert meant in " ".join(done.stdout.split())
    assert "log, output, release, status" in " ".join(done.stdout.split())


def test_variables_of_ansible_and_of_an_inventory_are_nobodys_mistake(tmp_path: Path) -> None:
    (tmp_path / "server.log").write_text(BUSY)
    (tmp_path / "hosts").write_text("localhost relase=1.22\n")
    python = f"ansible_python_interpreter={sys.executable}"
    assert run(tmp_path, "-i", "hosts", "-e", "log=server.log", "-e", python).returncode == 0


def test_variables_of_a_site_are_no_mistake_of_who_explains_a_log(tmp_path: Path) -> None:
    (tmp_path / "server.log").write_text(BUSY)
    (tmp_path / "site.yml").write_text("gaudi_release: '1.22'\nvllm_service_attempts: 3\nsite_contact: ops\n")
    site = ("-e", "log=server.log", "-e", "@site.yml", "-e", "gaudi_weights_fetch=true")
    assert run(tmp_path, *site).returncode == 0
    (tmp_path / "site.yml").write_text("relase: '1.22'\n")
    refused = run(tmp_path, *site)
    assert refused.returncode == 2
    assert "no variable relase. Did you mean release?" in " ".join(refused.stdout.split())


@pytest.mark.parametrize("value", ["", "  ", None, 5, True, ["a"], {"a": 1}, "a\0b"])
def test_what_names_no_file_is_refused(value: object) -> None:
    with pytest.raises(Refusal) as refusal:
        ACTION.path_of(value, "log")
    assert refusal.value.id == "no_file_named"


def test_a_relative_path_begins_where_the_command_was_typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert ACTION.path_of("a/b.log", "log") == tmp_path / "a/b.log"
    monkeypatch.setenv("HOME", str(tmp_path))
    assert ACTION.path_of("~/b.log", "log") == tmp_path / "b.log"


def test_only_a_file_is_read(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    (tmp_path / "gone").symlink_to(tmp_path / "nothing")
    for path, identifier in (
        (tmp_path, "log_is_no_file"),
        (pipe, "log_is_no_file"),
        (Path("/dev/zero"), "log_is_no_file"),
        (tmp_path / "missing", "log_unreadable"),
        (tmp_path / "gone", "log_unreadable"),
        (tmp_path / ("x" * 300), "log_unreadable"),
    ):
        with pytest.raises(Refusal) as refusal:
            ACTION.content(path)
        assert refusal.value.id == identifier


@pytest.mark.parametrize("value", ["9.9", "1.2", 1.24, True, ["1.24"], "../1.24"])
def test_an_unknown_release_is_refused_with_the_known_ones(value: object) -> None:
    with pytest.raises(Refusal) as refusal:
        ACTION.release_of(value)
    assert refusal.value.id == "unknown_release"
    assert all(name in str(refusal.value) for name in releases.names())


def test_every_release_and_none_are_taken() -> None:
    assert [ACTION.release_of(name) for name in ("", None, *releases.names())] == ["", "", *releases.names()]
    assert [ACTION.release_of(version) for version in ("v1.22.2", "1.24.1-482")] == ["1.22", "1.24.1"]


def test_the_software_of_a_release_and_of_a_version_is_known() -> None:
    assert ACTION.software_of("1.22")["kernel_newest"] == ACTION.software_of("1.22.2")["kernel_newest"]
    assert [ACTION.software_of(name) for name in ("", "9.9.9")] == [{}, {}]


@pytest.mark.parametrize("value", ["one", "-1", "256", "1.5", -1, 256, 1.5, True, ["1"], "\u0661"])
def test_what_is_no_exit_status_is_refused(value: object) -> None:
    with pytest.raises(Refusal) as refusal:
        ACTION.status_of(value)
    assert refusal.value.id == "status_out_of_range"


def test_exit_statuses_are_taken() -> None:
    assert [ACTION.status_of(value) for value in ("", None, "0", 0, "137", 255)] == [None, None, 0, 0, 137, 255]


def test_a_result_replaces_neither_the_log_nor_what_is_no_file(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_text(BUSY)
    (tmp_path / "same.log").symlink_to(log)
    for output in (log, tmp_path / "same.log", tmp_path, Path("/dev/null")):
        with pytest.raises(Refusal) as refusal:
            ACTION.check_output(output, log)
        assert refusal.value.id == "output_is_taken"
    with pytest.raises(Refusal) as refusal:
        ACTION.check_output(tmp_path / "nowhere/cause.json", log)
    assert refusal.value.id == "output_folder"
    ACTION.check_output(tmp_path / "cause.json", log)
