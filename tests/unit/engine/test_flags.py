"""Arguments of dockerd, as units and processes have them."""

from __future__ import annotations

import pytest
from ansible.module_utils.gaudi.engine import flags

# Printed by systemctl show on Debian 12, whose unit adds $DOCKER_OPTS of /etc/default/docker.
EXEC_START = (
    "{ path=/usr/sbin/dockerd ; argv[]=/usr/sbin/dockerd -H fd:// --containerd=/run/containerd/containerd.sock "
    "$DOCKER_OPTS ; ignore_errors=no ; start_time=[Thu 2026-11-26 10:00:00 UTC] ; stop_time=[n/a] ; pid=812 ; "
    "code=(null) ; status=0/0 }"
)


@pytest.mark.report("E05")
@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["--log-driver=journald"], {"log-driver": ["journald"]}),
        (["--log-driver", "journald"], {"log-driver": ["journald"]}),
        (["--log-opt", "max-size=10m", "--log-opt=max-file=3"], {"log-opts": ["max-size=10m", "max-file=3"]}),
        (["--live-restore", "--debug"], {"live-restore": ["true"], "debug": ["true"]}),
        (["--live-restore=false"], {"live-restore": ["false"]}),
        (["-g", "/srv/a"], {"data-root": ["/srv/a"]}),
        (["--graph=/srv/a"], {"data-root": ["/srv/a"]}),
        (["-H", "fd://", "-Htcp://0.0.0.0:1", "-H=unix:///x"], {"hosts": ["fd://", "tcp://0.0.0.0:1", "unix:///x"]}),
        (["-Dl", "info"], {"debug": ["true"], "log-level": ["info"]}),
        (["--registry-mirror", "https://a"], {"registry-mirrors": ["https://a"]}),
        (["--add-runtime", "a=/b"], {"runtimes": ["a=/b"]}),
        (["--dns-opt=x", "--dns", "1.1.1.1"], {"dns-opts": ["x"], "dns": ["1.1.1.1"]}),
        (["--", "--debug"], {}),
        (["--label"], {"labels": [""]}),
    ],
)
def test_parse_flag_in_every_spelling_is_its_key(words: list[str], found: dict[str, list[str]]) -> None:
    assert flags.parse(["/usr/bin/dockerd", *words]) == found


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("--log-driver=journald --live-restore", ["--log-driver=journald", "--live-restore"]),
        ("--label 'a b'", ["--label", "a b"]),
        ("", []),
        ("--label it's", ["--label", "it's"]),
    ],
)
def test_unit_command_variable_is_split_into_words(value: str, words: list[str]) -> None:
    known = ["/usr/sbin/dockerd", "-H", "fd://", "--containerd=/run/containerd/containerd.sock"]
    assert flags.unit_command(EXEC_START, {"DOCKER_OPTS": value}) == [*known, *words]


def test_unit_command_variable_in_braces_is_one_word() -> None:
    shown = "{ path=/usr/bin/dockerd ; argv[]=/usr/bin/dockerd --data-root=${ROOT} ; ignore_errors=no }"
    assert flags.unit_command(shown, {"ROOT": "/a b"}) == ["/usr/bin/dockerd", "--data-root=/a b"]
    assert flags.unit_command("", {}) == []


def test_environment_file_is_read_as_systemd_does() -> None:
    text = "# DOCKER_OPTS=--x\nDOCKER_OPTS=\"--a \\\n--b\"\n ; C=1\nD='e f'\nG=h i\nno assignment\n"
    assert flags.environment_file(text) == {"DOCKER_OPTS": "--a --b", "D": "e f", "G": "h i"}


def test_named_in_is_the_last_file_with_the_flag() -> None:
    unit, drop_in, default = "/lib/docker.service", "/etc/docker.service.d/log.conf", "/etc/default/docker"
    texts = {
        unit: "ExecStart=/usr/bin/dockerd -H fd://\n",
        drop_in: "ExecStart=\nExecStart=/usr/bin/dockerd --log-driver journald\n# --data-root=/x\n",
        default: 'DOCKER_OPTS="--live-restore"\n',
    }
    named = {
        key: flags.named_in(key, texts) for key in ("hosts", "log-driver", "live-restore", "data-root", "log-opts")
    }
    assert named == {"hosts": unit, "log-driver": drop_in, "live-restore": default, "data-root": "", "log-opts": ""}


def test_arguments_for_validation_lack_the_configuration_file() -> None:
    words = ["dockerd", "-D", "--config-file", "/a", "--icc=false", "--config-file=/b"]
    assert flags.without_config_file(words) == ["-D", "--icc=false"]
    assert flags.without_config_file(["/bin/sh", "-c", "dockerd"]) == []
