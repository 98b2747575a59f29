#!/usr/bin/python3
"""Stand-in for hl-smi on a simulated node: answers from /etc/gaudi-simulator/node.json.

What real machines were seen to print (tests/unit/standins/recorded) is printed to the byte, in the two table
layouts there are. Every request it does not know ends with status 1 and a message on stderr. Without a device, as
without the described driver, every request ends with status 1 and the recorded line on stdout. Real processes count:
whoever holds /dev/accel/accelN open on this node, in a container or not, is listed as its user.

It says that it is simulated where no parser looks (-v on stderr, -h) and in serial numbers and UUIDs.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NoReturn

NODE_DOCUMENT = Path("/etc/gaudi-simulator/node.json")
PROC = Path("/proc")
# When the card of a container that is gone will be free, by its index: habana_container_runtime.py.
FREE_AT = Path("/run/gaudi-simulator/free_at")
DEVICE = re.compile(r"^/dev/accel/accel([0-9]+)$")
# Share of a card's memory a real process is taken to use: vLLM's default gpu_memory_utilization.
HELD_SHARE = 0.9

# SPI firmware that was seen, by card and what hl-smi calls its release, where it does not follow from the version.
SPI = {("gaudi2", "1.24.0"): "62.6.2-sec-11", ("gaudi3", "1.24.0"): "62.6.1-sec-3"}
# Gaudi2's line was seen. hl-fw-loader says 0x4 (or 03) of an HL-325L; that hl-smi writes it like Gaudi2's, and that an
# HL-338 has the same, is constructed.
CPLD = {"gaudi2": "0x0000000d", "gaudi3": "0x00000004"}
RULE = "+" + "-" * 77 + "+"
COLUMNS = "|" + "-" * 31 + "+" + "-" * 22 + "+" + "-" * 22 + "+"


class HlSmiError(Exception):
    """The tool ends with status 1 and this message on stderr."""


class NoDevice(Exception):
    """The tool ends with status 1 and this message on stdout: apptainer's tests, a container without cards."""

    def __init__(self) -> None:
        super().__init__("no AIPs available")


@dataclass(frozen=True)
class User:
    """A process that holds a card. ``memory`` in MiB; ``pid`` is None where the caller may not see it."""

    pid: int | None
    name: str
    memory: int


class Parser(argparse.ArgumentParser):
    """Ends with status 1, as hl-smi does, where argparse would end with 2."""

    def error(self, message: str) -> NoReturn:
        """Refuse the command line."""
        raise HlSmiError(f"hl-smi: {message}\nTry 'hl-smi -h' for more information.")


def load_node(path: Path) -> dict[str, Any]:
    """Read the node document; HlSmiError when there is none."""
    try:
        document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise HlSmiError(f"hl-smi (simulated): {path} is missing, so this node has not been described") from None
    return document


def holders(proc: Path = PROC) -> dict[int, list[tuple[int, str]]]:
    """Processes that hold an accelerator open, as {index: [(pid, name)]}, lowest pid first.

    Processes the caller may not look into, and those that end meanwhile, are left out, as lsof does.
    """
    found: dict[int, list[tuple[int, str]]] = {}
    for pid in sorted(int(entry.name) for entry in proc.iterdir() if entry.name.isdigit()):
        try:
            targets = {str(link.readlink()) for link in (proc / str(pid) / "fd").iterdir()}
            name = (proc / str(pid) / "comm").read_text(encoding="utf-8").strip()
        except (PermissionError, FileNotFoundError, ProcessLookupError):
            continue
        for target in targets:
            if match := DEVICE.match(target):
                found.setdefault(int(match[1]), []).append((pid, name))
    return found


def still_held(now: float, folder: Path = FREE_AT) -> frozenset[int]:
    """The cards whose memory is in use although their container is gone."""
    entries = folder.iterdir() if folder.is_dir() else ()
    return frozenset(int(entry.name) for entry in entries if float(entry.read_text(encoding="ascii") or now) > now)


