"""The node's firewall is opened for an instance where the site asks for it, and rules of others stay."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.gaudi.base import paths

from library import vllm_service_firewall
from tests.unit.host.modules import run_main, script

RULE = 'rule port port="30001" protocol="tcp" accept'
LAN = 'rule family="ipv4" source address="10.20.0.0/16" port port="30001" protocol="tcp" accept'
# ip, of iproute2 6.1.
ROUTES = "default via 10.20.0.1 dev eth1 proto dhcp src 10.20.0.11 metric 100 \n"
ADDRESSES = (
    "1: lo    inet 127.0.0.1/8 scope host lo\\       valid_lft forever preferred_lft forever\n"
    "2: eth0    inet 192.0.2.4/24 brd 192.0.2.255 scope global eth0\\       valid_lft forever\n"
    "3: eth1    inet 10.20.0.11/16 brd 10.20.255.255 scope global eth1\\       valid_lft forever\n"
)


class FirewallNode:
    """A node with a directory for records, and with the firewalls that are named."""

    def __init__(self, patch: pytest.MonkeyPatch, folder: Path, *firewalls: str) -> None:
        self.folder = folder
        (folder / "chat").mkdir(exist_ok=True)
        patch.setattr(vllm_service_firewall, "INSTANCES", folder)
        # Rich rules by zone and configuration; rules of ufw as "ufw show added" prints them.
        self.rich: dict[tuple[str, str], list[str]] = {}
        self.ufw: list[str] = []
        self.running = True
        self.broken = ""
        programs: dict[str, Any] = {"ip": lambda command: (0, ROUTES if "route" in command else ADDRESSES, "")}
        programs |= (
            {"firewall-cmd": self.firewall_cmd, "firewall-offline-cmd": self.offline}
            if "firewalld" in firewalls
            else {}
        )
        programs |= {"ufw": self.ufw_program} if "ufw" in firewalls else {}
        self.commands = script(patch, programs)

    def firewall_cmd(self, command: list[str]) -> tuple[int, str, str]:
        """firewall-cmd 1.3."""
        if not self.running:
            return 252, "", "not running\n"
        answers = {
            "--state": "running\n",
            "--get-zone-of-interface=eth1": "internal\n",
            "--get-default-zone": "public\n",
        }
        if command[1] in answers:
            return 0, answers[command[1]], ""
        if command[1].startswith("--get-zone-of-interface"):
            return 2, "", "no zone\n"
        kept = "permanent" if command[1] == "--permanent" else "running"
        return self.rule(kept, command[-2].partition("=")[2], command[-1])

    def offline(self, command: list[str]) -> tuple[int, str, str]:
        return self.rule("permanent", command[-2].partition("=")[2], command[-1])

    def rule(self, kept: str, zone: str, words: str) -> tuple[int, str, str]:
        verb, _, rule = words.removeprefix("--").partition("-rich-rule=")
        rules = self.rich.setdefault((zone, kept), [])
        if verb == "query":
            return (0, "yes\n", "") if rule in rules else (1, "no\n", "")
        if self.broken:
            return 13, "", self.broken
        (rules.append if verb == "add" else rules.remove)(rule)
        return 0, "success\n", ""

    def ufw_program(self, command: list[str]) -> tuple[int, str, str]:
        """ufw 0.36."""
        if command[1] == "status":
            return 0, f"Status: {'active' if self.running else 'inactive'}\n", ""
        if command[1] == "show":
            listed = "".join(f"ufw {rule}\n" for rule in self.ufw)
            return 0, f"Added user rules (see 'ufw status' for running firewall):\n{listed or '(None)'}\n", ""
        rule = command[2:] if command[1] == "delete" else command[1:]
        assert rule[:4] == ["allow", "proto", "tcp", "from"]
        source, port = rule[4], rule[8]
        words = f"allow {port}/tcp" if source == "any" else f"allow from {source} to any port {port} proto tcp"
        if command[1] == "delete":
            self.ufw = [each for each in self.ufw if each.partition(" comment ")[0] != words]
        else:
            assert all(each.partition(" comment ")[0] != words for each in self.ufw), "ufw would change the comment"
            self.ufw.append(f"{words} comment '{rule[rule.index('comment') + 1]}'")
        return 0, "Rule added\nRule added (v6)\n", ""

    def run(self, check: bool = False, **given: Any) -> dict[str, Any]:
        """What the module answers."""
        arguments = {"instance": "chat", "host": "0.0.0.0", "port": 30001, **given}
        return run_main("library.vllm_service_firewall", arguments, check=check)

    def everything(self) -> tuple[dict[tuple[str, str], list[str]], list[str], list[str]]:
        record = self.folder / "chat" / paths.FIREWALL
        recorded = json.loads(record.read_text())["rules"] if record.exists() else []
        return {where: list(rules) for where, rules in self.rich.items() if rules}, list(self.ufw), recorded


def opened(*rules: str, zone: str = "internal") -> dict[tuple[str, str], list[str]]:
    return {(zone, kept): list(rules) for kept in ("permanent", "running")}


@pytest.fixture
def firewalld(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FirewallNode:
    return FirewallNode(monkeypatch, tmp_path, "firewalld")


@pytest.fixture
def ufw(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FirewallNode:
    return FirewallNode(monkeypatch, tmp_path, "ufw")


def test_firewalld_has_our_rule_now_and_after_a_reload_and_loses_it_at_removal(firewalld: FirewallNode) -> None:
    foreseen = firewalld.run(check=True)
    assert (foreseen["changed"], firewalld.everything()) == (True, ({}, [], []))
    first = firewalld.run()
    assert first["diff"] == foreseen["diff"]
    assert first["rules"] == ["firewalld, zone internal: TCP port 30001 from everywhere"]
    rich, _, recorded = firewalld.everything()
    assert (rich, len(recorded)) == (opened(RULE), 1)
    assert (firewalld.folder / "chat" / paths.FIREWALL).stat().st_mode & 0o777 == 0o600
    assert firewalld.run()["changed"] is False
    assert firewalld.run(check=True, state="absent")["changed"] is True
    assert firewalld.everything()[0] == opened(RULE)
    assert firewalld.run(state="absent")["changed"] is True
    assert firewalld.everything() == ({}, [], [])
    assert firewalld.run(state="absent")["changed"] is False
    assert not [command for command in firewalld.commands if "--reload" in command]


def test_ufw_has_our_rule_with_a_comment_and_loses_it_at_removal(ufw: FirewallNode) -> None:
    assert ufw.run(check=True)["changed"] is True
    assert ufw.everything() == ({}, [], [])
    assert ufw.run(sources=["10.20.0.0/16", "192.0.2.7/32"])["changed"] is True
    assert ufw.ufw == [
        "allow from 10.20.0.0/16 to any port 30001 proto tcp comment 'gaudi-serving chat'",
        "allow from 192.0.2.7 to any port 30001 proto tcp comment 'gaudi-serving chat'",
    ]
    assert ufw.run(sources=["10.20.0.0/16", "192.0.2.7/32"])["changed"] is False
    # Without networks everybody may connect.
    assert ufw.run()["changed"] is True
    assert ufw.ufw == ["allow 30001/tcp comment 'gaudi-serving chat'"]
    ufw.run(state="absent")
    assert ufw.everything() == ({}, [], [])


def test_a_changed_port_or_network_leaves_no_old_rule(firewalld: FirewallNode) -> None:
    firewalld.run()
    firewalld.run(port=30002)
    assert firewalld.everything()[0] == opened(RULE.replace("30001", "30002"))
    firewalld.run(sources=["10.20.0.0/16"])
    assert firewalld.everything()[0] == opened(LAN)


def test_the_zone_is_that_of_the_interface_others_come_by(firewalld: FirewallNode) -> None:
    firewalld.run(host="192.0.2.4")
    assert firewalld.everything()[0] == opened(RULE, zone="public")


def test_what_others_opened_stays(firewalld: FirewallNode) -> None:
    firewalld.rich = opened(RULE)
    answer = firewalld.run()
    assert (answer["changed"], answer["rules"]) == (False, [])
    assert firewalld.run(state="absent")["changed"] is False
    assert firewalld.everything() == (opened(RULE), [], [])


@pytest.mark.parametrize("said", ["", " comment 'the gateway'", " comment 'gaudi-serving chat-2'"])
@pytest.mark.parametrize("verdict", ["allow", "deny", "limit log"])
def test_a_rule_of_ufw_without_our_comment_stays(ufw: FirewallNode, verdict: str, said: str) -> None:
    ufw.ufw = [f"{verdict} 30001/tcp{said}", "allow 22/tcp", "allow from 10.20.0.0/16"]
    before = list(ufw.ufw)
    assert ufw.run()["changed"] is False
    assert ufw.run(state="absent")["changed"] is False
    assert ufw.ufw == before


def test_a_rule_that_somebody_removed_comes_back(firewalld: FirewallNode) -> None:
    firewalld.run()
    firewalld.rich["internal", "running"].clear()
    assert firewalld.run()["changed"] is True
    assert firewalld.everything()[0] == opened(RULE)


def test_rules_are_removed_where_the_firewall_is_stopped(firewalld: FirewallNode) -> None:
    firewalld.run()
    firewalld.running = False
    del firewalld.rich["internal", "running"]
    assert firewalld.run()["changed"] is True, "a firewall that does not run needs no rule"
    assert firewalld.everything() == ({}, [], [])


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1"])
def test_a_server_on_loopback_gets_no_rule_and_loses_the_one_it_had(firewalld: FirewallNode, host: str) -> None:
    assert firewalld.run(host=host)["changed"] is False
    firewalld.run()
    assert firewalld.run(host=host)["changed"] is True
    assert firewalld.everything() == ({}, [], [])


def test_without_a_firewall_nothing_happens(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    node = FirewallNode(monkeypatch, tmp_path)
    assert node.run()["changed"] is False
    assert node.everything() == ({}, [], [])


def test_a_firewall_that_refuses_is_named_with_what_it_said(firewalld: FirewallNode) -> None:
    firewalld.broken = "Error: COMMAND_FAILED: 'python-nftables' failed\n"
    answer = firewalld.run()
    assert answer["refused_id"] == "firewall_unchanged"
    assert "COMMAND_FAILED" in answer["msg"]
    # Whatever was added before it failed is ours, and the next run knows.
    assert len(firewalld.everything()[2]) == 1


def test_a_damaged_record_ends_the_run_before_any_change(firewalld: FirewallNode) -> None:
    (firewalld.folder / "chat" / paths.FIREWALL).write_text("{")
    assert firewalld.run()["refused_id"] == "record_damaged"
    assert firewalld.everything is not None
    assert firewalld.commands == []
