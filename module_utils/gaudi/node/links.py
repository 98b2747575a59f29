"""Cards and links of a node: read them and the last verdict, and run hccl_demo over them.

hccl_demo runs in a container of the serving image with the cards of one run, which is removed afterwards.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.common.parameters import remove_values

from ..base import paths
from ..base.documents import Damaged, parse
from ..base.printable import printable, printable_lines
from ..base.refusal import Refusal
from ..catalogue.compute import ComputeBounds
from ..catalogue.entries import CardType
from ..catalogue.fabric import HOST_NICS_CAPABILITY, HOST_NICS_VARIABLES, Fabric
from ..engine.configuration import init_advice
from ..engine.image_record import digest_of
from ..fabric import asked, burn_in, measuring, runs, static, verdict
from ..fabric.gaudinet import check_gaudinet
from ..fabric.output import RunOutput, parse_output
from ..image.addresses import asked as asked_hosts
from ..image.addresses import check_reached, unknown_to_builds
from ..image.labels import BASE, BASE_DIGEST, LABEL, vendor_release
from . import containers, engine_look, inspection, instances, reservations
from .documents import read
from .files import take_turn
from .open_cards import read_facts, read_passed
from .reader import read_interfaces, read_ports, read_topology

VERDICT = Path(paths.ACCEPTANCE)
LOCK = Path(paths.ACCEPTANCE_LOCK)
BOOT = Path("/proc/sys/kernel/random/boot_id")
# Paths of gaudinet.json: the first is the habana runtime's, the second that of older ones.
GAUDINET = (Path("/etc/habanalabs/gaudinet.json"), Path("/etc/gaudinet.json"))
DEMO = "/opt/hccl_demo"
CONTAINER = "gaudi-fabric-check"
# Seconds for which the lock may be held by those who only ask whether another run measures.
ASKED_SECONDS = 1.0
# A container that only inspects an image may run beside another run's.
LOOKING = f"{CONTAINER}-look-{os.getpid()}"
# Confinement of any container here. Those that measure get what an instance gets, and the network, where ranks meet.
ISOLATION = (
    *("--init", "--runtime", "habana", "--cap-drop", "ALL", "--security-opt", "no-new-privileges"),
    # No core dumps: one of a program that fills a card has gigabytes.
    *("--ulimit", "core=0:0"),
    *("--read-only", "--tmpfs", "/tmp:exec", "--workdir", "/tmp"),  # noqa: S108 - of the container
    *("--env", "HOME=/tmp", "--env", "HABANA_LOGS=/tmp/habana_logs"),
)
MEASURES = (
    *("--network", "host", "--cap-add", "SYS_NICE"),
    *("--pids-limit", "32768", "--shm-size", "16g", "--ulimit", "memlock=-1"),
)
# No card: a container that names none would get all cards from the vendor's runtime, those of instances included.
LOOKS = (
    *("--pids-limit", "256", "--memory", inspection.MEMORY),
    *("--env", "HABANA_VISIBLE_DEVICES=none"),
)
# Looking into an image takes a second or two.
LOOK_SECONDS = 60
# What is in an image beside its labels; its arguments: the directory of hccl_demo, the provider or nothing.
LOOK = r"""
import hashlib, importlib.util, json, os, shutil, subprocess, sys

def text(*command):
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    except OSError:
        return None, None
    return done.stdout.decode("utf-8", "replace"), done.returncode

def digest(path):
    try:
        with open(path, "rb") as stream:
            return hashlib.sha256(stream.read()).hexdigest()
    except OSError:
        return None

