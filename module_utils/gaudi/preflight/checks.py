"""What must be true of a node before anything on it is changed.

Every check takes what was read and returns the problems it found, each as sentences for a person:
what was seen, what is needed, what to do. Nothing here reads, waits or changes anything.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from ..base.absent import absent
from ..base.listeners import ANY, Listener
from ..base.places import Room, is_below
from ..base.systems import REBUILDS, SYSTEMS, rebuilt
from ..base.values import is_loopback
from ..cards.users import describe_user, instance_of
from ..faults.words import say

GIB = 1024**3
# The option of the server that lists from where it may fetch what a request names by its address.
MEDIA_DOMAINS = "--allowed-media-domains"
# Names that a sentence lists; further ones are counted.
SHOWN = 5
# What the hub's library needs.
OLDEST_DOWNLOADER = (3, 10)
_NUMBERS = re.compile(r"\d+")


@dataclass(frozen=True)
class Problem:
    """One reason not to set up the node: ``id`` for programs, ``message`` for people."""

    id: str
    message: str
    refused_id: str = ""
    """The id of the refusal that it is, where ``id`` is that of several."""

    def as_dict(self) -> dict[str, str]:
        """Return the problem as a mapping that survives JSON."""
        return {"id": self.id, "message": self.message}


def version_tuple(text: str) -> tuple[int, ...]:
    """Turn the leading dotted numbers of a version into integers: 5.15.0-91-generic is (5, 15, 0).

    Raises ValueError when the text does not begin with a number.
    """
    head = re.match(r"\d+(?:\.\d+)*", text)
    if head is None:
        raise ValueError(f"{text!r} does not begin with a version number")
    return tuple(int(number) for number in _NUMBERS.findall(head.group(0)))


def _is_version(seen: str, wanted: str) -> bool:
    """Tell whether ``seen`` is ``wanted`` or a point release of it (9.4 is a 9, 12 is not a 1)."""
    return seen == wanted or seen.startswith(wanted + ".")


def damaged_plan(file: str, instance: str, is_planned: bool) -> str:
    """Say that the plan of an instance on the node cannot be read; it does not stop the setup."""
    then = (
        "this run writes it again, and starts the instance again"
        if is_planned
        else "remove it (playbooks/remove.yml), or name it in gaudi_serving_instances, so that a run writes it again"
    )
    return f"{instance}: {file} is damaged, so that nobody knows what the instance was made of; {then}."


def check_path(path: str) -> list[Problem]:
    """Refuse root's PATH in which dpkg, modprobe and dkms miss the programs that they start."""
    if {"/usr/sbin", "/sbin"} & set(path.split(":")):
        return []
    return [
        Problem(
            "path_without_sbin",
            f"root's PATH is {path or 'empty'} on this node, without /usr/sbin, but installing packages and "
            "loading the driver need programs there. Set secure_path in sudoers (Defaults secure_path=/usr/local/sbin:"
            "/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin), or PATH in /etc/environment.",
        )
    ]


def check_system(os_release: Mapping[str, str]) -> list[Problem]:
    """Refuse a system that the roles do not support; a rebuild counts as the system that it rebuilds."""
    seen_id, seen_version = rebuilt(os_release), os_release.get("VERSION_ID", "")
    if any(seen_id == known and _is_version(seen_version, version) for known, version, _ in SYSTEMS):
        return []
    name = os_release.get("PRETTY_NAME") or "a system without /etc/os-release"
    rebuilds = ", ".join(title for title, _ in REBUILDS.values())
    wanted = ", ".join(f"{title} {version}" for _, version, title in SYSTEMS) + f" and its rebuilds ({rebuilds})"
    return [Problem("system-unknown", say("system-unknown", name=name, wanted=wanted))]


def check_clock(node_time: float, controller_time: float, tolerance: float) -> list[Problem]:
    """Compare two clocks, in seconds since the epoch; ``tolerance`` also covers the delay of the connection.

    A wrong clock makes certificates and package indexes invalid, with errors that do not mention it.
    """
    off = node_time - controller_time
    if abs(off) <= tolerance:
        return []
    where = "ahead of" if off > 0 else "behind"
    return [Problem("clock", say("clock", off=duration(abs(off)), where=where, allowed=duration(tolerance)))]


