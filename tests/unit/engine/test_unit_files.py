"""Files of the engine's unit that systemd has not read yet."""

from __future__ import annotations

import pytest
from ansible.module_utils.gaudi.engine import daemon, flags, unit_files

UNIT = """[Unit]
ExecStart=/bin/no
[Service]
Type=notify
EnvironmentFile=-/etc/default/docker
# As Debian has it.
ExecStart=/usr/sbin/dockerd -H fd:// \\
# between
  --containerd=/run/containerd/containerd.sock $DOCKER_OPTS
"""


def words(*texts: str) -> list[str]:
    shown = unit_files.properties(texts)
    return flags.unit_command(shown.get("ExecStart", ""), {"DOCKER_OPTS": "--debug"})


@pytest.mark.parametrize(
    ("drop_ins", "command"),
    [
        ([], "/usr/sbin/dockerd -H fd:// --containerd=/run/containerd/containerd.sock --debug"),
        (
            ["[Service]\nExecStart=\nExecStart=-/usr/bin/dockerd --config-file /a\n"],
            "/usr/bin/dockerd --config-file /a",
        ),
        (["[Service]\nExecStart=\n", "[Service]\nExecStart = @/opt/x dockerd --debug"], "dockerd --debug"),
        (["[Service]\nExecStart=\n"], ""),
    ],
)
def test_properties_command_is_the_one_after_the_last_reset(drop_ins: list[str], command: str) -> None:
    assert " ".join(words(UNIT, *drop_ins)) == command


def test_properties_environment_is_the_one_after_the_last_reset() -> None:
    drop_ins = ("[Service]\nEnvironment=A=1\nEnvironment=\nEnvironment=B=%%2 'C=3 4'\n", "[Service]\nEnvironment=B=5\n")
    shown = unit_files.properties([UNIT, *drop_ins])
    assert daemon.words_as_pairs(shown["Environment"]) == {"B": "5", "C": "3 4"}
    assert shown["EnvironmentFiles"].split()[0] == "/etc/default/docker"
    assert unit_files.properties([UNIT, "[Service]\nEnvironmentFile=\n"])["EnvironmentFiles"] == ""
    assert daemon.words_as_pairs(unit_files.properties([UNIT, drop_ins[0]])["Environment"])["B"] == "%2"
