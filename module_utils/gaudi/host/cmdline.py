"""The kernel command line: which arguments a node needs, who else sets them, and what holds."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile

from ..base.refusal import Refusal
from .grub import Entry, Word

_ARGUMENT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*(=[A-Za-z0-9_.,:@/+=-]+)?")
_PURPOSES = ("speed", "correctness")
_SWITCHES = ("iommu", "intel_iommu")
END = "--"
"""What stands behind it goes to init, not to the kernel (kernel-parameters.rst, parse_args)."""


@dataclass(frozen=True)
class Needed:
    """One argument, what it is for, why this node needs it, and under which kernels (none named: any)."""

    argument: str
    purpose: str
    because: str
    kernels: tuple[str, ...] = ()

    def concerns(self, kernel: str) -> bool:
        """Tell whether a running kernel needs it."""
        return not self.kernels or any(kernel_matches(kernel, version) for version in self.kernels)


def name(argument: str) -> str:
    """Return an argument's name as the kernel compares it: "-" and "_" are the same letter there."""
    return argument.partition("=")[0].replace("-", "_")


def split(text: str) -> list[str]:
    """Split a command line into arguments; a value in double quotes may hold spaces."""
    return re.findall(r'(?:[^\s"]|"[^"]*"?)+', text)


def check(arguments: Iterable[object]) -> list[str]:
    """Return the arguments asked for. Raises Refusal for what no kernel argument looks like."""
    checked: list[str] = []
    for argument in arguments:
        if not isinstance(argument, str) or not _ARGUMENT.fullmatch(argument):
            raise Refusal(
                "not_a_kernel_argument",
                f"{argument!r} is not a kernel argument this role can write. "
                "Give text like 'name' or 'name=value', of letters, digits and . , : @ / + = _ -",
            )
        twice = next((other for other in checked if name(other) == name(argument) and other != argument), None)
        if twice:
            raise Refusal(
                "kernel_arguments_contradict",
                f"Kernel arguments {twice!r} and {argument!r} contradict each other. Keep one.",
            )
        if argument not in checked:
            checked.append(argument)
    return checked


def kernel_matches(release: str, version: str) -> bool:
    """Tell whether a kernel release ("6.8.0-45-generic") is of a version ("6.8")."""
    return re.match(rf"{re.escape(version)}(?![0-9])", release) is not None


def needed(
    rules: Sequence[Mapping[str, object]], system: str, kernels: Sequence[str], always: Sequence[str] = ()
) -> list[Needed]:
    """Return what a node needs: of the catalogue's rules those for its system and its kernels.

    ``kernels`` are the releases that run or can be booted: a kernel that waits for the next boot counts, too.

    A rule is {"id", "arguments", "purpose", "because", and "when": {"systems": [...], "kernels": [...]}};
    without "when" it is for every node. Rules whose id is in ``always`` hold whatever the node is.
    Raises Refusal for a rule it cannot read.
    """
    found: list[Needed] = []
    for rule in rules:
        when = rule.get("when", {})
        arguments, purpose = rule.get("arguments"), rule.get("purpose")
        if not isinstance(arguments, list) or purpose not in _PURPOSES or not isinstance(when, Mapping):
            raise Refusal(
                "wrong_catalogue_file",
                f"Rule {rule.get('id')!r} of the kernel command line cannot be read: {dict(rule)!r}",
            )
        versions = tuple(when.get("kernels", ()))
        fits = system in when.get("systems", [system]) and (
            not versions or any(kernel_matches(kernel, version) for kernel in kernels for version in versions)
        )
        forced = rule.get("id") in always
        if fits or forced:
            because = str(rule.get("because", ""))
            only = () if forced else versions
            found += [Needed(argument, str(purpose), because, only) for argument in check(arguments)]
    return found


def past(arguments: Iterable[str], wanted: Sequence[str]) -> list[Needed]:
    """Return what was ours and is no longer wanted, to say what a reboot takes away."""
    return [
        Needed(argument, "speed", "the inventory no longer asks for it, and a reboot takes it away")
        for argument in dict.fromkeys(arguments)
        if argument not in wanted
    ]


def subject(word: str) -> str:
    """Return what an argument is about: its name; iommu.passthrough=0 is about the same as iommu=pt.

    The later one of the two wins (iommu_set_def_domain_type in drivers/iommu/iommu.c, iommu_setup as below).
    """
    off = word.partition("=")[2][:1].lower() in ("0", "n") or word.partition("=")[2].lower() == "off"
    return "iommu" if name(word) == "iommu.passthrough" and off else name(word)


