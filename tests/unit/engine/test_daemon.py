"""Merging into a user's daemon.json: nothing of theirs is lost, nothing of ours is written twice."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ansible.module_utils.gaudi.engine import daemon as docker_daemon
from hypothesis import given
from hypothesis import strategies as st

HABANA = {"path": "/usr/bin/habana-container-runtime", "runtimeArgs": []}
WISHES: dict[str, dict[str, Any]] = {
    "settings": {"live-restore": True},
    "defaults": {"log-driver": "json-file", "log-opts": {"max-size": "50m"}},
    "runtimes": {"habana": HABANA},
    "additions": {"registry-mirrors": [], "insecure-registries": []},
}
PATH = "/etc/docker/daemon.json"

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
documents = st.dictionaries(st.text(max_size=5), values, max_size=5).map(
    lambda document: {key: value for key, value in document.items() if key != "runtimes"}
)


def merge(existing: dict[str, Any], **changes: dict[str, Any]) -> dict[str, Any]:
    merged: dict[str, Any] = docker_daemon.merge(existing, {**WISHES, **changes}, PATH)
    return merged


def test_an_empty_file_becomes_ours() -> None:
    assert merge({}) == {
        "log-driver": "json-file",
        "log-opts": {"max-size": "50m"},
        "live-restore": True,
        "runtimes": {"habana": HABANA},
    }


def test_what_a_user_set_stays() -> None:
    theirs = {
        "data-root": "/srv/docker",
        "runtimes": {"kata": {"path": "/opt/kata"}},
        "registry-mirrors": ["https://a"],
        "log-driver": "journald",
        "default-runtime": "kata",
    }
    merged = merge(theirs, additions={"registry-mirrors": ["https://b", "https://a", "https://b"]})
    assert merged == {
        **theirs,
        "live-restore": True,
        "runtimes": {"kata": {"path": "/opt/kata"}, "habana": HABANA},
        "registry-mirrors": ["https://a", "https://b"],
    }
    assert theirs["runtimes"] == {"kata": {"path": "/opt/kata"}}, "the input is not changed"


def test_log_options_of_ours_never_meet_a_driver_of_theirs() -> None:
    assert "log-opts" not in merge({"log-driver": "journald"})
    assert merge({"log-opts": {"max-size": "1g"}})["log-opts"] == {"max-size": "1g"}


@given(documents)
def test_merging_keeps_every_key_and_is_settled_after_once(existing: dict[str, Any]) -> None:
    merged = merge(existing)
    assert {key: merged[key] for key in existing if key != "live-restore"} == {
        key: value for key, value in existing.items() if key != "live-restore"
    }
    assert merge(merged) == merged
    assert docker_daemon.parse(docker_daemon.render(merged), PATH) == merged


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"debug": true,\n "x": }', "daemon.json, line 2, column 7, is not valid JSON"),
        ("{'debug': true}", "daemon.json, line 1, column 2, is not valid JSON"),
        ("[]", "holds list, but a JSON object is needed"),
    ],
)
def test_a_file_that_cannot_be_merged_with_is_refused_with_its_line(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        docker_daemon.parse(text, PATH)


def test_a_missing_or_empty_file_is_an_empty_configuration() -> None:
    assert docker_daemon.parse("", PATH) == docker_daemon.parse(" \n", PATH) == {}


@pytest.mark.parametrize(
    ("existing", "words"),
    [
        ({"runtimes": ["habana"]}, r"the key 'runtimes' holds \['habana'\], but an object is needed"),
        ({"registry-mirrors": "https://a"}, "the key 'registry-mirrors' holds 'https://a', but a list is needed"),
    ],
)
def test_a_key_of_the_wrong_kind_is_refused(existing: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        merge(existing, additions={"registry-mirrors": ["https://b"]})


def test_where_images_are_kept() -> None:
    assert docker_daemon.data_root({}, {}, {"data-root": "/srv/docker"}) == "/srv/docker"
    assert docker_daemon.data_root({}, {}, {}) == "/var/lib/docker"


# Shape of ``docker info --format '{{json .}}'``, Debian's docker.io 20.10.24, shortened.
INFO = {
    "Runtimes": {"habana": {"path": "/usr/bin/habana-container-runtime"}, "runc": {"path": "runc"}},
    "LiveRestoreEnabled": True,
    "LoggingDriver": "json-file",
    "RegistryConfig": {
        "InsecureRegistryCIDRs": ["127.0.0.0/8"],
        "IndexConfigs": {"docker.io": {"Secure": True}, "mirror.lan:5000": {"Secure": False}},
        "Mirrors": ["https://a/"],
    },
}


def test_an_engine_that_has_taken_everything_up_is_left_alone() -> None:
    wanted = {**merge({}), "insecure-registries": ["mirror.lan:5000", "127.0.0.0/8"], "registry-mirrors": ["https://a"]}
    assert docker_daemon.drift(INFO, wanted) == []


@pytest.mark.parametrize(
    ("info", "keys"),
    [
        ({**INFO, "Runtimes": {"runc": {"path": "runc"}}}, ["runtimes"]),
        ({**INFO, "Runtimes": {"habana": {"path": "/elsewhere"}}}, ["runtimes"]),
        ({**INFO, "LiveRestoreEnabled": False}, ["live-restore"]),
        ({**INFO, "LoggingDriver": "journald"}, ["log-driver"]),
        ({**INFO, "RegistryConfig": {"Mirrors": ["https://a/"]}}, ["insecure-registries"]),
        ({**INFO, "RegistryConfig": {**INFO["RegistryConfig"], "Mirrors": None}}, ["registry-mirrors"]),  # type: ignore[dict-item]
    ],
)
def test_what_an_engine_has_not_taken_up_is_found(info: dict[str, Any], keys: list[str]) -> None:
    wanted = {**merge({}), "insecure-registries": ["mirror.lan:5000"], "registry-mirrors": ["https://a"]}
    assert docker_daemon.drift(info, wanted) == keys


@pytest.mark.parametrize(
    ("keys", "means"),
    [
        ([], "nothing"),
        (["runtimes", "live-restore"], "reload"),
        (["runtimes", "log-opts"], "restart"),
        (["x"], "restart"),
    ],
)
def test_a_restart_only_where_a_reload_is_not_enough(keys: list[str], means: str) -> None:
    assert docker_daemon.apply_with(keys) == means


def test_the_file_reads_as_people_write_it() -> None:
    assert docker_daemon.render({"b": 1, "a": "ä"}) == '{\n    "b": 1,\n    "a": "ä"\n}\n'
    assert json.loads(docker_daemon.render({})) == {}
