"""A node made of recorded output and of what such a node would answer, for tests of the merge."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ansible.module_utils.gaudi.cards.query import CommandResult, query_hl_smi
from ansible.module_utils.gaudi.cards.sources import AccelCard, Holder, PciCard, Sources

RECORDED = Path(__file__).parent / "recorded"

# The modules of accel0 to accel7, as the recorded node of release 1.22.1 could have them.
MODULES = (3, 7, 1, 0, 5, 4, 6, 2)
BUSES = ("33", "9a", "34", "4d", "4e", "9b", "b3", "b4")
BUS_IDS = tuple(f"0000:{bus}:00.0" for bus in BUSES)
CPUS = ("0-39,80-119", "40-79,120-159")

Answers = dict[str, CommandResult]


def recorded(name: str) -> str:
    return (RECORDED / name).read_text(encoding="utf-8")


def ok(text: str) -> CommandResult:
    return CommandResult(0, text, "")


def failed(text: str) -> CommandResult:
    return CommandResult(1, "", text)


def listing(index: int, **changes: str) -> str:
    """The recorded block of -L, for another card."""
    text = recorded("1.12.1/hl-smi_-L_-i.txt")
    text = text[text.index("[0] AIP") :]
    values = {
        "serial": f"AM5001613{index}",
        "state": "Operational",
        "module": str(MODULES[index]),
        "pending": "No",
        **changes,
    }
    return (
        text.replace("[0] AIP (accel0) 0000:43:00.0", f"[{index}] AIP (accel{index}) {BUS_IDS[index]}")
        .replace("AM50016138", values["serial"])
        .replace("Module ID                       : 0", f"Module ID                       : {values['module']}")
        .replace(": Operational", f": {values['state']}")
        .replace("Pending                 : No", f"Pending                 : {values['pending']}")
    )


def identity(cards: Sequence[int] = range(8)) -> str:
    rows = [f"{index}, {MODULES[index]}, {BUS_IDS[index]}, HL-225" for index in cards]
    return "\n".join(["index, module_id, bus_id, name", *rows]) + "\n"


def details(cards: Sequence[int] = range(8), **changes: str) -> str:
    header = "index, serial, uuid, driver_version, memory.total [MiB], memory.used [MiB], temperature.aip [C]"
    values = {"total": "98304 MiB", "used": "768 MiB", "temperature": "27 C", **changes}
    rows = [
        f"{index}, AM5001613{index}, 01P0-HL2080A0-15-TF8A81-09-07-0{index}, 1.22.1-97ec1a4, "
        f"{values['total']}, {values['used']}, {values['temperature']}"
        for index in cards
    ]
    return "\n".join([header, *rows]) + "\n"


IDENTITY = "-Q index,module_id,bus_id,name -f csv"
DETAILS = "-Q index,serial,uuid,driver_version,memory.total,memory.used,temperature.aip -f csv"


def answers(**changes: CommandResult) -> Answers:
    """What hl-smi answers on a healthy node with 8 x HL-225 of release 1.22.1; "" is the plain call."""
    links = "".join(f"port {port:2}:        UP\n" for port in range(24) if port not in (8, 22, 23))
    return {
        "": ok(recorded("1.22.1/hl-smi.txt")),
        IDENTITY: ok(identity()),
        DETAILS: ok(details()),
        "-L": ok("".join(listing(index) for index in range(8))),
        "topo -c -N": ok(recorded("1.22.0/hl-smi_topo_-c_-N.txt")),
        **{f"-n link -i {bus_id}": ok(links) for bus_id in BUS_IDS},
        **changes,
    }


def ask(given: Mapping[str, CommandResult], calls: list[str] | None = None) -> Callable[[Sequence[str]], CommandResult]:
    """An hl-smi that answers as given, and refuses every other call as the tool does."""

    def answer(arguments: Sequence[str]) -> CommandResult:
        call = " ".join(arguments)
        if calls is not None:
            calls.append(call)
        return given.get(call, failed(f"hl-smi: unknown arguments {call}"))

    return answer


def sources(given: Mapping[str, CommandResult] | None = None, **changes: Any) -> Sources:
    """Everything read on that healthy node, by root; changes replace single sources."""
    facts: dict[str, Any] = {
        "uid": 0,
        "seen": query_hl_smi(ask(answers() if given is None else given)),
        "pci": tuple(PciCard(bus_id, MODULES[i] // 4, CPUS[MODULES[i] // 4]) for i, bus_id in enumerate(BUS_IDS)),
        "accel": tuple(AccelCard(i, bus_id, MODULES[i], "operational") for i, bus_id in enumerate(BUS_IDS)),
        "lspci": ok("".join(f"{bus_id[5:]} Processing accelerators: Habana Labs Ltd.\n" for bus_id in BUS_IDS)),
        "init_cgroup": "0::/init.scope\n",
        "addresses": (("lo", "127.0.0.1/8"), ("eth0", "10.20.0.11/24")),
        **changes,
    }
    return Sources(**facts)


def holder(
    index: int,
    pid: int = 4242,
    name: str = "python3",
    cgroup: str = "0::/system.slice/foo.service\n",
    account: str | None = None,
) -> Holder:
    return Holder(index, pid, name, cgroup, account)
