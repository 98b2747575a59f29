"""The engine's configuration on a node: its file, its unit, and what happens where the engine does not return."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.gaudi.engine import daemon
from ansible.module_utils.gaudi.node import engine_config, engine_look, package_states

from library import docker_daemon_json, gaudi_preflight
from tests.unit.node.damages import DAMAGES, damage
from tests.unit.preflight.conftest import INFO, PS, Answer, ModuleRun, Run
from tests.unit.preflight.test_modules import WISHES, docker_info, plan, preflight, unit

RUNTIME = WISHES["runtimes"]
SITE = {"runtimes": RUNTIME}
VERSION: dict[str, Answer] = {"dockerd --version": (0, "Docker version 20.10.24+dfsg1, build 5d6db84\n", "")}


@pytest.fixture(autouse=True)
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A node whose state until the next boot, processes and record of packages are below a folder of its own."""
    monkeypatch.setattr(docker_daemon_json, "WAITING", tmp_path / "run" / "docker-restart.json")
    monkeypatch.setattr(engine_config, "PROC", tmp_path / "proc")
    monkeypatch.setattr(engine_config, "PID_FILE", tmp_path / "docker.pid")
    monkeypatch.setattr(engine_look, "BROUGHT", tmp_path / "brought.json")
    monkeypatch.setattr(engine_look, "ROOT", tmp_path)
    monkeypatch.setattr(engine_look, "PROC", tmp_path / "proc")
    monkeypatch.setattr(package_states, "OS_RELEASE", tmp_path / "os-release")
    (tmp_path / "etc").mkdir()
    return tmp_path


@pytest.fixture
def file(node: Path) -> Path:
    return node / "etc" / "daemon.json"


def exec_start(*words: str) -> str:
    line = " ".join(["/usr/bin/dockerd", *words])
    return f"{{ path=/usr/bin/dockerd ; argv[]={line} ; ignore_errors=no ; pid=1 }}"


@pytest.fixture
def merge(run: Run, file: Path) -> Callable[..., ModuleRun]:
    def start(answers: dict[str, Answer] | None = None, check: bool = False, **given: Any) -> ModuleRun:
        return run(docker_daemon_json, {**SITE, "path": str(file), **given}, answers or {}, check)

    return start


Merge = Callable[..., ModuleRun]


@pytest.mark.report("E05")
def test_merge_flags_of_drop_in_and_environment_file_are_left_out(merge: Merge, node: Path, file: Path) -> None:
    options, drop_in = node / "default", node / "log.conf"
    options.write_text('DOCKER_OPTS="--live-restore --log-opt max-size=10m"\n')
    drop_in.write_text("[Service]\nExecStart=\nExecStart=/usr/bin/dockerd --log-driver=journald $DOCKER_OPTS\n")
    shown = {
        "ExecStart": exec_start("--log-driver=journald", "$DOCKER_OPTS"),
        "EnvironmentFiles": f"{options} (ignore_errors=yes)",
        "DropInPaths": str(drop_in),
    }
    answers = {**docker_info(LoggingDriver="journald"), **unit(**shown)}
    ran = merge(answers, by_others=False)
    assert json.loads(file.read_text()) == {"runtimes": RUNTIME}
    assert ran["apply"] == "reload"
    refused = merge(answers, by_others=False, live_restore=False)
    assert refused["refused_id"] == "flag_contradicts"
    assert str(options) in refused["msg"]


def test_merge_flags_of_a_process_without_a_unit_are_left_out(merge: Merge, node: Path, file: Path) -> None:
    (node / "docker.pid").write_text("77\n")
    (node / "proc/77").mkdir(parents=True)
    (node / "proc/77/cmdline").write_text("/opt/bin/dockerd\0--log-driver\0journald\0--live-restore\0")
    merge({**docker_info(), **unit(MainPID="0")}, by_others=False)
    assert json.loads(file.read_text()) == {"runtimes": RUNTIME}


def test_merge_config_file_of_the_unit_is_the_one_that_changes(merge: Merge, node: Path, file: Path) -> None:
    other = node / "other.json"
    ran = merge({**docker_info(), **unit(ExecStart=exec_start(f"--config-file={other}"))})
    assert (ran["path"], file.exists()) == (str(other), False)
    assert json.loads(other.read_text()) == {"runtimes": RUNTIME}


LATE = pytest.mark.parametrize(
    ("name", "shown"),
    [
        # systemd has an older drop-in, or none that it knows of.
        ("docker.service.d/file.conf", {"NeedDaemonReload": "yes"}),
        ("docker.service.d/file.conf", {"DropInPaths": ""}),
        ("docker.service", {"FragmentPath": "/usr/lib/systemd/system/docker.service"}),
    ],
)


def unread(node: Path, monkeypatch: pytest.MonkeyPatch, name: str, shown: dict[str, str]) -> dict[str, Answer]:
    """Return a running engine whose unit names another configuration file than systemd has read."""
    folder, vendor = node / "etc/systemd", node / "usr/systemd"
    for path, words in ((vendor / "docker.service", ""), (folder / name, f"--config-file={node / 'etc/other.json'}")):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"[Service]\nExecStart=\nExecStart=/usr/bin/dockerd \\\n  -H fd:// {words}\n")
    monkeypatch.setattr(engine_config, "UNIT_FOLDERS", [folder, vendor])
    (node / "proc/12").mkdir(parents=True)
    (node / "proc/12/cmdline").write_text("/usr/bin/dockerd\0-H\0fd://\0")
    (node / "proc/12/environ").write_text("")
    return unit(
        MainPID="12", ExecStart=exec_start("-H", "fd://"), **{"FragmentPath": str(vendor / "docker.service"), **shown}
    )


@LATE
def test_merge_config_file_that_systemd_has_not_read_is_refused_in_check_mode(
    merge: Merge, node: Path, monkeypatch: pytest.MonkeyPatch, name: str, shown: dict[str, str]
) -> None:
    found = unread(node, monkeypatch, name, shown)
    ran = merge({**docker_info(), **found}, check=True)
    assert ran["refused_id"] == "config_file_absent"
    assert str(node / "etc/systemd" / name) in ran["msg"]
    (node / "etc").mkdir(exist_ok=True)
    (node / "etc/other.json").write_text("{}")
    assert merge({**docker_info(), **found}, check=True)["refused_id"] == "config_file_not_loaded"


@LATE
def test_preflight_config_file_that_systemd_has_not_read_is_a_problem(
    run: Run, node: Path, file: Path, monkeypatch: pytest.MonkeyPatch, name: str, shown: dict[str, str]
) -> None:
    (problem,) = inspect(run, file, unread(node, monkeypatch, name, shown))["problems"]
    assert problem["id"] == "config_file_absent"


