"""The kernel command line: the arguments that a node needs, other settings of them, and which value takes effect."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

from ..base.refusal import Refusal
from .grub import BootEntry, Word

_ARGUMENT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*(=[A-Za-z0-9_.,:@/+=-]+)?")
_PURPOSES = ("speed", "correctness")
_NUMBERS = re.compile(r"\s*(\d{1,6})\.(\d{1,6})(?!\d)")
END = "--"
"""What stands behind it goes to init, not to the kernel (kernel-parameters.rst, parse_args)."""

# Arguments whose value is a list separated by commas (iommu_setup in arch/x86/kernel/pci-dma.c, intel_iommu_setup and
# parse_amd_iommu_options below drivers/iommu), and the parts of it that decide the same setting: the last one counts.
# iommu=soft stands for bounce buffers instead of an IOMMU (kernel-parameters.rst); other parts, as force, leave pt.
_LISTS: Mapping[str, Mapping[str, str]] = {
    "iommu": dict.fromkeys(("pt", "nopt", "soft", "off"), "iommu"),
    "intel_iommu": {
        **dict.fromkeys(("on", "off"), "intel_iommu"),
        **dict.fromkeys(("sm_on", "sm_off"), "intel_iommu sm"),
    },
    "amd_iommu": {"off": "amd_iommu"},
}
# Each of these adds to those before it: hugepages= counts pages of the hugepagesz= before it.
_ADD = ("console", "hugepages", "hugepagesz")
_PASSTHROUGH = "iommu.passthrough"
# iommu=off sets no_iommu, which no later word clears (iommu_setup).
_STAYS = {"iommu": ("off",)}


@dataclass(frozen=True)
class NeededArgument:
    """One argument: its purpose, why this node needs it, and the kernel versions that need it (none named: all).

    ``shown``: what counts is not the argument but what the kernel shows of the cards' IOMMU groups (iommu.py).
    """

    argument: str
    purpose: str
    because: str
    kernels: tuple[str, ...] = ()
    shown: bool = False

    def concerns(self, kernel: str) -> bool:
        """Whether a running kernel needs the argument."""
        return not self.kernels or any(kernel_matches(kernel, version) for version in self.kernels)


def name(argument: str) -> str:
    """Return an argument's name in the kernel's comparison form, in which "-" and "_" are equal."""
    return argument.lstrip('"').partition("=")[0].replace("-", "_")


def value(argument: str) -> str:
    """Return an argument's value; quotes around it or around the whole argument do not count (next_arg)."""
    found = argument[1:] if argument.startswith('"') else argument
    return found.partition("=")[2].strip('"')


def meaning(argument: str) -> dict[str, str]:
    """Return the settings that one argument decides, by name. The same setting has one name however it is spelled.

    iommu=pt and iommu.passthrough=1 are {"iommu": "pt"}, intel_iommu=sm_on,on is {"intel_iommu": "on",
    "intel_iommu sm": "sm_on"}; an argument that the kernel ignores decides nothing.
    """
    label, said = name(argument), value(argument)
    if label == _PASSTHROUGH:
        # kstrtobool: the first letter counts, and for on and off the second.
        letters = said[:2].lower()
        if letters == "on" or letters[:1] in ("1", "y", "t"):
            return {"iommu": "pt"}
        return {"iommu": "nopt"} if letters == "of" or letters[:1] in ("0", "n", "f") else {}
    if label in _ADD:
        return {f"{label} {said}": said}
    if label not in _LISTS:
        return {label: said}
    found: dict[str, str] = {}
    for part in said.split(","):
        word = "off" if part.startswith("off") else part
        setting = _LISTS[label].get(word, f"{label} {word}")
        if word and found.get(setting) not in _STAYS.get(setting, ()):
            found[setting] = word
    return found