def value_of(argument: str, words: Sequence[str]) -> str | None:
    """Return the argument of this name that wins in a command line, or None: the last one before "--".

    An IOMMU that is switched off stays off: "off" sets no_iommu, which no later word clears
    (iommu_setup, arch/x86/kernel/pci-dma.c).
    """
    given = [word for word in takewhile(lambda word: word != END, words) if subject(word) == subject(argument)]
    return next((word for word in given if switches_off(word)), given[-1] if given else None)


def switches_off(word: str) -> bool:
    """Tell whether this argument switches the IOMMU off; its value is a list with commas."""
    parts = word.partition("=")[2].split(",")
    return name(word) in _SWITCHES and any(part.startswith("off") for part in parts)


def holds(argument: str, words: Sequence[str]) -> bool:
    """Tell whether a command line has the argument and nothing else wins over it."""
    return value_of(argument, words) == argument


def holds_in_all(argument: str, entries: Sequence[Entry]) -> bool:
    """Tell whether every kernel that can be chosen at boot gets the argument."""
    return bool(entries) and all(holds(argument, entry.arguments) for entry in entries)


def all_hold(arguments: Sequence[str], entries: Sequence[Entry]) -> bool:
    """Tell whether every kernel that can be chosen at boot gets all of the arguments."""
    return all(holds_in_all(argument, entries) for argument in arguments)


def conflicts(arguments: Sequence[str], words: Sequence[Word], own_path: str) -> list[str]:
    """Say who else gives one of our arguments another value, where, and which value wins."""
    texts = [word.text for word in words]
    counted = list(takewhile(lambda word: word.text != END, words))
    sentences: list[str] = []
    lost = any(word.place.path == own_path for word in words[len(counted) :])
    if lost:
        sentences.append(
            f"{words[len(counted)].place} says --, and what stands behind it goes to init, not to the kernel: "
            "ours count for nothing. Remove it there; words that the kernel does not know go to init all the same."
        )
    for number, word in enumerate(counted):
        ours = next((argument for argument in arguments if subject(argument) == subject(word.text)), None)
        if ours is None or word.text == ours or word.place.path == own_path:
            continue
        last = value_of(ours, texts)
        if last == ours:
            winner = f"{ours} wins, because it stands last"
        elif switches_off(word.text) and any(found.text == ours for found in counted[number:]):
            winner = f"{last} wins, because no later word switches the IOMMU on again"
        elif lost:
            winner = f"{last} wins, because ours stands behind --"
        elif any(found.place.path == own_path for found in words):
            winner = f"{last} wins, because it stands behind ours"
        else:
            winner = f"{last} wins, because a file behind {own_path} starts the line anew"
        sentences.append(f"{word.place} says {word.text}, wanted is {ours}. {winner}. Remove that argument there.")
    return sentences


def causes(arguments: Sequence[str], words: Sequence[Word], own_path: str) -> dict[str, str]:
    """Say, for each argument that a command line does not hold, what keeps it from holding."""
    texts = [word.text for word in words]
    return {
        argument: " ".join(conflicts([argument], words, own_path))
        for argument in arguments
        if not holds(argument, texts)
    }


def held(arguments: Sequence[str], words: Sequence[str]) -> list[str]:
    """Return the arguments that a command line holds."""
    return [argument for argument in arguments if holds(argument, words)]


def grubby_set(arguments: Sequence[str]) -> list[str]:
    """Return the options that give every kernel the arguments; grubby replaces another value (grubby(8))."""
    return ["--update-kernel=ALL", f"--args={' '.join(arguments)}"]


def grubby_restore(arguments: Sequence[str], entries: Sequence[Entry], former: Mapping[str, str]) -> list[list[str]]:
    """Return the calls of grubby that take our arguments away and put back those they replaced.

    ``former``: for each kernel, its arguments before our first change; a later kernel has none to put back.
    """
    calls: list[list[str]] = []
    for entry in entries:
        then = split(former.get(entry.kernel, ""))
        ours = [argument for argument in arguments if argument in entry.arguments and argument not in then]
        names = [name(argument) for argument in arguments]
        lost = [argument for argument in then if name(argument) in names and argument not in entry.arguments]
        if ours:
            calls.append([f"--update-kernel={entry.kernel}", f"--remove-args={' '.join(ours)}"])
        if lost:
            calls.append([f"--update-kernel={entry.kernel}", f"--args={' '.join(lost)}"])
    return calls
