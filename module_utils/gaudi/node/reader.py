"""The one place that reads a node's cards: hl-smi, /sys, /proc, lspci, ip and docker.

All modules that need the topology use it. It passes raw facts to the pure functions of cards/document.py, and decides
nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from ansible.module_utils.basic import AnsibleModule

from ..base import paths
from ..cards.document import build_topology
from ..cards.findings import finding
from ..cards.hl_smi import parse_bus_id, parse_links, parse_ports
from ..cards.network_ifs import parse_status
from ..cards.query import CommandResult, HlSmiReport, query_hl_smi
from ..cards.reservations import holders
from ..cards.sources import (
    HABANA_VENDOR,
    AccelCard,
    Holder,
    PciCard,
    Sources,
    parse_addresses,
    sysfs_cpus,
    sysfs_number,
    sysfs_speed,
)
from ..cards.users import CONTAINER_LINE, is_reader, owner_of, parse_container_names, renamed_containers
from .files import text_of
from .open_cards import account_of, read_open
from .reservations import read_reservations
from .states import own_containers

SYS = Path("/sys")
PROC = Path("/proc")
RESERVATIONS = Path(paths.RESERVATIONS)
PLANS = Path(paths.INSTANCES)
# Where the package habanalabs-qual has its programs, in a folder for each generation of cards.
QUAL = Path("/opt/habanalabs/qual")

# Seconds: a query takes one or two, but a lost card, or one in reset, can block hl-smi for ever.
HL_SMI_SECONDS = 60
# Seconds: docker ps and ip answer at once, or never if their daemon or the kernel has a problem.
OTHER_SECONDS = 20

T = TypeVar("T")


def read_topology(module: AnsibleModule, *, links: bool = True) -> dict[str, Any]:
    """Return the topology document of this node; links=False saves one hl-smi call per card."""
    document: dict[str, Any] = build_topology(read_sources(module, links=links))
    return document


def read_ports(
    module: AnsibleModule, cards: Sequence[Mapping[str, Any]], *, external: bool = False
) -> list[tuple[int, int, bool | None, bool | None]]:
    """Return the ports of a topology's cards: module id, number, whether it is external, whether its link is up.

    None: nothing reported it. hl-smi reports links of external ports only if their numbers are queried, which takes
    another call for each card; where it does not, the vendor's script is asked.
    """
    found: list[tuple[int, int, bool | None, bool | None]] = []
    script: dict[int, dict[int, bool]] | None = None
    for card in cards:
        if card["module_id"] is None or card["bus_id"] is None:
            continue
        kinds = _ask_ports(module, parse_ports, "-n", "ports", "-i", card["bus_id"])
        links = _ask_ports(module, parse_links, "-n", "link", "-i", card["bus_id"])
        leaving = [number for number, kind in sorted(kinds.items()) if kind == "external"]
        if external and leaving:
            numbers = ",".join(map(str, leaving))
            links = {**links, **_ask_ports(module, parse_links, "-n", "link", "-i", card["bus_id"], "-P", numbers)}
        if external and not (leaving and links.keys() >= set(leaving)):
            script = _ask_script(module) if script is None else script
            told = script.get(card["index"], {})
            kinds, links = {**dict.fromkeys(told, "external"), **kinds}, {**told, **links}
        for number in sorted({*kinds, *links}):
            kind = kinds.get(number)
            found.append((card["module_id"], number, None if kind is None else kind == "external", links.get(number)))
    return found


def _ask_ports(module: AnsibleModule, parse: Callable[[str], dict[int, T]], *arguments: str) -> dict[int, T]:
    """Query hl-smi for ports; {} if it fails or its answer cannot be parsed."""
    answer = _run(module, HL_SMI_SECONDS, "hl-smi", *arguments)
    if answer is None or answer.status != 0:
        return {}
    try:
        return parse(answer.stdout)
    except ValueError:
        return {}


def _ask_script(module: AnsibleModule) -> dict[int, dict[int, bool]]:
    """Return whether the external ports of each device are up, by the vendor's script; {} if it cannot tell."""
    for program in sorted(QUAL.glob("*/bin/manage_network_ifs.sh")):
        answer = _run(module, HL_SMI_SECONDS, str(program), "--status")
        if answer is not None and answer.status == 0:
            try:
                found: dict[int, dict[int, bool]] = parse_status(answer.stdout)
            except ValueError:
                return {}
            return found
    return {}


def read_interfaces(cards: Sequence[Mapping[str, Any]]) -> list[tuple[int, str, str, bool, int, int | None]]:
    """Return the network interfaces of a topology's cards, which the driver's module habanalabs_en creates.

    Module id, name, MAC address, whether it is up, MTU in bytes, speed in Mb/s (None: unknown, as for one that is
    down).
    """
    found: list[tuple[int, str, str, bool, int, int | None]] = []
    for card in cards:
        if card["module_id"] is None or card["bus_id"] is None:
            continue
        for entry in sorted((SYS / "bus/pci/devices" / card["bus_id"] / "net").glob("*")):
            speed = sysfs_speed(text_of(entry / "speed"))
            up = text_of(entry / "operstate").strip() == "up"
            mtu = sysfs_number(text_of(entry / "mtu")) or 0
            mac = text_of(entry / "address").strip().lower()
            found.append((card["module_id"], entry.name, mac, up, mtu, speed))
    return found