class Smi:
    """One call of the tool: the described cards and who uses them now."""

    def __init__(
        self, node: dict[str, Any], held: dict[int, list[tuple[int, str]]], late: frozenset[int] = frozenset()
    ) -> None:
        self.node = node
        self.late = late
        self.cards: list[dict[str, Any]] = [card for card in node["cards"] if not card["lost"]]
        if not (node["driver"]["loaded"] and self.cards):
            raise NoDevice
        self.users: dict[int, list[User]] = {}
        described = {(entry["index"], entry["name"]): entry for entry in node["busy"]}
        for card in self.cards:
            index, users = card["index"], []
            for pid, name in held.get(index, []):
                memory = described.get((index, name), {}).get("memory")
                users.append(User(pid, name, int(card["memory_total"] * HELD_SHARE) if memory is None else memory))
            users += [
                User(entry["pid"], entry["name"], entry["memory"] or 0)
                for entry in node["busy"]
                if entry["index"] == index and entry["pid"] is not None
            ]
            self.users[index] = users

    def used(self, card: dict[str, Any]) -> int:
        """Memory in use on a card, in MiB."""
        for entry in self.node["busy"]:
            if entry["index"] == card["index"] and entry["card_memory"] is not None:
                return int(entry["card_memory"])
        memory = sum(user.memory for user in self.users[card["index"]])
        if card["index"] in self.late:
            memory = max(memory, int(card["memory_total"] * HELD_SHARE))
        return int(min(card["memory_idle"] + memory, card["memory_total"]))

    def find(self, bus_id: str) -> dict[str, Any]:
        """Return the card at a PCI address, which may lack the domain."""
        for card in self.cards:
            if bus_id.lower() in (card["bus_id"], card["bus_id"].partition(":")[2]):
                return card
        raise HlSmiError(f"hl-smi: no AIP at {bus_id}")

    # The summary ---------------------------------------------------------------------------------

    def table(self) -> str:
        """Return the summary table of a call without arguments."""
        old = self.node["hl_smi"]["layout"] == "old"
        versions = [
            ("HL-SMI Version:", self.node["hl_smi"]["version"]),
            ("Driver Version:", self.node["driver"]["version"]),
        ]
        if not old and self.node["driver"]["nic_version"]:
            versions.append(("Nic Driver Version:", self.node["driver"]["nic_version"]))
        events = "Volatile Uncorr. ECC " if old else "Volatile Uncor-Events"
        lines = [RULE]
        lines += [f"| {label}{version.rjust(66 - len(label))}{'':10}|" for label, version in versions]
        lines += [
            COLUMNS,
            f"| AIP  Name        Persistence-M| Bus-Id        Disp.A | {events}|",
            "| Fan  Temp  Perf  Pwr:Usage/Cap|         Memory-Usage | AIP-Util  Compute M. |",
            "|" + "=" * 31 + "+" + "=" * 22 + "+" + "=" * 22 + "|",
        ]
        for card in self.cards:
            lines += [self._identity(card), self._old(card) if old else self._new(card), COLUMNS]
        lines += [
            "| Compute Processes:                                               AIP Memory |",
            "|  AIP       PID   Type   Process name                             Usage      |",
            "|" + "=" * 77 + "|",
        ]
        for card in self.cards:
            lines += self._processes(card)
        return "\n".join([*lines, "+" + "=" * 77 + "+"])

    @staticmethod
    def _identity(card: dict[str, Any]) -> str:
        return f"|{card['index']:4d}  {card['name']:<20}N/A  | {card['bus_id']}     N/A |{card['uncorrected']:20d}  |"

    def _old(self, card: dict[str, Any]) -> str:
        # 131072 MiB is one digit more than this layout has room for: it takes a blank of the last column.
        line = f"| N/A{card['temperature']:5d}C   {'N/A':3}{card['power']:6d}W / {card['power_limit']}W |"
        line += f"{self.used(card):7d}MiB / {card['memory_total']}MiB |{card['utilization']:6d}%           N/A"
        return line.ljust(78) + "|"

    def _new(self, card: dict[str, Any]) -> str:
        used, total = self.used(card), card["memory_total"]
        perf = self.node["hl_smi"]["perf"]
        line = f"| N/A{card['temperature']:5d}C   {perf:3}{card['power']:4d}W /{card['power_limit']:5d}W  |"
        line += f"{used:6d}MiB / {total:6d}MiB |{card['utilization']:6d}%{100 * used // total:13d}%"
        return line.ljust(78) + "|"

    def _processes(self, card: dict[str, Any]) -> list[str]:
        users = self.users[card["index"]] if self.node["hl_smi"]["sees_processes"] else []
        if not users:
            return [f"|{card['index']:4d}        N/A   N/A    N/A{'':38}N/A".ljust(78) + "|"]
        return [
            f"|{card['index']:4d}{user.pid:13d}     C   {user.name[:15]:<40}{user.memory}MiB".ljust(78) + "|"
            for user in users
        ]

    # -L ------------------------------------------------------------------------------------------

    def log(self, cards: list[dict[str, Any]], now: datetime) -> str:
        """Return the long listing of -L and -q."""
        lines = [
            "",
            "================ HL-SMI LOG ================",
            "",
            f"{'Timestamp':40}: {now.strftime('%a %b %d %H:%M:%S UTC %Y')}",
            f"{'Driver Version':40}: {self.node['driver']['version']}",
            f"{'HL-SMI Version':40}: {self.node['hl_smi']['version']} (simulated)",
            "",
            f"{'Attached AIPs':40}: {len(self.cards)}",
        ]
        for card in cards:
            lines += ["", f"[{card['index']}] AIP (accel{card['index']}) {card['bus_id']}"]
            lines += [
                f"{'':{indent}}{label:<{40 - indent}}{': ' + value if value else ''}".rstrip()
                for indent, label, value in self._facts(card)
            ]
        return "\n".join(lines)

    def _facts(self, card: dict[str, Any]) -> list[tuple[int, str, str]]:
        domain, bus, device = card["bus_id"].split(":")
        # hl-1.22.1-fw-61.4.2.1 -> hl-gaudi2-1.22.1-fw-61.4.2-sec-9, as -L pairs them on Gaudi2; other cards of other
        # releases are constructed after it.
        release, _, build = self.node["hl_smi"]["version"].removeprefix("hl-").partition("-fw-")
        build = SPI.get((card["family"], release), f"{build.rpartition('.')[0]}-sec-9")
        firmware = f"hl-{card['family']}-{release}-fw-{build}"
        used, total = self.used(card), card["memory_total"]
        facts = [
            (8, "Product Name", card["name"]),
            (8, "Model Number", "SIMULATED"),
            (8, "Serial Number", card["serial"]),
            (8, "Module status", card["state"]),
            (8, "Module ID", str(card["module_id"])),
            (8, "PCB Assembly Version", "V2A"),
            (8, "PCB Version", "R0F"),
            (8, "HL Revision", "1"),
            (8, "AIP UUID", card["uuid"]),
            (8, "AIP Status", "Production Level"),
            (8, "Firmware [SPI] Version", f"Preboot version {firmware} (simulated)"),
            (8, "Firmware [OS] Version", f"Zephyr 2.7.2-{firmware} (simulated)"),
            (8, "CPLD Version", CPLD.get(card["family"], CPLD["gaudi2"])),
            (8, "PCI", ""),
            (16, "Bus", f"0x{bus}"),
            (16, "Device", f"0x{device.partition('.')[0]}"),
            (16, "Domain", f"0x{domain}"),
            (16, "Rev", card["revision"]),
            (16, "Device Id", f"0x1da3{card['pci_id']}"),
            (16, "Bus Id", card["bus_id"]),
            (16, "Sub System Id", f"0x1da3{card['pci_id']}"),
            (8, "Memory Type", "HBM"),
            (8, "Memory Usage", ""),
            (16, "Total", f"{total} MB"),
            (16, "Used", f"{used} MB"),
            (16, "Free", f"{total - used} MB"),
            (8, "Temperature", ""),
            (16, "[ 1] On Chip 0", f" {card['temperature']} C"),
            (8, "Power Readings (54V PSU)", ""),
            (16, "Power Management", "auto"),
            (16, "Power Draw", f"{card['power']} W"),
        ]
        return [
            *facts,
            (8, "Replaced Rows", ""),
            (16, "Single Bit ECC", "0"),
            (16, "Double Bit ECC", "0"),
            (16, "Pending", "No"),
        ]

    # -Q ------------------------------------------------------------------------------------------

    def query(self, fields: list[str], cards: list[dict[str, Any]], options: set[str], now: datetime) -> str:
        """Return the CSV of -Q; HlSmiError on an unknown field, as a whole."""
        for field in fields:
            if field not in FIELDS:
                raise HlSmiError(f"hl-smi: unknown query type {field!r}")
        lines = []
        if "noheader" not in options:
            # The unit stays in the header under nounits (recorded with 1.18).
            lines.append(", ".join(f"{field} [{FIELDS[field]}]" if FIELDS[field] else field for field in fields))
        for card in cards:
            values = self._values(card, now)
            suffix = {
                f: "" if "nounits" in options or not FIELDS[f] or values[f] == "N/A" else f" {FIELDS[f]}"
                for f in fields
            }
            lines.append(", ".join(f"{values[field]}{suffix[field]}" for field in fields))
        return "\n".join(lines)

    def _values(self, card: dict[str, Any], now: datetime) -> dict[str, str]:
        used, total = self.used(card), card["memory_total"]
        values = {
            "timestamp": now.strftime("%a %b %d %H:%M:%S UTC %Y"),
            "name": card["name"],
            "bus_id": card["bus_id"],
            "driver_version": self.node["driver"]["version"],
            "temperature.aip": str(card["temperature"]),
            "module_id": str(card["module_id"]),
            "utilization.aip": str(card["utilization"]),
            "memory.total": str(total),
            "memory.free": str(total - used),
            "memory.used": str(used),
            "index": str(card["index"]),
            "serial": card["serial"],
            "uuid": card["uuid"],
            "power.draw": str(card["power"]),
            "power.max": str(card["power_limit"]),
            "ecc.errors.uncorrected.aggregate.total": str(card["uncorrected"]),
            "ecc.errors.uncorrected.volatile.total": str(card["uncorrected"]),
        }
        return {field: values.get(field, "0" if field.startswith("ecc.errors") else "N/A") for field in FIELDS}

    # topo and -n ---------------------------------------------------------------------------------

    def topology(self, cpus: bool, numa: bool) -> str:
        """Return the affinity table, one row a module."""
        rows = []
        for card in sorted(self.cards, key=lambda entry: int(entry["module_id"])):
            affinity = card["cpus"].replace(",", ", ")
            # Recorded: 12 characters are followed by 4 blanks, 14 by 10.
            padded = affinity.ljust(-(-(len(affinity) + 4) // 8) * 8)
            if cpus and numa:
                rows.append(f"{card['module_id']:<8}{padded}{card['numa_node']}  ")
            else:
                rows.append(f"{card['module_id']}\t{affinity if cpus else card['numa_node']}  ")
        if cpus and numa:
            head = ["modID   CPU Affinity    NUMA Affinity    ", "-----   ------------    -------------    "]
        else:
            title = "CPU Affinity" if cpus else "NUMA Affinity"
            head = [f"modID   {title}", f"-----   {'-' * len(title)}"]
        return "\n".join([*head, *rows])

    def network(self, what: str, card: dict[str, Any], ports: list[int] | None) -> str:
        """Return the ports of a card and what they are, or whether their link is up."""
        kind = dict.fromkeys(card["ports"]["internal"], "internal") | dict.fromkeys(
            card["ports"]["external"], "external"
        )
        for port in ports or []:
            if port not in kind:
                raise HlSmiError(f"hl-smi: {card['name']} has no port {port}")
        if what == "ports":
            return "\n".join(f"port {port}: {kind[port]}" for port in ports or sorted(kind))
        # Without -P only internal ports are listed (recorded).
        down = card["ports"]["down"]
        return "\n".join(
            f"port {port:2d}:        {'DOWN' if port in down else 'UP'}" for port in ports or card["ports"]["internal"]
        )


FIELDS = {
    "timestamp": "", "name": "", "bus_id": "", "driver_version": "", "temperature.aip": "C", "module_id": "",
    "utilization.aip": "%", "memory.total": "MiB", "memory.free": "MiB", "memory.used": "MiB", "index": "",
    "serial": "", "uuid": "", "power.draw": "W", "power.max": "W",
    "ecc.errors.uncorrected.aggregate.total": "", "ecc.errors.uncorrected.volatile.total": "",
    "ecc.errors.corrected.aggregate.total": "", "ecc.errors.corrected.volatile.total": "",
    "ecc.errors.dram.aggregate.total": "", "ecc.errors.dram-corrected.aggregate.total": "",
    "ecc.errors.dram.volatile.total": "", "ecc.mode.current": "", "ecc.mode.pending": "",
    "stats.violation.power": "", "stats.violation.thermal": "",
}  # fmt: skip


def parse_ports(text: str) -> list[int]:
    """Port numbers of ``8,22,23``; ValueError for anything else."""
    return [int(part) for part in text.split(",")]


def parse(arguments: list[str]) -> argparse.Namespace:
    """Parse the command line; HlSmiError when it is wrong."""
    parser = Parser(prog="hl-smi", allow_abbrev=False, description="Simulated: answers from a node description.")
    parser.add_argument("-v", "--version", action="store_true")
    parser.add_argument("-L", "--list-aips", action="store_true")
    parser.add_argument("-q", "--query", action="store_true")
    parser.add_argument("-i", "--device", metavar="PCI_ADDRESS")
    parser.add_argument("-Q", "--query-aip", metavar="FIELDS")
    parser.add_argument("-f", "--format")
    parser.add_argument("-n", "--network", choices=["link", "ports"])
    parser.add_argument("-P", "--ports", type=parse_ports)
    if arguments[:1] == ["topo"]:
        topo = Parser(prog="hl-smi topo", allow_abbrev=False)
        topo.add_argument("-c", dest="cpus", action="store_true")
        topo.add_argument("-N", dest="numa", action="store_true")
        namespace = topo.parse_args(arguments[1:])
        if not (namespace.cpus or namespace.numa):
            raise HlSmiError("hl-smi: topo needs -c, -N or both")
        return argparse.Namespace(topo=namespace)
    namespace = parser.parse_args(arguments)
    namespace.topo = None
    if (
        sum(
            [
                namespace.version,
                namespace.list_aips or namespace.query,
                bool(namespace.query_aip),
                bool(namespace.network),
            ]
        )
        > 1
    ):
        raise HlSmiError("hl-smi: -v, -L, -Q and -n exclude each other")
    return namespace


def answer(
    arguments: list[str],
    node: dict[str, Any],
    held: dict[int, list[tuple[int, str]]],
    now: datetime,
    late: frozenset[int] = frozenset(),
) -> str:
    """Return what the tool prints for a command line; HlSmiError or NoDevice where it ends with status 1.

    late: cards whose memory is not free yet.
    """
    request = parse(arguments)
    if request.topo is None and request.version:
        return f"HL-SMI Version : {node['hl_smi']['version']}"
    smi = Smi(node, held, late)
    if request.topo is not None:
        return smi.topology(request.topo.cpus, request.topo.numa)
    cards = [smi.find(request.device)] if request.device else smi.cards
    if request.query_aip is not None:
        options = (request.format or "").split(",")
        if options[0] != "csv" or set(options) - {"csv", "noheader", "nounits"}:
            raise HlSmiError(f"hl-smi: -Q needs -f csv[,noheader][,nounits], not {request.format!r}")
        return smi.query([field.strip() for field in request.query_aip.split(",")], cards, set(options), now)
    if request.network is not None:
        if not request.device:
            raise HlSmiError("hl-smi: -n needs a device, -i <pci address>")
        return smi.network(request.network, cards[0], request.ports)
    if request.ports is not None or request.format is not None:
        raise HlSmiError("hl-smi: -P goes with -n, -f with -Q")
    if request.list_aips or request.query:
        return smi.log(cards, now)
    if request.device:
        raise HlSmiError("hl-smi: -i goes with -L, -q, -Q or -n")
    return smi.table()


def main() -> int:
    """Answer the command line of this process."""
    try:
        node = load_node(NODE_DOCUMENT)
        now = datetime.now(UTC)
        print(answer(sys.argv[1:], node, holders(), now, still_held(now.timestamp())))
        # Beside the answer, not in it: programs read what the real tool would print, people see both.
        print(f"simulated: node description {node['description']}", file=sys.stderr)
    except NoDevice as nothing:
        print(nothing)
        return 1
    except HlSmiError as refusal:
        print(refusal, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
