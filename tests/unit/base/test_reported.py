"""What a node reports and others receive: hostile reports end in a sentence, or are left out."""

from __future__ import annotations

import contextlib
import json
import re
from typing import Any

import pytest
from ansible.errors import AnsibleFilterError
from ansible.module_utils.gaudi.base import reported
from ansible.module_utils.gaudi.base.refusal import Refusal
from hypothesis import example, given, settings
from hypothesis import strategies as st

from filter_plugins.checked import reported as reported_filter

HOSTILE = [
    "../../etc/passwd",
    "a\0b",
    "\x1b]0;x\x07",
    "a\nb",
    "{{ 7 * 7 }}",
    "$(id)",
    "-e",
    "x" * 10_000,
    10**400,
    True,
]
ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from(HOSTILE),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=60)
@given(st.sampled_from(sorted(reported.CHECKS)), ANY_JSON)
def test_any_json_is_refused_in_a_sentence_or_becomes_plain_data(name: str, value: Any) -> None:
    with contextlib.suppress(AnsibleFilterError):
        json.dumps(reported_filter(value, name), allow_nan=False)


def test_an_id_of_an_image_is_a_checksum() -> None:
    assert reported_filter(f"sha256:{'0a' * 32}", "image_id") == f"sha256:{'0a' * 32}"
    for other in (*HOSTILE, "sha256:0a", f"sha256:{'0a' * 32} --x", "vllm:1"):
        with pytest.raises(AnsibleFilterError):
            reported_filter(other, "image_id")


@given(ANY_JSON)
def test_what_is_no_reference_of_an_image_is_left_out(value: Any) -> None:
    good = "registry.example:5000/gaudi/vllm:1.22-0123456789ab"
    assert good in reported.images([value, good, *HOSTILE])
    assert not set(map(str, HOSTILE)) & set(reported.images([value, good, *HOSTILE]))


NAMED = [("instances", "instances", "instance", "chat-2"), ("key_names", "keys", "name", "alice.2_b")]


@pytest.mark.parametrize(("kind", "part", "key", "good"), NAMED)
@given(value=ANY_JSON)
def test_what_is_no_name_is_left_out_and_ends_nothing(kind: str, part: str, key: str, good: str, value: Any) -> None:
    """A run compares the names of all nodes once, so that an error would end it for all."""
    found = reported_filter(
        {part: [value, {key: value}, {"x": 1}, {key: good}, *({key: each} for each in HOSTILE)]}, kind
    )
    assert good in found
    assert all(re.fullmatch("[a-z0-9._-]{1,48}", name) for name in found)
    for report in (value, {part: value}, {part: {key: good}}):
        assert isinstance(reported_filter(report, kind), list)


@given(value=ANY_JSON)
def test_of_a_list_of_instances_only_names_are_left(value: Any) -> None:
    assert reported_filter([value, "chat", *HOSTILE], "instance_names")[-1] == "chat"
    assert len(reported_filter(["chat"] * 10_000, "instance_names")) == reported.MOST_ENTRIES
    assert isinstance(reported_filter(value, "instance_names"), list)


@pytest.mark.parametrize(("kind", "part", "key", "good"), NAMED)
def test_no_more_names_are_read_than_a_node_can_have(kind: str, part: str, key: str, good: str) -> None:
    assert len(reported_filter({part: [{key: good}] * 10_000}, kind)) == reported.MOST_ENTRIES


@given(ANY_JSON)
def test_a_node_without_a_truth_value_has_no_instance_with_keys(value: Any) -> None:
    for report in (value, {"guarded": value}):
        assert reported_filter(report, "guarded") in (None, True, False)
    assert reported_filter({"guarded": False}, "guarded") is False


@pytest.mark.parametrize("count", [reported.MOST_ENTRIES + 1, 10**6])
def test_no_more_images_are_read_than_a_node_can_have(count: int) -> None:
    assert len(reported.images(["vllm:1"] * count)) == reported.MOST_ENTRIES


@pytest.mark.parametrize(
    ("kind", "good"),
    [
        ("address", "10.20.0.11"),
        ("addresses", ["10.20.0.11", "fd00::1"]),
        ("document", {"files": [{"name": "a", "size": 16 << 30}]}),
        ("document", {"files": [{"name": "model-00001-of-01000.safetensors", "size": 1, "sha256": "0" * 64}] * 10_000}),
        ("sentence", "It failed."),
        ("storage", {"fstype": "fuse.glusterfs", "source": "nas:/models"}),
        ("storage", {"fstype": "", "source": ""}),
        ("token", "FdVvU3pYx8b0pP7m6gVqkK0S9tq2rQnXbWc1dTzE"),
    ],
)
def test_what_an_honest_node_reports_stays_as_it_is(kind: str, good: Any) -> None:
    assert reported_filter(good, kind) == good