def duration(seconds: float) -> str:
    """Say a number of seconds as a person would."""
    for size, unit in ((86400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} seconds"


def check_cards(topology: Mapping[str, Any], expected: int | None, ended: Sequence[str] = ()) -> list[Problem]:
    """Compare the cards with the number in the inventory, and pass on errors of reading them.

    ``expected``: None if the inventory has no valid number. ``ended``: findings that this run resolves before anything
    is served.
    """
    problems = [
        Problem(str(finding["id"]), str(finding["message"]))
        for finding in topology.get("findings", [])
        if finding["severity"] == "error" and finding["id"] not in ended
    ]
    cards = topology.get("cards", [])
    # Without a driver no card is visible; a second problem would hide that cause.
    if expected is not None and len(cards) != expected and not problems:
        modules = ", ".join(str(card["module_id"]) for card in cards) or "none"
        case = "more" if len(cards) > expected else ""
        problems.append(
            Problem("card-count", say("card-count", case, seen=len(cards), modules=modules, expected=expected))
        )
    return problems


def check_room(rooms: Sequence[Room]) -> list[Problem]:
    """Compare required with free space; requirements on one file system are added up."""
    by_filesystem: dict[str, list[Room]] = {}
    for room in rooms:
        by_filesystem.setdefault(room.filesystem, []).append(room)
    problems = []
    for filesystem, rooms in by_filesystem.items():
        wanted, free = sum(room.wanted for room in rooms), rooms[0].free
        if wanted > free:
            size = telling_apart(free, wanted)
            list_of = " and ".join(f"{size(room.wanted)} for {room.what} ({room.path})" for room in rooms)
            facts = {"free": size(free), "filesystem": filesystem, "needs": list_of, "lacking": size(wanted - free)}
            problems.append(Problem("disk", say("disk", **facts)))
    return problems


def gib(size: int, digits: int = 1) -> str:
    """Say a number of bytes in GiB, never as zero when it is not."""
    return f"{max(size / GIB, 10**-digits if size else 0.0):.{digits}f} GiB"


def telling_apart(one: int, other: int) -> Callable[[int], str]:
    """Return two different numbers of bytes so that they look different: in GiB with 1 to 3 digits, or in bytes."""
    for digits in (1, 2, 3):
        if gib(one, digits) != gib(other, digits):
            return partial(gib, digits=digits)
    return lambda size: f"{size} bytes"


def room_findings(rooms: Sequence[Room]) -> list[str]:
    """Say where a growing directory may run out of room; this does not stop the setup."""
    findings = []
    for room in rooms:
        if room.wanted > room.free:
            size = telling_apart(room.wanted, room.free)
            findings.append(
                f"{room.what} may grow to {size(room.wanted)} in {room.path}, "
                f"and {size(room.free)} are free on {room.filesystem}."
            )
    return findings


def check_name(plan: Mapping[str, Any]) -> list[Problem]:
    """Refuse a request without a name: it can be planned, but no unit can be made for it."""
    if plan.get("instance"):
        return []
    what = plan.get("model") or plan.get("served_model_name")
    return [
        Problem(
            "request",
            f"A request for {what} in gaudi_serving_instances has no instance. "
            "Give it a name, such as instance: chat; its unit is then vllm-chat.service.",
        )
    ]


def check_weights(plan: Mapping[str, Any], present: bool, advice: str, lost: str = "") -> list[Problem]:
    """Refuse an instance whose weights are missing and are not fetched in this run (gaudi_weights_fetch).

    ``advice``: how to get them; without it the sentence gives general advice. ``lost``: the file system that their path
    is on now, if an instance on the node was set up with weights there.
    """
    path, missing = plan["requires"]["weights_path"], plan["requires"].get("weights_missing") or []
    if present and not missing:
        return []
    if not path:
        seen = "the weights are named by a hub's id, but an instance serves a directory of its node"
    elif missing:
        more = f" and {len(missing) - SHOWN} more" if len(missing) > SHOWN else ""
        seen = f"the weights in {path} are not complete: {', '.join(missing[:SHOWN])}{more} missing or not as recorded"
    else:
        size = plan["requires"].get("weights_bytes")
        seen = f"the weights are not at {path} (no config.json there)" + (f"; they take {gib(size)}" if size else "")
        seen += gone(lost)
    case = "known" if advice else ""
    return [Problem("weights", say("weights", case, instance=plan["instance"], seen=seen, advice=advice))]


def gone(lost: str) -> str:
    """Say on which file system an instance's weights would be now; "" if they were not lost."""
    if not lost:
        return ""
    return (
        f". An instance of the node was set up with weights there, and the path is on {lost}. If that is not the file "
        "system that they are on, mount theirs, or unmount what hides it, before anything is brought there"
    )


def lost_weights(instance: str, path: str, lost: str) -> str:
    """Say that an instance outside this run has lost its weights; ``lost`` as in ``gone``."""
    return (
        f"{instance}: its weights are not at {path} (no config.json there), and it could not start again{gone(lost)}."
    )


def check_fetch(sources: int, python: str, foreign: Sequence[str]) -> list[Problem]:
    """Refuse to fetch weights without a source, with too old a Python, or over a folder with other content.

    ``python``: the version that model_weights_python reports, such as 3.11, or why it could not be run. ``foreign``:
    folders at the place of weights that hold something else.
    """
    problems = []
    if not sources:
        problems.append(
            Problem(
                "weights_source",
                "Weights are to be fetched (gaudi_weights_fetch), but model_weights_sources names no hub. Name one, "
                "such as {name: huggingface, endpoint: https://huggingface.co}.",
            )
        )
    if not re.match(r"\d+\.\d+$", python) or version_tuple(python) < OLDEST_DOWNLOADER:
        problems.append(
            Problem(
                "weights_python",
                f"The downloader of weights needs Python {'.'.join(map(str, OLDEST_DOWNLOADER))} or newer, but "
                f"model_weights_python is {python}. Install one (RHEL 9: dnf install python3.11) and name it there.",
            )
        )
    for path in foreign:
        problems.append(
            Problem(
                "weights",
                f"{path} is where weights are to be fetched to, but it holds something that is no model (no "
                "config.json) and no unfinished fetch. Move it away, or set another gaudi_weights_root.",
            )
        )
    return problems


def missing_finding(
    instance: str, origin: str | None, target: str, size: int, converted: str | None, lost: str = ""
) -> str:
    """Say what will be fetched: ``size`` bytes (0: unknown) from ``origin`` (None: local) into ``target``.

    ``lost``: as in ``gone``.
    """
    amount = gib(size) if size else "an unknown amount"
    fetched = f"{amount} will be fetched from {origin} into {target}" if origin else f"{target} is there"
    return f"{instance}: {fetched}" + (f", and converted into {converted}" if converted else "") + f"{gone(lost)}."


def host_nics(plan: Mapping[str, Any]) -> Problem:
    """Refuse a plan that needs host NICs that the site has not declared."""
    return Problem(
        "host_nics",
        f"{plan['instance']}: so many PCIe cards, or an FP8 model of this size on them, talk over host NICs with "
        "libfabric, and the inventory does not say that this node has them configured. Configure them, then set "
        "fabric_check_host_nics: true for the node: site.yml measures all its cards over them before this starts.",
    )


def check_start(plan: Mapping[str, Any], lacking: Sequence[str], found: int) -> list[Problem]:
    """Refuse a start without the files that its plan requires beside weights.

    ``lacking``: those of the plan's ``requires.files`` that are missing. ``found``: number of files in its folder of
    measurements; there must be three for each card, or the server stops after loading the weights.
    """
    name, requires = plan["instance"], plan["requires"]
    problems = []
    if lacking:
        problems.append(
            Problem(
                "files", f"{name}: {', '.join(lacking)} not there. Calibrate first, put it there, or correct the path."
            )
        )
    measurements = requires.get("measurements")
    if measurements and found < measurements["files"]:
        problems.append(
            Problem(
                "measurements",
                f"{name}: {measurements['path']} holds {found} measurement files, {measurements['files']} are needed "
                f"(three a card). Fetch the set that is published for this number of cards (ansible-playbook "
                f"playbooks/fetch_weights.yml -e model={plan['model']}), or measure on this node "
                f"(playbooks/calibrate.yml -e model={plan['model']}).",
            )
        )
    return problems


def shared_recipes(plan: Mapping[str, Any], directory: str, kind: str) -> Problem:
    """Refuse compiled recipes in a directory that other nodes write to as well."""
    return Problem(
        "recipes_shared",
        f"{plan['instance']}: its compiled recipes would lie in {directory}, which is on {kind}. Servers lock files "
        f"there, which needs a disk of the node itself. Have {directory} on one, or set recipe_cache to a directory "
        "that is, or to false.",
    )


def overlaps(
    plan: Mapping[str, Any], others: Iterable[Mapping[str, Any]], weights_root: str, real: Callable[[str], str]
) -> list[tuple[str, str, str]]:
    """Return directories of a plan that a server could exchange, or whose server could exchange others.

    Each comes with the instance and the directory of it that is above or below; the weights' root has the instance "".
    others: the other plans of this run, and all that are on the node: their servers may still run. real: gives a path
    without links. Two servers may write to one directory.
    """
    root = real(weights_root)
    used = [
        (str(each.get("instance")), mount, real(mount["source"]))
        for each in (plan, *others)
        for mount in each.get("container", {}).get("mounts", [])
    ]
    found = []
    for mount in plan["container"].get("mounts", []):
        path, read_only = real(mount["source"]), mount["read_only"]
        if not read_only and is_below(root, path):
            found.append((mount["source"], "", weights_root))
        for name, other, apart in used:
            nested = is_below(apart, path) or is_below(path, apart)
            if nested and not (read_only and other["read_only"]) and (apart != path or read_only != other["read_only"]):
                found.append((mount["source"], name, other["source"]))
    return list(dict.fromkeys(found))


def overlap(plan: Mapping[str, Any], own: str, other: str, source: str) -> Problem:
    """Refuse a directory of a plan beside which a server writes."""
    whose = f"which the instance {other} uses or used until now" if other else "the weights' root"
    return Problem(
        "directories_overlap",
        f"{plan['instance']}: its directory {own} and {source}, {whose}, are one inside the other. A server that "
        "writes to one could exchange the other, or put a link in its place. Give each a directory of its own.",
    )


def linked(plan: Mapping[str, Any], source: str, real: str) -> Problem:
    """Refuse a directory that a server writes to and that is a link, or leads into a directory of the system."""
    return Problem(
        "directory_is_link",
        f"{plan['instance']}: its server would write to {source}, which leads to {real}. Another server could have put "
        f"that link there. Name {real} itself where it is meant, or remove the link.",
    )


def check_keys(plan: Mapping[str, Any], made: Sequence[str]) -> list[Problem]:
    """Refuse to open a server that has keys of its own; ``made``: names of its keys from playbooks/keys.yml."""
    if plan.get("guarded") or not made:
        return []
    name = plan["instance"]
    return [
        Problem(
            "keys",
            f"{name}: the node has keys for it ({', '.join(made)}), but nothing says that it asks for keys, so that "
            f"its server would be open. Say guarded: true for it in gaudi_serving_instances; to open it, revoke them "
            f"first (playbooks/keys.yml -e instance={name} -e revoke=NAME).",
        )
    ]


def check_runtime(path: str, present: bool) -> list[Problem]:
    """Refuse a node without the vendor's container runtime if no role installs it."""
    if present or not path:
        return []
    return [Problem("habana-runtime", say("habana-runtime", path=path))]


def blocking_listeners(listeners: Sequence[Listener], host: str, port: int) -> list[Listener]:
    """Return the sockets that prevent binding ``host:port``; ``host`` is an address.

    Raises ValueError if ``host`` is not an address.
    """
    address = ipaddress.ip_address(host)
    return [
        listener
        for listener in listeners
        if listener.port == port
        and (address.is_unspecified or listener.address == ANY or listener.address == str(address))
    ]


def free_port(listeners: Sequence[Listener], port: int) -> int:
    """Return the next free port above one; never a system port below 1024."""
    taken = {listener.port for listener in listeners}
    return next((free for free in range(max(port + 1, 1024), 65536) if free not in taken), port)


def check_port(plan: Mapping[str, Any], user: Mapping[str, Any] | None, free: int) -> list[Problem]:
    """Refuse a port on which another process listens; ``user`` is None if it is free or the instance's own.

    ``free``: a port to suggest instead.
    """
    if user is None:
        return []
    listen, other = plan["listen"], instance_of(user)
    holder = f"the instance {other} (vllm-{other}.service)" if other else describe_user(user)
    facts = {"instance": plan["instance"], "port": listen["port"], "host": listen["host"], "holder": holder}
    return [Problem("port", say("port", "instance" if other else "", free=free, **facts))]


def in_closed_ports(plan: Mapping[str, Any], listeners: Iterable[Listener]) -> list[Listener]:
    """Return sockets reachable from other machines, on ports that are closed to them while the plan's instance runs."""
    first, last = plan["listen"].get("closed_ports") or (0, -1)
    return [
        listener
        for listener in listeners
        if first <= listener.port <= last
        and (listener.address == ANY or not ipaddress.ip_address(listener.address).is_loopback)
    ]


def cut_off_findings(plan: Mapping[str, Any], users: Mapping[int, Mapping[str, Any]]) -> list[str]:
    """Say which programs other machines cannot reach while an instance runs; ``users``: the listeners by port."""
    if not users:
        return []
    first, last = plan["listen"]["closed_ports"]
    who = ", ".join(f"{describe_user(user)} on {port}" for port, user in sorted(users.items()))
    return [
        f"{plan['instance']}: ports {first} to {last} are for its own processes, and closed to other machines while it "
        f"runs. There listens {who}: only this node will reach it. Give that program another port, or the instance "
        "others: the option extra_environment with VLLM_PORT, the first of 16."
    ]


def media_findings(plan: Mapping[str, Any]) -> list[str]:
    """Say that a multimodal server fetches whatever address a client on another machine names."""
    limited = any(str(word).partition("=")[0].replace("_", "-") == MEDIA_DOMAINS for word in plan.get("arguments", []))
    host = plan.get("listen", {}).get("host", "127.0.0.1")
    if limited or is_loopback(host) or not plan.get("ask", {}).get("media"):
        return []
    return [
        f"{plan['instance']}: clients may have it fetch pictures, films and sounds from any address that this node "
        f"reaches. From release 1.23 on, the option extra_args with {MEDIA_DOMAINS} limits that to the domains that it "
        'names, and extra_environment with VLLM_MEDIA_URL_ALLOW_REDIRECTS: "0" forbids redirects to others. An older '
        "release has neither: have the gateway refuse addresses, or the packet filter close the way out (SECURITY.md)."
    ]


def entered_findings(plan: Mapping[str, Any], entered: Sequence[str]) -> list[str]:
    """Say which folders the server writes to although users of the node may enter them."""
    return [
        f"{plan['instance']}: its server writes to {folder}, and users of this node may enter that folder. A program "
        "that root of the container leaves there runs with the rights of root. Choose a folder below one that only "
        "root may enter (mode 0700)."
        for folder in entered
    ]


def check_container(plan: Mapping[str, Any], called: str | None) -> list[Problem]:
    """Refuse an instance with a renamed container; ``called``: its name now, None if it has its own."""
    if called is None:
        return []
    instance = plan["instance"]
    return [
        Problem(
            "container",
            f"{instance}: by its label the container {called} is the one of this instance, which is to be called "
            f"vllm-{instance}. docker rename {called} vllm-{instance} puts that right while it serves; "
            f"playbooks/stop.yml -e instance={instance} ends it.",
        )
    ]


def silent_engine(said: str) -> list[str]:
    """Say what was judged without the engine; ``said``: the error of a query to it, or ""."""
    if not said:
        return []
    return [
        f"{say('engine-unreachable', what=said)} Judged without the engine: containers by what their supervisors wrote "
        "down, images by the record of those that were pulled."
    ]


def unknown_host(plan: Mapping[str, Any], why: str) -> Problem:
    """Refuse a host name that the node cannot resolve; ``why``: the resolver's message."""
    return Problem(
        "host",
        f"{plan['instance']}: host is {plan['listen']['host']}, which the node does not know ({why}). "
        "Give an address of the node, or leave it out to listen on 127.0.0.1.",
    )


def check_release(release: str, known: Sequence[str]) -> list[Problem]:
    """Refuse a release the catalogue does not have."""
    if release in known:
        return []
    sentence = absent(release)
    if sentence is not None:
        return [Problem("release", f"gaudi_release is {release!r}. {sentence}")]
    return [
        Problem(
            "release",
            f"gaudi_release is {release!r}, but the catalogue has {', '.join(sorted(known))}. Choose one of these.",
        )
    ]


def check_requests(
    plans: Sequence[Mapping[str, Any]], cards_seen: bool, positions: Sequence[int] = ()
) -> list[Problem]:
    """Pass on the planner's refusals, once each; on a node without cards only those that do not follow from that.

    ``positions``: each plan's position in gaudi_serving_instances; a sentence about a single request names it.
    """
    places: dict[tuple[str, str], list[int]] = {}
    for number, plan in enumerate(plans):
        if plan.get("refused") and (cards_seen or plan["refused_id"] != "no_cards"):
            places.setdefault((str(plan["refused"]), str(plan.get("refused_id", ""))), []).append(number)
    problems = []
    for (sentence, refused_id), numbers in places.items():
        one = len(numbers) == 1 and numbers[0] < len(positions)
        where = f"gaudi_serving_instances[{positions[numbers[0]]}]: " if one else ""
        problems.append(Problem("request", f"{where}{sentence}", refused_id))
    return problems


def report(host: str, problems: Sequence[Problem], beside: Sequence[Problem] = (), table: Sequence[str] = ()) -> str:
    """Write a node's report: every problem, numbered, and that nothing was changed.

    ``beside``: problems that ``table`` describes in lines of its own; they are numbered after the others.
    """
    number_of = len(problems) + len(beside)
    lines = [f"{host}: {'1 problem' if number_of == 1 else f'{number_of} problems'}, nothing was changed."]
    lines += [
        f"  {number}. {problem.message} [{problem.refused_id or problem.id}]"
        for number, problem in enumerate(problems, 1)
    ]
    return "\n".join([*lines, *table])