def test_merge_unit_that_systemd_has_read_is_not_read_again(
    merge: Merge, node: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drop_in = "docker.service.d/file.conf"
    answers = unread(node, monkeypatch, drop_in, {"DropInPaths": str(node / "etc/systemd" / drop_in)})
    assert merge({**docker_info(), **answers}, check=True)["path"] == str(node / "etc/daemon.json")


@pytest.mark.report("E05")
def test_merge_new_engine_validates_with_the_flags_of_its_unit(merge: Merge, file: Path) -> None:
    answers: dict[str, Answer] = {
        **docker_info(),
        **unit(ExecStart=exec_start("-H", "fd://", f"--config-file={file}")),
        "dockerd --help": (0, "  --validate   Validate daemon configuration and exit\n", ""),
        "dockerd --validate": (1, "", "unable to configure the Docker daemon with file x\n"),
    }
    ran = merge(answers)
    (command,) = (line for line in ran.commands if "--validate" in line)
    assert command.endswith(" -H fd://")
    assert (ran["refused_id"], file.exists()) == ("engine_refuses_file", False)


@pytest.mark.parametrize(
    ("record", "live"),
    [
        ('{"packages": {"engine": ["docker.io", "nftables"]}}', True),
        # What instances need beside an engine of others.
        ('{"packages": {"engine": ["nftables"]}}', None),
        ("{", None),
    ],
)
def test_merge_defaults_are_for_an_engine_of_ours(merge: Merge, node: Path, file: Path, record: str, live: Any) -> None:
    (node / "brought.json").write_text(record)
    ran = merge(docker_info(LiveRestoreEnabled=False))
    assert ran["live_restore"] is live
    assert ("log-driver" in json.loads(file.read_text())) is bool(live)


def test_merge_engine_of_others_is_not_restarted_for_what_others_changed(merge: Merge, node: Path, file: Path) -> None:
    (node / "proc/12").mkdir(parents=True)
    (node / "proc/12/environ").write_text("HTTP_PROXY=http://old\0")
    (node / "proc/12/cmdline").write_text("/usr/bin/dockerd\0")
    file.write_text('{"log-driver": "journald"}')
    running = {**docker_info(), **unit(MainPID="12", Environment="HTTP_PROXY=http://new")}
    assert merge(running, by_others=True)["apply"] == "reload", "for the runtime"
    assert merge(running, by_others=True)["apply"] == "nothing"
    assert merge(running, by_others=False)["keys"] == ["HTTP_PROXY", "live-restore", "log-driver"]


def test_merge_proxy_that_would_end_containers_is_refused_before_a_change(merge: Merge, node: Path, file: Path) -> None:
    (node / "proc/12").mkdir(parents=True)
    (node / "proc/12/environ").write_text("PATH=/bin\0")
    beside = {"/etc/systemd/system/docker.service.d/gaudi-serving-proxy.env": "HTTPS_PROXY=http://u:p%40ss@a:1\n"}
    running = {
        **docker_info(LiveRestoreEnabled=False),
        **unit(MainPID="12"),
        "docker ps": (0, "database\t\n", ""),
        "docker container inspect": (0, "/database\tfalse\n", ""),
    }
    refused = merge(running, by_others=True, beside=beside)
    assert (refused["refused_id"], file.exists()) == ("restart_ends_containers", False)
    assert "database" in refused["msg"]
    assert "HTTPS_PROXY" in refused["msg"]
    assert "p%40ss" not in json.dumps(refused.result)
    assert merge({**running, "docker ps": (0, "", "")}, by_others=True, beside=beside)["apply"] == "restart"
    unknown = {**running, "docker ps": (1, "", "Cannot connect")}
    assert merge(unknown, by_others=True, beside=beside)["refused_id"] == "containers_unknown"


REMOVED: dict[str, Answer] = {
    "docker ps": (0, "job\t\nweb\t\n", ""),
    "docker ps --quiet": (0, "d1\nd2\n", ""),
    "docker container inspect --format {{.Name}}\t{{.HostConfig.AutoRemove}} d1 d2": (
        0,
        "/job\ttrue\n/web\tfalse\n",
        "",
    ),
}


@pytest.mark.parametrize(("version", "ended"), [("20.10.24+dfsg1", True), ("25.0.3", False)])
def test_merge_restart_that_removes_a_container_despite_live_restore_is_refused(
    merge: Merge, node: Path, file: Path, version: str, ended: bool
) -> None:
    (node / "proc/12").mkdir(parents=True)
    (node / "proc/12/environ").write_text("PATH=/bin\0")
    beside = {"/etc/systemd/system/docker.service.d/gaudi-serving-proxy.env": "HTTPS_PROXY=http://a:1\n"}
    running = {**docker_info(LiveRestoreEnabled=True, ServerVersion=version), **unit(MainPID="12"), **REMOVED}
    ran = merge(running, by_others=True, beside=beside)
    assert ran.result.get("refused_id") == ("restart_ends_containers" if ended else None)
    assert file.exists() is not ended
    if ended:
        assert "running containers: job, because" in ran["msg"]


@pytest.mark.report("E15")
def test_merge_proxy_with_escaped_characters_is_the_one_of_the_process(merge: Merge, node: Path) -> None:
    value = "HTTPS_PROXY=http://u:p%40ss%25@a:1"
    beside = {"/etc/systemd/system/docker.service.d/gaudi-serving-proxy.env": f"{value}\n"}
    (node / "proc/12").mkdir(parents=True)
    (node / "proc/12/environ").write_text(f"{value}\0")
    running = {**docker_info(), **unit(MainPID="12")}
    assert merge(running, beside=beside)["apply"] == "reload", "for the runtime"
    assert merge(running, beside=beside)["apply"] == "nothing"


# Docker 20.10.24: it has two runtimes of its own beside runc, and loses them when it reloads a file with runtimes.
BUILT_IN = {name: {"path": "runc"} for name in ("io.containerd.runc.v2", "io.containerd.runtime.v1.linux", "runc")}
LISTED: dict[str, Answer] = {
    "docker ps --all --quiet": (0, "d1\nd2\nd3\n", ""),
    # The third one was removed in between.
    "docker container inspect --format {{.Name}}\t{{.HostConfig.Runtime}} d1 d2 d3": (
        1,
        "/db\tio.containerd.runc.v2\n/web\trunc\n",
        "Error response from daemon: No such container: d3\n",
    ),
}
OLD = {**docker_info(ServerVersion="20.10.24+dfsg1", Runtimes=BUILT_IN), **LISTED}


@pytest.mark.parametrize("check", [False, True])
def test_merge_reload_that_drops_the_runtime_of_a_container_is_refused(merge: Merge, file: Path, check: bool) -> None:
    ran = merge(OLD, check=check, by_others=True)
    assert (ran["refused_id"], file.exists()) == ("reload_drops_runtimes", False)
    assert "db (io.containerd.runc.v2)" in ran["msg"]
    assert "web" not in ran["msg"]
    assert 'runtimes in that file, {"io.containerd.runc.v2": {"path": "runc"}}' in ran["msg"]
    # What the sentence advises.
    file.write_text(json.dumps({"runtimes": {"io.containerd.runc.v2": {"path": "runc"}}}))
    assert merge(OLD, check=check, by_others=True)["apply"] == "reload"


@pytest.mark.parametrize(
    "answers",
    [
        docker_info(ServerVersion="23.0.1", Runtimes=BUILT_IN),
        {**OLD, "docker ps --all --quiet": (0, "", "")},
        # A restart adds them again.
        {
            **OLD,
            **docker_info(ServerVersion="20.10.24", Runtimes=BUILT_IN, LoggingDriver="x"),
            "docker ps": (0, "", ""),
        },
    ],
)
def test_merge_runtime_that_no_container_loses_is_no_reason(merge: Merge, answers: dict[str, Answer]) -> None:
    restart = {"log_options": {"max-size": "1m"}} if '"x"' in answers["docker info"][1] else {}
    assert merge(answers, by_others=True, **restart)["changed"]


@pytest.mark.parametrize("answer", [(1, "", "Cannot connect"), (124, "", "")])
@pytest.mark.parametrize("command", list(LISTED))
def test_merge_containers_that_cannot_be_inspected_are_a_refusal(
    merge: Merge, file: Path, command: str, answer: Answer
) -> None:
    ran = merge({**OLD, command: answer}, by_others=True)
    assert (ran["refused_id"], file.exists()) == ("containers_unknown", False)


@pytest.mark.report("E08")
def test_merge_proxies_of_the_file_that_win_are_refused(merge: Merge, file: Path) -> None:
    file.write_text('{"proxies": {"https-proxy": "http://other:1"}}')
    beside = {"/etc/systemd/system/docker.service.d/gaudi-serving-proxy.env": "HTTPS_PROXY=http://a:1\n"}
    assert merge(docker_info(), beside=beside)["refused_id"] == "proxies_differ"
    file.write_text('{"proxies": {"https-proxy": "http://a:1"}}')
    assert merge(docker_info(), beside=beside)["changed"]


def test_merge_difference_shows_no_secret_of_the_owner(merge: Merge, file: Path) -> None:
    accounts = {"proxies": {"http-proxy": "http://bob:hunter2@a:1", "https-proxy": "bob:hunter2@a:1"}}
    options = {"log-driver": "splunk", "log-opts": {"splunk-token": "hunter2", "splunk-url": "https://log.example"}}
    content = {**accounts, **options, "registry-mirrors": ["https://bob:hunter2@mirror.example"]}
    # As its owner may have set its lines, and with a list of secrets.
    text = json.dumps({**content, "api-keys": ["hunter2", "hunter2"]}, indent=2)
    file.write_text(text.replace('"splunk-token": ', '"splunk-token":\n'))
    ran = merge(docker_info(), check=True)
    assert "hunter2" not in json.dumps(ran["diff"])
    assert all(word in ran["diff"]["before"] for word in ("mirror.example", "log.example"))
    assert "habana-container-runtime" in ran["diff"]["after"]


@pytest.mark.report("E06")
def test_merge_swarm_gets_no_live_restore_and_a_warning(merge: Merge, file: Path) -> None:
    swarm = docker_info(Swarm={"LocalNodeState": "active"}, LiveRestoreEnabled=False)
    ran = merge({**swarm, "docker ps": (0, "", "")}, by_others=False, log_options={"max-size": "1m"})
    assert "live-restore" not in json.loads(file.read_text())
    assert "swarm" in ran["notes"][0]


@pytest.mark.report("E09")
def test_merge_byte_order_mark_is_read_where_the_engine_reads_it(merge: Merge, file: Path) -> None:
    text = b'\xef\xbb\xbf{"debug": true}'
    file.write_bytes(text)
    assert merge(VERSION)["refused_id"] == "byte_order_mark"
    assert file.read_bytes() == text
    merge(docker_info(ServerVersion="23.0.1"))
    assert json.loads(file.read_text(encoding="utf-8")) == {"debug": True, "runtimes": RUNTIME}


@pytest.mark.report("E09")
def test_merge_settled_file_with_a_byte_order_mark_stays(merge: Merge, file: Path) -> None:
    file.write_bytes(b"\xef\xbb\xbf" + json.dumps({"runtimes": RUNTIME}).encode())
    before = file.read_bytes()
    desired = {"record": str(file.with_name("desired.json")), "of": "The settings", "by": "here"}
    ran = merge(docker_info(ServerVersion="28.2.2"), desired=desired)
    assert file.read_bytes() == before
    assert ran["desired"]["files"].keys() == {str(file)}


@pytest.mark.report("E10")
def test_merge_other_bytes_are_refused_with_path_and_offset(merge: Merge, file: Path) -> None:
    file.write_bytes(b'{"labels": ["ort=K\xf6ln"]}')
    ran = merge()
    assert ran["refused_id"] == "not_utf8"
    assert f"{file} " in ran["msg"]
    assert "offset 18" in ran["msg"]


@pytest.mark.report("E12")
def test_merge_link_is_followed_and_its_target_keeps_its_mode(merge: Merge, node: Path, file: Path) -> None:
    target = node / "managed.json"
    target.write_text('{"debug": true}')
    target.chmod(0o640)
    file.symlink_to("../managed.json")
    ran = merge(docker_info())
    assert file.is_symlink()
    assert json.loads(target.read_text()) == {"debug": True, "runtimes": RUNTIME}
    assert target.stat().st_mode & 0o777 == 0o640
    assert (ran["backup_file"].startswith(str(file)), ran["restore"]["target"]) == (True, str(target))
    assert not merge(docker_info())["changed"]


@pytest.mark.report("E12")
@pytest.mark.parametrize(
    ("leads", "id_"),
    [
        ("nothing.json", "daemon_json_link"),
        ("daemon.json", "daemon_json_link"),
        (".", "daemon_json_no_file"),
        ("/dev/null", "daemon_json_no_file"),
    ],
)
def test_merge_link_to_no_file_is_refused(merge: Merge, file: Path, leads: str, id_: str) -> None:
    file.symlink_to(leads)
    ran = merge()
    assert (ran["refused_id"], file.is_symlink()) == (id_, True)
    assert str(file.parent) in ran["msg"] or "/dev/null" in ran["msg"]


@pytest.mark.report("E12")
def test_merge_link_into_a_read_only_place_is_refused_only_for_a_change(
    merge: Merge, node: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = node / "store.json"
    target.write_text(json.dumps({"runtimes": RUNTIME}))
    file.symlink_to(target)
    monkeypatch.setattr(os, "access", lambda path, _mode: Path(path) not in (target, target.parent))
    assert not merge(docker_info())["changed"]
    ran = merge(docker_info(), live_restore=True)
    assert ran["refused_id"] == "daemon_json_fixed"
    assert str(target) in ran["msg"]
    assert "live-restore" in ran["msg"]


def test_merge_link_into_a_folder_of_a_user_is_refused(merge: Merge, node: Path, file: Path) -> None:
    home = node / "home"
    home.mkdir()
    (home / "daemon.json").write_text("{}")
    file.symlink_to(home / "daemon.json")
    if os.geteuid() != 0:
        pytest.skip("only root can give a folder to another user")
    os.chown(home, 12345, 12345)
    ran = merge()
    assert (ran["refused_id"], str(home) in ran["msg"]) == ("daemon_json_link", True)


def test_merge_directory_in_place_of_the_file_is_refused(merge: Merge, file: Path) -> None:
    file.mkdir()
    ran = merge()
    assert (ran["refused_id"], str(file) in ran["msg"]) == ("daemon_json_no_file", True)


# What the journal of Debian 12 shows of an engine that is given a flag and a key.
LOG = (
    'time="2026-11-27T00:24:13.780420479Z" level=info msg="Processing signal \'terminated\'"\n'
    "unable to configure the Docker daemon with file /etc/docker/daemon.json: the following directives are specified "
    "both as a flag and in the configuration file: log-driver: (from flag: journald, from file: json-file)\n"
    "docker.service: Failed with result 'exit-code'.\n"
)
SYSTEMD: dict[str, Answer] = {
    "journalctl --unit=docker.service": (0, LOG, ""),
    "systemctl reset-failed docker.service": (0, "", ""),
    "systemctl start docker.service": (0, "", ""),
    "systemctl reload docker.service": (0, "", ""),
}


@pytest.mark.report("E05")
@pytest.mark.parametrize("before", ['{"debug": true}', None])
def test_restore_earlier_file_returns_and_the_engine_starts(
    run: Run, merge: Merge, file: Path, before: str | None
) -> None:
    if before is not None:
        file.write_text(before)
    restore = merge(docker_info())["restore"]
    assert "habana" in file.read_text()
    arguments = {"state": "restored", "restore": restore, "cause": "Unable to restart service docker.service"}
    ran = run(docker_daemon_json, arguments, {**SYSTEMD, **docker_info()})
    assert ran["failed"]
    assert ran["refused_id"] == "engine_did_not_return"
    assert (file.read_text() if file.exists() else None) == before
    assert "terminated" not in ran["msg"]
    for part in ("Unable to restart", "log-driver", str(file), "answers again"):
        assert part in ran["msg"]
    order = [line for line in ran.commands if line.startswith("systemctl") and " show " not in line]
    assert order[:2] == ["systemctl reset-failed docker.service docker.socket", "systemctl start docker.service"]


def test_restore_keeps_a_file_that_the_engines_flag_names(run: Run, merge: Merge, file: Path) -> None:
    """dockerd ends if a file does not exist that --config-file names, also the default one (seen with 20.10.24)."""
    answers = {**docker_info(), **unit(ExecStart=exec_start(f"--config-file={file}"))}
    restore = merge(answers)["restore"]
    ran = run(docker_daemon_json, {"state": "restored", "restore": restore, "cause": "x"}, {**SYSTEMD, **answers})
    assert (ran["refused_id"], json.loads(file.read_text())) == ("engine_did_not_return", {})


@pytest.mark.parametrize("before", ['{"debug": true}', None])
def test_restore_engine_starts_with_live_restore_as_its_containers_run(
    run: Run, merge: Merge, file: Path, before: str | None
) -> None:
    """An engine that starts without it ends the containers that survived its failure (seen with 20.10.24)."""
    if before is not None:
        file.write_text(before)
    restore = merge(docker_info(), live_restore=True)["restore"]
    started: list[Any] = []

    def start() -> Answer:
        started.append(json.loads(file.read_text()) if file.exists() else None)
        return 0, "", ""

    answers: dict[str, Any] = {**SYSTEMD, **docker_info(), "systemctl start docker.service": start}
    answers["systemctl reload docker.service"] = start
    run(docker_daemon_json, {"state": "restored", "restore": restore, "cause": "x"}, answers)
    earlier = json.loads(before) if before else None
    assert started == [{**(earlier or {}), "live-restore": True}, earlier, earlier]


def test_restore_without_a_change_only_starts_the_engine(run: Run, merge: Merge, file: Path) -> None:
    merge(docker_info())
    restore = merge(docker_info())["restore"]
    assert restore == {}
    down: dict[str, Answer] = {**SYSTEMD, "docker info": (1, "", "Cannot connect")}
    ran = run(docker_daemon_json, {"state": "restored", "restore": restore, "cause": "x"}, down)
    assert "still does not answer" in ran["msg"]
    assert file.exists()


HABANA = RUNTIME["habana"]
OTHER = {"path": "/usr/bin/other"}


@pytest.mark.parametrize(
    ("earlier", "now", "after"),
    [
        # The owner's later changes stay, and what the site had set.
        (
            {"debug": True},
            {"debug": False, "live-restore": True, "runtimes": {"habana": HABANA}},
            {"debug": False, "live-restore": True},
        ),
        ({"runtimes": {"o": OTHER}}, {"runtimes": {"o": OTHER, "habana": HABANA}}, {"runtimes": {"o": OTHER}}),
        # The owner's own runtime, a changed one, and the default one.
        ({"runtimes": {"habana": HABANA}}, {"runtimes": {"habana": HABANA}}, None),
        ({}, {"runtimes": {"habana": OTHER}}, None),
        ({}, {"default-runtime": "habana", "runtimes": {"habana": HABANA}}, None),
        # Without a backup it is not known who set it.
        (None, {"runtimes": {"habana": HABANA}}, None),
    ],
)
def test_remove_takes_only_the_runtime_that_this_project_added(
    merge: Merge, file: Path, earlier: Any, now: Any, after: Any
) -> None:
    text = json.dumps(now)
    if earlier is not None:
        file.with_name(f"{file.name}.7.2026-01-02@03:04:05~").write_text(json.dumps(earlier))
        file.with_name(f"{file.name}.1.2026-02-02@03:04:05~").write_text(text)
    file.with_name(f"{file.name}.mine~").write_text("{}")
    file.write_text(text)
    ran = merge(docker_info(), state="removed", backup=False)
    assert (ran["apply"], ran["changed"]) == (("reload", True) if after else ("nothing", False))
    assert json.loads(file.read_text()) == after if after else file.read_text() == text
    assert len(ran["copies"]) == (0 if earlier is None else 2)
    assert not merge(docker_info(), state="removed", backup=False)["changed"]


def test_remove_again_after_a_removal_that_was_cut_off_calls_the_file_unchanged(
    merge: Merge, node: Path, file: Path
) -> None:
    """The first one took our settings out, and their record and the backups away."""
    file.write_text('{"debug": true}')
    record = {"settings_record": str(node / "settings.json")}
    merge(docker_info(), by_others=True, **record)
    merge(docker_info(), state="removed", by_others=True, backup=False, **record)
    for gone in (node / "settings.json", *file.parent.glob("*~")):
        gone.unlink()
    (line,) = merge(docker_info(), state="removed", by_others=True, backup=False, **record)["stays"]
    assert line.startswith(f"{file}, unchanged: ")
    assert json.loads(file.read_text()) == {"debug": True}


@pytest.mark.parametrize(
    "text", ['{"debug":true,\r\n\t"features" : {}}', '\ufeff{"debug": true, "features": {}}\n', ""]
)
def test_remove_gives_the_owner_the_bytes_of_the_file(merge: Merge, node: Path, file: Path, text: str) -> None:
    file.write_bytes(text.encode())
    file.chmod(0o640)
    answers, record = docker_info(ServerVersion="24.0.7"), {"settings_record": str(node / "settings.json")}
    merge(answers, by_others=True, **record)
    assert file.read_bytes() != text.encode()
    assert merge(answers, check=True, state="removed", backup=False, **record)["changed"]
    ran = merge(answers, state="removed", backup=False, **record)
    assert (file.read_bytes(), ran["apply"], f"{file.stat().st_mode & 0o777:o}") == (text.encode(), "reload", "640")
    assert ran["stays"][0].startswith(str(file))
    assert not merge(answers, state="removed", backup=False, **record)["changed"]
    # What the owner has added since stays, and with it the form in which it is.
    file.write_text(json.dumps({"runtimes": {"habana": HABANA}, "hosts": []}))
    merge(answers, state="removed", backup=False, **record)
    assert json.loads(file.read_text()) == {"hosts": []}


def test_remove_file_that_cannot_be_read_stays_with_a_note(merge: Merge, file: Path) -> None:
    file.with_name(f"{file.name}.7.2026-01-02@03:04:05~").write_text("{}")
    file.write_text("{ours")
    ran = merge(docker_info(), state="removed")
    assert (ran["changed"], file.read_text()) == (False, "{ours")
    assert [note for note in ran["notes"] if str(file) in note]


@pytest.mark.parametrize(
    ("earlier", "edit", "after"),
    [
        (None, {}, None),
        (None, {"debug": True}, {"debug": True}),
        # Changed by the owner since.
        (None, {"live-restore": False}, {"live-restore": False}),
        (None, {"runtimes": {"habana": OTHER}}, {"runtimes": {"habana": OTHER}}),
        ({}, {}, {}),
        ({"live-restore": False, "registry-mirrors": ["b"]}, {}, {"live-restore": False, "registry-mirrors": ["b"]}),
        # What the owner had set before, and the site sets as well.
        ({"live-restore": True}, {}, {"live-restore": True}),
    ],
)
def test_remove_takes_out_what_runs_set_and_a_file_that_they_created(
    merge: Merge, node: Path, file: Path, earlier: Any, edit: dict[str, Any], after: Any
) -> None:
    if earlier is not None:
        file.write_text(json.dumps(earlier))
    record = {"settings_record": str(node / "state/settings.json")}
    (node / "state").mkdir()
    site = {"live_restore": True, "log_options": {"max-size": "1m"}}
    answers = {**docker_info(), "docker ps": (0, "", "")}
    if earlier is None:
        merge(answers, by_others=True, **record, live_restore=True)
    merge(answers, by_others=True, **record, **site, additions={"registry-mirrors": ["a"]})
    file.write_text(json.dumps({**json.loads(file.read_text()), **edit}))
    assert merge(answers, check=True, state="removed", backup=False, **record)["changed"]
    assert file.exists()
    ran = merge(answers, state="removed", backup=False, **record)
    assert ran["apply"] == "reload"
    assert (json.loads(file.read_text()) if file.exists() else None) == after
    assert bool([line for line in ran["stays"] if str(file) in line]) is (after is not None)
    assert not merge(answers, state="removed", backup=False, **record)["changed"]


def test_remove_names_what_the_running_engine_uses_until_its_next_start(merge: Merge, node: Path, file: Path) -> None:
    record = {"settings_record": str(node / "settings.json")}
    file.write_text(json.dumps({"runtimes": {"other": OTHER}}))
    answers = {**docker_info(), "docker ps": (0, "", "")}
    merge(answers, by_others=True, **record, live_restore=True, log_options={"max-size": "1m"})
    ran = merge(answers, state="removed", backup=False, **record)
    (line,) = ran["stays"][1:]
    assert line.startswith("this site's values of live-restore, log-driver, log-opts in the running engine, until it ")
    assert "without live-restore this ends its containers" in line
    assert "--rm" in line


@pytest.mark.parametrize(
    ("owner", "kept"),
    [("HTTPS_PROXY=http://a:1", []), ("", ["HTTPS_PROXY"]), ("HTTPS_PROXY=http://b:1", ["HTTPS_PROXY"])],
)
def test_remove_names_proxies_that_the_owner_has_otherwise(
    merge: Merge, file: Path, monkeypatch: pytest.MonkeyPatch, owner: str, kept: list[str]
) -> None:
    node = file.parent.parent
    own = node / "proxy.env"
    monkeypatch.setattr(daemon, "OWN_VARIABLES", str(own))
    own.write_text("HTTPS_PROXY=http://a:1\n")
    (node / "proc/12").mkdir(parents=True)
    (node / "proc/12/environ").write_text("HTTPS_PROXY=http://a:1\0")
    (node / "proc/12/cmdline").write_text("/usr/bin/dockerd\0")
    shown = unit(MainPID="12", Environment=owner, EnvironmentFiles=f"{own} (ignore_errors=no)")
    file.write_text("{}")
    ran = merge({**docker_info(), **shown}, state="removed", by_others=True, beside={str(own): ""})
    assert ran["environment"] == kept


def test_remove_does_not_reload_an_engine_that_would_forget_a_runtime(merge: Merge, file: Path) -> None:
    file.write_text(json.dumps({"runtimes": {"other": OTHER}}))
    merge(docker_info())
    ran = merge(OLD, state="removed", backup=False)
    assert (ran["apply"], json.loads(file.read_text())) == ("nothing", {"runtimes": {"other": OTHER}})
    assert "a reload would keep db from starting again" in ran["stays"][1]


def test_remove_file_that_an_earlier_release_may_have_created_is_named(merge: Merge, file: Path) -> None:
    file.write_text(json.dumps({"runtimes": RUNTIME}))
    (line,) = merge(docker_info(), state="removed")["stays"]
    assert line.startswith(str(file))
    assert "whether an earlier release created it" in line


@pytest.mark.parametrize("kind", DAMAGES)
def test_remove_with_a_damaged_record_takes_out_no_key(merge: Merge, node: Path, file: Path, kind: str) -> None:
    record = node / "settings.json"
    file.write_text("{}")
    merge(docker_info(), by_others=True, settings_record=str(record), live_restore=True)
    damage(record, kind)
    merge(docker_info(), state="removed", backup=False, settings_record=str(record))
    assert json.loads(file.read_text()) == {"live-restore": True}


def test_restore_of_a_file_that_was_created_forgets_it(run: Run, merge: Merge, node: Path, file: Path) -> None:
    record = node / "settings.json"
    restore = merge(docker_info(), settings_record=str(record))["restore"]
    assert json.loads(record.read_text())["created"] is True
    run(docker_daemon_json, {"state": "restored", "restore": restore, "cause": "x"}, {**SYSTEMD, **docker_info()})
    assert not record.exists()


def test_remove_file_of_a_flag_is_the_one_that_changes(merge: Merge, node: Path, file: Path) -> None:
    other = node / "etc/other.json"
    answers = {**docker_info(), **unit(ExecStart=exec_start("--config-file", str(other)))}
    other.write_text("{}")
    merge(answers, by_others=True)
    assert "habana" in other.read_text()
    merge(answers, state="removed")
    assert json.loads(other.read_text()) == {}


# gaudi_preflight

ASKED = {"runtimes": RUNTIME}


def inspect(run: Run, file: Path, answers: dict[str, Answer] | None = None, **engine: Any) -> ModuleRun:
    proxies, valid = engine.pop("proxies", {}), engine.pop("access_valid", True)
    arguments = preflight(daemon_json=str(file), engine={**ASKED, **engine}, engine_proxies=proxies, access_valid=valid)
    return run(gaudi_preflight, arguments, {"docker": (1, "", ""), **(answers or {})})


def info(**changes: Any) -> dict[str, Answer]:
    return {INFO: docker_info(**changes)["docker info"]}


@pytest.mark.parametrize(
    ("content", "engine", "words"),
    [
        pytest.param(b'{"labels": ["\xe4"]}', {}, "offset 13", marks=pytest.mark.report("E10")),
        pytest.param(b'{"a": 1,}', {}, "line 1", marks=pytest.mark.report("E14")),
        pytest.param(b"{} {}", {}, "line 1, column 4", marks=pytest.mark.report("E14")),
        pytest.param(b"// comment\n{}", {}, "line 1, column 1", marks=pytest.mark.report("E14")),
        pytest.param(b'{"runtimes": null}', {}, "'runtimes'", marks=pytest.mark.report("E18")),
        pytest.param(
            b'{"registry-mirrors": "a"}',
            {"additions": {"registry-mirrors": ["b"]}},
            "'registry-mirrors'",
            marks=pytest.mark.report("E18"),
        ),
    ],
)
def test_preflight_file_that_cannot_be_merged_is_a_problem(
    run: Run, file: Path, content: bytes, engine: dict[str, Any], words: str
) -> None:
    file.write_bytes(content)
    (problem,) = inspect(run, file, **engine)["problems"]
    assert problem["id"] in ("daemon_json", "wrong_type")
    assert str(file) in problem["message"]
    assert words in problem["message"]


@pytest.mark.report("E18")
@pytest.mark.parametrize("content", [None, "", "{}"])
def test_preflight_missing_or_empty_file_is_no_problem(run: Run, file: Path, content: str | None) -> None:
    if content is not None:
        file.write_text(content)
    assert inspect(run, file)["problems"] == []


@pytest.mark.parametrize(
    ("shown", "content", "answers", "engine", "id_"),
    [
        pytest.param(
            {"ExecStart": exec_start("--live-restore=false")}, "{}", {}, {"live_restore": "true"}, "flag_contradicts",
            marks=pytest.mark.report("E05"),
        ),
        pytest.param(
            {"ExecStart": exec_start("--log-driver=journald")}, '{"log-driver": "json-file"}', {}, {}, "flag_and_key",
            marks=pytest.mark.report("E05"),
        ),
        pytest.param(
            {}, "{}", info(Swarm={"LocalNodeState": "active"}), {"live_restore": True}, "swarm_live_restore",
            marks=pytest.mark.report("E06"),
        ),
        pytest.param(
            {}, "{}", info(SecurityOptions=["name=userns"]), {}, "engine_userns_remap",
            marks=pytest.mark.report("E06"),
        ),
        pytest.param(
            {}, '{"proxies": {"https-proxy": "http://b"}}', info(), {"proxies": {"HTTPS_PROXY": "http://a"}},
            "proxies_differ", marks=pytest.mark.report("E08"),
        ),
        pytest.param(
            {}, "{}", {**info(LiveRestoreEnabled=False), f"{PS} --format {{{{.Names}}}}": (0, "db\t\n", "")},
            {"log_options": {"max-size": "1m"}}, "restart_ends_containers", marks=pytest.mark.report("E16"),
        ),
    ],
)  # fmt: skip
def test_preflight_settings_that_the_engine_does_not_allow_are_a_problem(
    run: Run,
    file: Path,
    shown: dict[str, str],
    content: str,
    answers: dict[str, Answer],
    engine: dict[str, Any],
    id_: str,
) -> None:
    file.write_text(content)
    ran = inspect(run, file, {**unit(MainPID="0", **shown), **answers}, **engine)
    assert [problem["id"] for problem in ran["problems"]] == [id_]


def test_preflight_proxy_that_would_end_containers_is_a_problem(run: Run, node: Path, file: Path) -> None:
    (node / "proc/12").mkdir(parents=True)
    (node / "proc/12/environ").write_text("HTTPS_PROXY=http://a:1\0")
    (node / "proc/12/cmdline").write_text("/usr/bin/dockerd\0-H\0fd://\0")
    answers: dict[str, Answer] = {**info(LiveRestoreEnabled=False), **unit(MainPID="12")}
    answers[f"{PS} --format {{{{.Names}}}}"] = (0, "db\t\n", "")
    assert inspect(run, file, answers, proxies={"HTTPS_PROXY": "http://a:1"})["problems"] == []
    (problem,) = inspect(run, file, answers, proxies={"HTTPS_PROXY": "http://b:1"})["problems"]
    assert problem["id"] == "restart_ends_containers"
    assert "HTTPS_PROXY" in problem["message"]


@pytest.mark.parametrize(
    ("running", "proxies", "needing"),
    [
        # What a first run has written.
        ("HTTPS_PROXY=http://a:1\0NO_PROXY=.b\0", {"HTTPS_PROXY": "http://a:1", "NO_PROXY": ".b"}, ""),
        ("HTTPS_PROXY=http://a:1\0", {"HTTPS_PROXY": "http://a:1", "NO_PROXY": "localhost"}, ""),
        ("HTTPS_PROXY=http://a:1\0", {"HTTPS_PROXY": "http://a:1", "NO_PROXY": ".b"}, "NO_PROXY"),
        ("HTTPS_PROXY=http://a:1\0NO_PROXY=.b\0", {"HTTPS_PROXY": "", "NO_PROXY": ".b"}, "HTTPS_PROXY, NO_PROXY"),
        # Looks that the role has no part in.
        ("HTTPS_PROXY=http://a:1\0NO_PROXY=.b\0", {}, ""),
    ],
)
def test_preflight_judges_the_proxies_that_the_role_writes(
    run: Run, file: Path, monkeypatch: pytest.MonkeyPatch, running: str, proxies: dict[str, str], needing: str
) -> None:
    node = file.parent.parent
    own = node / "proxy.env"
    monkeypatch.setattr(daemon, "OWN_VARIABLES", str(own))
    own.write_text(running.replace("\0", "\n"))
    (node / "proc/12").mkdir(parents=True)
    (node / "proc/12/environ").write_text(running)
    (node / "proc/12/cmdline").write_text("/usr/bin/dockerd\0-H\0fd://\0")
    shown = unit(MainPID="12", EnvironmentFiles=f"{own} (ignore_errors=no)")
    answers: dict[str, Answer] = {**info(LiveRestoreEnabled=False), **shown}
    answers[f"{PS} --format {{{{.Names}}}}"] = (0, "db\t\n", "")
    problems = inspect(run, file, answers, proxies=proxies)["problems"]
    assert [needing in problem["message"] for problem in problems] == ([True] if needing else [])


@pytest.mark.parametrize("state", ["merged", "removed"])
def test_config_file_that_the_running_engine_does_not_read_is_left_alone(
    merge: Merge, node: Path, file: Path, state: str
) -> None:
    (node / "proc/12").mkdir(parents=True)
    (node / "proc/12/cmdline").write_text("/usr/bin/dockerd\0")
    (node / "proc/12/environ").write_text("")
    other = node / "other.json"
    command = exec_start(f"--config-file={other}")
    ran = merge({**docker_info(), **unit(MainPID="12", ExecStart=command)}, state=state)
    assert not other.exists()
    assert str(other) in (ran["msg"] if state == "merged" else ran["notes"][0])
    assert ran.result.get("refused_id") == ("config_file_absent" if state == "merged" else None)


def test_preflight_config_file_that_the_running_engine_does_not_read_is_a_problem(
    run: Run, node: Path, file: Path
) -> None:
    (node / "proc/12").mkdir(parents=True)
    (node / "proc/12/cmdline").write_text("/usr/bin/dockerd\0")
    (node / "proc/12/environ").write_text("")
    answers = unit(MainPID="12", ExecStart=exec_start(f"--config-file={node / 'd.json'}"))
    (problem,) = inspect(run, file, answers)["problems"]
    assert problem["id"] == "config_file_absent"
    (node / "d.json").write_text("{}")
    (problem,) = inspect(run, file, answers)["problems"]
    assert problem["id"] == "config_file_not_loaded"


def test_preflight_reload_that_drops_the_runtime_of_a_container_is_a_problem(run: Run, file: Path) -> None:
    limit = PS.removesuffix("docker ps")
    answers = {f"{limit}{command}": answer for command, answer in OLD.items()}
    (problem,) = inspect(run, file, answers)["problems"]
    assert (problem["id"], "db" in problem["message"]) == ("reload_drops_runtimes", True)


# docker info of 20.10.24 without the program, and with tini.
NO_INIT: dict[str, Any] = {"InitBinary": "docker-init", "InitCommit": {"ID": "N/A", "Expected": "N/A"}}
INIT: dict[str, Any] = {"InitBinary": "docker-init", "InitCommit": {"ID": "", "Expected": ""}}


def of_package(node: Path, package: str, system: str) -> dict[str, Answer]:
    """Return the answers of a node whose engine comes with a package; "" for none."""
    (node / "usr/bin").mkdir(parents=True)
    (node / "usr/bin/dockerd").touch(mode=0o755)
    (node / "os-release").write_text(f"ID={system}\n")
    owned = {"dpkg-query": f"{package}: /usr/bin/dockerd\n", "rpm --query --file": f"{package}\n"}
    return {query: (0, line, "") if package else (1, "", "") for query, line in owned.items()}


@pytest.mark.parametrize(
    ("package", "system", "advice"),
    [
        ("docker.io", "debian", "apt-get install --reinstall docker.io tini installs"),
        ("docker-ce", "ubuntu", "apt-get install --reinstall docker-ce installs"),
        ("docker-ce", "rhel", "dnf reinstall docker-ce installs"),
        ("", "debian", "copy it from where the engine came"),
    ],
)
def test_preflight_missing_init_comes_back_with_the_engines_own_package(
    run: Run, node: Path, file: Path, package: str, system: str, advice: str
) -> None:
    """Another engine's package would remove the engine."""
    answers = {**without_init(node), **of_package(node, package, system)}
    (message,) = problems_of_init(run, file, answers, follows=True)
    assert advice in message
    assert all(name == package or name not in message for name in ("docker.io", "docker-ce"))


def without_init(node: Path, *words: str, path: str = "", **changes: Any) -> dict[str, Answer]:
    """Return a running engine that searches one empty folder for its programs."""
    (node / "proc/12").mkdir(parents=True, exist_ok=True)
    (node / "bin").mkdir(exist_ok=True)
    (node / "proc/12/cmdline").write_text("\0".join(["/usr/bin/dockerd", *words, ""]))
    (node / "proc/12/environ").write_text(path or f"PATH={node / 'bin'}\0")
    runtimes = {"runtimes": {"runc": {}, **RUNTIME}}
    return {
        **info(**{**NO_INIT, "Runtimes": runtimes["runtimes"], **changes}),
        **unit(MainPID="12", ActiveState="active"),
    }


def problems_of_init(run: Run, file: Path, answers: dict[str, Answer], *, follows: bool, **fabric: Any) -> list[str]:
    one = {**plan(file.parent, 1), "modules": [{"module_id": 0}], "requires": {"weights_path": None}}
    given: dict[str, Any] = preflight(daemon_json=str(file), engine=ASKED, plans=[one])
    given["fabric"] = {"required": True, "override": "", **fabric} if follows else {}
    answers = {"docker": (1, "", ""), "docker image": (0, "sha256:1", ""), **answers}
    found = run(gaudi_preflight, given, answers)["problems"]
    return [problem["message"] for problem in found if problem["id"] == "engine_lacks_init"]


def test_preflight_missing_init_is_a_problem_where_a_container_of_the_run_needs_it(
    run: Run, node: Path, file: Path
) -> None:
    answers = without_init(node)
    (message,) = problems_of_init(run, file, answers, follows=True)
    assert "docker run --init" in message
    # Without the check of cards and links, and where that is only a warning.
    assert problems_of_init(run, file, answers, follows=False) == []
    assert problems_of_init(run, file, answers, follows=True, override="known") == []
    assert problems_of_init(run, file, answers, follows=True, required=False) == []


@pytest.mark.parametrize("source", ["flag", "file", "flag against the file"])
def test_preflight_missing_init_of_every_container_is_a_problem(run: Run, node: Path, file: Path, source: str) -> None:
    file.write_text("{}" if source == "flag" else '{"init": true}')
    words = {"flag": ["--init"], "file": [], "flag against the file": ["--init=false"]}[source]
    found = problems_of_init(run, file, without_init(node, *words), follows=False)
    assert bool(found) is (source != "flag against the file")
    assert all("no instance starts" in message for message in found)


def test_preflight_init_counts_as_there_where_it_is_not_certainly_missing(run: Run, node: Path, file: Path) -> None:
    assert problems_of_init(run, file, without_init(node, **INIT), follows=True) == []
    # A program of another kind, whose version the engine does not understand; and an engine that cannot be read.
    assert problems_of_init(run, file, without_init(node, path="HOME=/\0"), follows=True) == []
    other = without_init(node, InitBinary=str(node / "own-init"))
    assert len(problems_of_init(run, file, other, follows=True)) == 1
    for name in ("own-init", "bin/docker-init"):
        (node / name).touch()
        (node / name).chmod(0o755)
    assert problems_of_init(run, file, other, follows=True) == []
    answers = without_init(node)
    assert problems_of_init(run, file, answers, follows=True) == []
    # A link that leads nowhere.
    (node / "bin/docker-init").unlink()
    (node / "bin/docker-init").symlink_to(node / "gone")
    assert len(problems_of_init(run, file, answers, follows=True)) == 1


def test_preflight_wrong_proxy_has_no_consequences(run: Run, node: Path, file: Path) -> None:
    (node / "proc/12").mkdir(parents=True)
    (node / "proc/12/environ").write_text("HTTPS_PROXY=http://a:1\0")
    (node / "proc/12/cmdline").write_text("/usr/bin/dockerd\0")
    answers: dict[str, Answer] = {**info(LiveRestoreEnabled=False), **unit(MainPID="12")}
    answers[f"{PS} --format {{{{.Names}}}}"] = (0, "db\t\n", "")
    change = {"log_options": {"max-size": "1m"}}
    assert inspect(run, file, answers, **change)["problems"] != []
    assert inspect(run, file, answers, access_valid=False, **change)["problems"] == []


def test_preflight_restart_into_another_data_root_is_a_problem(run: Run, node: Path, file: Path) -> None:
    (node / "proc/12").mkdir(parents=True)
    (node / "proc/12/environ").write_text("HTTPS_PROXY=http://a:1\0")
    (node / "proc/12/cmdline").write_text("/usr/bin/dockerd\0")
    shown = unit(
        MainPID="12",
        ExecStart="{ path=/usr/bin/dockerd ; argv[]=/usr/bin/dockerd --data-root=/srv/x ; ignore_errors=no ; }",
    )
    answers: dict[str, Answer] = {**info(LiveRestoreEnabled=True, DockerRootDir="/var/lib/docker"), **shown}
    answers[f"{PS} --format {{{{.Names}}}}"] = (0, "db\t\n", "")
    assert inspect(run, file, answers, proxies={"HTTPS_PROXY": "http://a:1"})["problems"] == []
    (problem,) = inspect(run, file, answers, proxies={"HTTPS_PROXY": "http://b:1"})["problems"]
    assert (problem["id"], "db" in problem["message"]) == ("restart_moves_data_root", True)


@pytest.mark.report("E13")
@pytest.mark.parametrize("source", ["engine", "flag", "file"])
def test_preflight_disk_space_is_the_one_below_the_engines_root(run: Run, node: Path, file: Path, source: str) -> None:
    (node / "config.json").write_text("{}")
    root = str(node / "images")
    answers: dict[str, Answer] = {"docker image": (1, "", "no such image")}
    if source == "engine":
        answers.update(info(DockerRootDir=root))
    elif source == "flag":
        (node / "default").write_text(f"DOCKER_OPTS='-g {root}'\n")
        files = f"{node / 'default'} (ignore_errors=yes)"
        answers.update(unit(MainPID="0", ExecStart=exec_start("$DOCKER_OPTS"), EnvironmentFiles=files))
    else:
        file.write_text(json.dumps({"data-root": root}))
    arguments = preflight(plans=[plan(node, 1)], daemon_json=str(file), image_bytes=1 << 60)
    (problem,) = run(gaudi_preflight, arguments, answers)["problems"]
    assert problem["id"] == "disk"
    assert f"({root})" in problem["message"]
