"""The three modules: what they start, what they write, what they say; and that check mode writes nothing."""

from __future__ import annotations

import json
import os
import shutil
import socket
import stat
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.gaudi.engine import image_record
from ansible.module_utils.gaudi.image import sbom
from ansible.module_utils.gaudi.node import engine_config, folders, iommu, long_work, states
from ansible.module_utils.gaudi.weights import record as weights

from library import docker_daemon_json, gaudi_preflight, serving_image
from plugin_utils import releases
from tests.unit.node.damages import DAMAGES, damage
from tests.unit.preflight.conftest import PS, Answer, ModuleRun, Run

ROOT = Path(__file__).resolve().parents[3]
MODULES = [docker_daemon_json, gaudi_preflight, serving_image]
IMAGE = "vault.habana.ai/gaudi-docker/1.22.2/ubuntu22.04/habanalabs/pytorch-installer-2.7.1:1.22.2-32"
DIGEST = "sha256:" + "ab" * 32
PINNED = f"{IMAGE.rpartition(':')[0]}@{DIGEST}"


@pytest.mark.parametrize("module", MODULES, ids=lambda module: str(module.__name__.rpartition(".")[2]))
def test_documented_options_are_the_real_ones(module: ModuleType) -> None:
    def without(options: dict[str, Any], *left_out: str) -> dict[str, Any]:
        return {
            name: {
                key.replace("suboptions", "options"): without(said, *left_out) if key.endswith("options") else said
                for key, said in option.items()
                if key not in left_out
            }
            for name, option in options.items()
        }

    documented = yaml.safe_load(module.DOCUMENTATION)["options"]
    assert without(documented, "description") == without(module.ARGUMENT_SPEC, "no_log")
    assert yaml.safe_load(module.EXAMPLES)
    assert yaml.safe_load(module.RETURN)


# docker_daemon_json

INFO = {
    "Runtimes": {"habana": {"path": "/usr/bin/habana-container-runtime"}},
    "LiveRestoreEnabled": True,
    "LoggingDriver": "json-file",
    "RegistryConfig": {},
}
WISHES: dict[str, Any] = {
    "live_restore": True,
    "runtimes": {"habana": {"path": "/usr/bin/habana-container-runtime", "runtimeArgs": []}},
}


def docker_info(**changes: object) -> dict[str, Answer]:
    """Return a running engine that runs no container."""
    return {"docker info": (0, json.dumps({**INFO, **changes}), ""), "docker ps": (0, "", "")}


