"""What is merged into an engine's configuration, and what is refused before anything is changed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from ansible.module_utils.gaudi.base.refusal import Refusal
from ansible.module_utils.gaudi.engine import configuration, daemon
from ansible.module_utils.gaudi.engine.configuration import EngineFacts, RequestedConfiguration

PATH = "/etc/docker/daemon.json"
DROP_IN = "/etc/systemd/system/docker.service.d/log.conf"
HABANA = {"habana": {"path": "/usr/bin/habana-container-runtime", "runtimeArgs": []}}
SITE = RequestedConfiguration(runtimes=HABANA)
OURS = EngineFacts(info={"LiveRestoreEnabled": False}, installed=True, ours=True)
FOREIGN = replace(OURS, ours=False)
SWARM = {"Swarm": {"LocalNodeState": "active"}}


def with_flags(engine: EngineFacts, *words: str) -> EngineFacts:
    return replace(
        engine, command=["/usr/bin/dockerd", *words], files={DROP_IN: f"ExecStart=dockerd {' '.join(words)}"}
    )


def running(engine: EngineFacts, *words: str) -> EngineFacts:
    return replace(engine, process=["/usr/bin/dockerd", *words])


def decide(
    engine: EngineFacts, existing: dict[str, Any] | None = None, requested: RequestedConfiguration = SITE
) -> dict[str, Any]:
    merged: dict[str, Any] = configuration.decide(engine, existing or {}, requested, PATH).merged
    return merged


def refused(
    engine: EngineFacts, existing: dict[str, Any] | None = None, requested: RequestedConfiguration = SITE
) -> Refusal:
    with pytest.raises(Refusal) as caught:
        configuration.decide(engine, existing or {}, requested, PATH)
    return caught.value


def test_decide_own_engine_gets_all_defaults() -> None:
    assert decide(OURS) == {
        "live-restore": True,
        "log-driver": "json-file",
        "log-opts": {"max-size": "50m", "max-file": "5"},
        "runtimes": HABANA,
    }
    assert decide(EngineFacts()) == decide(OURS), "an engine that is not there yet is installed by this project"


def test_decide_engine_of_others_gets_the_runtime_alone() -> None:
    assert decide(FOREIGN, {"debug": True}) == {"debug": True, "runtimes": HABANA}


def test_decide_runtime_that_others_registered_stays() -> None:
    theirs = {"habana": {**HABANA["habana"], "runtimeArgs": ["--debug"]}, "other": {"path": "/opt/other"}}
    assert decide(FOREIGN, {"runtimes": theirs}) == {"runtimes": theirs}
    assert decide(OURS, {"runtimes": theirs})["runtimes"] == {**theirs, **HABANA}


def test_decide_runtime_of_others_for_another_program_is_refused() -> None:
    existing = {"runtimes": {"habana": {"path": "/opt/other"}}}
    refusal = refused(FOREIGN, existing)
    assert refusal.id == "runtime_differs"
    assert "/opt/other" in str(refusal)
    assert decide(OURS, existing)["runtimes"] == HABANA


def test_decide_engine_of_others_gets_what_the_site_sets() -> None:
    requested = replace(SITE, live_restore=True, log_options={"max-size": "1m"}, additions={"registry-mirrors": ["a"]})
    assert decide(FOREIGN, {}, requested) == {
        "live-restore": True,
        "log-driver": "json-file",
        "log-opts": {"max-size": "1m"},
        "registry-mirrors": ["a"],
        "runtimes": HABANA,
    }


def test_decide_what_an_earlier_release_merged_stays() -> None:
    merged = decide(OURS)
    assert decide(FOREIGN, merged) == merged


def test_decide_engine_of_others_is_compared_in_our_settings_alone() -> None:
    theirs = {"log-driver": "journald", "live-restore": True, "runtimes": {"kata": {"path": "/k"}}}
    decision = configuration.decide(FOREIGN, theirs, SITE, PATH)
    assert daemon.drift({"LoggingDriver": "json-file", "Runtimes": HABANA}, decision.compared) == []
    assert daemon.drift({"Runtimes": {}}, decision.compared) == ["runtimes"]


@pytest.mark.report("E05")
@pytest.mark.parametrize(
    "words",
    [
        ["--live-restore", "--log-driver=journald", "--log-opt", "max-size=10m"],
        ["--live-restore=true", "--log-opt=max-size=10m"],
        ["--live-restore=false", "--log-driver", "json-file"],
    ],
)
def test_decide_keys_of_flags_are_not_merged(words: list[str]) -> None:
    assert decide(with_flags(OURS, *words)) == {"runtimes": HABANA}
    running = replace(OURS, process=["/usr/bin/dockerd", *words])
    assert decide(running) == {"runtimes": HABANA}, "a reload is refused for flags of the process"


@pytest.mark.report("E05")
@pytest.mark.parametrize(
    ("words", "requested"),
    [
        (["--live-restore=false"], replace(SITE, live_restore=True)),
        (["--live-restore"], replace(SITE, live_restore=False)),
        (["--registry-mirror", "https://a"], replace(SITE, additions={"registry-mirrors": ["https://b"]})),
        (["--insecure-registry=a"], replace(SITE, additions={"insecure-registries": ["b"]})),
        (["--add-runtime", "habana=/opt/other"], SITE),
    ],
)
def test_decide_contradicting_flag_is_refused_with_its_file(
    words: list[str], requested: RequestedConfiguration
) -> None:
    refusal = refused(with_flags(FOREIGN, *words), {}, requested)
    assert refusal.id == "flag_contradicts"
    assert str(refusal).startswith(DROP_IN)


def test_decide_flag_that_sets_the_same_is_enough() -> None:
    words = ["--registry-mirror=https://a/", f"--add-runtime=habana={HABANA['habana']['path']}", "--live-restore"]
    requested = replace(SITE, live_restore=True, additions={"registry-mirrors": ["https://a"]})
    assert decide(with_flags(FOREIGN, *words), {}, requested) == {}


# Messages of dockerd 20.10.24 for each: "... are specified both as a flag and in the configuration file: ...".
@pytest.mark.report("E05")
@pytest.mark.parametrize(
    ("words", "existing"),
    [
        (["--log-driver=journald"], {"log-driver": "json-file"}),
        (["--log-opt", "max-size=10m"], {"log-opts": {"max-size": "1m"}}),
        (["-H", "fd://"], {"hosts": ["unix:///x"]}),
        (["--dns-opt", "y"], {"dns-opts": ["x"]}),
        (["--http-proxy=http://a"], {"proxies": {"http-proxy": "http://a"}}),
    ],
)
def test_decide_flag_and_key_together_are_refused(words: list[str], existing: dict[str, Any]) -> None:
    refusal = refused(with_flags(OURS, *words), existing)
    assert refusal.id == "flag_and_key"
    assert PATH in str(refusal)
    assert DROP_IN in str(refusal)


def test_decide_runtimes_may_be_flags_and_keys() -> None:
    existing = {"runtimes": {"kata": {"path": "/k"}}}
    assert decide(with_flags(FOREIGN, "--add-runtime=kata=/k"), existing)["runtimes"].keys() == {"kata", "habana"}


@pytest.mark.report("E06")
@pytest.mark.parametrize("state", ["active", "pending", "locked"])
def test_decide_swarm_gets_no_live_restore(state: str) -> None:
    swarm = replace(OURS, info={"Swarm": {"LocalNodeState": state}})
    decision = configuration.decide(swarm, {}, SITE, PATH)
    assert "live-restore" not in decision.merged
    assert "swarm" in " ".join(decision.notes)
    assert refused(swarm, {}, replace(SITE, live_restore=True)).id == "swarm_live_restore"
    assert decide(swarm, {}, replace(SITE, live_restore=False))["live-restore"] is False


@pytest.mark.report("E06")
def test_decide_swarm_whose_file_sets_live_restore_is_refused() -> None:
    swarm, existing = replace(FOREIGN, info=SWARM), {"live-restore": True}
    assert refused(swarm, existing).id == "swarm_live_restore"
    assert decide(swarm, existing, replace(SITE, live_restore=False))["live-restore"] is False


def test_decide_engine_outside_a_swarm_gets_live_restore() -> None:
    assert decide(replace(OURS, info={"Swarm": {"LocalNodeState": "inactive"}}))["live-restore"] is True


@pytest.mark.report("E06")
@pytest.mark.parametrize(
    ("engine", "existing", "id_"),
    [
        (
            replace(FOREIGN, info={"SecurityOptions": ["name=seccomp,profile=default", "name=userns"]}),
            {},
            "userns_remap",
        ),
        (FOREIGN, {"userns-remap": "default"}, "userns_remap"),
        (with_flags(FOREIGN, "--userns-remap=default"), {}, "userns_remap"),
        (replace(FOREIGN, info={"SecurityOptions": ["name=rootless"]}), {}, "is_rootless"),
        (with_flags(FOREIGN, "--rootless"), {}, "is_rootless"),
    ],
)
def test_decide_engine_with_other_users_is_refused(engine: EngineFacts, existing: dict[str, Any], id_: str) -> None:
    assert refused(engine, existing).id == f"engine_{id_}"


PROXIED = replace(SITE, proxies={"HTTPS_PROXY": "http://u:secret@a:1", "NO_PROXY": "localhost,.b"})


@pytest.mark.report("E08")
def test_decide_proxies_of_the_file_are_compared() -> None:
    same = {"proxies": {"https-proxy": "http://u:secret@a:1", "no-proxy": ".b"}}
    assert configuration.decide(FOREIGN, same, PROXIED, PATH).notes == ()
    assert configuration.decide(FOREIGN, {"proxies": {"http-proxy": "http://b"}}, PROXIED, PATH).notes == ()
    (note,) = configuration.decide(FOREIGN, {"proxies": {"no-proxy": "x"}}, PROXIED, PATH).notes
    assert "no-proxy" in note
    for engine, existing in (
        (FOREIGN, {"proxies": {"https-proxy": "http://u:other@a:1"}}),
        (with_flags(FOREIGN, "--https-proxy", "http://u:other@a:1"), {}),
    ):
        refusal = refused(engine, existing, PROXIED)
        assert refusal.id == "proxies_differ"
        assert "https-proxy" in str(refusal)
        assert "container_runtime_https_proxy" in str(refusal)
        assert "u:" not in str(refusal)


def test_decide_log_options_that_are_not_used_are_a_note() -> None:
    requested = replace(SITE, log_options={"max-size": "1m"})
    (note,) = configuration.decide(with_flags(OURS, "--log-driver=journald"), {}, requested, PATH).notes
    assert DROP_IN in note
    assert configuration.decide(OURS, {}, requested, PATH).notes == ()
    (note,) = configuration.decide(OURS, {"log-driver": "journald"}, requested, PATH).notes
    assert PATH in note


@pytest.mark.report("E16")
@pytest.mark.parametrize(
    ("engine", "existing", "containers", "ended"),
    [
        (FOREIGN, {}, {"theirs": False}, True),
        (FOREIGN, {}, {"vllm-chat": True}, True),
        (FOREIGN, {}, {}, False),
        (FOREIGN, {"live-restore": True}, {"theirs": False}, False),
        (with_flags(FOREIGN, "--live-restore"), {}, {"theirs": False}, False),
        (running(with_flags(FOREIGN, "--live-restore"), "--live-restore"), {}, {"theirs": False}, False),
        (running(with_flags(FOREIGN, "--live-restore")), {}, {"theirs": False}, True),
        (replace(FOREIGN, info={"LiveRestoreEnabled": True}), {}, {"theirs": False}, False),
        (replace(FOREIGN, info={**SWARM, "LiveRestoreEnabled": True}), {}, {"theirs": False}, True),
        (with_flags(OURS, "--live-restore=false"), {}, {"vllm-chat": True}, False),
        (with_flags(OURS, "--live-restore=false"), {}, {"vllm-chat": True, "theirs": False}, True),
        (OURS, {}, {"theirs": False}, False),
    ],
)
def test_check_restart_that_ends_containers_of_others_is_refused(
    engine: EngineFacts, existing: dict[str, Any], containers: dict[str, bool], ended: bool
) -> None:
    decision = configuration.decide(engine, existing, SITE, PATH)
    if not ended:
        configuration.check_restart(decision, ["log-opts"], containers, ours=engine.ours)
        return
    with pytest.raises(Refusal, match="log-opts") as caught:
        configuration.check_restart(decision, ["log-opts"], containers, ours=engine.ours)
    assert caught.value.id == "restart_ends_containers"


@pytest.mark.parametrize(
    ("engine", "reason", "advice"),
    [(FOREIGN, "live-restore is off", True), (replace(FOREIGN, info=SWARM), "the engine is in swarm mode", False)],
)
def test_check_restart_names_the_one_reason_that_holds(engine: EngineFacts, reason: str, advice: bool) -> None:
    decision = configuration.decide(engine, {}, SITE, PATH)
    with pytest.raises(Refusal, match=f"because {reason}[.]") as caught:
        configuration.check_restart(decision, ["log-opts"], {"theirs": False}, ours=False)
    assert ("container_runtime_live_restore: true" in str(caught.value)) is advice


@pytest.mark.parametrize(
    ("version", "removes"),
    [("20.10.24+dfsg1", True), ("24.0.7", True), ("24.0.8", False), ("25.0.0-rc.1", False), ("", True)],
)
def test_engine_before_the_fix_removes_containers_at_a_restart(version: str, removes: bool) -> None:
    assert configuration.removes_at_restart(version) is removes


@pytest.mark.parametrize(
    ("live", "removed", "reasons"),
    [
        (True, [], []),
        (True, ["job"], ["job, because this engine removes containers with --rm"]),
        (False, ["job"], ["running containers: web, because live-restore is off; job, because this engine removes"]),
    ],
)
def test_check_restart_that_removes_containers_is_refused_whatever_live_restore_is(
    live: bool, removed: list[str], reasons: list[str]
) -> None:
    decision = configuration.decide(FOREIGN, {"live-restore": live}, SITE, PATH)
    found = []
    try:
        configuration.check_restart(decision, ["log-opts"], {"web": False, "job": False}, ours=False, removed=removed)
    except Refusal as refusal:
        found = [reason for reason in reasons if reason in str(refusal)]
        assert "container_runtime_live_restore: true" not in str(refusal)
    assert found == reasons


BUILT_IN = {name: {"path": "runc"} for name in ("io.containerd.runc.v2", "io.containerd.runtime.v1.linux", "runc")}
KATA = {"kata": {"path": "/k"}}


@pytest.mark.parametrize(
    ("version", "runtimes", "content", "dropped"),
    [
        ("20.10.24+dfsg1", BUILT_IN, {"runtimes": HABANA}, ["io.containerd.runc.v2", "io.containerd.runtime.v1.linux"]),
        ("23.0.1", BUILT_IN, {"runtimes": HABANA}, []),
        # Of a flag.
        ("29.8.0", {**BUILT_IN, **KATA}, {"runtimes": HABANA}, ["kata"]),
        ("29.8.0", {**BUILT_IN, **KATA}, {"runtimes": {**KATA, **HABANA}}, []),
        # Without the key, a reload leaves the runtimes alone.
        ("20.10.24", {**BUILT_IN, **KATA}, {"debug": True}, []),
        # Dropped already.
        ("20.10.24", HABANA, {"runtimes": HABANA}, []),
    ],
)
def test_dropped_runtimes_are_those_that_a_reload_forgets(
    version: str, runtimes: dict[str, Any], content: dict[str, Any], dropped: list[str]
) -> None:
    engine = replace(FOREIGN, version=version, info={"Runtimes": runtimes})
    assert sorted(configuration.dropped_runtimes(engine, content)) == dropped


def test_stale_proxies_are_those_that_the_process_has_otherwise() -> None:
    running = replace(FOREIGN, process=["/usr/bin/dockerd"], environment=dict(PROXIED.proxies))
    assert configuration.stale_proxies(running, PROXIED) == []
    assert configuration.stale_proxies(replace(running, environment={}), PROXIED) == ["HTTPS_PROXY", "NO_PROXY"]
    named = replace(running, environment={}, files={"/etc/default/docker": "HTTPS_PROXY=http://b\n"})
    assert configuration.stale_proxies(named, PROXIED) == ["NO_PROXY"]
    assert configuration.stale_proxies(FOREIGN, PROXIED) == []
    # The engine itself sends nothing on loopback to a proxy.
    loopback = replace(running, environment={**PROXIED.proxies, "NO_PROXY": ".b,127.0.0.1,::1"})
    assert configuration.stale_proxies(loopback, PROXIED) == []


@pytest.mark.parametrize("given", ["", "localhost,127.0.0.1"])
def test_loopback_alone_is_no_exception_that_an_engine_restarts_for(given: str) -> None:
    own = f"HTTPS_PROXY=http://a:1\n{f'NO_PROXY={given}' if given else ''}\n"
    for running in ("", "NO_PROXY=localhost\0", "NO_PROXY=127.0.0.1, localhost\0"):
        assert daemon.stale_environment("", f"HTTPS_PROXY=http://a:1\0{running}", "", own) == []
    assert daemon.stale_environment("", "HTTPS_PROXY=http://a:1\0NO_PROXY=.b\0", "", own) == ["NO_PROXY"]


def test_written_proxies_are_none_without_a_proxy() -> None:
    assert configuration.written_proxies({"HTTP_PROXY": "", "HTTPS_PROXY": "", "NO_PROXY": ".b"}) == {}
    written = configuration.written_proxies({"HTTP_PROXY": "", "HTTPS_PROXY": "http://a:1", "NO_PROXY": ".b"})
    assert written == {"HTTPS_PROXY": "http://a:1", "NO_PROXY": ".b"}


def test_config_file_of_a_flag_is_followed() -> None:
    assert configuration.config_file(OURS, PATH) == PATH
    assert configuration.config_file(with_flags(OURS, "--config-file=/srv/d.json"), PATH) == "/srv/d.json"


@pytest.mark.parametrize(
    ("unit", "process", "loaded"),
    [
        (["--config-file=/srv/d.json"], ["--config-file", "/srv/d.json"], True),
        ([], [f"--config-file={PATH}"], True),
        (["--config-file=/srv/d.json"], [], False),
        ([], ["--config-file=/srv/d.json"], False),
        (["--config-file=/srv/d.json"], ["--config-file=/srv/old.json"], False),
    ],
)
def test_config_file_that_the_running_engine_does_not_read_is_refused(
    unit: list[str], process: list[str], loaded: bool
) -> None:
    engine = running(with_flags(FOREIGN, *unit), *process)
    if loaded:
        assert configuration.config_file(engine, PATH) == (PATH if not unit else "/srv/d.json")
        return
    with pytest.raises(Refusal, match=r"/srv/d\.json") as caught:
        configuration.config_file(engine, PATH)
    assert caught.value.id == "config_file_not_loaded"
    assert "systemctl restart docker" in str(caught.value)


def test_config_file_that_does_not_exist_is_refused_without_advice_to_restart() -> None:
    changed = running(with_flags(FOREIGN, "--config-file=/srv/d.json"))
    with pytest.raises(Refusal) as caught:
        configuration.config_file(replace(changed, absent=frozenset({"/srv/d.json"})), PATH)
    assert caught.value.id == "config_file_absent"
    assert "/srv/d.json, which does not exist" in str(caught.value)
    assert "Do not restart the engine" in str(caught.value)
    assert "systemctl restart" not in str(caught.value)
    # The default file need not exist, and a file that only the running engine was started with is not read again.
    back = replace(running(with_flags(FOREIGN), "--config-file=/srv/d.json"), absent=frozenset({"/srv/d.json", PATH}))
    with pytest.raises(Refusal) as caught:
        configuration.config_file(back, PATH)
    assert caught.value.id == "config_file_not_loaded"


@pytest.mark.report("E13")
def test_data_root_is_the_engines_own() -> None:
    flags = with_flags(OURS, "-g", "/srv/flag").flags
    file = {"data-root": "/srv/file"}
    assert daemon.data_root({"DockerRootDir": "/srv/real"}, flags, file) == "/srv/real"
    assert daemon.data_root({}, flags, file) == "/srv/flag"
    assert daemon.data_root({}, {}, {"graph": "/srv/old"}) == "/srv/old"


@pytest.mark.report("E13")
@pytest.mark.parametrize(
    ("address", "root"),
    [
        ("/run/containerd/containerd.sock", "/var/lib/containerd"),
        ("/var/run/docker/containerd/containerd.sock", "/srv/real"),
    ],
)
def test_data_root_with_containerds_image_store_is_containerds(address: str, root: str) -> None:
    info = {
        "DockerRootDir": "/srv/real",
        "Driver": "overlayfs",
        "DriverStatus": [["driver-type", "io.containerd.snapshotter.v1"]],
        "Containerd": {"Address": address},
    }
    assert daemon.data_root(info, {}, {}) == root
    assert daemon.data_root({**info, "DriverStatus": [["Backing Filesystem", "extfs"]]}, {}, {}) == "/srv/real"


@pytest.mark.report("E09")
@pytest.mark.parametrize(
    ("version", "accepted"), [("23.0.1", True), ("28.2.2", True), ("", True), ("20.10.24+dfsg1", False)]
)
def test_decode_byte_order_mark_is_accepted_as_the_engine_does(version: str, accepted: bool) -> None:
    raw = b'\xef\xbb\xbf{"debug": true}'
    if accepted:
        assert daemon.decode(raw, PATH, version) == '{"debug": true}'
        return
    with pytest.raises(Refusal, match=f"{PATH}.*{version[:7]}") as caught:
        daemon.decode(raw, PATH, version)
    assert caught.value.id == "byte_order_mark"


@pytest.mark.report("E10")
@pytest.mark.parametrize(
    ("raw", "words"),
    [
        ('{"labels": ["ort=Köln"]}'.encode("latin-1"), "0xf6 at offset 18"),
        (b'\xef\xbb\xbf{"a": "\xe4"}', "0xe4 at offset 10"),
        ('{"a": 1}'.encode("utf-16"), "UTF-16.*offset 0"),
    ],
)
def test_decode_other_encoding_is_refused_with_its_byte(raw: bytes, words: str) -> None:
    with pytest.raises(Refusal, match=words) as caught:
        daemon.decode(raw, PATH, "28.2.2")
    assert caught.value.id == "not_utf8"
    assert PATH in str(caught.value)


@pytest.mark.parametrize(
    ("flags", "existing", "moved"),
    [
        (["--data-root=/srv/other"], {}, "/srv/other"),
        ([], {"data-root": "/srv/other"}, "/srv/other"),
        (["--data-root=/var/lib/docker/"], {}, ""),
        ([], {}, ""),
    ],
)
def test_check_restart_that_would_leave_running_containers_behind_is_refused(
    flags: list[str], existing: dict[str, Any], moved: str
) -> None:
    info = {"DockerRootDir": "/var/lib/docker", "LiveRestoreEnabled": True}
    engine = replace(with_flags(FOREIGN, *flags), info=info, process=["/usr/bin/dockerd"])
    assert configuration.moved_root(engine, existing) == moved
    decision = configuration.decide(engine, existing, SITE, PATH)
    configuration.check_restart(decision, ["NO_PROXY"], {}, ours=False, moved=moved)
    if moved:
        with pytest.raises(Refusal, match=moved) as caught:
            configuration.check_restart(decision, ["NO_PROXY"], {"theirs": False}, ours=False, moved=moved)
        assert caught.value.id == "restart_moves_data_root"


def test_stale_proxies_that_our_file_will_not_set_any_more() -> None:
    ours = {daemon.OWN_VARIABLES: "HTTPS_PROXY=http://a:1\n"}
    engine = replace(
        FOREIGN, files=ours, process=["dockerd"], environment={"HTTPS_PROXY": "http://a:1", "NO_PROXY": "b"}
    )
    assert configuration.stale_proxies(engine, SITE) == ["HTTPS_PROXY"]


@pytest.mark.parametrize(
    ("flags", "existing", "info", "driver"),
    [
        ([], {"storage-driver": "zfs"}, {"Driver": "overlay2"}, "zfs"),
        (["-s", "zfs"], {}, {"Driver": "overlay2"}, "zfs"),
        ([], {"storage-driver": "overlay2"}, {"Driver": "overlay2"}, ""),
        ([], {}, {"Driver": "overlay2"}, ""),
        ([], {"storage-driver": "overlay2"}, {}, ""),
        (
            [],
            {"storage-driver": "overlay2"},
            {"Driver": "overlayfs", "DriverStatus": [["driver-type", "io.containerd.snapshotter.v1"]]},
            "",
        ),
    ],
)
def test_storage_driver_of_the_next_start(
    flags: list[str], existing: dict[str, Any], info: dict[str, Any], driver: str
) -> None:
    assert configuration.moved_driver(replace(with_flags(FOREIGN, *flags), info=info), existing) == driver