# HCL asks the loader for this name alone, and goes on without it where it does not get it.
loads = '''import ctypes, sys
ctypes.CDLL(sys.argv[1])
print(next((line.split()[-1] for line in open("/proc/self/maps") if sys.argv[1] in line), sys.argv[1]))'''
root = os.environ.get("LIBFABRIC_ROOT", "/opt/libfabric")
places = os.pathsep.join([os.environ.get("PATH", ""), root + "/bin", "/opt/amazon/efa/bin"])
fi_info = shutil.which("fi_info", path=places)
found = {"hccl_demo": digest(sys.argv[1] + "/run_hccl_demo.py")}
# Nothing of it is loaded: without a card that may fail.
there = importlib.util.find_spec
found["computes"] = bool(there("torch") and there("habana_frameworks") and there("habana_frameworks.torch"))
found["wrapper"] = digest("/usr/lib/habanalabs/libhccl_ofi_wrapper.so")
found["version_text"] = text(fi_info, "--version")[0] if fi_info else None
found["info_text"], found["info_status"] = text(fi_info, "-p", sys.argv[2]) if fi_info and sys.argv[2] else (None, None)
wrapper = (sys.executable, "-c", loads, "libhccl_ofi_wrapper.so")
found["loader_text"], found["loader_status"] = text(*wrapper) if sys.argv[2] else (None, None)
print(json.dumps(found))
"""
_TEXT = (str, type(None))
# What it prints.
LOOKED = {
    **dict.fromkeys(("hccl_demo", "wrapper", "version_text", "info_text", "loader_text"), _TEXT),
    **dict.fromkeys(("info_status", "loader_status"), (int, type(None))),
    "computes": bool,
}

# What the client prints of a container that ended before it started; a hint of the client may follow.
_ENGINE_ERROR = re.compile(r"^docker: Error response from daemon: (?P<error>.+)$", re.MULTILINE)
_RUNTIME_ERROR = re.compile(r"habana|(?:unknown|invalid) runtime", re.IGNORECASE)


@dataclass(frozen=True)
class NodeCards:
    """A node's cards: the topology, their type (None for an unknown type, or for several), and their faults."""

    topology: Mapping[str, Any]
    kind: CardType | None
    faults: tuple[static.StaticFault, ...]

    @property
    def fabric(self) -> Fabric | None:
        """What the catalogue knows of their links."""
        return self.kind.fabric if self.kind else None

    @property
    def modules(self) -> tuple[int, ...]:
        """The module ids of the cards, lowest first."""
        return tuple(sorted(card["module_id"] for card in self.topology["cards"] if card["module_id"] is not None))

    @property
    def indexes(self) -> dict[int, int]:
        """The index of each module now."""
        return {card["module_id"]: card["index"] for card in self.topology["cards"]}

    def busy(self, *, drain: bool = False) -> tuple[int, ...]:
        """Return module ids of cards in use; with drain, users that are our instances do not count."""
        return asked.busy(self.topology["cards"], drain=drain)


def read_cards(module: AnsibleModule, card_types: object, wanted: static.ExpectedFabric) -> NodeCards:
    """Read the cards and their ports, and run the static checks; changes nothing."""
    # The state of the links is read with the ports.
    topology = read_topology(module, links=False)
    types = CardType.table(card_types)
    names = sorted({str(card["name"]) for card in topology["cards"]})
    ports = tuple(static.Port(*port) for port in read_ports(module, topology["cards"], external=wanted.external))
    interfaces = tuple(static.Interface(*each) for each in read_interfaces(topology["cards"]))
    faults = static.check(topology, types, ports, interfaces, wanted)
    for path in GAUDINET:
        faults += check_gaudinet(gaudinet_text(path), interfaces, str(path))
    return NodeCards(topology, types.get(names[0]) if len(names) == 1 else None, faults)