def test_a_new_file_is_written_readable_for_all(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "docker" / "daemon.json"
    ran = run(docker_daemon_json, {**WISHES, "path": str(path)})
    assert ran["changed"]
    assert ran["apply"] == "nothing", "no engine runs, so none has to take it up"
    assert not ran["validated"]
    assert json.loads(path.read_text()) == {
        "live-restore": True,
        "log-driver": "json-file",
        "log-opts": {"max-size": "50m", "max-file": "5"},
        "runtimes": WISHES["runtimes"],
    }
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert [file.name for file in path.parent.iterdir()] == ["daemon.json"]


def test_a_users_file_keeps_its_keys_its_mode_and_a_copy(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "daemon.json"
    path.write_text('{"debug": true}')
    path.chmod(0o600)
    ran = run(docker_daemon_json, {**WISHES, "path": str(path)}, docker_info(LiveRestoreEnabled=False, Runtimes={}))
    assert ran["apply"] == "reload"
    assert ran["keys"] == ["live-restore", "runtimes"]
    assert json.loads(path.read_text())["debug"] is True
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert Path(ran["backup_file"]).read_text() == '{"debug": true}'
    assert json.loads(ran["diff"]["before"]) == {"debug": True}


def test_a_second_run_changes_nothing(run: Run, tmp_path: Path) -> None:
    arguments = {**WISHES, "path": str(tmp_path / "daemon.json")}
    run(docker_daemon_json, arguments)
    ran = run(docker_daemon_json, arguments, docker_info())
    assert (ran["changed"], ran["apply"], ran["keys"]) == (False, "nothing", [])


def test_a_run_that_was_cut_off_before_the_reload_is_repaired(run: Run, tmp_path: Path) -> None:
    arguments = {**WISHES, "path": str(tmp_path / "daemon.json")}
    run(docker_daemon_json, arguments)
    ran = run(docker_daemon_json, arguments, docker_info(LiveRestoreEnabled=False))
    assert (ran["changed"], ran["apply"], ran["keys"]) == (False, "reload", ["live-restore"])


def test_check_mode_shows_the_file_and_writes_nothing(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "docker" / "daemon.json"
    ran = run(docker_daemon_json, {**WISHES, "path": str(path)}, docker_info(), check=True)
    assert ran["changed"]
    assert json.loads(ran["diff"]["after"])["live-restore"] is True
    assert not path.parent.exists()


def test_what_the_engine_refuses_is_not_put_in_place(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "daemon.json"
    path.write_text('{"hosts": "x"}')
    answers: dict[str, Answer] = {
        **docker_info(),
        "dockerd --help": (0, "  --validate   Validate daemon configuration and exit\n", ""),
        "dockerd --validate": (1, "", "unable to configure the Docker daemon: hosts\n"),
    }
    ran = run(docker_daemon_json, {**WISHES, "path": str(path)}, answers)
    assert ran["failed"]
    assert ran["msg"].endswith(": unable to configure the Docker daemon: hosts")
    assert path.read_text() == '{"hosts": "x"}'
    assert [file.name for file in tmp_path.iterdir()] == ["daemon.json"]


def test_an_engine_too_old_to_validate_is_not_asked(run: Run, tmp_path: Path) -> None:
    answers: dict[str, Answer] = {**docker_info(), "dockerd --help": (0, "Options:\n", "")}
    ran = run(docker_daemon_json, {**WISHES, "path": str(tmp_path / "daemon.json")}, answers)
    assert not ran["validated"]


def test_an_engine_that_does_not_answer_has_nothing_to_take_up(run: Run, tmp_path: Path) -> None:
    arguments = {**WISHES, "path": str(tmp_path / "daemon.json")}
    down: dict[str, Answer] = {"docker info": (1, "", "Cannot connect to the Docker daemon")}
    assert run(docker_daemon_json, arguments, down)["apply"] == "nothing"
    client_only: dict[str, Answer] = {"docker info": (0, json.dumps({"ServerErrors": ["Cannot connect"]}), "")}
    assert run(docker_daemon_json, arguments, client_only)["apply"] == "nothing"


def test_a_file_that_is_not_json_is_left_alone(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "daemon.json"
    path.write_text("{debug}")
    ran = run(docker_daemon_json, {**WISHES, "path": str(path)})
    assert ran["failed"]
    assert f"{path}, line 1, column 2, is not valid JSON" in ran["msg"]
    assert ran["refused_id"] == "not_json"
    assert path.read_text() == "{debug}"


@pytest.fixture
def boot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What lasts until the next boot."""
    monkeypatch.setattr(docker_daemon_json, "WAITING", tmp_path / "run" / "docker-restart.json")
    monkeypatch.setattr(engine_config, "PROC", tmp_path / "proc")
    monkeypatch.setattr(engine_config, "UNIT_FOLDERS", [tmp_path])
    return tmp_path


def unit(started: float = 0.0, /, **properties: str) -> dict[str, Answer]:
    """The engine's unit as systemd tells of it; started in seconds since boot."""
    shown = {"NeedDaemonReload": "no", "ExecMainStartTimestampMonotonic": str(int(started * 1e6)), **properties}
    return {"systemctl show docker.service": (0, "".join(f"{name}={said}\n" for name, said in shown.items()), "")}


def test_what_the_engine_does_not_tell_is_remembered_until_it_starts_again(run: Run, boot: Path) -> None:
    arguments = {**WISHES, "path": str(boot / "daemon.json"), "log_options": {"max-size": "50m"}}
    running = {**docker_info(), **unit(1)}
    assert run(docker_daemon_json, arguments, running)["apply"] == "restart"
    cut_off = run(docker_daemon_json, arguments, running)
    assert (cut_off["changed"], cut_off["apply"], cut_off["keys"]) == (False, "restart", ["log-driver", "log-opts"])
    again = {**docker_info(), **unit(time.clock_gettime(time.CLOCK_MONOTONIC) + 1)}
    assert run(docker_daemon_json, arguments, again)["apply"] == "nothing"


def test_a_reload_is_not_remembered_as_a_restart(run: Run, boot: Path) -> None:
    arguments = {**WISHES, "path": str(boot / "daemon.json")}
    assert run(docker_daemon_json, arguments, {**docker_info(), **unit()})["apply"] == "reload"
    assert not (boot / "run").exists()


def with_environment(boot: Path, environment: str, **properties: str) -> dict[str, Answer]:
    """An engine with variables of its own, under the number 12."""
    (boot / "proc/12").mkdir(parents=True, exist_ok=True)
    (boot / "proc/12/environ").write_text(environment.replace("\n", "\0"))
    return {**docker_info(), **unit(MainPID="12", **properties)}


@pytest.mark.parametrize(
    ("running", "wanted", "keys"),
    [
        ("PATH=/bin\nHTTP_PROXY=http://old\n", "HTTP_PROXY=http://old", []),
        ("PATH=/bin\nHTTP_PROXY=http://old\n", "HTTP_PROXY=http://new", ["HTTP_PROXY"]),
        ("PATH=/bin\n", '"NO_PROXY=a b"', ["NO_PROXY"]),
        ("PATH=/bin\nHTTP_PROXY=http://old\n", "", ["HTTP_PROXY"]),
        ("PATH=/bin\nHOME=/\n", "", []),
    ],
)
def test_an_engine_with_another_proxy_is_restarted(
    run: Run, boot: Path, running: str, wanted: str, keys: list[str]
) -> None:
    arguments = {**WISHES, "path": str(boot / "daemon.json"), "by_others": False}
    run(docker_daemon_json, arguments)
    ran = run(docker_daemon_json, arguments, with_environment(boot, running, Environment=wanted))
    assert (ran["changed"], ran["keys"], ran["apply"]) == (False, keys, "restart" if keys else "nothing")
    assert "http://" not in json.dumps(ran.result)


def test_a_proxy_of_the_administrators_environment_file_is_kept(run: Run, boot: Path) -> None:
    arguments = {**WISHES, "path": str(boot / "daemon.json")}
    run(docker_daemon_json, arguments)
    (boot / "default").write_text("HTTP_PROXY=http://own\n")
    files = f"{boot / 'default'} (ignore_errors=yes)"
    running = with_environment(boot, "HTTP_PROXY=http://own\n", EnvironmentFiles=files)
    assert run(docker_daemon_json, arguments, running)["apply"] == "nothing"


def test_systemd_reads_a_changed_unit_again(run: Run, boot: Path) -> None:
    arguments = {**WISHES, "path": str(boot / "daemon.json")}
    running = {**docker_info(), **unit(NeedDaemonReload="yes"), "systemctl daemon-reload": (0, "", "")}
    assert "systemctl daemon-reload" in run(docker_daemon_json, arguments, running).commands
    assert "systemctl daemon-reload" not in run(docker_daemon_json, arguments, running, check=True).commands


def test_systemd_reads_the_first_drop_in_that_it_does_not_tell_of(run: Run, boot: Path) -> None:
    arguments = {**WISHES, "path": str(boot / "daemon.json")}
    drop_in = boot / "docker.service.d/proxy.conf"
    drop_in.parent.mkdir()
    drop_in.touch()
    unread = {**docker_info(), **unit(DropInPaths=""), "systemctl daemon-reload": (0, "", "")}
    assert "systemctl daemon-reload" in run(docker_daemon_json, arguments, unread).commands
    read = {**docker_info(), **unit(DropInPaths=str(drop_in)), "systemctl daemon-reload": (0, "", "")}
    assert "systemctl daemon-reload" not in run(docker_daemon_json, arguments, read).commands
    drop_in.unlink()
    assert "systemctl daemon-reload" in run(docker_daemon_json, arguments, read).commands


# serving_image

LOOK = f"timeout --kill-after=10 600 docker run --name {serving_image.LOOKING} --log-driver none --pull never"
INSPECTED = json.dumps([{"Id": "sha256:id", "RepoDigests": [f"{IMAGE.rpartition(':')[0]}@{DIGEST}"]}])
LISTED = json.dumps([{"name": "vllm", "version": "0.9"}, {"name": "habana-torch-plugin", "version": "1.22.2.32"}])
ABSENT: Answer = (1, "[]\n", f"Error: No such image: {IMAGE}\n")


INSIDE = {
    "packages": {"habana-pyhlml": "1.22.2.32", "vllm": "0.9"},
    "programs": ["numactl"],
    "pillow": None,
    "vllm": None,
    "rejected": {},
    "python": "3.10.12",
    "os": ["ubuntu", "22.04"],
    "system": {"kind": "deb", "packages": [["bash", "5.1-6ubuntu1", "amd64"]]},
    "checkouts": [["/opt/vllm-fork", "4" * 40, "https://github.com/HabanaAI/vllm-fork"]],
}


def engine(present: bool, **changes: Answer) -> dict[str, Any]:
    """An engine that has the image from the beginning, or once it was pulled."""
    state = {"present": present}

    def pull() -> Answer:
        state["present"] = True
        return changes.get("pull", (0, "Status: Downloaded newer image\n", ""))

    return {
        "docker image inspect": lambda: (0, INSPECTED, "") if state["present"] else ABSENT,
        f"timeout 3600 docker pull {IMAGE}": pull,
        f"timeout 3600 docker pull {PINNED}": pull,
        f"docker image tag {PINNED} {IMAGE}": (0, "", ""),
        f"timeout 3600 docker --config /etc/secret pull {IMAGE}": pull,
        LOOK: changes.get("run", (0, LISTED, "")),
        f"{LOOK} --interactive": (0, "gaudi-image " + json.dumps(INSIDE), ""),
        "docker rm --force": (1, "", "no such container"),
        "docker info": (0, json.dumps({"habana": {"path": "/bin/sh"}, "runc": {"path": "runc"}}), ""),
    }


def test_an_absent_image_is_pulled_looked_into_and_recorded(run: Run, record: Path) -> None:
    ran = run(serving_image, {"image": IMAGE, "record": str(record)}, engine(present=False))
    assert (ran["changed"], ran["pulled"]) == (True, True)
    assert json.loads(record.read_text()) == {
        "schema": 1,
        "images": {
            IMAGE: {
                "id": "sha256:id",
                "digest": DIGEST,
                "packages": {"habana-torch-plugin": "1.22.2.32", "vllm": "0.9"},
            }
        },
    }
    looked = next(command for command in ran.commands if command.startswith(LOOK))
    for wall in (
        "--network none",
        "--cap-drop ALL",
        "--security-opt no-new-privileges",
        "--read-only",
        "--pids-limit 256",
        "--memory 16g",
    ):
        assert f" {wall} " in looked
    assert " --runtime runc " in looked


@pytest.mark.parametrize("kind", sorted(DAMAGES))
def test_a_damaged_record_is_told_and_written_anew(
    run: Run, record: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All it says but the history can be seen in the images. To read a pipe waited for ever."""
    said: list[str] = []
    monkeypatch.setattr(AnsibleModule, "warn", lambda _self, text: said.append(text))
    record.parent.mkdir()
    damage(record, kind)
    arguments = {"image": IMAGE, "record": str(record)}
    ran = run(serving_image, arguments, engine(present=True))
    assert ran["changed"]
    assert any(f"{record} is damaged" in text and "written again" in text for text in said)
    assert IMAGE in json.loads(record.read_text())["images"]
    assert not run(serving_image, arguments, engine(present=True))["changed"]


def test_what_is_in_an_image_is_written_beside_the_record(run: Run, record: Path) -> None:
    arguments = {"image": IMAGE, "record": str(record)}
    run(serving_image, arguments, engine(present=False))
    (file,) = (record.parent / "sbom").iterdir()
    assert file.name == "id.cdx.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o644
    text = file.read_text()
    assert sbom.contents(text).python["vllm"] == "0.9"
    # Damaged, it is written again, and says the same; check mode says so without starting a container.
    file.write_text("{")
    ran = run(serving_image, arguments, engine(present=True), check=True)
    assert (ran["changed"], ran["current"], file.read_text()) == (True, False, "{")
    assert ran.commands == [f"docker image inspect {IMAGE}"]
    assert run(serving_image, arguments, engine(present=True))["changed"]
    assert file.read_text() == text
    assert not run(serving_image, arguments, engine(present=True))["changed"]


def test_what_a_build_host_built_is_held_to_the_release(run: Run, record: Path) -> None:
    """No plan names it there; an image of others is judged where an instance is to run in it."""
    labels = {"gaudi-serving.image.release": "1.22"}
    built = json.dumps([{**json.loads(INSPECTED)[0], "Config": {"Labels": labels}}])
    arguments = {"image": IMAGE, "record": str(record), "versions": {"habana-pyhlml": "1.21.3.57"}}
    ran = run(serving_image, arguments, {**engine(present=True), "docker image inspect": (0, built, "")})
    assert ran["refused_id"] == "image_of_other_release"
    assert not record.exists()
    assert run(serving_image, arguments, engine(present=True))["changed"]


def test_a_history_on_record_stays(run: Run, record: Path) -> None:
    record.parent.mkdir()
    record.write_text(json.dumps({"schema": 1, "images": {}, "history": {"chat": [IMAGE, "other:1"]}}))
    run(serving_image, {"image": IMAGE, "record": str(record)}, engine(present=True))
    assert json.loads(record.read_text())["history"] == {"chat": [IMAGE, "other:1"]}
    record.write_text(json.dumps({"schema": 1, "images": {}, "history": ["chat"]}))
    run(serving_image, {"image": IMAGE, "record": str(record)}, engine(present=True))
    assert "history" not in json.loads(record.read_text())


def test_it_says_whether_there_will_be_something_to_tidy(
    run: Run, record: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving_image, "PLANS", tmp_path / "instances")
    arguments = {"image": IMAGE, "record": str(record), "wanted": {"chat": IMAGE}, "references": [IMAGE]}
    assert run(serving_image, arguments, engine(present=False), check=True)["untidy"]
    assert run(serving_image, arguments, engine(present=False))["untidy"]
    written = json.loads(record.read_text())
    record.write_text(image_record.render_record(written["images"], {"chat": [IMAGE]}))
    assert not run(serving_image, arguments, engine(present=True))["untidy"]
    (tmp_path / "instances" / "other").mkdir(parents=True)
    (tmp_path / "instances" / "other" / "plan.json").write_text(json.dumps({"image": "other:1"}))
    assert run(serving_image, arguments, engine(present=True))["untidy"]
    assert not run(serving_image, {"image": IMAGE, "record": str(record)}, engine(present=True))["untidy"]


def test_a_known_image_is_only_inspected(run: Run, record: Path) -> None:
    arguments = {"image": IMAGE, "record": str(record)}
    run(serving_image, arguments, engine(present=False))
    ran = run(serving_image, arguments, engine(present=True))
    assert not ran["changed"]
    assert ran["current"]
    assert ran.commands == [f"docker image inspect {IMAGE}"]


def test_an_image_that_was_there_before_is_looked_into(run: Run, record: Path) -> None:
    ran = run(serving_image, {"image": IMAGE, "record": str(record)}, engine(present=True))
    assert (ran["changed"], ran["pulled"]) == (True, False)


def test_check_mode_looks_into_an_image_but_records_nothing(run: Run, record: Path) -> None:
    ran = run(serving_image, {"image": IMAGE, "record": str(record)}, engine(present=True), check=True)
    assert (ran["changed"], ran["current"], ran["pulled"]) == (True, False, False)
    assert not record.exists()


def test_another_image_under_the_same_name_is_looked_into_again(run: Run, record: Path) -> None:
    arguments = {"image": IMAGE, "record": str(record)}
    run(serving_image, arguments, engine(present=False))
    written = json.loads(record.read_text())
    written["images"][IMAGE]["id"] = "sha256:former"
    record.write_text(json.dumps(written))
    ran = run(serving_image, arguments, engine(present=True))
    assert any(command.startswith(LOOK) for command in ran.commands)
    assert json.loads(record.read_text())["images"][IMAGE]["id"] == "sha256:id"


def test_an_earlier_plan_is_not_asked_of_its_image_again(run: Run, record: Path) -> None:
    def asked(seed: int) -> Any:
        wish = {"x": {"arguments": ["python3", "-m", "server", "--seed", str(seed)], "parts": []}}
        return run(serving_image, {"image": IMAGE, "record": str(record), "instances": wish}, engine(present=True))

    assert [asked(seed)["changed"] for seed in (1, 2, 1, 2)] == [True, True, False, False]
    # As a release of before wrote it down.
    written = json.loads(record.read_text())
    known = written["images"][IMAGE]
    known["checked"] = known["checked"][0]
    record.write_text(json.dumps(written, indent=2, sort_keys=True) + "\n")
    assert [asked(seed)["changed"] for seed in (1, 2)] == [False, True]
    for seed in range(3, 20):
        asked(seed)
    assert len(json.loads(record.read_text())["images"][IMAGE]["checked"]) == serving_image.MOST_CHECKED


def test_an_image_that_was_exchanged_below_its_name_is_said(
    run: Run, record: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    monkeypatch.setattr(AnsibleModule, "warn", lambda _self, text: said.append(text))
    arguments = {"image": IMAGE, "record": str(record)}
    run(serving_image, arguments, engine(present=False))
    assert said == []
    written = json.loads(record.read_text())
    written["images"][IMAGE].update(id="sha256:former", digest="sha256:" + "0" * 64)
    record.write_text(json.dumps(written))
    run(serving_image, arguments, engine(present=True))
    run(serving_image, arguments, engine(present=True))
    (once,) = said
    assert f"{IMAGE} is another image now: its digest is {DIGEST}" in once


@pytest.mark.parametrize("job", ["", "image.1.22-a", "image.load"])
def test_an_image_of_no_registry_that_was_exchanged_is_said_unless_a_job_here_made_it(
    run: Run, record: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, job: str
) -> None:
    said: list[str] = []
    monkeypatch.setattr(AnsibleModule, "warn", lambda _self, text: said.append(text))
    monkeypatch.setattr(long_work, "JOBS", tmp_path / "jobs")
    made = {"image.1.22-b": {"reference": "another:1", "id": "sha256:id"}}
    if job:
        made[job] = {"reference": IMAGE, "id": "sha256:id"}
    for key, result in made.items():
        (tmp_path / "jobs" / key).mkdir(parents=True)
        (tmp_path / "jobs" / key / "state.json").write_text(json.dumps({"state": "succeeded", "result": result}))
    arguments = {"image": IMAGE, "record": str(record)}
    built = {**engine(present=True), "docker image inspect": (0, json.dumps([{"Id": "sha256:id"}]), "")}
    run(serving_image, arguments, built)
    assert said == []
    written = json.loads(record.read_text())
    written["images"][IMAGE].update(id="sha256:former")
    record.write_text(json.dumps(written))
    run(serving_image, arguments, built)
    assert [f"{IMAGE} is another image now: its id is sha256:id, and was sha256:former." in text for text in said] == (
        [] if job else [True]
    )


def test_check_mode_says_it_would_pull(run: Run, record: Path) -> None:
    ran = run(serving_image, {"image": IMAGE, "record": str(record)}, engine(present=False), check=True)
    assert (ran["changed"], ran["current"], ran["pulled"], ran["image"]) == (True, False, True, {})
    assert ran.commands == [f"docker image inspect {IMAGE}"]
    assert not record.parent.exists()


def test_credentials_are_a_directory_never_an_argument(run: Run, record: Path) -> None:
    arguments = {"image": IMAGE, "record": str(record), "docker_config": "/etc/secret"}
    ran = run(serving_image, arguments, engine(present=False))
    assert f"timeout 3600 docker --config /etc/secret pull {IMAGE}" in ran.commands


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ((124, "", ""), "was not pulled within 3600 seconds. What has arrived is kept"),
        ((1, "", "manifest unknown\n"), "could not be pulled: manifest unknown. Check that the node reaches"),
        ((1, "", "tls: x509: certificate signed by unknown authority\n"), "authority. The certificate of "),
        # An engine says this when a layer ends in its middle.
        ((1, "", "unexpected EOF\n"), "could not be pulled: unexpected EOF. Check that the node reaches"),
    ],
)
def test_a_pull_that_fails_says_what_to_do(run: Run, record: Path, answer: Answer, words: str) -> None:
    ran = run(serving_image, {"image": IMAGE, "record": str(record)}, engine(present=False, pull=answer))
    assert ran["failed"]
    assert words in ran["msg"]
    assert not record.exists()
    # The next run goes on.
    assert run(serving_image, {"image": IMAGE, "record": str(record)}, engine(present=False))["changed"]
    assert IMAGE in json.loads(record.read_text())["images"]


def test_a_moved_tag_is_refused_and_not_recorded(run: Run, record: Path) -> None:
    pinned = "sha256:" + "00" * 32
    ran = run(serving_image, {"image": IMAGE, "record": str(record), "digest": pinned}, engine(present=True))
    assert ran["failed"]
    assert pinned in ran["msg"]
    assert ran["refused_id"] == "digest_differs"
    assert not record.exists()


def test_a_pinned_image_is_pulled_by_its_digest_and_named_then(run: Run, record: Path) -> None:
    """A tag that was moved is never on the node: a server starts whatever image has the name."""
    ran = run(serving_image, {"image": IMAGE, "record": str(record), "digest": DIGEST}, engine(present=False))
    assert ran["pulled"]
    asked = [command for command in ran.commands if " pull " in command or " tag " in command]
    assert asked == [f"timeout 3600 docker pull {PINNED}", f"docker image tag {PINNED} {IMAGE}"]


def test_a_bare_image_is_refused(run: Run, record: Path) -> None:
    bare = json.dumps([{"name": "habana-torch-plugin", "version": "1"}])
    ran = run(serving_image, {"image": IMAGE, "record": str(record)}, engine(present=True, run=(0, bare, "")))
    assert ran["failed"]
    assert "holds no vllm" in ran["msg"]


def test_an_engine_that_is_down_is_not_an_absent_image(run: Run, record: Path) -> None:
    down: dict[str, Answer] = {"docker image inspect": (1, "[]", "Cannot connect to the Docker daemon at unix:///x.")}
    ran = run(serving_image, {"image": IMAGE, "record": str(record)}, down)
    assert ran["failed"]
    assert "Cannot connect to the Docker daemon" in ran["msg"]


# gaudi_preflight

REAL_READ = gaudi_preflight.read_text


@pytest.fixture(autouse=True)
def _debian(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever machine the tests run on, the node is a Debian 12."""

    def read(path: str) -> str:
        return "ID=debian\nVERSION_ID=12\n" if path == "/etc/os-release" else str(REAL_READ(path))

    monkeypatch.setattr(gaudi_preflight, "read_text", read)


CARDS = [{"module_id": module} for module in range(8)]


def site(**changes: Any) -> dict[str, Any]:
    """An inventory's variables, all of them right."""
    return {
        "gaudi_release": "1.22",
        "gaudi_expected_cards": 8,
        "gaudi_image_registry": "vault.habana.ai",
        "gaudi_weights_root": "/data/models",
        "gaudi_weights_fetch": False,
        "gaudi_serving_instances": [],
        **changes,
    }


LEVELS = yaml.safe_load((ROOT / "catalog" / "compatibility.yml").read_text(encoding="utf-8"))


def preflight(**changes: Any) -> dict[str, Any]:
    return {
        "host": "gaudi-01",
        "release": "1.22",
        "levels": LEVELS,
        "known_releases": ["1.22"],
        "inventory": site(),
        "topology": {"cards": CARDS, "findings": [], "driver_version": "1.22.1-x"},
        "controller_time": time.time(),
        "daemon_json": "/nonexistent/daemon.json",
        **changes,
    }


def plan(tmp_path: Path, port: int) -> dict[str, Any]:
    return {
        "instance": "one",
        "image": IMAGE,
        "container": {"name": "vllm-one"},
        "listen": {"host": "127.0.0.1", "port": port},
        "requires": {"weights_path": str(tmp_path), "weights_bytes": 1},
    }


def test_a_sound_node_has_nothing_to_report(run: Run) -> None:
    ran = run(gaudi_preflight, preflight())
    assert (ran["changed"], ran["problems"], ran["report"]) == (False, [], "")
    assert ran["node"]["cards"] == 8


@pytest.mark.parametrize(
    ("skips", "recipes", "refused"), [("true", 0, True), ("True", 1, False), ("false", 0, False), ("", 0, False)]
)
def test_a_warm_up_is_skipped_over_a_filled_recipe_cache_alone(
    run: Run, tmp_path: Path, skips: str, recipes: int, refused: bool
) -> None:
    (tmp_path / "config.json").write_text("{}")
    cache = tmp_path / "recipes"
    if recipes:
        cache.mkdir()
        (cache / "graph.recipe").touch()
    environment = {"VLLM_SKIP_WARMUP": skips, "PT_HPU_RECIPE_CACHE_CONFIG": f"{cache},false,1024"}
    wished = against(plans=[plan(tmp_path, 0) | {"environment": environment}])
    answers: dict[str, Answer] = {"docker image": (0, "sha256:1", "")}
    assert ids(run(gaudi_preflight, wished, answers)) == (["warm-up"] if refused else [])
    # Asked twice.
    assert ids(run(gaudi_preflight, {**wished, "allow_mismatch": ["warm_up"]}, answers)) == []


def test_recipes_of_another_instance_count_as_a_filled_cache(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config.json").write_text("{}")
    own, other = tmp_path / "recipes/key/one", tmp_path / "recipes/key/two"
    monkeypatch.setattr("ansible.module_utils.gaudi.node.folders.is_keyed", lambda folder: folder == str(own))
    environment = {"VLLM_SKIP_WARMUP": "true", "PT_HPU_RECIPE_CACHE_CONFIG": "/data/recipe_cache/one,false,1024"}
    mount = {"source": str(own), "target": "/data/recipe_cache/one", "read_only": False}
    asks = plan(tmp_path, 0) | {"environment": environment, "container": {"name": "vllm-one", "mounts": [mount]}}
    answers: dict[str, Answer] = {"docker image": (0, "sha256:1", "")}
    assert ids(run(gaudi_preflight, against(plans=[asks]), answers)) == ["warm-up"]
    other.mkdir(parents=True)
    (other / "graph.recipe").write_text("r")
    assert ids(run(gaudi_preflight, against(plans=[asks]), answers)) == []


def test_recipes_on_a_file_system_of_all_nodes_are_refused(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config.json").write_text("{}")
    monkeypatch.setattr("ansible.module_utils.gaudi.node.weight_folders.mounted", lambda *_: ("nfs4", "filer:/x"))
    asks = plan(tmp_path, 0) | {"environment": {"PT_HPU_RECIPE_CACHE_CONFIG": f"{tmp_path}/r,false,1024"}}
    answers: dict[str, Answer] = {"docker image": (0, "sha256:1", "")}
    ran = run(gaudi_preflight, against(plans=[asks]), answers)
    assert ids(ran) == ["recipes_shared"]
    assert f"one: its compiled recipes would lie in {tmp_path}/r, which is on nfs4." in ran["report"]


def written_to(folder: Path, tmp_path: Path) -> dict[str, Any]:
    """A plan whose server writes to a folder."""
    (tmp_path / "config.json").write_text("{}")
    mount = {"source": str(folder), "target": str(folder), "read_only": False}
    return plan(tmp_path, 0) | {"container": {"name": "vllm-one", "mounts": [mount]}}


def test_a_folder_that_users_may_exchange_is_given_to_no_container(run: Run, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    asks = against(plans=[written_to(shared / "recipes", tmp_path)])
    answers: dict[str, Answer] = {"docker image": (0, "sha256:1", "")}
    assert ids(run(gaudi_preflight, asks, answers)) == []
    shared.chmod(0o777)
    ran = run(gaudi_preflight, asks, answers)
    assert ids(ran) == ["others_may_write"]
    assert f"one: {shared} can be written by everybody" in ran["report"]


@pytest.mark.parametrize(
    ("written", "used", "read_only", "refused"),
    [
        ("cache", "cache/two", False, True),
        ("cache/one", "cache", False, True),
        ("cache/one", "cache/two", False, False),
        ("cache", "cache", False, False),
        ("weights", "weights", True, True),
        ("linked/one", "cache/one/x", True, True),
        ("weights/cache", "weights", True, True),
        ("root", "elsewhere", True, True),
    ],
)
def test_a_server_writes_to_no_directory_of_another_instance(
    run: Run, tmp_path: Path, written: str, used: str, read_only: bool, refused: bool
) -> None:
    """It could exchange the other directory, or put a link in its place."""
    (tmp_path / "cache").mkdir()
    (tmp_path / "linked").symlink_to(tmp_path / "cache")
    one = written_to(tmp_path / written, tmp_path)
    mount = {"source": str(tmp_path / used), "target": "/x", "read_only": read_only}
    two = {**plan(tmp_path, 0), "instance": "two", "container": {"name": "vllm-two", "mounts": [mount]}}
    answers: dict[str, Answer] = {"docker image": (0, "sha256:1", "")}
    ran = run(gaudi_preflight, against(plans=[one, two], weights_root=str(tmp_path / "root/models")), answers)
    assert set(ids(ran)) - {"port"} == ({"directories_overlap"} if refused else set())
    assert not refused or f"one: its directory {tmp_path / written}" in ran["report"]


def test_a_directory_of_an_instance_is_inside_none_that_its_server_wrote_to(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its server, which may still run, could have put a link there."""
    monkeypatch.setattr("ansible.module_utils.gaudi.node.weight_folders.PLANS", tmp_path / "plans")
    before = tmp_path / "plans/one/plan.json"
    before.parent.mkdir(parents=True)
    before.write_text(json.dumps(written_to(tmp_path / "cache", tmp_path)))
    up = (0, "ActiveState=active", "")
    answers: dict[str, Answer] = {"docker image": (0, "sha256:1", ""), "systemctl show vllm-one": up}
    for folder, refused in {"cache": [], "other": [], "cache/one": ["directories_overlap"]}.items():
        ran = run(gaudi_preflight, against(plans=[written_to(tmp_path / folder, tmp_path)]), answers)
        assert ids(ran) == refused, ran["report"]


def test_a_server_writes_beside_what_it_reads(run: Run, tmp_path: Path) -> None:
    asks = written_to(tmp_path / "cache", tmp_path)
    adapter = {"source": str(tmp_path / "cache/adapters/sql"), "target": "/x", "read_only": True}
    asks["container"]["mounts"].append(adapter)
    answers: dict[str, Answer] = {"docker image": (0, "sha256:1", "")}
    assert set(ids(run(gaudi_preflight, against(plans=[asks]), answers))) == {"directories_overlap"}


@pytest.mark.parametrize(
    ("link", "leads_to", "written", "refused"),
    [
        ("cache", "elsewhere", "cache", True),
        ("above", "elsewhere", "above/cache", False),
        ("above", "/etc", "above/cron.d", True),
    ],
)
def test_a_server_writes_to_no_link(
    run: Run, tmp_path: Path, link: str, leads_to: str, written: str, refused: bool
) -> None:
    """A server that wrote above it could have put it there, and root mounts what is behind it."""
    (tmp_path / link).symlink_to(tmp_path / leads_to)
    answers: dict[str, Answer] = {"docker image": (0, "sha256:1", "")}
    ran = run(gaudi_preflight, against(plans=[written_to(tmp_path / written, tmp_path)]), answers)
    assert ids(ran) == (["directory_is_link"] if refused else [])


def test_measurements_that_users_could_exchange_are_refused(run: Run, tmp_path: Path) -> None:
    """The server unpickles them, also where its weights bring no code."""
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "measured").mkdir()
    asks = plan(tmp_path, 0) | {"modules": []}
    asks["requires"]["measurements"] = {"path": str(tmp_path / "measured"), "files": 0}
    answers: dict[str, Answer] = {"docker image": (0, "sha256:1", "")}
    assert ids(run(gaudi_preflight, against(plans=[asks]), answers)) == []
    (tmp_path / "measured").chmod(0o777)
    assert ids(run(gaudi_preflight, against(plans=[asks]), answers)) == ["others_may_write"]


def test_a_plugin_that_users_could_exchange_is_refused(run: Run, tmp_path: Path) -> None:
    """A server imports it, whether or not its weights may bring code."""
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "parser.py").touch()
    mount = {"source": str(tmp_path), "target": "/models/x", "read_only": True}
    asks = plan(tmp_path, 0) | {"modules": [], "arguments": ["--tool-parser-plugin", "/models/x/parser.py"]}
    asks["container"] = {"name": "vllm-one", "mounts": [mount]}
    answers: dict[str, Answer] = {"docker image": (0, "sha256:1", "")}
    assert ids(run(gaudi_preflight, against(plans=[asks]), answers)) == []
    (tmp_path / "parser.py").chmod(0o666)
    assert ids(run(gaudi_preflight, against(plans=[asks]), answers)) == ["others_may_write"]


def test_a_calibration_that_users_could_exchange_is_refused(run: Run, tmp_path: Path) -> None:
    """Of calibrate_model.sh, or a quantization_config of the request: its arrays are unpickled as well."""
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "made").mkdir()
    mount = {"source": str(tmp_path / "made"), "target": "/calibration", "read_only": True}
    asks = plan(tmp_path, 0) | {"modules": [], "environment": {"QUANT_CONFIG": "/calibration/maxabs_quant_g2.json"}}
    asks["container"] = {"name": "vllm-one", "mounts": [mount], "working_directory": "/"}
    answers: dict[str, Answer] = {"docker image": (0, "sha256:1", "")}
    assert ids(run(gaudi_preflight, against(plans=[asks]), answers)) == []
    (tmp_path / "made/m_hooks_maxabs_0_1.npz").touch()
    (tmp_path / "made/m_hooks_maxabs_0_1.npz").chmod(0o666)
    assert ids(run(gaudi_preflight, against(plans=[asks]), answers)) == ["others_may_write"]
    relative = {"QUANT_CONFIG": "./calibration/maxabs_quant_g2.json"}
    assert ids(run(gaudi_preflight, against(plans=[asks | {"environment": relative}]), answers)) == ["others_may_write"]
    elsewhere = {"QUANT_CONFIG": "/in/the/image/maxabs_quant_g2.json"}
    assert ids(run(gaudi_preflight, against(plans=[asks | {"environment": elsewhere}]), answers)) == []


@pytest.mark.parametrize(
    ("said", "refused"),
    [
        ({"release": "own-fork", "unpickles": True}, True),
        ({"release": "1.16"}, True),
        ({"release": "1.18"}, True),
        ({"release": "1.22"}, False),
    ],
)
def test_weights_that_users_could_exchange_are_refused_where_a_release_unpickles(
    run: Run, tmp_path: Path, said: dict[str, Any], refused: bool
) -> None:
    """Pickled tensors in place of safetensors run code there."""
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "config.json").chmod(0o666)
    answers: dict[str, Answer] = {"docker image": (0, "sha256:1", "")}
    ran = run(gaudi_preflight, against(plans=[plan(tmp_path, 0) | said]), answers)
    assert ids(ran) == (["others_may_write"] if refused else [])


def test_a_container_that_opens_its_own_folder_ends_no_run(run: Run, tmp_path: Path) -> None:
    """The role restores the mode."""
    (tmp_path / "recipes").mkdir(mode=0o777)
    (tmp_path / "recipes").chmod(0o777)
    answers: dict[str, Answer] = {"docker image": (0, "sha256:1", "")}
    assert ids(run(gaudi_preflight, against(plans=[written_to(tmp_path / "recipes", tmp_path)]), answers)) == []


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that everybody may enter, unlike pytest's own."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def test_a_folder_that_users_may_enter_is_named(run: Run, tmp_path: Path, open_folder: Path) -> None:
    """Root of the container may change the mode of the folder itself, so only one above counts."""
    above = open_folder / "above"
    (above / "recipes").mkdir(parents=True)
    answers: dict[str, Answer] = {"docker image": (0, "sha256:1", "")}
    asks = against(plans=[written_to(above / "recipes", tmp_path)])
    for folder, mode, named in (
        (above, 0o755, True),
        (above, 0o711, True),
        (above / "recipes", 0o700, True),
        (above, 0o700, False),
        (above, 0o744, False),
        # Made by us, for root alone.
        (above / "recipes", None, False),
    ):
        above.chmod(0o755)
        if mode is None:
            shutil.rmtree(above)
        else:
            folder.chmod(mode)
        found = [line for line in run(gaudi_preflight, asks, answers)["findings"] if "may enter" in line]
        assert bool(found) is named, (folder, mode)
        assert all(f"its server writes to {above}/recipes" in line for line in found)


@pytest.mark.parametrize(("configured", "needed"), [(False, True), (True, True), (False, False)])
def test_host_nics_are_refused_where_the_plan_needs_them_and_nobody_configured_them(
    run: Run, tmp_path: Path, configured: bool, needed: bool
) -> None:
    needing = plan(tmp_path, 30001) | {"modules": [{"module_id": card} for card in range(8)]}
    needing["requires"] = {**needing["requires"], "host_nics": needed}
    (tmp_path / "config.json").write_text("{}")
    arguments = preflight(plans=[needing], host_nics=configured)
    said = [found["message"] for found in run(gaudi_preflight, arguments)["problems"] if found["id"] == "host_nics"]
    assert bool(said) is (needed and not configured)
    for sentence in said:
        assert sentence.startswith("one: ")
        assert "fabric_check_host_nics: true" in sentence


def test_every_problem_is_in_the_one_report(run: Run, tmp_path: Path) -> None:
    broken = tmp_path / "daemon.json"
    broken.write_text("{")
    arguments = preflight(
        inventory=site(gaudi_expected_cards=9, gaudi_serving_instances=[{}]),
        software={"driver": "1.21.0-555"},
        controller_time=time.time() - 1e6,
        daemon_json=str(broken),
        plans=[{"instance": "two", "refused": "two: no such model.", "refused_id": "no_such_model"}],
    )
    ran = run(gaudi_preflight, arguments)
    assert [problem["id"] for problem in ran["problems"]] == [
        "request",
        "clock",
        "card-count",
        "daemon_json",
        "driver",
    ]
    assert ran["report"].startswith(
        "gaudi-01: 5 problems, nothing was changed.\n  1. gaudi_serving_instances[0]: two: "
    )


TOPOLOGY = {"cards": CARDS, "findings": [], "driver_version": "1.22.2-97ec1a4"}


def of_ubuntu(
    monkeypatch: pytest.MonkeyPatch,
    kernel: str,
    os_release: str = "ID=ubuntu\nVERSION_ID=22.04\n",
    started_with: str = "ro quiet",
) -> None:
    """The node is an Ubuntu 22.04, or what its os-release says, with this kernel and processors of Intel."""
    files = {
        "/proc/cpuinfo": REAL_READ("/proc/cpuinfo").replace("AuthenticAMD", "GenuineIntel"),
        "/proc/cmdline": f"{started_with}\n",
        "/etc/os-release": os_release + 'PRETTY_NAME="Ubuntu 22.04.5 LTS"\n',
        "/proc/sys/kernel/osrelease": f"{kernel}\n",
    }
    monkeypatch.setattr(gaudi_preflight, "read_text", lambda path: files.get(path) or str(REAL_READ(path)))


def against(release: str = "1.22", **changes: Any) -> dict[str, Any]:
    """A node that is held to a release of the catalogue."""
    cards = yaml.safe_load((ROOT / "catalog" / "cards.yml").read_text(encoding="utf-8"))
    wanted = {"software": releases.read(release)["software"], "card_types": cards, "topology": TOPOLOGY}
    return preflight(**{**wanted, **changes})


@pytest.mark.parametrize(
    ("os_release", "query", "listed"),
    [
        (
            "ID=debian\nVERSION_ID=12\n",
            "dpkg-query --show --showformat=${Package} ${db:Status-Status} ${Version}\\n habanalabs-container-runtime ",
            "habanalabs-container-runtime installed 1.21.3-57\nhabanalabs-dkms config-files 1.20.0-543\n",
        ),
        (
            "ID=rhel\nVERSION_ID=9.4\n",
            "rpm --query --queryformat=%{NAME} installed %{VERSION}-%{RELEASE}\\n habanalabs-container-runtime ",
            "habanalabs-container-runtime installed 1.21.3-57.el9\npackage docker-ce is not installed\n",
        ),
    ],
)
def test_a_runtime_package_of_another_release_is_read_and_refused(
    run: Run, monkeypatch: pytest.MonkeyPatch, os_release: str, query: str, listed: str
) -> None:
    of_ubuntu(monkeypatch, "5.15.0-91", os_release)
    # One of the packages is not there, so that the query ends with status 1.
    ran = run(gaudi_preflight, against(), {query: (1, listed, "")})
    assert ids(ran) == ["runtime-package"]
    assert "found habanalabs-container-runtime 1.21.3-57" in ran["problems"][0]["message"]
    assert ran["mismatches"][-1]["check"] == "runtime-package"
    assert (ran["let_through"], ran["missing_weights"]) == ([], [])


def test_a_mismatch_that_is_allowed_is_let_through_and_said(run: Run) -> None:
    old = {**TOPOLOGY, "driver_version": "1.21.3-1a2b3c4"}
    ran = run(gaudi_preflight, against(topology=old, allow_mismatch=["driver"]))
    assert (ran["problems"], ran["report"]) == ([], "")
    assert ran["let_through"] == ["driver: found 1.21.3-1a2b3c4, wanted 1.22 (1.22.2-32)"]
    assert any(said.startswith(ran["let_through"][0]) for said in ran["findings"])
    assert run(gaudi_preflight, against(topology=old))["problems"][0]["id"] == "driver"


KERNEL_RULES = yaml.safe_load((ROOT / "catalog" / "host.yml").read_text(encoding="utf-8"))["kernel_arguments"]


@pytest.mark.parametrize(
    ("kernel", "started_with", "tunes", "refused"),
    [
        ("6.8.0-45-generic", "ro", False, True),
        ("6.8.0-45-generic", "ro iommu=pt", False, True),
        ("6.8.0-45-generic", "ro intel_iommu=on iommu=pt", False, False),
        pytest.param(
            "6.8.0-45-generic",
            "ro intel_iommu=on,sm_on iommu.passthrough=1",
            False,
            False,
            marks=pytest.mark.report("H13"),
        ),
        ("5.15.0-91-generic", "ro", False, False),
        # The role host_tuning follows.
        ("6.8.0-45-generic", "ro", True, False),
    ],
)
def test_serving_is_refused_under_a_kernel_that_lacks_the_pass_through_iommu(
    run: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kernel: str,
    started_with: str,
    tunes: bool,
    refused: bool,
) -> None:
    of_ubuntu(monkeypatch, kernel, started_with=started_with)
    (tmp_path / "config.json").write_text("{}")
    serving = against(plans=[plan(tmp_path, 0)], kernel_rules=KERNEL_RULES, tunes=tunes)
    ran = run(gaudi_preflight, serving, {"docker image": (0, "sha256:1", "")})
    assert ids(ran) == (["iommu"] if refused else [])
    # Nothing is served, so that nothing is garbled.
    assert run(gaudi_preflight, against(kernel_rules=KERNEL_RULES))["problems"] == []


def test_the_groups_of_the_cards_are_read_from_the_pci_bus(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_ubuntu(monkeypatch, "6.8.0-110-generic")
    device = tmp_path / "bus/pci/devices/0000:33:00.0"
    (device / "iommu_group").mkdir(parents=True)
    (device / "vendor").write_text("0x1da3\n")
    (device / "iommu_group/type").write_text("DMA\n")
    monkeypatch.setattr(iommu, "SYS", tmp_path)
    newer = against("1.24.1", kernel_rules=KERNEL_RULES, topology={**TOPOLOGY, "driver_version": "1.24.1-b336d5e"})
    problems = run(gaudi_preflight, newer)["problems"]
    assert next(each["message"] for each in problems if each["id"] == "iommu").startswith(
        "iommu: found iommu_group/type DMA of 0000:33:00.0, wanted identity"
    )
    (device / "iommu_group/type").write_text("identity\n")
    assert "iommu" not in ids(run(gaudi_preflight, newer))


def test_a_mistyped_check_is_refused(run: Run) -> None:
    ran = run(gaudi_preflight, preflight(allow_mismatch=["drivers"]))
    assert ids(ran) == ["option"]
    assert "Did you mean driver?" in ran["problems"][0]["message"]


def test_a_catalogue_that_cannot_be_read_is_a_sentence(run: Run) -> None:
    ran = run(gaudi_preflight, preflight(levels={**LEVELS, "check": []}))
    assert ran["failed"]
    assert "catalog/compatibility.yml does not know 'check'" in ran["msg"]


@pytest.mark.parametrize("os_release", ["", "ID=sles\nVERSION_ID=15.5\n"])
def test_no_package_is_asked_for_where_nobody_knows_how(
    run: Run, monkeypatch: pytest.MonkeyPatch, os_release: str
) -> None:
    of_ubuntu(monkeypatch, "5.15.0", os_release)
    ran = run(gaudi_preflight, against(), {"dpkg-query": (0, "", ""), "rpm": (0, "", "")})
    assert [command for command in ran.commands if command.startswith(("dpkg", "rpm"))] == []


def test_what_the_reading_of_the_cards_says_of_the_network_driver_is_not_said_twice(run: Run) -> None:
    found = {"id": "nic-driver-mismatch", "severity": "warning", "message": "two releases"}
    cards = [{**card, "nic_driver_version": "1.22.1-97ec1a4"} for card in CARDS]
    ran = run(gaudi_preflight, against(topology={**TOPOLOGY, "cards": cards, "findings": [found]}))
    assert ids(ran) == ["nic-driver"]
    assert "two releases" not in ran["findings"]


def wrong_node(tmp_path: Path) -> dict[str, Any]:
    """Everything that a release has a word on is of another one."""
    cards = [
        {
            "module_id": module,
            "name": "HL-325L" if module else "HL-205",
            "nic_driver_version": "1.20.0-bd4b1a2",
            "firmware": "hl-gaudi3-1.18.0-fw-53.1.1-sec-9" if module else None,
        }
        for module in range(8)
    ]
    (tmp_path / "config.json").write_text("{}")
    image = "vault.habana.ai/gaudi-docker/1.21.3/ubuntu22.04/habanalabs/pytorch-installer-2.6.0:1.21.3-57"
    return against(
        topology={"cards": cards, "findings": [], "driver_version": "1.20.1-97ec1a4"},
        plans=[{**plan(tmp_path, 0), "image": image}],
        image_digest=DIGEST,
        allow_mismatch=["card-type"],
    )


def test_the_whole_report_of_a_wrong_node_is_the_one_in_the_documents(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_ubuntu(monkeypatch, "5.4.0-150-generic")
    listed = (
        "docker.io installed 24.0.7-0ubuntu2~22.04.1\n"
        "habanalabs-container-runtime installed 1.21.0-555\n"
        "habanalabs-dkms installed 1.22.2-32\n"
    )
    answers = {"dpkg-query": (1, listed, ""), "docker image": (0, "sha256:1", "")}
    ran = run(gaudi_preflight, wrong_node(tmp_path), answers)
    golden = Path(__file__).with_name("wrong_node.txt").read_text(encoding="utf-8")
    assert ran["report"] + "\n" == golden
    document = (ROOT / "docs" / "compatibility.md").read_text(encoding="utf-8")
    assert f"```text\n{golden}```\n" in document


def fetching(root: Path, **changes: Any) -> dict[str, Any]:
    """A node that is asked to fetch a converted model, all of it missing."""
    fetch = {
        "directory": "Big",
        "repositories": {"huggingface": {"repository": "owner/Big", "revision": "ab" * 20}},
        "bytes": 1000,
        "measured_cards": 0,
    }
    convert = {"source": "Big", "target": "Big-G2", "tool": "fp8_block", "bytes": 1000}
    needs = {"weights_path": f"{root}/Big-G2", "weights_bytes": 1000}
    return preflight(
        plans=[{**plan(root, 0), "model": "big", "requires": needs}],
        source_plans={"one": [{"fetch": fetch, "convert": convert}]},
        weights_root=str(root),
        weights_fetch=True,
        weights_sources=1,
        weights_python=sys.executable,
        **changes,
    )


HERE = {"docker image": (0, "sha256:1", ""), sys.executable: (0, "3.11\n", "")}


def ids(ran: ModuleRun) -> list[str]:
    return [problem["id"] for problem in ran["problems"]]


def test_missing_weights_are_work_where_the_site_asks_for_it(run: Run, tmp_path: Path) -> None:
    ran = run(gaudi_preflight, fetching(tmp_path), HERE)
    assert ran["problems"] == []
    assert ran["missing_weights"] == ["Big", "Big-G2"]
    (said,) = [line for line in ran["findings"] if "will be fetched" in line]
    assert "from owner/Big at abababababab into" in said
    assert said.endswith("Big-G2.")
    refused = run(gaudi_preflight, {**fetching(tmp_path), "weights_fetch": False}, HERE)
    assert (ids(refused), refused["missing_weights"]) == (["weights"], [])


def test_what_is_there_is_not_brought_again(run: Run, tmp_path: Path) -> None:
    (tmp_path / "Big").mkdir()
    (tmp_path / "Big" / "config.json").write_text("{}")
    assert run(gaudi_preflight, fetching(tmp_path), HERE)["missing_weights"] == ["Big-G2"]
    (tmp_path / "Big-G2").mkdir()
    (tmp_path / "Big-G2" / "config.json").write_text("{}")
    assert run(gaudi_preflight, fetching(tmp_path), HERE)["missing_weights"] == []


def test_what_another_node_has_published_is_not_brought_again(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, published = tmp_path / "models", tmp_path / "published"
    root.mkdir()
    published.mkdir()
    (published / "config.json").write_text("{}")

    # As NFS does: before it is asked for what is in a folder, it knows nothing of what others put there.
    def revalidate_directory(*folders: Path) -> None:
        if root in folders:
            published.rename(root / "Big-G2")

    monkeypatch.setattr(folders, "revalidate_directory", revalidate_directory)
    assert run(gaudi_preflight, fetching(root), HERE)["missing_weights"] == []


def test_weights_that_lost_a_file_are_brought_again(run: Run, tmp_path: Path) -> None:
    record = weights.Manifest("hub", "owner/Big", "ab" * 20, "2026", (weights.RecordedFile("config.json", 2, "0"),))
    for name in ("Big", "Big-G2"):
        (tmp_path / name / weights.FOLDER).mkdir(parents=True)
        (tmp_path / name / "config.json").write_text("{}")
    (tmp_path / "Big" / weights.MANIFEST).write_text(record.render())
    arguments = fetching(tmp_path)
    arguments["source_plans"]["one"][0]["convert"] = None
    arguments["plans"][0]["requires"]["weights_path"] = f"{tmp_path}/Big"
    assert run(gaudi_preflight, arguments, HERE)["missing_weights"] == []
    (tmp_path / "Big" / "config.json").write_text("{")
    assert run(gaudi_preflight, arguments, HERE)["missing_weights"] == ["Big"]


def test_a_converted_shard_that_was_cut_short_is_found_named_and_repaired(run: Run, tmp_path: Path) -> None:
    for name in ("Big", "Big-G2"):
        (tmp_path / name / weights.FOLDER).mkdir(parents=True)
        (tmp_path / name / "config.json").write_text("{}")
    (tmp_path / "Big" / weights.MANIFEST).write_text(weights.Manifest("hub", "owner/Big", "ab", "2026", ()).render())
    shard = tmp_path / "Big-G2/model-1.safetensors"
    shard.write_text("twelve bytes")
    record = {"tool": "fp8_convert", "source": f"{tmp_path}/Big", "shards": {shard.name: {"bytes": 12}}}
    (tmp_path / "Big-G2" / weights.FOLDER / "fp8.json").write_text(json.dumps(record))
    assert run(gaudi_preflight, fetching(tmp_path), HERE)["missing_weights"] == []
    shard.write_text("ten bytes.")
    assert run(gaudi_preflight, fetching(tmp_path), HERE)["missing_weights"] == ["Big-G2"]
    arguments = {**fetching(tmp_path), "weights_fetch": False}
    arguments["plans"][0]["requires"]["weights_missing"] = [shard.name]
    (problem,) = run(gaudi_preflight, arguments, HERE)["problems"]
    assert (
        f"the weights in {tmp_path}/Big-G2 are not complete: {shard.name} missing or not as recorded."
        in (problem["message"])
    )
    again = f"playbooks/convert_weights.yml -e source={tmp_path}/Big -e target={tmp_path}/Big-G2"
    assert problem["message"].endswith(again)


def test_room_is_asked_for_all_that_comes_and_the_reserve(run: Run, tmp_path: Path) -> None:
    ran = run(gaudi_preflight, fetching(tmp_path, weights_reserve=10**18), HERE)
    (problem,) = ran["problems"]
    assert problem["id"] == "disk"
    assert "for the weights in Big" in problem["message"]
    assert "for the reserve (model_weights_reserve)" in problem["message"]
    assert ran["missing_weights"] == []


def test_nothing_is_brought_from_nowhere_by_an_old_python_or_over_somebodys_folder(run: Run, tmp_path: Path) -> None:
    (tmp_path / "Big").mkdir()
    (tmp_path / "Big" / "thesis.txt").write_text("mine")
    old = {**HERE, sys.executable: (0, "3.9\n", "")}
    ran = run(gaudi_preflight, {**fetching(tmp_path), "weights_sources": 0}, old)
    assert ids(ran) == ["weights_source", "weights_python", "weights"]
    assert "needs Python 3.10 or newer, but model_weights_python is 3.9" in ran["problems"][1]["message"]
    assert f"{tmp_path}/Big is where weights are to be fetched to" in ran["problems"][2]["message"]


@pytest.mark.report("W06")
def test_a_weights_root_that_cannot_be_written_to_is_refused_before_anything_is_changed(run: Run) -> None:
    # Nothing can be created below /proc, by root neither.
    ran = run(gaudi_preflight, fetching(Path("/proc/1/models")), HERE)
    assert "weights_storage" in ids(ran)


def test_a_source_of_a_kind_nobody_knows_is_a_problem(run: Run, tmp_path: Path) -> None:
    ran = run(gaudi_preflight, {**fetching(tmp_path), "weights_kinds": ["huggingface", "ftp"]}, HERE)
    assert ids(ran) == ["weights_source"]
    assert "a source of kind 'ftp', and can have huggingface, modelscope, git" in ran["problems"][0]["message"]


def test_weights_that_no_source_of_the_site_has_are_refused_before_anything_is_changed(
    run: Run, tmp_path: Path
) -> None:
    ran = run(gaudi_preflight, {**fetching(tmp_path), "weights_kinds": ["git"]}, HERE)
    assert ids(ran) == ["weights_source"]
    assert "Big is published on huggingface, and model_weights_sources has no source" in ran["problems"][0]["message"]


def test_a_port_somebody_listens_on_is_found_with_its_holder(run: Run, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = int(server.getsockname()[1])
        answers: dict[str, Answer] = {"docker image": ABSENT}
        ran = run(gaudi_preflight, preflight(plans=[plan(tmp_path, port)]), answers)
    assert [problem["id"] for problem in ran["problems"]] == ["port"]
    assert f"port {port} on 127.0.0.1 is in use by pid {os.getpid()} " in ran["problems"][0]["message"]
    free = run(gaudi_preflight, preflight(plans=[plan(tmp_path, port)]))
    assert free["problems"] == []


@pytest.fixture
def _in_a_container(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process of the test is one of a container's."""
    before = gaudi_preflight.read_text

    def read(path: str) -> str:
        scope = f"0::/system.slice/docker-{'c0' * 32}.scope\n"
        return scope if path == f"/proc/{os.getpid()}/cgroup" else str(before(path))

    monkeypatch.setattr(gaudi_preflight, "read_text", read)


@pytest.mark.usefixtures("_in_a_container")
@pytest.mark.parametrize(
    ("written", "ids_of"),
    [
        ({"phase": "serving", "container_id": "c0" * 32}, []),
        ({"phase": "serving", "container_id": "d0" * 32}, ["port"]),
        ({"phase": "serving"}, ["port"]),
        (7, ["port"]),
    ],
)
def test_an_instances_own_port_is_known_while_the_engine_is_away(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: object, ids_of: list[str]
) -> None:
    (tmp_path / "config.json").write_text("{}")
    for folder in ("plans", "states"):
        (tmp_path / folder / "one").mkdir(parents=True)
    (tmp_path / "states/one/state.json").write_text(json.dumps(written))
    (tmp_path / "images.json").write_text(json.dumps({"schema": 1, "images": {IMAGE: {}}}))
    monkeypatch.setattr(states, "PLANS", tmp_path / "plans")
    monkeypatch.setattr(states, "STATES", tmp_path / "states")
    monkeypatch.setattr(gaudi_preflight, "IMAGES", tmp_path / "images.json", raising=False)
    away: Answer = (1, "", "Cannot connect to the Docker daemon at unix:///var/run/docker.sock.")
    answers = {"docker": away, PS: away}
    with socket.create_server(("127.0.0.1", 0)) as server:
        needing = plan(tmp_path, int(server.getsockname()[1]))
        ran = run(gaudi_preflight, preflight(plans=[needing], image_bytes=10**18), answers)
    # An image that was pulled takes no room.
    assert ids(ran) == ids_of
    (said,) = [finding for finding in ran["findings"] if "docker ps failed" in finding]
    assert "Judged without the engine" in said


def test_an_image_that_nobody_recorded_is_to_be_pulled(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config.json").write_text("{}")
    monkeypatch.setattr(gaudi_preflight, "IMAGES", tmp_path)
    away: Answer = (1, "", "Cannot connect to the Docker daemon at unix:///var/run/docker.sock.")
    ran = run(gaudi_preflight, preflight(plans=[plan(tmp_path, 0)], image_bytes=10**18), {"docker": away, PS: away})
    assert ids(ran) == ["disk"]


@pytest.mark.usefixtures("_in_a_container")
def test_an_instances_own_port_is_not_in_use(run: Run, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = int(server.getsockname()[1])
        answers: dict[str, Answer] = {
            PS: (0, f"{'c0' * 32} vllm-one\n", ""),
            "docker image": (0, "sha256:x\n", ""),
        }
        ran = run(gaudi_preflight, preflight(plans=[plan(tmp_path, port)]), answers)
        assert ran["problems"] == []
        answers[PS] = (0, f"{'c0' * 32} vllm-qwen3-8b\n", "")
        ran = run(gaudi_preflight, preflight(plans=[plan(tmp_path, port)]), answers)
    (problem,) = ran["problems"]
    assert "is in use by the instance qwen3-8b (vllm-qwen3-8b.service)" in problem["message"]
    # A port that can be typed as it stands.
    assert f'-e \'{{"serve_options": {{"port": {port + 1}}}}}\'' in problem["message"]


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"gaudi_serving_instances": None}, ["gaudi_serving_instances is not set", "[] to serve nothing"]),
        (
            {"gaudi_serving_instances": {"model": "qwen3-8b"}},
            ["gaudi_serving_instances is {'model'", "list of requests"],
        ),
        ({"gaudi_serving_instances": "qwen3-8b"}, ["gaudi_serving_instances is 'qwen3-8b'", "list of requests"]),
        ({"gaudi_serving_instances": [{}, "qwen3-8b"]}, ["gaudi_serving_instances[1] is 'qwen3-8b'", "mapping"]),
        ({"gaudi_expected_cards": "eight"}, ["gaudi_expected_cards is 'eight'", "whole number"]),
        ({"gaudi_expected_cards": 0}, ["gaudi_expected_cards is 0"]),
        ({"gaudi_weights_root": "models"}, ["gaudi_weights_root is 'models'", "absolute path"]),
        ({"gaudi_weights_fetch": "maybe"}, ["gaudi_weights_fetch is 'maybe'", "true or false"]),
        ({"gaudi_image_registry": ["x"]}, ["gaudi_image_registry is ['x']", "vault.habana.ai"]),
        ({"gaudi_release": {"x": 1}}, ["gaudi_release is {'x': 1}", "catalog/releases"]),
        ({"host_tuning_hugepages": "abc", "host_tuning_max_memory_share": 50}, ["host_tuning_hugepages is 'abc'"]),
        ({"host_tuning_hugepages": 8, "host_tuning_max_memory_share": 0}, ["host_tuning_max_memory_share is 0"]),
        ({"host_tuning_hugepages": 1 << 31, "host_tuning_max_memory_share": 50}, ["hugepages of", "Set host_tuning_h"]),
        (
            {"host_tuning_hugepages": 1, "host_tuning_max_memory_share": 50, "host_tuning_hugepage_size": "1GiB"},
            ["2 MiB by default", "1 of 1 GiB", "default_hugepagesz=1G"],
        ),
    ],
)
def test_a_wrong_inventory_is_one_sentence_with_the_variables_name(run: Run, wrong: Any, words: list[str]) -> None:
    ran = run(gaudi_preflight, preflight(inventory=site(**wrong)))
    (problem,) = ran["problems"]
    for word in words:
        assert word in problem["message"]
    assert "\n" not in problem["message"]


def test_all_that_is_wrong_with_an_inventory_is_said_at_once(run: Run) -> None:
    everything = dict.fromkeys(site())
    ran = run(gaudi_preflight, preflight(inventory={**everything, "host_tuning_hugepages": -1}, release=""))
    assert len(ran["problems"]) == len(everything) + 1
    assert ran["report"].startswith(f"gaudi-01: {len(everything) + 1} problems, nothing was changed.")


def test_hugepages_that_fit_and_numbers_that_yaml_reads_another_way(run: Run) -> None:
    right = site(
        gaudi_release=1.22, gaudi_expected_cards="8", host_tuning_hugepages="0", host_tuning_max_memory_share=50
    )
    assert run(gaudi_preflight, preflight(inventory=right))["problems"] == []


@pytest.mark.report("N08")
def test_the_address_of_the_default_route(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    # An address of the machine itself has a route, 255.255.255.255 and those without one are refused by the kernel.
    monkeypatch.setattr(gaudi_preflight, "ANYWHERE", "127.0.0.1")
    assert run(gaudi_preflight, preflight())["node"]["address"] == "127.0.0.1"
    monkeypatch.setattr(gaudi_preflight, "ANYWHERE", "255.255.255.255")
    assert run(gaudi_preflight, preflight())["node"]["address"] == ""


def test_room_is_asked_for_where_the_engine_keeps_images(run: Run, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    daemon = tmp_path / "daemon.json"
    daemon.write_text(json.dumps({"data-root": str(tmp_path / "not" / "yet" / "there")}))
    arguments = preflight(plans=[plan(tmp_path, 1)], daemon_json=str(daemon), image_bytes=1 << 60)
    ran = run(gaudi_preflight, arguments)
    assert [problem["id"] for problem in ran["problems"]] == ["disk"]
    assert f"({tmp_path}/not/yet/there)" in ran["problems"][0]["message"]
    present: dict[str, Answer] = {"docker image inspect": (0, "sha256:x\n", "")}
    assert run(gaudi_preflight, arguments, present)["problems"] == []


def test_weights_without_a_config_are_missing(run: Run, tmp_path: Path) -> None:
    ran = run(gaudi_preflight, preflight(plans=[plan(tmp_path, 1)]))
    assert [problem["id"] for problem in ran["problems"]] == ["weights"]


def test_models_that_share_a_card_must_be_there_too(run: Run, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    wanted = plan(tmp_path, 1)
    wanted["requires"]["weights_beside"] = [str(tmp_path / "second")]
    ran = run(gaudi_preflight, preflight(plans=[wanted]))
    assert [problem["id"] for problem in ran["problems"]] == ["weights"]
    assert f"{tmp_path}/second" in ran["problems"][0]["message"]


def test_a_host_the_node_does_not_know_is_refused(run: Run, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    wanted = {**plan(tmp_path, 1), "listen": {"host": "no-such-host.invalid", "port": 1}}
    ran = run(gaudi_preflight, preflight(plans=[wanted]))
    assert [problem["id"] for problem in ran["problems"]] == ["host"]
    assert "host is no-such-host.invalid, which the node does not know" in ran["problems"][0]["message"]


def test_a_host_may_be_named(run: Run, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = int(server.getsockname()[1])
        answers: dict[str, Answer] = {"docker image": ABSENT}
        wanted = {**plan(tmp_path, port), "listen": {"host": "localhost", "port": port}}
        ran = run(gaudi_preflight, preflight(plans=[wanted]), answers)
    assert [problem["id"] for problem in ran["problems"]] == ["port"]


def test_warnings_are_findings_and_no_problems(run: Run, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    wanted = plan(tmp_path, 1)
    wanted["warnings"] = ["Memory is tight."]
    wanted["requires"]["disk_bytes"] = 1 << 60
    wanted["container"]["mounts"] = [
        {"source": str(tmp_path / "cache"), "read_only": False},
        {"source": str(tmp_path / "beside"), "read_only": True},
    ]
    pinned = {"plans": [wanted], "image_digest": DIGEST}
    ran = run(gaudi_preflight, preflight(**pinned, software={"systems": ["ubuntu22.04"]}))
    assert ran["problems"] == []
    assert ran["findings"][0].startswith("system: found debian12, wanted ubuntu22.04 by release 1.22.")
    assert ran["findings"][1] == "one: Memory is tight."
    assert ran["findings"][2].startswith("one: the recipe cache may grow to ")
    assert len(ran["findings"]) == 3


@pytest.mark.parametrize(("path", "ids"), [("/bin/sh", []), ("/bin/no-such", ["habana-runtime"]), ("", [])])
def test_the_container_runtime_is_looked_for(run: Run, path: str, ids: list[str]) -> None:
    ran = run(gaudi_preflight, preflight(habana_path=path))
    assert [problem["id"] for problem in ran["problems"]] == ids


def test_a_request_without_a_name_is_a_problem_not_a_crash(run: Run, tmp_path: Path) -> None:
    ran = run(gaudi_preflight, preflight(plans=[{**plan(tmp_path, 1), "instance": None, "model": "qwen3-8b"}]))
    assert [problem["id"] for problem in ran["problems"]] == ["request"]


def test_weights_that_are_still_to_come_need_room_too(run: Run, tmp_path: Path) -> None:
    wanted = plan(tmp_path, 1)
    wanted["requires"]["weights_bytes"] = 1 << 60
    ran = run(gaudi_preflight, preflight(plans=[wanted]))
    assert [problem["id"] for problem in ran["problems"]] == ["weights", "disk"]
    assert "for the weights of one" in ran["problems"][1]["message"]


# serving_image, held against plans

PLANNED = {"chat": {"parts": ["numactl"], "arguments": ["python3", "-m", "vllm.entrypoints.openai.api_server", "--x"]}}


def inside_engine(runtime: str = "/bin/sh", **found: Any) -> dict[str, Any]:
    """An engine whose image answers the program that looks inside. runtime: where the habana runtime is to be."""
    looked = "gaudi-image " + json.dumps({**INSIDE, **found})
    return {
        "docker image inspect": (0, INSPECTED, ""),
        f"{LOOK} --interactive": (0, looked, ""),
        LOOK: (0, LISTED, ""),
        "docker rm --force": (0, "", ""),
        "docker info": (0, json.dumps({"habana": {"path": runtime}, "runc": {"path": "runc"}}), ""),
    }


def test_an_image_is_held_against_the_plans_once(run: Run, record: Path) -> None:
    arguments = {
        "image": IMAGE,
        "record": str(record),
        "instances": PLANNED,
        "versions": {"habana-pyhlml": "1.22.2.32"},
    }
    ran = run(serving_image, arguments, inside_engine())
    written = json.loads(record.read_text())["images"][IMAGE]
    assert (written["parts"], written["python"]) == (["numactl"], "3.10.12")
    looked = next(command for command in ran.commands if "--interactive" in command)
    assert " --runtime habana --network none --cap-drop ALL " in looked
    # Without it the vendor's runtime gives an image that nobody knows yet all cards, those of instances too.
    assert " --env HABANA_VISIBLE_DEVICES=none " in looked
    assert " --read-only " in looked
    again = run(serving_image, arguments, inside_engine())
    assert again["current"]
    assert again.commands == [f"docker image inspect {IMAGE}"]
    more = {**arguments, "instances": {**PLANNED, "other": PLANNED["chat"]}}
    assert any("--interactive" in command for command in run(serving_image, more, inside_engine()).commands)


def test_an_image_is_looked_into_before_the_driver_brings_its_runtime(run: Run, record: Path) -> None:
    arguments = {"image": IMAGE, "record": str(record), "instances": PLANNED}
    ran = run(serving_image, arguments, inside_engine(runtime="/usr/bin/no-such-runtime"))
    (looked,) = [command for command in ran.commands if "--interactive" in command]
    assert " --runtime runc --network none " in looked
    # A host that builds for others never has another one.
    assert run(serving_image, arguments, inside_engine(runtime="/usr/bin/no-such-runtime"))["current"]


def test_an_image_is_looked_into_again_once_its_runtime_is_there(run: Run, record: Path) -> None:
    arguments = {"image": IMAGE, "record": str(record), "instances": PLANNED}
    run(serving_image, arguments, inside_engine(runtime="/usr/bin/no-such-runtime"))
    assert not run(serving_image, arguments, inside_engine(), check=True)["current"]
    ran = run(serving_image, arguments, inside_engine())
    (looked,) = [command for command in ran.commands if "--interactive" in command]
    assert " --runtime habana --network none " in looked
    assert run(serving_image, arguments, inside_engine()).commands == [f"docker image inspect {IMAGE}"]
    # A look at another plan under the engine's own runtime counts for that plan only.
    more = {**arguments, "instances": {**PLANNED, "other": PLANNED["chat"]}}
    run(serving_image, more, inside_engine(runtime="/usr/bin/no-such-runtime"))
    assert not run(serving_image, more, inside_engine(), check=True)["current"]


@pytest.mark.parametrize(
    ("found", "id_", "words"),
    [
        ({"programs": []}, "image_lacks_part", "chat: "),
        (
            {"rejected": {"chat": "unrecognized arguments: --x"}},
            "image_refuses_arguments",
            "unrecognized arguments: --x",
        ),
        ({"vllm": "ImportError: no"}, "image_without_server", "ImportError: no"),
        ({"packages": {"habana-pyhlml": "1.21.3.57"}}, "image_of_other_release", "1.21.3.57, but the release is of"),
    ],
)
def test_an_image_that_cannot_serve_the_plans_is_refused(
    run: Run, record: Path, found: dict[str, Any], id_: str, words: str
) -> None:
    arguments = {
        "image": IMAGE,
        "record": str(record),
        "instances": PLANNED,
        "versions": {"habana-pyhlml": "1.22.2.32"},
    }
    ran = run(serving_image, arguments, inside_engine(**found))
    assert ran["failed"]
    assert ran["refused_id"] == id_
    assert words in ran["msg"]
    assert not record.exists()


@pytest.mark.parametrize(
    ("others", "instances"),
    [(False, {**PLANNED, "text": {**PLANNED["chat"], "parts": []}}), (True, PLANNED)],
    ids=["beside another one", "alone in its image"],
)
def test_an_image_is_refused_to_the_instance_that_it_cannot_serve(
    run: Run, record: Path, others: bool, instances: dict[str, Any]
) -> None:
    arguments = {"image": IMAGE, "record": str(record), "instances": instances, "others": others}
    ran = run(serving_image, arguments, inside_engine(programs=[]))
    assert ran["unserved"].keys() == {"chat"}
    assert ran["unserved"]["chat"]["refused"].startswith(f"chat: {IMAGE} lacks numactl")
    assert ran["unserved"]["chat"]["refused_id"] == "image_lacks_part"
    # It is asked again, as whoever repairs the image under its name expects; nothing more is written.
    again = run(serving_image, arguments, inside_engine(programs=[]), check=True)
    assert (again["current"], again["changed"], again["unserved"].keys()) == (False, False, {"chat"})
    repaired = run(serving_image, arguments, inside_engine())
    assert (repaired["unserved"], run(serving_image, arguments, inside_engine())["current"]) == ({}, True)


def test_a_built_image_is_held_to_the_parts_that_its_labels_name(run: Run, record: Path) -> None:
    labels = {"gaudi-serving.image.release": "1.22", "gaudi-serving.image.parts": "numactl pillow_simd"}
    built = json.dumps([{"Id": "sha256:id", "RepoDigests": [], "Config": {"Labels": labels}}])
    engine = {**inside_engine(), "docker image inspect": (0, built, "")}
    instances = {"chat": {**PLANNED["chat"], "parts": ["numactl", "pillow_simd"]}}
    ran = run(serving_image, {"image": IMAGE, "record": str(record), "instances": instances}, engine)
    assert ran["refused_id"] == "image_lacks_part"
    assert f"chat: {IMAGE} was built with pillow_simd (" in ran["msg"]


def test_an_image_is_held_against_the_nodes_processors(
    run: Run, record: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cpuinfo").write_text("flags\t\t: fpu avx\n")
    monkeypatch.setattr(serving_image, "PROCESSORS", tmp_path / "cpuinfo")
    arguments = {"image": IMAGE, "record": str(record), "instances": PLANNED}
    ran = run(serving_image, arguments, inside_engine(pillow="11.3.0.post0"))
    assert ran["refused_id"] == "image_needs_avx2"


def test_a_built_image_asks_for_no_pin(run: Run, record: Path) -> None:
    labels = {"gaudi-serving.image.recipe": "1", "gaudi-serving.image.release": "1.22", "other": "x"}
    built = json.dumps([{"Id": "sha256:id", "RepoDigests": [], "Config": {"Labels": labels}}])
    read = {**inside_engine(), "docker image inspect": (0, built, "")}
    ran = run(serving_image, {"image": IMAGE, "record": str(record), "built": True}, read)
    assert ran["unpinned"] == []
    assert json.loads(record.read_text())["images"][IMAGE]["built"] == {
        "gaudi-serving.image.recipe": "1",
        "gaudi-serving.image.release": "1.22",
    }


@pytest.mark.parametrize("site", [{}, {"built": True, "pushed": True}])
def test_labels_of_a_build_do_not_hide_that_an_image_is_not_pinned(
    run: Run, record: Path, site: dict[str, bool]
) -> None:
    """Any image may have them; where built images are pushed, the registry says what the tag is."""
    labels = {"gaudi-serving.image.recipe": "1"}
    pulled = json.dumps([{**json.loads(INSPECTED)[0], "Config": {"Labels": labels}}])
    read = {**inside_engine(), "docker image inspect": (0, pulled, "")}
    lines = run(serving_image, {"image": IMAGE, "record": str(record), **site}, read)["unpinned"]
    assert lines[0].startswith(f"{IMAGE} is not pinned.")
    assert f"serving_image_digest: {DIGEST}" in lines
    assert (f"serving_image_ref: {IMAGE}" in lines) is bool(site)


@pytest.mark.parametrize(
    ("name", "pushed", "refused"),
    [
        ("gaudi-serving/vllm", False, "built_image_absent"),
        ("registry.example.com/gaudi/vllm", False, "built_image_absent"),
        ("gaudi-serving/vllm", True, "push_without_registry"),
        ("registry.example.com/gaudi/vllm", True, None),
    ],
)
def test_an_image_that_is_built_is_pulled_from_the_registry_that_it_is_pushed_to_alone(
    run: Run, record: Path, name: str, pushed: bool, refused: str | None
) -> None:
    """Anybody may have an image of that name on Docker Hub."""
    image = f"{name}:1.22-0123456789ab"
    node = {**engine(present=False), f"timeout 3600 docker pull {image}": (1, "", "of whoever has the name")}
    ran = run(serving_image, {"image": image, "record": str(record), "built": True, "pushed": pushed}, node)
    assert [command for command in ran.commands if " pull " in command] == (
        [] if refused else [f"timeout 3600 docker pull {image}"]
    )
    assert ran.result.get("refused_id") == refused


def test_a_process_that_holds_a_port_calls_itself_what_it_likes(tmp_path: Path) -> None:
    """Any user of a node may be the one; to read its name ended the preflight."""
    (tmp_path / "comm").write_bytes(b"\xff\x1b[31m\n")
    assert gaudi_preflight.read_text(str(tmp_path / "comm")).startswith("\ufffd")
    assert gaudi_preflight.read_text(str(tmp_path / "absent")) == ""
