"""Node descriptions: what a simulated node looks like, as YAML that a person writes.

``load`` reads and checks one, ``expand`` turns it into the document the stand-ins read on the node
(``/etc/gaudi-simulator/node.json``), in which every card is spelt out and nothing is left to a default.
The schema beside this file documents every key.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import yaml

HERE = Path(__file__).resolve().parent
DESCRIPTIONS = HERE.parent / "descriptions"
DEFAULT = "gaudi2-oam8"
NODE_DOCUMENT = "/etc/gaudi-simulator/node.json"
# What a card computes wrongly, or how its process ends.
COMPUTE_FAULTS = ("copy", "gather", "matmul", "all_reduce", "crash", "hang")

# What hl-smi and the driver print in each release: recorded from real machines (tests/unit/standins/recorded).
# hl-smi 1.18 printed one hash for the driver and another for its network half, which it did not show.
_RELEASES: dict[str, dict[str, str | None]] = {
    "1.12.1": {"driver": "1.12.1-cb7a7bc", "nic": None, "hl_smi": "hl-1.12.1-fw-46.0.5.0"},
    "1.16.0": {"driver": "1.16.0-94aac46", "nic": None, "hl_smi": "hl-1.16.0-fw-50.1.2.0"},
    "1.17.1": {"driver": "1.17.1-78932ae", "nic": None, "hl_smi": "hl-1.17.1-fw-51.5.0"},
    "1.18.0": {"driver": "1.18.0-ee698fb", "nic": None, "hl_smi": "hl-1.18.0-fw-53.1.1.1"},
    "1.20.1": {"driver": "1.20.1-366eb9c", "nic": "1.20.1-213b09b", "hl_smi": "hl-1.20.1-fw-58.1.1.1"},
    "1.21.1": {"driver": "1.21.1-bfcec49", "nic": "1.21.1-ead2cb0", "hl_smi": "hl-1.21.1-fw-59.2.3.0"},
    "1.22.1": {"driver": "1.22.1-97ec1a4", "nic": "1.22.1-97ec1a4", "hl_smi": "hl-1.22.1-fw-61.4.2.1"},
    "1.23.0": {"driver": "1.23.0-2eae87a", "nic": "1.23.0-2eae87a", "hl_smi": "hl-1.23.0-fw-62.2.1.1"},
    # Not recorded but reported by two hosts: hl-smi says 1.24.0 in 1.24.1 as well. The network driver's is inferred.
    "1.24.1": {"driver": "1.24.1-b336d5e", "nic": "1.24.1-b336d5e", "hl_smi": "hl-1.24.0-fw-62.6.2.0"},
}

# Memory in MiB, power in W. Ports: 24 on OAM cards, of which three leave the machine: 8, 22 and 23 on Gaudi 2, on the
# HL-325L by module id (HCL's table of the HLS3 server). The Gaudi 2E shows 18, all internal (recorded). On the HL-338
# 0 and 1 lead nowhere and 8 to 11 leave the machine (HCL's table of the HLS3PCIE server).
_EXTERNAL: dict[str, dict[int, tuple[int, ...]]] = {
    "HL-225": dict.fromkeys(range(16), (8, 22, 23)),
    "HL-288E": {},
    "HL-325L": {
        **dict.fromkeys((0, 3), (17, 20, 21)),
        **dict.fromkeys((1, 2), (5, 8, 9)),
        **dict.fromkeys((4, 7), (14, 15, 19)),
        **dict.fromkeys((5, 6), (2, 3, 7)),
        # The rack server with 16 modules.
        **dict.fromkeys(range(8, 16), (8, 22, 23)),
    },
    "HL-338": dict.fromkeys(range(16), (8, 9, 10, 11)),
}
_EXTERNAL["HL-325"] = _EXTERNAL["HL-325L"]
_PORTS = {"HL-288E": [*range(6), *range(10, 22)], "HL-338": list(range(2, 24))}
# How many cards are joined by links of their own, and the "NW Bandwidth" of hccl_demo's all_reduce over all of them, in
# 10^9 bytes a second: published for 8 HL-225 (32 MB, release 1.17) and for 8 Gaudi 3 (256 MB); made up for PCIe cards,
# 95 % of 18 links at 100 and 200 Gb/s.
_GROUPS = {
    "HL-225": (8, 258.209121),
    "HL-288E": (4, 213.75),
    "HL-325": (8, 512.957298),
    "HL-325L": (8, 512.957298),
    "HL-338": (4, 427.5),
}
# What PCIe and UPI of the host carry between groups without host NICs, for all cards: published for PCIe cards of
# Gaudi 2 ("about 18 GB/s", README of vllm-fork 016b6bd20 scripts/quickstart). Eight HL-338 fail (hccl_demo issue 47).
_OVER_HOST = {"HL-288E": 18.0}
_CARDS: dict[str, dict[str, Any]] = {
    "HL-225": {
        "pci_id": "1020", "revision": "01", "device_type": "GAUDI2", "family": "gaudi2", "uuid": "01P0-HL2080A0-15",
        "memory": 98304, "idle": 768, "power_limit": 600, "power_idle": 85,
    },
    "HL-288E": {
        "pci_id": "1021", "revision": "05", "device_type": "GAUDI2", "family": "gaudi2", "uuid": "01P0-HL2080A0-15",
        "memory": 98304, "idle": 768, "power_limit": 450, "power_idle": 79,
    },
    "HL-325": {
        "pci_id": "1060", "revision": "01", "device_type": "GAUDI3", "family": "gaudi3", "uuid": "01P4-HL3090A0-18",
        "memory": 131072, "idle": 672, "power_limit": 900, "power_idle": 228,
    },
    "HL-338": {
        "pci_id": "1061", "revision": "01", "device_type": "GAUDI3", "family": "gaudi3", "uuid": "01P4-HL3380A0-18",
        "memory": 131072, "idle": 672, "power_limit": 600, "power_idle": 150,
    },
}  # fmt: skip
_CARDS["HL-325L"] = _CARDS["HL-325"]
# The groups before it are those of the machine's other devices.
_FIRST_GROUP = 40


def expand_cpus(text: str) -> list[int]:
    """CPU numbers of a list such as ``0-39,80-119``, in ascending order.

    Raises ValueError when a range runs backwards or a CPU is named twice.
    """
    cpus: list[int] = []
    for part in text.split(","):
        low, _, high = part.partition("-")
        first, last = int(low), int(high or low)
        if first > last:
            raise ValueError(f"CPU range {part!r} runs backwards")
        cpus.extend(range(first, last + 1))
    if len(set(cpus)) != len(cpus):
        raise ValueError(f"CPU list {text!r} names a CPU twice")
    return sorted(cpus)


def validate(description: dict[str, Any], name: str) -> None:
    """Check a description against the schema, and for what a schema cannot say.

    Raises ValueError with every problem, one a line.
    """
    schema = json.loads((HERE / "description.schema.json").read_text(encoding="utf-8"))
    errors = sorted(jsonschema.Draft202012Validator(schema).iter_errors(description), key=lambda e: list(e.path))
    problems = [f"{'.'.join(map(str, error.path)) or 'description'}: {error.message}" for error in errors]
    if not problems:
        problems = _contradictions(description)
    if problems:
        raise ValueError(f"Node description {name!r} is wrong:\n  " + "\n  ".join(problems))


def _contradictions(description: dict[str, Any]) -> list[str]:
    problems: list[str] = []
    modules = description["modules"]
    for key in ("bus_ids", "measured"):
        if key in description and len(description[key]) != len(modules):
            problems.append(f"{key}: {len(description[key])} entries for {len(modules)} cards")
    if description["release"] not in _RELEASES and not (
        "version" in description.get("hl_smi", {}) and "version" in description.get("driver", {})
    ):
        problems.append(
            f"release: {description['release']} is not recorded ({', '.join(_RELEASES)}); "
            "set hl_smi.version and driver.version"
        )
    placed = [module for node in description["numa"] for module in node["modules"]]
    if description["numa"] and sorted(placed) != sorted(modules):
        problems.append(f"numa: its nodes hold modules {sorted(placed)}, the cards are {sorted(modules)}")
    try:
        cpus = [cpu for node in description["numa"] for cpu in expand_cpus(node["cpus"])]
        if len(set(cpus)) != len(cpus):
            problems.append("numa: two nodes share a CPU")
    except ValueError as error:
        problems.append(f"numa: {error}")
    named = [("busy", entry["module"]) for entry in description.get("busy", [])]
    named += [("links_down", entry["module"]) for entry in description.get("links_down", [])]
    named += [("states", entry["module"]) for entry in description.get("states", [])]
    interfaces = description.get("interfaces", {})
    named += [(f"interfaces.{key}", module) for key in ("down", "missing") for module in interfaces.get(key, [])]
    iommu = description.get("iommu", {})
    named += [("iommu.cards", entry["module"]) for entry in iommu.get("cards", [])]
    named += [("iommu.together", module) for group in iommu.get("together", []) for module in group]
    named += [("lost", module) for module in description.get("lost", [])]
    named += [("compute", entry["module"]) for entry in description.get("compute", [])]
    fabric = description.get("fabric", {})
    named += [("fabric.slow", entry["module"]) for entry in fabric.get("slow", [])]
    named += [("fabric.slow_links", module) for entry in fabric.get("slow_links", []) for module in entry["modules"]]
    named += [(f"fabric.{key}", module) for key in ("hang", "crash", "wrong") for module in fabric.get(key, [])]
    problems += [f"{key}: there is no module {module}" for key, module in named if module not in modules]
    for entry in description.get("links_down", []):
        internal, external = _ports(description["card"], entry["module"])
        if unknown := sorted({*entry["ports"]} - {*internal, *external}):
            problems.append(f"links_down: {description['card']} has no port {unknown}")
    return problems


def _ports(card: str, module: int) -> tuple[list[int], list[int]]:
    """The internal and the external ports of a card with a module id."""
    external = list(_EXTERNAL[card].get(module, ()))
    return [port for port in _PORTS.get(card, range(24)) if port not in external], external


def expand(description: dict[str, Any], name: str) -> dict[str, Any]:
    """Return the document of a valid description that the stand-ins read on the node.

    Serial numbers and UUIDs begin with or contain ``SIM``: whoever reads them sees that the card is simulated.
    """
    validate(description, name)
    card = _CARDS[description["card"]]
    release = _RELEASES.get(description["release"], {})
    driver = description.get("driver", {})
    hl_smi = description.get("hl_smi", {})
    version = hl_smi.get("version", release.get("hl_smi"))
    minor = tuple(int(part) for part in version.split("-")[1].split(".")[:2])
    states = {entry["module"]: entry["state"] for entry in description.get("states", [])}
    down = {entry["module"]: entry["ports"] for entry in description.get("links_down", [])}
    node_of = {module: node for node, entry in enumerate(description["numa"]) for module in entry["modules"]}
    cards = []
    for index, module in enumerate(description["modules"]):
        measured = description.get("measured", [{}] * len(description["modules"]))[index]
        node = node_of.get(module, -1)
        internal, external = _ports(description["card"], module)
        broken = module in states
        cards.append(
            {
                "index": index,
                "module_id": module,
                "name": description["card"],
                "serial": f"SIM{card['pci_id']}{module:03d}",
                "uuid": f"{card['uuid']}-SIM{module:03d}-09-07-06",
                "bus_id": description.get("bus_ids", _bus_ids(len(description["modules"])))[index],
                "pci_id": card["pci_id"],
                "revision": card["revision"],
                "device_type": card["device_type"],
                "family": card["family"],
                "numa_node": node,
                "cpus": description["numa"][node]["cpus"] if node >= 0 else "",
                "memory_total": card["memory"],
                "memory_idle": card["idle"],
                "power": measured.get("power", card["power_idle"] + index % 5),
                "power_limit": card["power_limit"],
                "temperature": 0 if broken else measured.get("temperature", 24 + index % 4),
                "utilization": measured.get("utilization", 0),
                "uncorrected": measured.get("uncorrected", 0),
                "state": states.get(module, "Operational"),
                "iommu": _iommu(description, module),
                "lost": module in description.get("lost", []),
                "interfaces": _interfaces(description, module, external),
                "ports": {
                    "internal": internal,
                    "external": external,
                    "down": sorted(down.get(module, [])),
                },
            }
        )
    index_of = {entry["module_id"]: entry["index"] for entry in cards}
    return {
        "schema": 1,
        "simulated": True,
        "description": name,
        "release": description["release"],
        "kernel": description.get("kernel", ""),
        "driver": {
            "loaded": driver.get("loaded", True),
            "installed": driver.get("installed", True),
            "version": driver.get("version", release.get("driver")),
            "nic_version": driver.get("nic_version", release.get("nic")),
        },
        "hl_smi": {
            "version": version,
            # 1.18 and older against 1.20 and newer; 1.19 was never seen.
            "layout": "old" if minor < (1, 20) else "new",
            "perf": hl_smi.get("perf", "N/A" if minor < (1, 20) else "P0"),
            "sees_processes": hl_smi.get("sees_processes", True),
        },
        "numa": [{"node": node, "cpus": entry["cpus"]} for node, entry in enumerate(description["numa"])],
        "cards": cards,
        "busy": [
            {
                "index": index_of[entry["module"]],
                "name": entry["name"],
                "pid": entry.get("pid"),
                "memory": entry.get("memory"),
                "card_memory": entry.get("card_memory"),
            }
            for entry in description.get("busy", [])
        ],
        "fabric": _fabric(description),
        "compute": {
            fault: sorted(entry["module"] for entry in description.get("compute", []) if entry["fault"] == fault)
            for fault in COMPUTE_FAULTS
        },
        "hl_qual": {"failed": [], "silent": False, **description.get("hl_qual", {})},
        "ended": {"memory_free_after": 0, "worker_stays": False, **description.get("ended", {})},
        "faults": description.get("faults", {}),
    }


def _iommu(description: dict[str, Any], module: int) -> dict[str, Any]:
    """A card's IOMMU group: its number, and its type, of which "auto" is what the machine's command line asks for."""
    said = description.get("iommu", {})
    group = next((group for group in said.get("together", []) if module in group), [module])
    own = {entry["module"]: entry["type"] for entry in said.get("cards", [])}
    # Cards of one group have one type: that of the first of them that has one of its own.
    kind = next((own[each] for each in group if each in own), said.get("type", "auto"))
    return {"type": kind, "group": _FIRST_GROUP + description["modules"].index(group[0])}


def _interfaces(description: dict[str, Any], module: int, ports: list[int]) -> list[dict[str, Any]]:
    """The network interfaces of a card, one for each external port."""
    said = description.get("interfaces", {})
    if module in said.get("missing", []):
        return []
    # 24 ports of 100 Gb/s on Gaudi 2, of 200 on Gaudi 3.
    speed = said.get("speed", 200000 if _CARDS[description["card"]]["family"] == "gaudi3" else 100000)
    return [
        {
            "name": f"card{module}p{port}",
            "address": f"b0:fd:0b:51:{module:02x}:{port:02x}",
            "operstate": "down" if module in said.get("down", []) else "up",
            "mtu": said.get("mtu", 9000),
            "speed": speed,
        }
        for port in ports
    ]


def _fabric(description: dict[str, Any]) -> dict[str, Any]:
    """What joins the cards, and what is wrong with it."""
    said = description.get("fabric", {})
    group, bandwidth = _GROUPS[description["card"]]
    return {
        "group": group,
        "bandwidth": bandwidth,
        "slow": {str(entry["module"]): entry["share"] for entry in said.get("slow", [])},
        "slow_links": said.get("slow_links", []),
        **{fault: said.get(fault, []) for fault in ("hang", "crash", "wrong")},
        "garbage": said.get("garbage", False),
        # Nobody has published a figure over two nodes.
        "across": said.get("across", bandwidth / 2),
        "ways": said.get("ways", []),
        "over_host": said.get("over_host", _OVER_HOST.get(description["card"])),
        "host_nics": {"provider": "verbs", "gaudi_direct": True, **said["host_nics"]} if "host_nics" in said else None,
    }


def _bus_ids(count: int) -> list[str]:
    """Addresses as an eight-card machine has them: probe order is not address order."""
    buses = ["33", "9a", "34", "4d", "4e", "9b", "b3", "b4", "19", "1a", "43", "44", "cc", "cd", "d5", "df"]
    return [f"0000:{bus}:00.0" for bus in buses[:count]]


def load(source: str | Path) -> dict[str, Any]:
    """Read a description by name (a file in ``simulator/descriptions``) or by path, and expand it.

    Raises ValueError when there is none of that name, or it is wrong.
    """
    path = source if isinstance(source, Path) else DESCRIPTIONS / f"{source}.yml"
    if not path.is_file():
        known = ", ".join(sorted(file.stem for file in DESCRIPTIONS.glob("*.yml")))
        raise ValueError(f"There is no node description {str(source)!r}. Known: {known}.")
    description = yaml.safe_load(path.read_text(encoding="utf-8"))
    if not isinstance(description, dict):
        raise ValueError(f"Node description {path.stem!r} is not a mapping.")
    return expand(description, path.stem)


def render(document: dict[str, Any]) -> str:
    """Return the text of ``/etc/gaudi-simulator/node.json``."""
    return json.dumps(document, indent=1) + "\n"
