"""Networks as firewalls write them, and the names of packet filters that keep others out."""

from __future__ import annotations

import re

import pytest
from ansible.module_utils.gaudi.base.refusal import Refusal
from ansible.module_utils.gaudi.serving import firewall


@pytest.mark.parametrize("source", ["10.20.0.11/16", "gateway", "10.20.0.0/33", "", "10.20.0.0/16; reboot"])
def test_what_is_no_network_is_refused(source: str) -> None:
    with pytest.raises(Refusal, match=re.escape(repr(source))) as refused:
        firewall.networks([source], "vllm_service_firewall_sources")
    assert refused.value.id == "no_network"


def test_networks_are_written_as_firewalls_write_them() -> None:
    assert firewall.networks(["10.20.0.0/16", "10.20.0.0/16", "2001:DB8::/32", "192.0.2.7"], "x") == [
        *("10.20.0.0/16", "2001:db8::/32", "192.0.2.7"),
    ]
    assert firewall.networks(["10.20.0.0/16", "0.0.0.0/0"], "x") == [""]
    (rule,) = firewall.desired({"firewalld": "public"}, "::", 1, ["2001:db8::/32"])
    assert firewall.rich_rule(rule).startswith('rule family="ipv6" source address="2001:db8::/32" port')


NFT = """\
table inet gaudi_serving_chat {
	chain input {
		type filter hook input priority filter - 10; policy accept;
		iifname != "lo" tcp dport 28000-28015 reject with tcp reset
	}
}
table ip nat {
	chain DOCKER {
		iifname "docker0" counter packets 0 bytes 0 return
	}
}
table ip filter {
	chain FORWARD {
		type filter hook forward priority filter; policy drop;
	}
}
"""
STRICT = """\
table inet filter {
	set blocked {
		type ipv4_addr
		elements = { 192.0.2.1 }
	}
	chain input {
		type filter hook input priority filter; policy drop;
		iif "lo" accept
		tcp dport { 22, 80 } accept
	}
}
"""


@pytest.mark.parametrize(
    ("nft", "iptables", "named"),
    [
        # Our own rules, and those of Docker, keep nobody from a served port.
        (NFT, "-P INPUT ACCEPT\n", []),
        (NFT + STRICT, "", ["nftables (table inet filter, chain input: policy drop)"]),
        (STRICT.replace("policy drop", "policy accept"), "", []),
        # What ufw leaves when it is switched off.
        (STRICT.replace("policy drop", "policy accept").replace('iif "lo" accept', "jump ufw-reject-input"), "", []),
        (
            STRICT.replace("policy drop", "policy accept").replace('iif "lo" accept', "tcp dport 30001 reject"),
            "",
            ["nftables (table inet filter, chain input: a rule with reject)"],
        ),
        ("", "-P INPUT DROP\n-A INPUT -i lo -j ACCEPT\n", ["iptables (-P INPUT DROP)"]),
        (
            "",
            "-P INPUT ACCEPT\n-A INPUT -j REJECT --reject-with icmp-host-prohibited\n",
            ["iptables (-A INPUT -j REJECT --reject-with icmp-host-prohibited)"],
        ),
        ("", "", []),
    ],
)
def test_a_packet_filter_that_keeps_others_out_is_named(nft: str, iptables: str, named: list[str]) -> None:
    assert firewall.filters(nft, iptables) == named