def gaudinet_text(path: Path) -> str | None:
    """Return the text of gaudinet.json; None without the file. Unreadable text is judged as a fault."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return None
    except OSError as error:
        return f"({error.strerror})"


def read_image(module: AnsibleModule, reference: str, provider: str) -> dict[str, Any]:
    """Read those facts of an image that a verdict is about; {} without an engine, or without the image.

    Raises Refusal if no container of it can be inspected.
    """
    docker = module.get_bin_path("docker")
    if docker is None or not reference:
        return {}
    code, out, _ = module.run_command([docker, "image", "inspect", reference])
    if code != 0:
        return {}
    inspected = json.loads(out)[0]
    labels = _labels(inspected)
    # Of a network only fi_info has something to say. What a run over host NICs finds, it finds with a run's variables.
    given = [*LOOKS, "--network", "host" if provider else "none"]
    variables = HOST_NICS_VARIABLES if provider else {}
    given += [word for name, value in variables.items() for word in ("--env", f"{name}={value}")]
    program = [*ISOLATION, *given, "--entrypoint", "python3", reference, "-c", LOOK, DEMO, provider]
    # It gets no card, so it may run beside processes that use them.
    looked = containers.run_once(module, LOOKING, program, LOOK_SECONDS)
    how = looked.how
    try:
        # The image is not trusted: its output may be anything.
        found = parse((looked.text.splitlines() or [""])[-1], LOOKED)
    except ValueError as error:
        found, how = {}, f"{how}, and {error}" if looked.status == 0 else how
    if looked.status != 0 and (quoted := _ENGINE_ERROR.search(looked.err)):
        raise _not_started(module, printable(quoted["error"].strip()[-500:]), reference)
    if looked.status != 0 or not found:
        raise Refusal(
            "image_not_looked_into",
            f"Nobody can tell what {reference} measures with: a container of it {how}: "
            f"{printable(looked.text.strip()[-500:])} Look whether its runtime works: docker run --runtime habana.",
        )
    # A built image has commits in its labels; for another image digests of its files stand for them.
    for part, pin in (("hccl_demo", "hccl_demo"), ("wrapper", "hccl_ofi_wrapper")):
        found[part] = found[part] and labels.get(f"{LABEL}.commit.{pin}", found[part])
    version = re.search(r"[0-9]+\.[0-9.]+", found["version_text"] or "")
    base = labels.get(BASE_DIGEST) or labels.get(BASE) or digest_of(inspected, reference) or inspected["Id"]
    release = vendor_release(reference, labels)
    return {**found, "base": base, "libfabric": version[0] if version else None, "release": release}


def read_release(module: AnsibleModule, reference: str) -> str | None:
    """Return the release of the vendor's software in an image; None where nothing says it."""
    code, out, _ = module.run_command([module.get_bin_path("docker", required=True), "image", "inspect", reference])
    return vendor_release(reference, _labels(json.loads(out)[0]) if code == 0 else {})


def _labels(inspected: Mapping[str, Any]) -> dict[str, str]:
    return dict((inspected.get("Config") or {}).get("Labels") or {})


def _not_started(module: AnsibleModule, error: str, reference: str) -> Refusal:
    """Return the refusal for a container that the engine could not start. error: the engine's."""
    advice = ""
    if "docker-init" in error:
        advice = f" {init_advice(*engine_look.init_package(module))} Then run again."
    elif _RUNTIME_ERROR.search(error.replace(reference, "")):
        advice = " Look whether the runtime works: docker run --runtime habana."
    return Refusal(
        "engine_starts_no_container",
        f"The engine could not start a container: {error}{'' if error.endswith('.') else '.'} What "
        f"{reference} measures with is therefore not known.{advice}",
    )


def read_measured(
    module: AnsibleModule,
    reference: str,
    provider: str,
    demo: measuring.Demo | None,
    proxies: Mapping[str, str],
    *,
    build: bool,
) -> dict[str, Any]:
    """As read_image; for an image without hccl_demo read the measuring image made from it, which is built if missing.

    measures: the image to measure with; unread: why there is none. Without ``build``, an image that does not exist yet
    counts as if it did. proxies: those of a build, by variable. Raises Refusal if no container can be inspected.
    """
    found = {"measures": reference, **read_image(module, reference, provider)}
    if "base" not in found:
        return {}
    if found.get("hccl_demo") or demo is None:
        return found
    docker = module.get_bin_path("docker", required=True)
    inspect = [docker, "image", "inspect", "--format", "{{.Id}}"]
    name = measuring.reference(module.run_command([*inspect, reference])[1].strip(), demo)
    if module.run_command([*inspect, name])[0] == 0:
        return {**found, "measures": name, "hccl_demo": demo.commit}
    if not build:
        return {**found, "measures": name, "hccl_demo": demo.commit}
    why = _build(module, docker, name, reference, demo, proxies)
    if why:
        # A verdict of an earlier measurement is about the same hccl_demo, and holds.
        return {**found, "hccl_demo": demo.commit, "unread": why}
    _remove_others(module, docker, name)
    return {**found, "measures": name, "hccl_demo": demo.commit}


