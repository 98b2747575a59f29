"""The rules that keep others out of the ports of a server's own processes."""

from __future__ import annotations

import pytest
from ansible.module_utils.gaudi.serving.closed_ports import (
    EVERY,
    ClosedPorts,
    closed,
    closed_from,
    first_port,
    is_closed,
    opened,
    table_of,
)

PORTS = ClosedPorts(28016, 28031)
# As nftables 1.0.6 lists the table that it was given.
LISTED = """table inet gaudi_serving_a_b {
\tchain input {
\t\ttype filter hook input priority filter - 10; policy accept;
\t\tiifname != "lo" tcp dport 28016-28031 reject with tcp reset
\t}
}
"""


def test_no_two_cards_share_a_port() -> None:
    ranges = [closed_from(str(first_port([module]))) for module in range(8)]
    ports = [port for found in ranges if found for port in range(found.first, found.last + 1)]
    assert len(set(ports)) == len(ports) == EVERY.last - EVERY.first + 1
    assert (min(ports), max(ports)) == (EVERY.first, EVERY.last)
    assert first_port([5, 3, 4]) == first_port([3])


def test_none_of_them_is_one_that_linux_gives_out() -> None:
    assert EVERY.last < 32768


@pytest.mark.parametrize("text", ["", "0", "-1", "x", "65521", "99999", "28000.0"])
def test_what_is_no_first_port_closes_nothing(text: str) -> None:
    assert closed_from(text) is None


def test_the_last_port_there_is_may_be_the_last_one() -> None:
    assert closed_from("65520") == ClosedPorts(65520, 65535)


def test_no_two_instances_share_a_table() -> None:
    assert table_of("a-b") == "gaudi_serving_a_b"
    assert len({table_of(name) for name in ("a-b", "a", "b", "ab", "a-b-")}) == 5


def test_a_table_is_replaced_in_one_step() -> None:
    """nft reads a file as one transaction: at no time is there none."""
    text = closed("a-b", PORTS)
    assert text.startswith(opened("a-b"))
    assert opened("a-b") == "table inet gaudi_serving_a_b\ndelete table inet gaudi_serving_a_b\n"


@pytest.mark.parametrize(
    "listed",
    [
        "",
        LISTED.replace("28016-28031", "28000-28015"),
        LISTED.replace('iifname != "lo" ', ""),
        LISTED.replace("reject with tcp reset", "accept"),
        LISTED.replace("hook input", "hook output"),
    ],
)
def test_another_table_closes_nothing(listed: str) -> None:
    assert is_closed(LISTED, PORTS)
    assert not is_closed(listed, PORTS)