@pytest.mark.parametrize(
    ("kind", "hostile"),
    [
        ("address", "metadata.internal"),
        ("address", "127.0.0.1"),
        ("address", "224.0.0.1"),
        *(("address", each) for each in ("0.0.0.0", "0.1.2.3", "192.0.0.192", "240.0.0.1", "255.255.255.255")),
        ("address", "fd00::1"),
        ("address", "10.20.0.11:22"),
        ("addresses", ["*"]),
        ("addresses", ["0.0.0.0/0"]),
        ("addresses", ["10.0.0.1"] * 257),
        # Python takes any text as the scope of an address; rsync's list of clients has blanks between its entries.
        *(("addresses", [f"fe80::1{scope}"]) for scope in ("%x *", "%x ::", "%eth0", "%*", "%", "%x\n[all]")),
        ("document", {"a": 10**400}),
        ("document", {"a": float("nan")}),
        ("document", {"a": "x" * 5000}),
        ("document", {"files": [{"name": "a", "size": 1}] * 30_000}),
        ("document", {"files": ["x" * 4000] * 5000}),
        ("storage", {"fstype": "nfs\n4", "source": "x"}),
        ("storage", {"fstype": "nfs4", "source": "x" * 5000}),
        ("token", "x" * 10**6),
        ("token", "short"),
        ("token", "a token of a line\nand another"),
    ],
)
def test_what_is_no_such_report_is_refused(kind: str, hostile: Any) -> None:
    with pytest.raises(AnsibleFilterError):
        reported_filter(hostile, kind)


def test_a_refused_token_is_not_quoted() -> None:
    with pytest.raises(AnsibleFilterError) as refused:
        reported_filter("secret secret secret secret", "token")
    assert "secret secret" not in str(refused.value)


def test_a_nested_report_is_refused_before_anything_walks_through_it() -> None:
    deep: Any = "x"
    for _ in range(500):
        deep = [deep]
    with pytest.raises(AnsibleFilterError, match="nested"):
        reported_filter({"a": deep}, "document")


def test_a_sentence_is_one_line_and_has_an_end() -> None:
    assert reported_filter("a\nb\x1b[2J" + "x" * 10_000, "sentence").isprintable()
    assert len(reported_filter("x" * 10_000, "sentence")) == reported.LONGEST_SENTENCE


PLAN = {"instance": "chat", "listen": {"host": "10.20.0.11", "port": 30001}}


@settings(max_examples=40)
@given(st.sampled_from(["instance", "host", "port"]), ANY_JSON)
@example("host", "169.254.169.254")
@example("port", 0)
def test_the_controller_connects_to_no_instance_without_host_and_port(field: str, value: Any) -> None:
    plan = {**PLAN, field: value} if field == "instance" else {**PLAN, "listen": {**PLAN["listen"], field: value}}  # type: ignore[dict-item]
    with contextlib.suppress(Refusal):
        instance, host, port = reported.listener(plan)
        assert re.fullmatch("[a-z0-9-]{1,48}", instance)
        assert re.fullmatch("[A-Za-z0-9.:-]{1,253}", host)
        assert not host.startswith("169.254.")
        assert 1 <= port <= 65535


@pytest.mark.parametrize(
    "host",
    [
        *("169.254.169.254", "169.254.1", "2852039166", "0xa9fea9fe", "0xA9.0xFE.43518", "0251.0376.0251.0376"),
        *("::ffff:169.254.169.254", "::ffff:a9fe:a9fe", "::169.254.169.254", "fe80::1", "fea0::1", "169.254.169.254."),
        *("64:ff9b::a9fe:a9fe", "224.0.0.1", "ff02::1", "2852039166.", "010.20.0.11", "10.20.0"),
        *("0.1.2.3", "192.0.0.192", "255.255.255.255", "2002:a9fe:a9fe::1", "2001:0:a9fe:a9fe::1", "fd00::1%eth0"),
    ],
)
def test_the_controller_asks_no_address_of_a_machine_itself_however_it_is_written(host: str) -> None:
    with pytest.raises(Refusal):
        reported.listener({**PLAN, "listen": {"host": host, "port": 80}})


@pytest.mark.parametrize(
    "host", ["10.20.0.11", "0.0.0.0", "::", "127.0.0.1", "fd00::11", "chat.site.example", "face", "gpu-7"]
)
def test_the_controller_asks_where_an_honest_instance_listens(host: str) -> None:
    assert reported.listener({**PLAN, "listen": {"host": host, "port": 80}})[1] == host