def _build(
    module: AnsibleModule, docker: str, name: str, base: str, demo: measuring.Demo, proxies: Mapping[str, str]
) -> str:
    """Build a measuring image; return why that failed, as a sentence, "" on success."""
    proxies = {variable: str(value) for variable, value in proxies.items() if value}
    options = {f"serving_image_{variable}": value for variable, value in proxies.items() if variable != "no_proxy"}
    asked_for = asked_hosts({"serving_image_git_mirrors": demo.repository, **options})
    try:
        named = known_hosts(list(asked_for))
        check_reached(demo.network, [(host, named.get(host, host), said) for host, said in asked_for.items()])
    except Refusal as refusal:
        return str(refusal)
    arguments = measuring.arguments(base, demo, named, sorted(proxies))
    limit = [module.get_bin_path("timeout", required=True), str(measuring.BUILD_SECONDS)]
    # Without a context directory: the Dockerfile comes from standard input. The builder is Docker's default, as a node
    # that builds no serving image has no buildx.
    status, out, err = module.run_command(
        [*limit, docker, "build", "--tag", name, *arguments],
        data=measuring.dockerfile(DEMO),
        environ_update=proxies,
    )
    # An error may contain a proxy's password, and everybody may read a verdict.
    return measuring.not_built(base, str(remove_values(f"{out}\n{err}", module.no_log_values))) if status else ""


def known_hosts(names: Sequence[str]) -> dict[str, str]:
    """Addresses of hosts that this node knows and a build would not. Hosts unknown here are left to the build."""
    own, stub = (Path(path) for path in ("/etc/resolv.conf", "/run/systemd/resolve/resolv.conf"))
    text = (stub if stub.exists() else own).read_text(encoding="utf-8", errors="replace")
    unknown = unknown_to_builds(names, Path("/etc/hosts").read_text(encoding="utf-8", errors="replace"), text)
    found = {}
    for name in unknown:
        with contextlib.suppress(OSError):
            found[name] = socket.gethostbyname(name)
    return found


def _remove_others(module: AnsibleModule, docker: str, name: str) -> None:
    """Remove measuring images of earlier serving images, which would keep these on the disk."""
    listed = module.run_command([docker, "image", "ls", "--format", "{{.Repository}}:{{.Tag}}", measuring.NAME])[1]
    others = [each for each in listed.split() if each.startswith(f"{measuring.NAME}:") and each != name]
    if others:
        module.run_command([docker, "image", "rm", *others])


def perform(
    module: AnsibleModule,
    image: str,
    run: runs.DemoRun,
    indexes: Mapping[int, int],
    command: Mapping[str, Any],
    seconds: int,
    *,
    driver: str | None,
    release: str | None,
    nodes: int = 1,
    node: int = 0,
) -> RunOutput:
    """Run hccl_demo over a run's cards, in a container with no other cards, for at most so many seconds.

    indexes: the current device index of each module. command: the result of runs.command(). driver: its version.
    release: that of the vendor's software in the image. node of nodes: as passed to runs.command().
    """
    # Its log goes where the container can write; the program knows its own directory.
    argv = [command["argv"][0], f"{DEMO}/{command['argv'][1]}", *command["argv"][2:]]
    cards = ",".join(str(indexes[each]) for each in run.modules)
    variables = {"HABANA_VISIBLE_DEVICES": cards, **command["environment"]}
    given = [word for name, value in variables.items() for word in ("--env", f"{name}={value}")]
    given += ["--cap-add", HOST_NICS_CAPABILITY] if run.over_host_nics else []
    program = [*ISOLATION, *MEASURES, *given, "--entrypoint", argv[0], image, *argv[1:]]
    devices = {index: each for each, index in indexes.items() if each in run.modules}
    passed: list[tuple[int, ...] | None] = []
    ended = containers.run_once(
        module, CONTAINER, program, seconds, began=lambda: passed.append(_passed(module, devices))
    )
    return parse_output(
        ended.text,
        ranks=run.ranks * nodes,
        status=ended.status,
        limit=seconds,
        host_nics=run.over_host_nics,
        no_memory=ended.no_memory,
        silent=node > 0,
        facts=replace(
            read_facts(devices),
            driver=driver,
            image=release,
            passed=passed[0] if passed else None,
        ),
    )