def read_holders() -> tuple[dict[int, str], list[dict[str, str]]]:
    """Return the instance that each module is reserved for, and a finding about a damaged reservations file."""
    try:
        found = read_reservations(RESERVATIONS, PLANS, "")
    except ValueError as error:
        return {}, [finding("unreadable", what=f"{RESERVATIONS} does not show who has which card: {error}")]
    findings = [finding("unreadable", what=found.damage)] if found.damage else []
    return dict(holders(found.reservations)), findings


def read_sources(module: AnsibleModule, *, links: bool = True) -> Sources:
    """Read all sources of a topology. Changes nothing; needs root to see everything."""
    complaints: list[str] = []
    seen = _read_hl_smi(module, links)
    pci = tuple(_read_pci())
    users = tuple(read_open(PROC)) + tuple(_read_listed(seen))
    init_cgroup = text_of(PROC / "1" / "cgroup")
    in_containers = any(owner_of(holder.cgroup, init_cgroup)[1] for holder in users)
    return Sources(
        uid=os.geteuid(),
        seen=seen,
        pci=pci,
        accel=tuple(_read_accel({card.bus_id for card in pci})),
        lspci=_run(module, OTHER_SECONDS, "lspci", "-d", "1da3:"),
        holders=users,
        init_cgroup=init_cgroup,
        container_names=read_container_names(module, complaints) if in_containers else {},
        addresses=_read_addresses(module, complaints),
        complaints=complaints,
    )


def _run(module: AnsibleModule, seconds: int, program: str, *arguments: str) -> CommandResult | None:
    """Run a program for at most so many seconds; None where it is not installed."""
    path = module.get_bin_path(program)
    if path is None:
        return None
    # run_command has no time limit; --kill-after also ends a program that ignores the signal.
    limit = [module.get_bin_path("timeout", required=True), "--kill-after=5", str(seconds)]
    status, stdout, stderr = module.run_command([*limit, path, *arguments])
    return CommandResult(status, stdout, stderr)


def _read_hl_smi(module: AnsibleModule, links: bool) -> HlSmiReport | None:
    """Ask hl-smi; None where it is not installed."""
    if module.get_bin_path("hl-smi") is None:
        return None

    def ask(arguments: Sequence[str]) -> CommandResult:
        answer = _run(module, HL_SMI_SECONDS, "hl-smi", *arguments)
        return answer or CommandResult(127, "", "hl-smi went away while it was being asked")

    seen: HlSmiReport = query_hl_smi(ask, links=links)
    return seen


def _read_pci() -> Iterator[PciCard]:
    """Yield the Gaudi devices on the PCI bus."""
    for device in sorted((SYS / "bus/pci/devices").glob("*")):
        if text_of(device / "vendor").strip() == HABANA_VENDOR:
            numa_node = sysfs_number(text_of(device / "numa_node"))
            number = text_of(device / "device").strip()
            pci_id = f"{HABANA_VENDOR[2:]}:{number[2:]}" if number.startswith("0x") else ""
            yield PciCard(parse_bus_id(device.name), numa_node, sysfs_cpus(text_of(device / "local_cpulist")), pci_id)


def _read_accel(bus_ids: set[str]) -> Iterator[AccelCard]:
    """Yield the devices that the driver initialised; accelerators of other vendors are in the same class."""
    for entry in sorted((SYS / "class/accel").glob("accel[0-9]*")):
        device = entry / "device"
        address = text_of(device / "pci_addr").strip() or device.resolve().name
        try:
            bus_id = parse_bus_id(address)
        except ValueError:
            bus_id = None
        if bus_id is not None and bus_ids and bus_id not in bus_ids:
            continue
        state = text_of(device / "status").strip().lower() or None
        index = sysfs_number(entry.name[len("accel") :])
        if index is not None:
            yield AccelCard(index, bus_id, sysfs_number(text_of(device / "module_id")), state)


def _read_listed(seen: HlSmiReport | None) -> Iterator[Holder]:
    """Yield processes of hl-smi's own table that this node sees, with their owner.

    A pid of another namespace could match an unrelated process here, so the name must match too.
    """
    for process in seen.table.processes if seen and seen.table else ():
        folder = PROC / str(process.pid)
        name = text_of(folder / "comm").strip()
        if name and process.name.rsplit("/", 1)[-1].startswith(name) and not is_reader(name):
            yield Holder(process.index, process.pid, name, text_of(folder / "cgroup"), account_of(folder))


def read_container_names(module: AnsibleModule, complaints: list[str]) -> dict[str, str]:
    """Return names of running containers by short id; of our instances only, if the engine does not answer."""
    return read_containers(module, complaints)[0]


def read_containers(module: AnsibleModule, complaints: list[str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the names as read_container_names does, and current names of renamed containers by instance."""
    answer = _run(module, OTHER_SECONDS, "docker", "ps", "--no-trunc", "--format", CONTAINER_LINE)
    if answer is None:
        return {}, {}
    if answer.status != 0:
        complaints.append(
            f"docker ps failed (status {answer.status}): only containers of our instances are known by name"
        )
        return own_containers(), {}
    return parse_container_names(answer.stdout), renamed_containers(answer.stdout)


def _read_addresses(module: AnsibleModule, complaints: list[str]) -> tuple[tuple[str, str], ...]:
    """Return the node's IPv4 addresses with their interfaces."""
    answer = _run(module, OTHER_SECONDS, "ip", "-json", "-4", "address", "show")
    if answer is None or answer.status != 0:
        complaints.append("ip address show failed or is not installed (package iproute2): addresses are unknown")
        return ()
    try:
        addresses: tuple[tuple[str, str], ...] = parse_addresses(answer.stdout)
    except ValueError as error:
        complaints.append(str(error))
        return ()
    return addresses