def effect(words: Sequence[str]) -> dict[str, str]:
    """Return what a command line means: the value of each setting. The last one before "--" counts."""
    found: dict[str, str] = {}
    for word in takewhile(lambda word: word != END, words):
        decided = meaning(word)
        found.update({key: said for key, said in decided.items() if found.get(key) not in _STAYS.get(key, ())})
    return found


def split(text: str) -> list[str]:
    """Split a command line into arguments; a value in double quotes may hold spaces."""
    return re.findall(r'(?:[^\s"]|"[^"]*"?)+', text)


def check(arguments: Iterable[object]) -> list[str]:
    """Check the requested arguments. Raises Refusal for text that is not a kernel argument, and for contradictions."""
    checked: list[str] = []
    for argument in arguments:
        if not isinstance(argument, str) or not _ARGUMENT.fullmatch(argument):
            raise Refusal(
                "not_a_kernel_argument",
                f"{argument!r} is not a kernel argument this role can write. "
                "Give text like 'name' or 'name=value', of letters, digits and . , : @ / + = _ -",
            )
        twice = next((other for other in checked if _contradicts(argument, other)), None)
        if twice:
            raise Refusal(
                "kernel_arguments_contradict",
                f"Kernel arguments {twice!r} and {argument!r} contradict each other. Keep one.",
            )
        if argument not in checked:
            checked.append(argument)
    return checked


def kernel_matches(release: str, version: str) -> bool:
    """Whether a kernel release ("6.8.0-45-generic") belongs to a version ("6.8")."""
    return re.match(rf"{re.escape(version)}(?![0-9])", release) is not None


def reached(release: str, limit: str) -> bool:
    """Whether a release or a driver's version is of a major and minor number, such as "1.24", or newer.

    False for a text that does not begin with such numbers.
    """
    found, wanted = _NUMBERS.match(release), _NUMBERS.match(limit)
    if found is None or wanted is None:
        return False
    return (int(found[1]), int(found[2])) >= (int(wanted[1]), int(wanted[2]))


def needed(
    rules: Sequence[Mapping[str, object]],
    system: str,
    kernels: Sequence[str],
    always: Sequence[str] = (),
    release: str = "",
) -> list[NeededArgument]:
    """Return the arguments of the catalogue's rules that apply to the node's system, kernels and release.

    ``kernels``: releases that run or can be booted; a kernel that waits for the next boot counts too. A rule is {"id",
    "arguments", "purpose", "because", and "when": {"systems": [...], "kernels": [...], "from_release",
    "before_release"}}; without "when" it applies to every node. Rules whose id is in ``always`` apply to any system and
    kernel. An unknown ``release`` is an old one. "shown_by": as NeededArgument.shown. Raises Refusal for a rule that
    cannot be read.
    """
    found: list[NeededArgument] = []
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
        old = "from_release" in when and not reached(release, str(when["from_release"]))
        new = "before_release" in when and reached(release, str(when["before_release"]))
        forced = rule.get("id") in always
        if (fits or forced) and not (old or new):
            because = str(rule.get("because", ""))
            only = () if forced else versions
            shown = "shown_by" in rule
            found += [NeededArgument(argument, str(purpose), because, only, shown) for argument in check(arguments)]
    return found


def on_processor(needed: Sequence[NeededArgument], cpuinfo: str) -> list[NeededArgument]:
    """Return the arguments as they concern the node's processors; ``cpuinfo``: the text of /proc/cpuinfo.

    intel_iommu= does nothing on a processor of AMD, whose IOMMU is on by default (amd_iommu=off disables it), so that
    answers do not depend on it there. It is set all the same: a command line may be shared.
    """
    if "AuthenticAMD" not in cpuinfo:
        return list(needed)
    because = "set on all nodes alike, and without effect on processors of AMD, whose IOMMU is on by default"
    return [
        replace(need, purpose="speed", because=because) if name(need.argument) == "intel_iommu" else need
        for need in needed
    ]


