"""Which cards have memory in use before a start, and how that is told."""

from __future__ import annotations

import pytest
from ansible.module_utils.gaudi.cards.still_held import describe_held, still_held
from ansible.module_utils.gaudi.cards.users import new_user


@pytest.mark.parametrize(
    ("table", "held"),
    [
        ("0, 768 MiB\n1, 768 MiB\n", {}),
        ("0, 2048 MiB\n1, 2049 MiB\n", {1: 2049}),
        # In hl-smi's order, which need not be that of modules; module 5 is no card of the instance.
        ("5, 84000 MiB\n1, 84000 MiB\n0, 84000 MiB\n", {0: 84000, 1: 84000}),
        # With a header, and without units.
        ("module_id, memory.used [MiB]\n0, 90000 MiB\n1, 90000\n", {0: 90000, 1: 90000}),
        # Not known: to a caller without rights, for a card without a module id, in an answer that is none.
        ("0, N/A\nN/A, 84000 MiB\n", {}),
        ("0, 84000 MiB, 1\n", {}),
        ("no AIPs available\n", {}),
        ("", {}),
    ],
)
def test_memory_in_use_is_read_by_module(table: str, held: dict[int, int]) -> None:
    assert still_held(table, [0, 1]) == held


def test_who_holds_it_is_named_once() -> None:
    user = {**new_user(), "pid": 42, "name": "python3", "account": "ann"}
    said = describe_held({0: 84000, 1: 3000}, [user, user])
    assert said == "module 0 has 84000 MiB, module 1 has 3000 MiB in use, held by pid 42 python3 of ann"
    assert describe_held({0: 84000}, []).endswith("held by no process that this node sees")
