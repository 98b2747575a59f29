"""Kernel settings (sysctl): their values in files at boot, the requested values, and whether these fit the node."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..base.refusal import Refusal
from . import files as host_files

HUGEPAGES = "vm.nr_hugepages"

DIRECTORIES = (
    "/etc/sysctl.d",
    "/run/sysctl.d",
    "/usr/local/lib/sysctl.d",
    "/usr/lib/sysctl.d",
    "/lib/sysctl.d",
)
"""Where systemd-sysctl looks, most important first (sysctl.d(5))."""

SIZES: Mapping[str, int] = {"2MiB": 2048, "1GiB": 1024 * 1024}
"""The sizes that hugepages can have on x86, in KiB."""
SIZE = "2MiB"
"""The size of the pages that the handbooks count; the kernel's default unless its command line names another."""

AUTO = "auto"
"""In the place of a number of hugepages: as many as the vendor's installer reserves."""

_KEY = re.compile(r"[a-z0-9_]+([./][A-Za-z0-9_@:-]+)+")
_KIB_PER_GIB = 1024 * 1024


@dataclass(frozen=True)
class Assignment:
    """One ``key = value`` line of a sysctl file."""

    key: str
    value: str
    path: str
    line: int

    @property
    def place(self) -> str:
        """File and line, as compilers print them."""
        return f"{self.path}:{self.line}"


@dataclass(frozen=True)
class NodeMemory:
    """The node's memory, in KiB, as /proc/meminfo has it.

    ``hugepage_kib`` is the kernel's default size (default_hugepagesz=), and ``hugepages`` counts pages of that size, as
    vm.nr_hugepages does. ``other_kib``: memory in hugepages of other sizes.
    """

    total_kib: int
    hugepage_kib: int
    hugepages: int
    other_kib: int = 0


@dataclass(frozen=True)
class SysctlChanges:
    """The decision: text of the drop-in (None: no drop-in), running values to set, and sentences for a person."""

    text: str | None
    todo: Mapping[str, str]
    findings: Sequence[str]


def parse_meminfo(text: str) -> NodeMemory:
    """Read /proc/meminfo. Raises Refusal when it does not name the sizes needed here."""
    found = {}
    for line in text.splitlines():
        name, _, rest = line.partition(":")
        number = rest.split()
        if number and number[0].isdigit():
            found[name] = int(number[0])
    try:
        size, pages = found["Hugepagesize"], found["HugePages_Total"]
        return NodeMemory(
            total_kib=found["MemTotal"],
            hugepage_kib=size,
            hugepages=pages,
            # Pages of all sizes; kernels before 4.15 do not show it.
            other_kib=max(0, found.get("Hugetlb", 0) - size * pages),
        )
    except KeyError as missing:
        raise Refusal(
            "kernel_without_hugepages",
            f"/proc/meminfo has no line {missing.args[0]!r}: this kernel cannot tell how many hugepages "
            "it has. Use a kernel built with CONFIG_HUGETLBFS.",
        ) from None


def normal(value: str) -> str:
    """Return a value in comparable form: the kernel separates its parts with tabs."""
    return " ".join(value.split())


def check_request(settings: Mapping[str, str]) -> dict[str, str]:
    """Check and normalise the requested settings. Raises Refusal for values that no kernel accepts."""
    wanted = {}
    for key, given in settings.items():
        if not _KEY.fullmatch(key):
            raise Refusal(
                "not_a_kernel_setting",
                f"{key!r} is not the name of a kernel setting. Names look like 'vm.nr_hugepages'.",
            )
        value = normal(given)
        if not value or "\n" in given.strip() or not value.isprintable():
            raise Refusal("wrong_form", f"{key} is asked to be {given!r}. Give a value of one line.")
        wanted[key] = value
    pages = wanted.get(HUGEPAGES)
    if pages is not None and not pages.isdigit() and pages != AUTO:
        raise Refusal(
            "not_a_whole_number",
            f"host_tuning_hugepages ({HUGEPAGES}) is {pages!r}. Set a whole number of pages, 0 or more, or {AUTO}.",
        )
    return wanted


