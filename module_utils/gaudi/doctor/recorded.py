"""What a record holds beside the support bundle: what the vendor's tools print, timings, starts, and metrics.

Files and commands are listed one by one, as in bundle.py, whose masks apply to all of it. What a server prints once it
listens may hold requests, and is in no record.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ..base import paths
from ..base.documents import parse
from ..base.printable import printable, printable_lines
from ..base.server_log import ACCESS, LEFT_OUT, LISTENS
from ..cards.hl_smi import parse_bus_id, parse_table
from .bundle import COMMANDS as OF_BUNDLE
from .bundle import FILES as FILES_OF_BUNDLE
from .bundle import cut

FILES = (
    *FILES_OF_BUNDLE,
    paths.ACCEPTANCE_BURN_IN,
    paths.BROUGHT,
    "/etc/docker/daemon.json",
    "/etc/modules-load.d/habanalabs.conf",
    "/etc/gaudinet.json",
    "/proc/driver/habanalabs/version",
    "/proc/loadavg",
    "/sys/class/dmi/id/sys_vendor",
    "/sys/class/dmi/id/product_name",
    "/sys/class/dmi/id/bios_version",
    "/sys/devices/system/cpu/cpuidle/current_driver",
    "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor",
    "/sys/kernel/security/lockdown",
)
# Of the driver, and general messages about page tables, which have a process's name: docs/real-machines.md, row 15.
KERNEL = "habanalabs|habana|page ?table|iommu|dmar|machine check|hardware error"
COMMANDS: Sequence[Sequence[str]] = (
    *OF_BUNDLE,
    ("hl-smi", "-v"),
    ("hl-smi", "-L"),
    ("hl-smi", "--fw-versions"),
    ("hl-smi", "-Q", "index,module_id,bus_id,name,serial,uuid,driver_version", "-f", "csv"),
    ("hl-smi", "-Q", "index,memory.total,memory.used,temperature.aip,power.draw", "-f", "csv"),
    ("hl-smi", "-Q", "index,module_id,serial", "-f", "csv,noheader"),
    ("hl-smi", "topo", "-c", "-N"),
    ("hl-smi", "topo", "-N"),
    ("hl-smi", "topo", "-c"),
    ("lspci", "-d", "1da3:"),
    ("lspci", "-d", "1da3:", "-nn"),
    ("lspci", "-d", "1da3:", "-vv"),
    ("ls", "-l", "/dev/accel", "/sys/class/accel"),
    ("modinfo", "habanalabs"),
    ("dpkg-query", "--show", "habanalabs*"),
    ("rpm", "-qa", "habanalabs*"),
    ("lscpu",),
    ("numactl", "--hardware"),
    ("cpupower", "idle-info"),
    ("systemd-detect-virt",),
    ("docker", "info"),
    ("docker", "image", "ls"),
    ("ip", "-brief", "link"),
    ("systemd-analyze", "time"),
    ("journalctl", "--dmesg", "--no-pager", "--output=short-monotonic", "--lines=3000", f"--grep={KERNEL}"),
)
# Commands for each card.
OF_CARD: Sequence[Sequence[str]] = (("hl-smi", "-n", "link", "-i"), ("hl-smi", "-n", "ports", "-i"))
MOST_CARDS = 64

# Where the state of an instance quotes lines of its server.
_OF_REASON = ("message", "exception")
_QUOTES: Mapping[str, Sequence[str]] = {
    "status": (),
    "reason": _OF_REASON,
    "last_reason": _OF_REASON,
    "back": ("reason",),
}

# Names under which a record has what no file and no command is.
GROUPS = "iommu_group type of each card"
DURATIONS = "state, beginning and end of each job"
ERRORS = "standard error of"
STATUSES = "status of each command"
RUN = "run"
"""What a run of the playbooks printed, from the controller."""
START = "start of"
METRICS = "metrics of"

# Characters of a text, and of all texts of a node.
MOST_OF_TEXT = 4 << 20
MOST_OF_NODE = 16 << 20
MOST_TEXTS = 1000

# A server listens before the supervisor knows, and from then on a line may hold a request.
_LISTENS = re.compile(rf"{LISTENS.pattern}|Received request|Serving ")
# Lines of the supervisor itself (roles/vllm_service/files/gaudi_supervisor/systemd.py).
_BEGINS = re.compile(r"gaudi-serving: Starting container vllm-\S{1,255} on modules? ")
_GOES_ON = re.compile(r"gaudi-serving: Attached to the running container ")
_METRIC = re.compile(r"([A-Za-z_:][\w:]{0,127})(?:\{([^}]{0,4000})\})? ([-+]?[\w.+-]{1,40})")
# Labels whose values are the server's own words, of letters and digits.
_LABEL = re.compile(r"(?:^|,)(le|engine|finished_reason|quantile)=\"([\w.+-]{1,20})\"")


def commands(bus_ids: Iterable[str]) -> Iterator[Sequence[str]]:
    """Return all commands, with those for each card on the PCI bus."""
    yield from COMMANDS
    for bus_id in list(bus_ids)[:MOST_CARDS]:
        yield from ((*command, parse_bus_id(bus_id)) for command in OF_CARD)


def before_readiness(lines: Iterable[str]) -> Iterator[str]:
    """Return the lines of a start, from its container's beginning until its server listens.

    Nothing of a server that listens before any start is seen: a request may hold a line that looks like a start.
    """
    begun = False
    for line in lines:
        begins = bool(_BEGINS.match(line))
        if (begun and begins) or _LISTENS.search(line) or ACCESS.match(line) or _GOES_ON.match(line):
            return
        begun = begun or begins
        if begun:
            yield line


def without_quotes(state: str) -> str:
    """Return the text of an instance's state.json without what it quotes of its server, which may have had requests.

    The reason of a start that failed before stands in the journal of that start, as the supervisor's last line.
    """
    try:
        document = parse(state)
    except ValueError:
        return f"{LEFT_OUT}\n"
    for name, parts in _QUOTES.items():
        if parts and isinstance(document.get(name), dict):
            document[name] = {key: LEFT_OUT if key in parts else value for key, value in document[name].items()}
        elif document.get(name) is not None:
            document[name] = LEFT_OUT
    return json.dumps(document) + "\n"


def without_labels(metrics: str) -> str:
    """Return the names and values of a server's metrics, one a line.

    Of their labels only those that no client can choose stay: a client names its model, for instance.
    """
    found = []
    for line in metrics.splitlines():
        metric = _METRIC.fullmatch(line.strip())
        if metric:
            labels = ",".join(f'{name}="{value}"' for name, value in _LABEL.findall(metric[2] or ""))
            found.append(f"{metric[1]}{f'{{{labels}}}' if labels else ''} {metric[3]}\n")
    return "".join(found)


def file_name(name: str) -> str:
    """Return the name of a text's file in a record, from that of a command or path: nothing in it leads elsewhere.

    >>> file_name("hl-smi -n link -i 0000:43:00.0"), file_name("/var/lib/gaudi-serving/acceptance.json")
    ('hl-smi_-n_link_-i_0000-43-00.0.txt', 'acceptance.json.txt')
    """
    last = name.rpartition("/")[2] if name.startswith("/") else name
    plain = re.sub(r"[^A-Za-z0-9.,=+-]+", "_", last.replace(":", "-")).strip("_.-")
    return f"{plain[:120] or 'text'}.txt"


def texts_of(report: object) -> dict[str, str]:
    """Return the texts that a node sent by name, printable and bounded. It may send anything."""
    found: dict[str, str] = {}
    left = MOST_OF_NODE
    for name, text in report.items() if isinstance(report, Mapping) else ():
        if not isinstance(name, str) or not isinstance(text, str) or len(found) >= MOST_TEXTS or left <= 0:
            continue
        # Patterns of parsers take longer than its length for a line without an end.
        lines = cut(text, min(MOST_OF_TEXT, left)).split("\n")
        found[printable(name[:255])] = printable_lines("\n".join(map(cut, lines)))
        left -= len(text)
    return found


def file_names(names: Iterable[str]) -> list[str]:
    """Return a file's name for each text's, no two of them the same on any file system."""
    found: list[str] = []
    taken: set[str] = set()
    for name in names:
        stem, number = file_name(name)[: -len(".txt")], 1
        file = f"{stem}.txt"
        while file.lower() in taken:
            number += 1
            file = f"{stem}_{number}.txt"
        taken.add(file.lower())
        found.append(file)
    return found


def described(texts: Mapping[str, str]) -> dict[str, Any]:
    """Return the release and the cards of a node, by what its hl-smi printed."""
    try:
        table = parse_table(texts.get("hl-smi", ""))
    except ValueError:
        return {"driver": "unknown", "card": "unknown", "cards": 0}
    names = sorted({re.sub(r"[^A-Za-z0-9-]", "", card.name)[:20] for card in table.cards})
    driver = re.match(r"\d{1,3}\.\d{1,3}\.\d{1,3}", table.driver_version or table.hl_smi_version)
    return {
        "driver": driver[0] if driver else "unknown",
        "card": "+".join(names)[:60] or "unknown",
        "cards": len(table.cards),
    }