def past(arguments: Iterable[str], wanted: Sequence[str]) -> list[NeededArgument]:
    """Return arguments that this project set and that are no longer wanted, so that a reboot removes them."""
    return [
        NeededArgument(argument, "speed", "the inventory no longer asks for it, and a reboot takes it away")
        for argument in dict.fromkeys(arguments)
        if argument not in wanted
    ]


def value_of(argument: str, words: Sequence[str]) -> str | None:
    """Return the word that decides about an argument in a command line, or None: the last one before "--"."""
    about = meaning(argument)
    given = [word for word in takewhile(lambda word: word != END, words) if about.keys() & meaning(word).keys()]
    if "iommu" in about:
        given = [word for word in given if switches_off(word)] or given
    return given[-1] if given else None


def switches_off(word: str) -> bool:
    """Whether this argument disables the IOMMU for good."""
    return meaning(word).get("iommu") == "off"


def holds(argument: str, words: Sequence[str]) -> bool:
    """Whether the argument takes effect in a command line, however it is spelled there."""
    decided, wanted = effect(words), meaning(argument)
    return bool(wanted) and all(decided.get(setting) == wanted[setting] for setting in wanted)


def shown(argument: str, word: str | None) -> str:
    """Return for a table what a word says of an argument: its value, or the whole word where its name is another."""
    if word is None:
        return "-"
    return (value(word) or "set") if name(word) == name(argument) else word


def _contradicts(word: str, argument: str) -> bool:
    """Whether a word decides a setting of an argument in another way."""
    said = meaning(word)
    return any(said.get(setting, wanted) != wanted for setting, wanted in meaning(argument).items())


def holds_in_all(argument: str, entries: Sequence[BootEntry]) -> bool:
    """Whether the argument takes effect in every boot entry."""
    return bool(entries) and all(holds(argument, entry.arguments) for entry in entries)


def all_hold(arguments: Sequence[str], entries: Sequence[BootEntry]) -> bool:
    """Whether all arguments take effect in every boot entry."""
    return all(holds_in_all(argument, entries) for argument in arguments)


def conflicts(arguments: Sequence[str], words: Sequence[Word], own_path: str) -> list[str]:
    """Say which other places set one of our arguments to another value, and which value takes effect."""
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
        ours = next((argument for argument in arguments if _contradicts(word.text, argument)), None)
        if ours is None or word.place.path == own_path:
            continue
        last = value_of(ours, texts)
        if holds(ours, texts):
            winner = f"{last} wins, because it stands last"
        elif switches_off(word.text) and any(holds(ours, [found.text]) for found in counted[number:]):
            winner = f"{last} wins, because no later word switches the IOMMU on again"
        elif lost:
            winner = f"{last} wins, because ours stands behind --"
        elif any(found.place.path == own_path for found in words):
            winner = f"{last} wins, because it stands behind ours"
        else:
            winner = f"{last} wins, because a file behind {own_path} overwrites the line"
        sentences.append(f"{word.place} says {word.text}, wanted is {ours}. {winner}. Remove that argument there.")
    return sentences


def causes(arguments: Sequence[str], words: Sequence[Word], own_path: str) -> dict[str, str]:
    """Say for each argument without effect in a command line what prevents it."""
    texts = [word.text for word in words]
    return {
        argument: " ".join(conflicts([argument], words, own_path))
        for argument in arguments
        if not holds(argument, texts)
    }


def held(arguments: Sequence[str], words: Sequence[str]) -> list[str]:
    """Return the arguments that take effect in a command line."""
    return [argument for argument in arguments if holds(argument, words)]


def grubby_set(arguments: Sequence[str]) -> list[str]:
    """Return the options that give every kernel the arguments; grubby replaces another value (grubby(8))."""
    return ["--update-kernel=ALL", f"--args={' '.join(arguments)}"]


def grubby_restore(
    arguments: Sequence[str], entries: Sequence[BootEntry], former: Mapping[str, str]
) -> list[list[str]]:
    """Return the grubby calls that remove our arguments and restore the ones they replaced.

    ``former``: each kernel's arguments before our first change; a later kernel has none to restore.
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
