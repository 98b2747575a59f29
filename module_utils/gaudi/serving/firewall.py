"""Rules of ours in a node's firewall, for the port of an instance that others are to reach; and who filters at all.

firewalld has a rich rule of ours for each network, in the running and in the permanent configuration: it needs no
reload, which would drop what others have set for the running firewall only. ufw has a rule with a comment. An equal
rule that was there before is somebody else's, and stays. Rules of nftables and iptables are only named.
"""

from __future__ import annotations

import ipaddress
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass

from ..base import values
from ..base.refusal import Refusal

FIREWALLD, UFW = "firewalld", "ufw"
# Of the record: the form of node/documents.py.
FORM = {"rules": [{"firewall": str, "zone": str, "source": str, "port": int}]}
ANY = ""
_UFW_LOG = ("log", "log-all")
# Not the name of a chain, such as ufw-reject-input.
_VERDICT = re.compile(r"policy drop|(?<![\w-])(?:drop|reject)(?![\w-])")
_OURS = re.compile(r"gaudi_serving_\w+")


@dataclass(frozen=True)
class FirewallRule:
    """One rule: the firewall, its zone (firewalld), the network that may connect (``ANY``: all), and the TCP port."""

    firewall: str
    zone: str
    source: str
    port: int

    def __str__(self) -> str:
        zone = f", zone {self.zone}" if self.zone else ""
        return f"{self.firewall}{zone}: TCP port {self.port} from {self.source or 'everywhere'}\n"


@dataclass(frozen=True)
class FirewallChange:
    """What is added and removed, and which rules are ours afterwards."""

    add: tuple[FirewallRule, ...]
    remove: tuple[FirewallRule, ...]
    ours: tuple[FirewallRule, ...]


def networks(sources: Iterable[object], what: str) -> list[str]:
    """Return networks as both firewalls write them; raises Refusal for what is no address or network.

    what: the option, for the sentence.
    """
    found = []
    for source in sources:
        try:
            network = ipaddress.ip_network(str(source))
        except ValueError as wrong:
            raise Refusal(
                "no_network",
                f"{what} has {source!r}, which is no network: {wrong}. "
                "Write addresses or networks, such as 10.20.0.0/16.",
            ) from wrong
        whole = network.prefixlen == network.max_prefixlen
        found.append(ANY if network.prefixlen == 0 else str(network.network_address) if whole else str(network))
    return [ANY] if ANY in found else list(dict.fromkeys(found))


def desired(active: Mapping[str, str], host: str, port: int, sources: Sequence[str]) -> list[FirewallRule]:
    """Return the rules that let others reach an instance; a server on loopback needs none.

    active: the firewalls that run, each with its zone ("" for ufw). sources: from ``networks``; empty means everywhere.
    """
    if values.is_loopback(host):
        return []
    return [
        FirewallRule(firewall, zone, source, port) for firewall, zone in active.items() for source in sources or [ANY]
    ]


def decide(
    wanted: Iterable[FirewallRule],
    recorded: Iterable[FirewallRule],
    found: Mapping[FirewallRule, tuple[bool, ...] | None],
) -> FirewallChange:
    """Compare the rules that are wanted with the node.

    found: for each rule, whether each configuration of its firewall has it; None where it has an equal rule that
    somebody else has marked as theirs.
    """
    ours, add, remove = [], [], []
    for rule in wanted:
        there = found[rule]
        mine = rule in recorded and there is not None
        if there is not None and (mine or not any(there)):
            ours.append(rule)
            if not all(there):
                add.append(rule)
    for rule in recorded:
        if rule not in ours and any(found[rule] or ()):
            remove.append(rule)
    return FirewallChange(tuple(add), tuple(remove), tuple(ours))


def rules_of(record: Mapping[str, Sequence[Mapping[str, object]]]) -> list[FirewallRule]:
    """Read the rules of a record, which has the FORM."""
    return [
        FirewallRule(str(each["firewall"]), str(each["zone"]), str(each["source"]), int(str(each["port"])))
        for each in record["rules"]
    ]


def record_of(rules: Iterable[FirewallRule]) -> dict[str, list[dict[str, object]]]:
    """Return what ``rules_of`` reads."""
    return {"rules": [asdict(rule) for rule in rules]}


def rich_rule(rule: FirewallRule) -> str:
    """Return a rule in firewalld's rich language."""
    version = "ipv6" if ":" in rule.source else "ipv4"
    source = f'family="{version}" source address="{rule.source}" ' if rule.source else ""
    return f'rule {source}port port="{rule.port}" protocol="tcp" accept'


def comment(instance: str) -> str:
    """Return the comment of an instance's rules in ufw."""
    return f"gaudi-serving {instance}"


def ufw_rule(rule: FirewallRule) -> list[str]:
    """Return a rule as ufw is given it."""
    return ["allow", "proto", "tcp", "from", rule.source or "any", "to", "any", "port", str(rule.port)]


def _ufw_listed(rule: FirewallRule) -> list[str]:
    """Return a rule as ``ufw show added`` prints it."""
    if not rule.source:
        return ["allow", f"{rule.port}/tcp"]
    return ["allow", "from", rule.source, "to", "any", "port", str(rule.port), "proto", "tcp"]


def ufw_has(listed: str, rule: FirewallRule, instance: str) -> tuple[bool, ...] | None:
    """Return what ``decide`` reads, from ``ufw show added``; an equal rule without our comment is None."""
    for line in listed.splitlines():
        if not line.startswith("ufw "):
            continue
        text, _, said = line[len("ufw ") :].partition(" comment ")
        words = [word for word in text.split() if word not in _UFW_LOG]
        # ufw would replace an equal rule that denies or limits, and the comment of one that allows.
        if words[1:] == _ufw_listed(rule)[1:]:
            mine = words[0] == "allow" and said and shlex.split(said) == [comment(instance)]
            return (True,) if mine else None
    return (False,)


def addresses_of(listed: str) -> list[tuple[str, str]]:
    """Return interfaces with their addresses, without prefix lengths, from ``ip -o addr show``."""
    lines = [line.split() for line in listed.splitlines()]
    return [(words[1], words[3].partition("/")[0]) for words in lines if len(words) > 3]


def device_of(host: str, addresses: Iterable[tuple[str, str]], routes: str) -> str:
    """Return the interface by which others reach a server: that of its address, or that of the default route; "".

    routes: ``ip route show default``.
    """
    words = routes.split()
    route = words[words.index("dev") + 1] if "dev" in words[:-1] else ""
    return next((device for device, address in addresses if address == host), route)


def filters(nft: str, iptables: str) -> list[str]:
    """Name the tables that reject or drop incoming connections, from ``nft list ruleset`` and ``iptables -S INPUT``."""
    found: list[str] = []
    body: list[str] = []
    table = name = ""
    for line in nft.splitlines():
        words = line.split()
        if words[:1] == ["table"]:
            table = "" if _OURS.fullmatch(words[2]) else f"{words[1]} {words[2]}"
        elif words[:1] == ["chain"]:
            name, body = words[1], []
        elif words[:1] == ["}"]:
            verdicts = _VERDICT.findall("\n".join(body))
            if table and verdicts and "hook input" in "\n".join(body):
                rule = "policy drop" if "policy drop" in verdicts else f"a rule with {verdicts[0]}"
                found.append(f"nftables (table {table}, chain {name}: {rule})")
            body = []
        else:
            body.append(line)
    verdict = re.search(r"^-P INPUT DROP$|^-A INPUT .*-j (?:DROP|REJECT)\b.*$", iptables, re.MULTILINE)
    return found or ([f"iptables ({verdict[0]})"] if verdict else [])