def _passed(module: AnsibleModule, devices: Mapping[int, int]) -> tuple[int, ...] | None:
    """Return the modules whose device the measuring container has; None where it has ended.

    devices: module ids by device index.
    """
    docker = module.get_bin_path("docker", required=True)
    said = module.run_command([docker, "inspect", "--format", "{{.State.Pid}}", CONTAINER])[1].strip()
    return read_passed(int(said), devices) if said.isdecimal() and int(said) else None


def hl_qual(module: AnsibleModule, kind: CardType, tests: Sequence[str], limit: int) -> tuple[burn_in.BurnIn, str]:
    """Run hl_qual over all cards, each test for at most so many seconds; return the outcome and its output.

    It finds its files by variables that its packages set for login shells (/etc/profile.d).
    """
    timeout = [module.get_bin_path("timeout", required=True), "--kill-after=30", str(limit)]
    shell = [module.get_bin_path("bash", required=True), "-lc", 'exec "$@"', "hl_qual"]
    found, said = [], []
    for test in tests:
        for command in burn_in.commands(kind.generation, test, len(kind.fabric.groups) if kind.fabric else 1):
            begun = time.monotonic()
            status, out, err = module.run_command([*timeout, *shell, *command])
            stopped = status in containers.TIMED_OUT and time.monotonic() - begun >= limit
            found.append((test, burn_in.parse_hl_qual(out + err, None if stopped else status)))
            # People read it in a terminal.
            said.append(f"# {' '.join(command)}\n{printable_lines(out + err)}\n")
    return burn_in.combined(found), "".join(said)


def free_port(address: str = "127.0.0.1") -> int:
    """Return a free port at one of this node's addresses. Raises OSError for an address that it does not have."""
    with socket.socket() as asked_for:
        asked_for.bind((address, 0))
        return int(asked_for.getsockname()[1])


@contextlib.contextmanager
def alone(lock: Path) -> Iterator[None]:
    """Hold the measurement lock. Raises Refusal if another run measures, or if a directory is in the lock's place."""
    lock.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    try:
        handle = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except IsADirectoryError:
        damage = Damaged(str(lock), "it is a directory")
        raise Refusal("acceptance_lock_damaged", f"{damage}. Move it away, then run this again.") from None
    try:
        _take(handle, lock)
        yield
    finally:
        os.close(handle)


def _take(handle: int, lock: Path) -> None:
    try:
        take_turn(handle, lock, ASKED_SECONDS)
    except Refusal:
        raise Refusal(
            "measured_by_another_run",
            "Another run measures the cards and links of this node now, or still does although it was interrupted. Run "
            "this again when it has ended.",
        ) from None


def end_interrupted(module: AnsibleModule, *, again: bool, remove: bool) -> bool:
    """Remove the container that an interrupted run has left, and return whether the cards that it uses count as free.

    With a card that hangs it would stay for good. again: a new measurement is requested, which is impossible while
    another run measures. remove: False where nothing is to change. Raises Refusal as ``alone`` does.
    """
    docker = module.get_bin_path("docker")
    if docker is None or not LOCK.exists():
        return False
    if not remove:
        return not reservations.is_held(LOCK)
    try:
        with alone(LOCK):
            status, _, err = module.run_command([docker, "rm", "--force", "--volumes", CONTAINER])
    except Refusal:
        if again:
            raise
        return False
    # Earlier engines fail where there is none.
    return status == 0 or "no such container" in err.lower()


@dataclass(frozen=True)
class MeasuredNode:
    """What a measurement reads: cards, images and what a verdict on them is about, last verdict, cards in use."""

    cards: NodeCards
    made_of: verdict.VerdictSubject
    image: Mapping[str, Any]
    others: Mapping[str, Mapping[str, Any]]
    before: dict[str, Any] | None
    busy: tuple[int, ...]

    @property
    def made_of_others(self) -> dict[str, verdict.VerdictSubject]:
        """By reference of each other image: what a verdict measured with that image would be about."""
        return {reference: made_of(self.cards, image) for reference, image in self.others.items()}


