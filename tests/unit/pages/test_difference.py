"""Why an instance restarts: two plans, compared in words."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from ansible.module_utils.gaudi.pages.difference import differences, environment_of, unit_differences

PLAN: dict[str, Any] = {
    "schema": 1,
    "instance": "qwq-32b",
    "release": "1.22",
    "image": "registry/image:1",
    "container": {
        "ulimits": {"nofile": 1048576},
        "capabilities": ["SYS_NICE"],
        "read_only": True,
        "tmpfs": ["/scratch"],
        "mounts": [{"source": "/data/models/QwQ", "target": "/data/models/QwQ", "read_only": True}],
        "environment": {"HF_HOME": "/data/.hub"},
    },
    "modules": [{"module_id": 0, "serial": "A0"}, {"module_id": 1, "serial": "A1"}],
    "environment": {"PT_HPU_LAZY_MODE": "1", "MY_ACCESS_TOKEN": "hunter2"},
    "cpu_binding": ["numactl", "-C", "0-7"],
    "arguments": ["python3", "-m", "server", "--max-num-seqs", "32", "--trust-remote-code", "--limit", "a", "b"],
    "memory": {"weights_bytes": 4, "kv_cache_blocks": 10},
    "buckets": {"prompt": [1, 2, 3]},
}


def changed(*path: str | int, to: Any) -> dict[str, Any]:
    """The plan with another value somewhere; None removes it."""
    plan: Any = copy.deepcopy(PLAN)
    place = plan
    for key in path[:-1]:
        place = place[key]
    if to is None:
        del place[path[-1]]
    else:
        place[path[-1]] = to
    return dict(plan)


def test_the_same_plan_says_nothing() -> None:
    assert differences(PLAN, {**copy.deepcopy(PLAN), "explain": ["better words"], "warnings": ["more of them"]}) == []


def test_the_order_of_keys_is_no_difference() -> None:
    assert differences(json.loads(json.dumps(PLAN, sort_keys=True)), PLAN) == []


ARGUMENTS = PLAN["arguments"]


@pytest.mark.parametrize(
    ("after", "said"),
    [
        (changed("arguments", 4, to="64"), ["--max-num-seqs 32 -> 64"]),
        (changed("arguments", to=[*ARGUMENTS, "--seed=-1"]), ["--seed -1 added"]),
        (changed("arguments", 5, to=None), ["--trust-remote-code removed"]),
        (changed("arguments", to=ARGUMENTS[:6]), ["--limit removed (was a b)"]),
        (changed("arguments", 2, to="other"), ["program python3 -m server -> python3 -m other"]),
        (changed("environment", "VLLM_GRAPH_RESERVED_MEM", to="0.1"), ["VLLM_GRAPH_RESERVED_MEM 0.1 added"]),
        (changed("environment", "PT_HPU_LAZY_MODE", to="0"), ["PT_HPU_LAZY_MODE 1 -> 0"]),
        (changed("container", "environment", "HF_HOME", to=None), ["HF_HOME removed (was /data/.hub)"]),
        (changed("image", to="registry/image:2"), ["image registry/image:1 -> registry/image:2"]),
        (changed("modules", to=[{"module_id": 4, "serial": "A4"}]), ["cards 0, 1 -> 4 (module ids)"]),
        (changed("modules", 1, "serial", to="B1"), ["card 1: serial A1 -> B1"]),
        (changed("cpu_binding", 2, to="8-15"), ["CPU binding numactl -C 0-7 -> numactl -C 8-15"]),
        (changed("cpu_binding", to=[]), ["CPU binding removed (was numactl -C 0-7)"]),
        (changed("container", "ulimits", "memlock", to=-1), ["container ulimits.memlock -1 added"]),
        (changed("container", "read_only", to=False), ["container read_only true -> false"]),
        (changed("container", "tmpfs", to=["/scratch", "/run"]), ["container tmpfs /run added"]),
        (
            # Plans that are older than sizes have paths alone.
            changed("container", "tmpfs", to=[{"path": "/scratch", "size_mib": 64, "mode": "1777"}]),
            ["container tmpfs /scratch nothing -> mode 1777, size_mib 64"],
        ),
        (
            changed("container", "mounts", 0, "read_only", to=False),
            [
                "container mounts /data/models/QwQ read_only true, source /data/models/QwQ -> read_only false, "
                "source /data/models/QwQ"
            ],
        ),
    ],
)
def test_what_differs_is_named(after: dict[str, Any], said: list[str]) -> None:
    assert differences(PLAN, after) == said


def test_several_differences_are_all_named() -> None:
    after = changed("arguments", 4, to="64")
    after["environment"]["VLLM_GRAPH_RESERVED_MEM"] = "0.1"
    # What only follows from them is not.
    after["memory"]["kv_cache_blocks"] = 5
    assert differences(PLAN, after) == ["--max-num-seqs 32 -> 64", "VLLM_GRAPH_RESERVED_MEM 0.1 added"]


def test_what_is_worked_out_is_named_where_nothing_else_differs() -> None:
    assert differences(PLAN, changed("memory", "kv_cache_blocks", to=5)) == ["plan memory.kv_cache_blocks 10 -> 5"]
    many = changed("buckets", "prompt", to=list(range(10, 20)))
    assert differences(PLAN, many)[-1] == "8 more of the plan"


@pytest.mark.parametrize("to", ["other", None])
def test_a_secret_is_never_shown(to: str | None) -> None:
    after = changed("environment", "MY_ACCESS_TOKEN", to=to)
    assert differences(PLAN, after) == [f"MY_ACCESS_TOKEN {'changed' if to else 'removed'}"]
    assert differences(after, PLAN) == [f"MY_ACCESS_TOKEN {'changed' if to else 'added'}"]
    keyed = changed("arguments", to=[*ARGUMENTS, "--api-key", "hunter2"])
    assert differences(PLAN, keyed) == ["--api-key added"]
    for words in (
        ["--x", '{"redis_password": "hunter2"}'],
        ["--x", '{"pwd":"hunter2"}'],
        ["--x", ".token", "hunter2"],
        ["--x", "a", ".auth", "hunter2"],
    ):
        assert "hunter2" not in str(differences(PLAN, changed("arguments", to=[*ARGUMENTS, *words])))
    for value in ('{"password": "hunter2"}', "a --hf-token hunter2", "token=hunter2"):
        assert differences(PLAN, changed("environment", "VLLM_X", to=value)) == ["VLLM_X added"]
    # A path is no name.
    template = ["--chat-template", "./x_token_y.jinja"]
    assert differences(PLAN, changed("arguments", to=[*ARGUMENTS, *template])) == [f"{' '.join(template)} added"]


def test_long_values_are_cut_and_never_equal_beside_an_arrow() -> None:
    one, two = (changed("environment", "JSON", to="x" * 100 + end) for end in "ab")
    assert differences(one, two) == ["JSON changed"]
    assert differences(PLAN, one) == [f"JSON {'x' * 60}... added"]


def test_what_the_container_was_given_counts_not_what_was_planned() -> None:
    given = environment_of("PT_HPU_LAZY_MODE=1\nHF_HOME=/data/.hub\nMY_ACCESS_TOKEN=hunter2\nBY_HAND=a=b\n\n")
    assert given["BY_HAND"] == "a=b"
    assert differences(PLAN, PLAN, given) == ["BY_HAND removed (was a=b)"]


def test_a_unit_is_compared_by_its_directives() -> None:
    service = "ExecStart=python3 -s run.py run tiny \\\n  --stall 1800\nRestart=no\n"
    unit = f"# words\n[Unit]\nAfter=a\nAfter=b\n[Service]\n{service}"
    assert unit_differences(unit, unit.replace("# words", "# other words")) == []
    assert unit_differences(unit, unit.replace("1800", "900")) == ["unit ExecStart --stall 1800 -> 900"]
    assert unit_differences(unit, unit.replace("python3", "python4")) == [
        "unit ExecStart python3 -s run.py run tiny -> python4 -s run.py run tiny"
    ]
    assert unit_differences(unit, unit.replace("Restart=no\n", "").replace("=b", "=c")) == [
        "unit After (2) b -> c",
        "unit Restart removed (was no)",
    ]


def test_another_order_is_a_reason() -> None:
    moved = [*ARGUMENTS[:3], "--trust-remote-code", *ARGUMENTS[3:5], *ARGUMENTS[6:]]
    assert differences(PLAN, changed("arguments", to=moved)) == ["arguments in another order"]
    assert differences(PLAN, changed("modules", to=PLAN["modules"][::-1])) == ["cards 0, 1 -> 1, 0 (module ids)"]


def test_another_order_of_mounts_is_a_reason() -> None:
    second = {"source": "/data/b", "target": "/data/b", "read_only": False}
    one, two = (changed("container", "mounts", to=PLAN["container"]["mounts"] + [second]) for _ in range(2))
    two["container"]["mounts"].reverse()
    assert differences(one, two) == ["container mounts in another order"]


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("SOME_DSN", "pg://u:hunter2@h/db", "pg://u:***@h/db"),
        ("HTTPS_PROXY", "http://user:hunter2@proxy:3128", "http://user:***@proxy:3128"),
        ("https_proxy", "user:hunter2@proxy", "user:***@proxy"),
        ("SOME_DSN", "pg://u:hunter2@/ hunter2:@h", "pg://u:***@h"),
        ("SOME_URL", "https://hunter2@h", "https://***@h"),
        ("SOME_URL", "https://h:1/x", "https://h:1/x"),
    ],
)
def test_a_password_in_a_value_is_not_shown(name: str, value: str, shown: str) -> None:
    after = changed("environment", name, to=value)
    assert differences(PLAN, after) == [f"{name} {shown} added"]
    assert differences(after, PLAN) == [f"{name} removed (was {shown})"]
    option = changed("arguments", to=[*ARGUMENTS, "--proxy", value])
    if "://" in value:
        assert differences(PLAN, option)[0].count("hunter2") == 0


def test_another_password_is_a_change() -> None:
    one, two = (changed("environment", "SOME_DSN", to=f"pg://u:{password}@h") for password in "ab")
    assert differences(one, two) == ["SOME_DSN changed"]


def test_nothing_moves_a_terminals_cursor() -> None:
    assert differences(PLAN, changed("environment", "A\nB", to="\x1b[2J\ud800")) == ["A B ? added"]
