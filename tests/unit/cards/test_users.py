"""Who owns a process, from the forms /proc/PID/cgroup takes, and how that is said."""

from __future__ import annotations

import pytest
from ansible.module_utils.gaudi.cards.users import (
    describe_user,
    device_index,
    is_own,
    is_reader,
    new_user,
    owner_of,
    parse_container_names,
    renamed_containers,
)
from hypothesis import given
from hypothesis import strategies as st

ID = "4f1d2c3b4a59" + "0a" * 26
NODE = "952ad535e907" + "1b" * 26

# Seen on a simulated node, which is a container on a host with cgroup v1: PID 1 and a service.
NODE_INIT = (
    f"13:perf_event:/\n8:pids:/docker/{NODE}/init.scope\n7:blkio:/docker/{NODE}\n"
    f"1:name=systemd:/docker/{NODE}/init.scope\n"
)
NODE_SERVICE = (
    f"13:perf_event:/\n8:pids:/docker/{NODE}/system.slice/foo@0.service\n7:blkio:/docker/{NODE}\n"
    f"1:name=systemd:/docker/{NODE}/system.slice/system-foo.slice/foo@0.service\n"
)


@pytest.mark.parametrize(
    ("cgroup", "unit", "container"),
    [
        ("0::/system.slice/vllm-qwen3-8b.service", "vllm-qwen3-8b.service", None),
        ("0::/user.slice/user-1000.slice/session-3.scope", "session-3.scope", None),
        ("0::/user.slice/user-1000.slice/user@1000.service/app.slice/jupyter.service", "jupyter.service", None),
        # A user names units and groups of his own as he likes, also like an instance and its container.
        ("0::/user.slice/user-1000.slice/user@1000.service/app.slice/vllm-a.service", "user@1000.service", None),
        (f"0::/user.slice/user-1000.slice/user@1000.service/docker-{ID}.scope", "user@1000.service", None),
        (f"4:pids:/user.slice\n1:name=systemd:/user.slice/user-0.slice/session-1.scope/{ID}", "session-1.scope", None),
        (f"0::/system.slice/docker-{ID}.scope", None, ID[:12]),
        (f"0::/docker/{ID}", None, ID[:12]),
        (f"0::/system.slice/docker-{ID}.scope/init", None, ID[:12]),
        (f"0::/machine.slice/libpod-{ID}.scope/container", None, ID[:12]),
        (f"0::/system.slice/podman.service/libpod-payload-{ID}", "podman.service", ID[:12]),
        (f"0::/kubepods.slice/kubepods-pod1.slice/cri-containerd-{ID}.scope", None, ID[:12]),
        (f"0::/kubepods/burstable/pod12/{ID}", None, ID[:12]),
        (f"12:devices:/docker/{ID}\n1:name=systemd:/docker/{ID}\n0::/", None, ID[:12]),
        (f"12:memory:/system.slice/docker-{ID}.scope\n1:name=systemd:/system.slice/docker-{ID}.scope\n", None, ID[:12]),
        (
            "5:devices:/system.slice\n1:name=systemd:/system.slice/foo.service\n0::/system.slice/foo.service",
            "foo.service",
            None,
        ),
        ("4:memory:/user.slice\n1:name=systemd:/user.slice/user-0.slice/session-c1.scope\n", "session-c1.scope", None),
        (
            "4:memory:/user.slice/user-0.slice/user@0.service\n"
            "1:name=systemd:/user.slice/user-0.slice/user@0.service/app.slice/foo.service\n",
            "foo.service",
            None,
        ),
        ("0::/init.scope", None, None),
        ("0::/", None, None),
        ("", None, None),
        ("nonsense", None, None),
    ],
)
def test_owner(cgroup: str, unit: str | None, container: str | None) -> None:
    assert owner_of(cgroup, "0::/init.scope\n") == (unit, container)
    assert owner_of(cgroup) == (unit, container)