def last_verdict() -> tuple[dict[str, Any] | None, Damaged | None]:
    """Return the node's last verdict (None without a valid one), and why its file cannot be read."""
    try:
        return read(VERDICT, verdict.read_verdict), None
    except Damaged as damage:
        return None, damage


def look(module: AnsibleModule, given: Mapping[str, Any], *, build: bool) -> MeasuredNode:
    """Read the node and its images; given: options of the module fabric_check. Changes nothing without ``build``.

    Raises Refusal if no container of an image can be inspected.
    """
    wanted = static.ExpectedFabric(
        cards=given["expected_cards"],
        external=given["external"],
        mtu=given["external_mtu"] or None,
        speed=given["external_speed"] or None,
    )
    ended = end_interrupted(module, again=given["again"], remove=build)
    cards = read_cards(module, given["card_types"], wanted)
    if ended:
        cards = replace(cards, topology=asked.without_user(cards.topology, CONTAINER))
    demo = measuring.Demo.from_mapping(given["demo"])
    # An instance on one card needs no measurement.
    measures = given["again"] or bool(given["burn_in"]) or any(len(plan["modules"]) > 1 for plan in given["plans"])
    image = look_into(module, given, given["image"], demo if measures else None, build=measures and build)
    others = {
        reference: look_into(module, given, reference, demo, build=False)
        for reference in asked.other_images(given["plans"], given["image"])
    }
    busy = cards.busy(drain=given["drain"])
    return MeasuredNode(cards, made_of(cards, image), image, others, last_verdict()[0], busy)


def made_of(cards: NodeCards, image: Mapping[str, Any]) -> verdict.VerdictSubject:
    """What a verdict on these cards and this image is about."""
    topology = cards.topology
    firmware = sorted({str(card["firmware"]) for card in topology["cards"] if card["firmware"]})
    return verdict.VerdictSubject(
        serials={str(card["module_id"]): str(card["serial"]) for card in topology["cards"]},
        driver=topology["driver_version"],
        firmware=", ".join(firmware) or None,
        base_image=image.get("base"),
        libfabric=image.get("libfabric"),
        wrapper=image.get("wrapper"),
        hccl_demo=image.get("hccl_demo"),
    )


def look_into(
    module: AnsibleModule, given: Mapping[str, Any], reference: str, demo: measuring.Demo | None, *, build: bool
) -> dict[str, Any]:
    """Read an image. If no instance needs the verdict, an image that cannot be inspected is only a warning."""
    try:
        provider = given["provider"] if given["host_nics"] else ""
        return read_measured(module, reference, provider, demo, given["proxies"], build=build)
    except Refusal as refusal:
        if given["required"] and not given["override"]:
            raise
        module.warn(str(refusal))
        return {"unread": str(refusal)}


def work(node: MeasuredNode, given: Mapping[str, Any]) -> asked.AcceptanceWork:
    """Return the work of an acceptance run on this node. Raises Refusal for tests that hccl_demo does not accept."""
    work = asked.work(
        node.cards.fabric,
        node.cards.modules,
        given,
        node.before,
        node.made_of,
        node.cards.faults,
        node.image,
        node.busy,
    )
    bounds = ComputeBounds.from_cards(given["card_types"])
    cards = node.cards.topology["cards"]
    return asked.with_compute(work, given, node.before, cards, node.cards.fabric, node.image, bounds, boot())


def boot() -> str:
    """Return the id of the node's boot."""
    return BOOT.read_text(encoding="ascii").strip()


def policy(given: Mapping[str, Any]) -> verdict.Policy:
    """Return what the site asks for."""
    return verdict.Policy(given["required"], given["override"])


def answers(
    module: AnsibleModule,
    node: MeasuredNode,
    document: Mapping[str, Any] | None,
    given: Mapping[str, Any],
    plans: Sequence[Mapping[str, Any]],
) -> tuple[verdict.Permission, ...]:
    """Return for each of these plans whether it may start, by this verdict."""
    return asked.answers(
        document, node.made_of, plans, policy(given), lambda name: instances.is_up(module, name), node.made_of_others
    )