def counted(pages: object, cpuinfo: str, size: str) -> object:
    """Return a requested number of hugepages as it was given; for "auto" the number of the vendor's installer.

    ``cpuinfo``: the text of /proc/cpuinfo. ``size``: one of SIZES. The formula, 110 * 1024 * processors * 2 / page size
    in KiB + 1, is quoted by third parties; an owner of 8 Gaudi 2 recorded its 14081 pages of 2 MiB for 128 processors.
    Raises Refusal if the text names no processor.
    """
    if str(pages).strip() != AUTO:
        return pages
    processors = sum(line.partition(":")[0].strip() == "processor" for line in cpuinfo.splitlines())
    if not processors:
        raise Refusal(
            "processors_not_counted",
            f"host_tuning_hugepages is {AUTO}, but /proc/cpuinfo cannot be read or names no processor. {AUTO} computes "
            "the number of pages from the number of processors. Set host_tuning_hugepages to a number, or mount /proc "
            "whole.",
        )
    return 110 * 1024 * processors * 2 // SIZES[size] + 1


def of_size(kib: int) -> str:
    """Return the size of a hugepage for people."""
    return f"{kib // _KIB_PER_GIB} GiB" if kib % _KIB_PER_GIB == 0 else f"{kib / 1024:g} MiB"


def counts(size: str, memory: NodeMemory) -> bool:
    """Whether vm.nr_hugepages counts pages of this size on the node."""
    return SIZES[size] == memory.hugepage_kib


def managed(settings: Mapping[str, str], size: str, memory: NodeMemory) -> dict[str, str]:
    """Return the settings to set: not vm.nr_hugepages, if it counts pages of another size than the requested one."""
    return {key: value for key, value in settings.items() if key != HUGEPAGES or counts(size, memory)}


