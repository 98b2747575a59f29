"""Read the firewalls of a node, and change our rules in them."""

from __future__ import annotations

from collections.abc import Iterable

from ..base import listeners
from ..base.printable import printable
from ..base.refusal import Refusal
from ..serving import firewall
from ..serving.firewall import FIREWALLD, UFW, FirewallRule
from .module import NodeModule


class Firewalls:
    """The firewalls of this node."""

    def __init__(self, module: NodeModule, instance: str) -> None:
        self.module = module
        self.instance = instance
        self.offline = self._run("firewall-cmd", "--state")[0] != 0

    def active(self, host: str) -> dict[str, str]:
        """Return the firewalls that run and that this project can open, each with its zone.

        host: what a server listens on; the zone is that of the interface by which others reach it.
        """
        found = {}
        if not self.offline:
            found[FIREWALLD] = self._zone(host)
        if "Status: active" in self._run("ufw", "status")[1].splitlines():
            found[UFW] = ""
        return found

    def named(self, host: str) -> list[str]:
        """Name each firewall that may keep others out."""
        found = [f"firewalld (zone {zone})" if zone else name for name, zone in self.active(host).items()]
        if found:
            return found
        return firewall.filters(self._run("nft", "list", "ruleset")[1], self._run("iptables", "-S", "INPUT")[1])

    def outside(self) -> list[str]:
        """Return the node's addresses that others can reach."""
        return [address for _, address in listeners.outside(firewall.addresses_of(self._addresses()))]

    def found(self, rules: Iterable[FirewallRule]) -> dict[FirewallRule, tuple[bool, ...] | None]:
        """Return which of the rules are there, as serving/firewall.py reads it."""
        listed = self._run("ufw", "show", "added")[1]
        return {
            rule: tuple(self._run(*command)[0] == 0 for command in self._rich("query", rule))
            if rule.firewall == FIREWALLD
            else firewall.ufw_has(listed, rule, self.instance)
            for rule in rules
        }

    def add(self, rule: FirewallRule) -> None:
        """Add a rule; one that is there already stays."""
        if rule.firewall == UFW:
            self._change("ufw", *firewall.ufw_rule(rule), "comment", firewall.comment(self.instance))
        else:
            self._change_rich("add", rule)

    def remove(self, rule: FirewallRule) -> None:
        """Remove a rule wherever it is."""
        if rule.firewall == UFW:
            self._change("ufw", "delete", *firewall.ufw_rule(rule))
        else:
            self._change_rich("remove", rule)

    def _rich(self, verb: str, rule: FirewallRule) -> list[list[str]]:
        """Return the commands of a rich rule: for the permanent configuration, and for the running one."""
        words = [f"--zone={rule.zone}", f"--{verb}-rich-rule={firewall.rich_rule(rule)}"]
        if self.offline:
            return [["firewall-offline-cmd", *words]]
        return [["firewall-cmd", "--permanent", *words], ["firewall-cmd", *words]]

    def _change_rich(self, verb: str, rule: FirewallRule) -> None:
        """Add or remove a rich rule in each configuration where that changes something."""
        for query, command in zip(self._rich("query", rule), self._rich(verb, rule)):
            if (self._run(*query)[0] == 0) != (verb == "add"):
                self._change(*command)

    def _zone(self, host: str) -> str:
        routes = self._run("ip", "route", "show", "default")[1] or self._run("ip", "-6", "route", "show", "default")[1]
        device = firewall.device_of(host, firewall.addresses_of(self._addresses()), routes)
        code, out = self._run("firewall-cmd", f"--get-zone-of-interface={device}") if device else (1, "")
        return out.strip() if code == 0 else self._run("firewall-cmd", "--get-default-zone")[1].strip()

    def _addresses(self) -> str:
        return self._run("ip", "-o", "addr", "show")[1]

    def _change(self, *command: str) -> None:
        code, out = self._run(*command)
        if code != 0:
            raise Refusal(
                "firewall_unchanged",
                f"{' '.join(command)} ended with status {code}: {printable(out.strip())}. Repair the firewall, then "
                "run this again.",
            )

    def _run(self, program: str, *arguments: str) -> tuple[int, str]:
        """Return status and output; a program that is not installed says nothing, with status 127."""
        path = self.module.get_bin_path(program, opt_dirs=["/usr/sbin", "/sbin"])
        if path is None:
            return 127, ""
        code, out, err = self.module.run_command([path, *arguments])
        return int(code), str(out if code == 0 else err or out)