def test_a_node_that_is_itself_a_container_is_not_the_owner() -> None:
    assert owner_of(NODE_SERVICE, NODE_INIT) == ("foo@0.service", None)
    nested = f"8:pids:/docker/{NODE}/docker/{ID}\n1:name=systemd:/docker/{NODE}/docker/{ID}\n"
    assert owner_of(nested, NODE_INIT) == (None, ID[:12])
    beside = f"8:pids:/docker/{ID}\n1:name=systemd:/docker/{ID}\n"
    assert owner_of(beside, NODE_INIT) == (None, ID[:12])
    unified = f"0::/docker/{NODE}/system.slice/docker-{ID}.scope"
    assert owner_of(unified, f"0::/docker/{NODE}/init.scope") == (None, ID[:12])


@given(st.text(), st.text())
def test_any_cgroup_is_read(cgroup: str, init: str) -> None:
    assert len(owner_of(cgroup, init)) == 2


@pytest.mark.parametrize(
    ("path", "index"),
    [
        ("/dev/accel/accel0", 0),
        ("/dev/accel/accel_controlD15", 15),
        ("/dev/accel/accel3 (deleted)", 3),
        ("/dev/accel", None),
        ("/dev/accel/accelX", None),
        ("/srv/dev/accel/accel0", None),
        ("/dev/accel/accel0/x", None),
        ("socket:[179850]", None),
    ],
)
def test_device_paths(path: str, index: int | None) -> None:
    assert device_index(path) == index


def test_only_the_reading_tool_is_a_reader() -> None:
    assert (is_reader("hl-smi"), is_reader("python3")) == (True, False)


def test_container_names() -> None:
    text = f"{ID} vllm-qwen3-8b\n{NODE} other,alias\n\nbroken\n"
    assert parse_container_names(text) == {ID[:12]: "vllm-qwen3-8b", NODE[:12]: "other,alias"}


def test_a_container_of_an_instance_is_known_by_its_label() -> None:
    text = f"{ID} oops a\n{NODE} other\n"
    assert parse_container_names(text) == {ID[:12]: "vllm-a", NODE[:12]: "other"}
    assert renamed_containers(text) == {"a": "oops"}
    # Somebody has made an image of the container, and runs that.
    text = f"{ID} oops a\n{NODE} vllm-a a\n"
    assert parse_container_names(text) == {ID[:12]: "oops", NODE[:12]: "vllm-a"}
    assert renamed_containers(text) == {}


@pytest.mark.parametrize(
    ("user", "own"),
    [
        ({"unit": "vllm-qwen3-8b.service"}, True),
        ({"container_name": "vllm-qwen3-8b"}, True),
        ({"unit": "vllm-qwen3.service"}, False),
        ({"container_name": "vllm-qwen3-8b-2"}, False),
        ({"name": "vllm-qwen3-8b"}, False),
        ({}, False),
    ],
)
def test_own(user: dict[str, str], own: bool) -> None:
    assert is_own({**new_user(), **user}, "qwen3-8b") is own


@pytest.mark.parametrize(
    ("user", "words"),
    [
        ({"pid": 4242, "name": "python3"}, "pid 4242 python3"),
        ({"pid": 4242, "name": "python3", "unit": "foo.service"}, "foo.service (pid 4242 python3)"),
        ({"pid": 4242, "name": "python3", "account": "alice"}, "pid 4242 python3 of alice"),
        ({"pid": 1, "name": "x", "account": "root", "container": "4f1d2c3b4a59"}, "container 4f1d2c3b4a59 (pid 1 x)"),
        ({"pid": 1, "name": "x", "container": "4f1d", "container_name": "tgi"}, "container tgi (pid 1 x)"),
        ({}, "a process that cannot be seen"),
    ],
)
def test_words(user: dict[str, object], words: str) -> None:
    assert describe_user({**new_user(), **user}) == words