def memory_refusal(pages: int, memory: NodeMemory, max_share: int, size: str = SIZE) -> Refusal | None:
    """Return the refusal if the kernel counts pages of another size, or if they would leave too little memory.

    ``max_share``: percent of the whole memory. ``size``: one of SIZES.
    """
    if max_share not in range(1, 101):
        raise Refusal("out_of_range", f"host_tuning_max_memory_share is {max_share}. Give a percentage from 1 to 100.")
    if pages and not counts(size, memory):
        return size_refusal(pages, memory, size)
    other = memory.other_kib
    asked_kib = pages * memory.hugepage_kib
    fit = max(0, memory.total_kib * max_share // 100 - other) // memory.hugepage_kib
    if pages <= fit:
        return None
    beside = f" beside {other / _KIB_PER_GIB:.1f} GiB in hugepages of other sizes" if other else ""
    return Refusal(
        "too_many_hugepages",
        f"{pages} hugepages of {of_size(memory.hugepage_kib)} are {asked_kib / _KIB_PER_GIB:.1f} GiB{beside}, "
        f"{(asked_kib + other) * 100 // memory.total_kib} % of this machine's "
        f"{memory.total_kib / _KIB_PER_GIB:.1f} GiB; host_tuning_max_memory_share allows {max_share} %. "
        f"Set host_tuning_hugepages to {fit} or less, or raise host_tuning_max_memory_share.",
    )


def size_refusal(pages: int, memory: NodeMemory, size: str) -> Refusal:
    """Return the refusal of pages whose size is not the kernel's default size."""
    kernels, wanted = of_size(memory.hugepage_kib), of_size(SIZES[size])
    gib = pages * SIZES[size] / _KIB_PER_GIB
    same = next((name for name, kib in SIZES.items() if kib == memory.hugepage_kib), "")
    counted = f"host_tuning_hugepage_size: {same} with a number of such pages, or " if same else ""
    return Refusal(
        "hugepage_size_differs",
        f"This kernel's hugepages have {kernels} by default (default_hugepagesz= on its command line), but "
        f"host_tuning_hugepages asks for {pages} of {wanted} ({gib:.1f} GiB), and vm.nr_hugepages cannot count those. "
        f"Set {counted}default_hugepagesz={size[:2]} and reboot; or reserve them beside the others with hugepagesz="
        f"{size[:2]} hugepages={pages} in host_tuning_extra_kernel_arguments, and host_tuning_hugepages: 0.",
    )


def grant_refusal(pages: int, memory: NodeMemory) -> Refusal | None:
    """Return the refusal if the kernel did not grant all pages; else None. ``memory``: read after the request."""
    if memory.hugepages >= pages:
        return None
    asked, granted = (number * memory.hugepage_kib / _KIB_PER_GIB for number in (pages, memory.hugepages))
    return Refusal(
        "hugepages_not_granted",
        f"The kernel granted {memory.hugepages} of the {pages} hugepages asked for "
        f"({of_size(memory.hugepage_kib)} each, {granted:.1f} of {asked:.1f} GiB): the rest of the memory is in use or "
        f"in pieces. Set host_tuning_hugepages to {memory.hugepages} or less, stop what uses the memory, "
        "or reboot and run again (right after boot memory is in one piece).",
    )


def parse(path: str, text: str) -> list[Assignment]:
    """Parse a sysctl file as systemd-sysctl does; lines without an assignment are ignored."""
    found = []
    for number, raw in enumerate(text.splitlines(), start=1):
        line = raw.strip()
        if not line or line[0] in "#;" or "=" not in line:
            continue
        key, _, value = line.partition("=")
        # A leading "-" only means that errors are ignored; "net/ipv4/x" is "net.ipv4.x".
        name = key.strip().lstrip("-").strip()
        separator = next((character for character in name if character in "./"), ".")
        found.append(Assignment(name.replace("/", ".") if separator == "/" else name, normal(value), path, number))
    return found


def boot_order(paths: Sequence[str]) -> list[str]:
    """Return the files that are applied at boot, in order: sorted by name, and the last assignment wins.

    A file hides those of the same name in directories of lower priority, so an empty file disables them.
    """
    chosen: dict[str, tuple[int, str]] = {}
    for path in paths:
        directory, _, name = path.rpartition("/")
        if directory not in DIRECTORIES or not name.endswith(".conf"):
            continue
        rank = DIRECTORIES.index(directory)
        if name not in chosen or rank < chosen[name][0]:
            chosen[name] = (rank, path)
    return [chosen[name][1] for name in sorted(chosen)]


def at_boot(assignments: Sequence[Assignment]) -> dict[str, Assignment]:
    """Return the assignment of each setting that takes effect. ``assignments`` are in boot order."""
    return {assignment.key: assignment for assignment in assignments}


def conflicts(wanted: Mapping[str, str], assignments: Sequence[Assignment], own_path: str) -> list[str]:
    """Say which other files set our settings to another value, and which one takes effect at boot."""
    winner = at_boot(assignments)
    sentences = []
    for found in assignments:
        if found.path == own_path or found.key not in wanted or found.value == wanted[found.key]:
            continue
        last = winner[found.key]
        outcome = (
            f"At boot {last.place} comes later, and {last.value} wins"
            if last.path != own_path
            else f"At boot {own_path} comes later, and {wanted[found.key]} wins"
        )
        sentences.append(
            f"{found.place} sets {found.key} = {found.value}, wanted is {wanted[found.key]}. {outcome}. "
            "Remove that line to have one answer."
        )
    return sentences


def render(settings: Mapping[str, str], missing: Sequence[str] = ()) -> str:
    """Return the text of our drop-in; ``missing``: settings that this kernel lacks, which boot then ignores."""
    lines = [
        host_files.MARK,
        "# Changes made here are overwritten; playbooks/untune_host.yml takes the file away.",
    ]
    lines += [f"{'-' if key in missing else ''}{key} = {settings[key]}" for key in sorted(settings)]
    return "\n".join(lines) + "\n"


def plan(
    wanted: Mapping[str, str],
    running: Mapping[str, str],
    settable: Sequence[str],
    own: Mapping[str, str],
    *,
    present: bool,
) -> SysctlChanges:
    """Decide what to set and what to write.

    ``running``: settings that this kernel has. ``settable``: those that can be changed. ``own``: values in our drop-in.
    Without ``present`` the drop-in is removed, and ``wanted`` are the earlier values to restore for each setting that
    still has our value.
    """
    missing = [key for key in wanted if key not in running]
    differ = {key: wanted[key] for key in running if key in wanted and running[key] != wanted[key]}
    theirs = [] if present else [key for key in differ if running[key] != own.get(key, running[key])]
    findings = [f"This kernel has no setting {key}; there is nothing to set." for key in missing]
    findings += [
        f"{key} is {running[key]} and cannot be set to {differ[key]} from here: /proc/sys is read-only. "
        "In a container this is the host's to set."
        for key in differ
        if key not in settable and key not in theirs
    ]
    findings += [
        f"{key} is {running[key]}, this role had set {own[key]}: somebody changed it since, and it is left. "
        f"Before the first change it was {wanted[key]}."
        for key in theirs
    ]
    todo = {key: value for key, value in differ.items() if key in settable and key not in theirs}
    return SysctlChanges(render(wanted, missing) if present else None, todo, findings)
