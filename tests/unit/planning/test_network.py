"""Which address and interface a server announces that only its own node reaches, by each release's script."""

from __future__ import annotations

import pytest
from ansible.module_utils.gaudi.planning.network import network

ADDRESSES = (("lo", "127.0.0.1"), ("eth0", "10.0.0.5"), ("docker0", "172.17.0.1"))


@pytest.mark.parametrize(
    ("family", "address", "interface"),
    [("first", "10.0.0.5", "eth0"), ("listen", "127.0.0.1", "lo"), ("listen-outside", "127.0.0.1", "eth0")],
)
def test_a_server_on_loopback_announces_what_its_releases_script_announces(
    family: str, address: str, interface: str
) -> None:
    found = network(family, "127.0.0.1", None, None, ADDRESSES)
    assert (found.address, found.interface) == (address, interface)
    assert bool(found.warnings) == (family == "listen-outside")


def test_a_node_without_another_interface_uses_loopback() -> None:
    found = network("listen-outside", "127.0.0.1", None, None, ADDRESSES[:1])
    assert (found.address, found.interface, found.warnings) == ("127.0.0.1", "lo", ())
