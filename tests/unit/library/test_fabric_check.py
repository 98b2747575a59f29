"""fabric_check: what it runs, what it keeps, and what it says may start; with scripted commands."""

from __future__ import annotations

import fcntl
import json
import re
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.gaudi.base.refusal import Refusal
from ansible.module_utils.gaudi.cards.document import new_card, new_topology
from ansible.module_utils.gaudi.fabric import burn_in, measuring
from ansible.module_utils.gaudi.faults.facts import Facts
from ansible.module_utils.gaudi.node import computing, containers, engine_look, links, package_states, states
from ansible.module_utils.gaudi.node import instances as units

from library import fabric_check
from simulator.standins.node.habana_container_runtime import choose
from tests.unit.host.modules import run_main
from tests.unit.node.damages import DAMAGES, damage

ROOT = Path(__file__).resolve().parents[3]
CARD_TYPES = yaml.safe_load((ROOT / "catalog" / "cards.yml").read_text(encoding="utf-8"))
IMAGE = "gaudi-serving/vllm:1.22"
LOOKED: dict[str, Any] = {
    "hccl_demo": "abc",
    "wrapper": None,
    "version_text": None,
    "info_text": None,
    "info_status": None,
}
LOOKED |= {"loader_text": None, "loader_status": None, "computes": False}
LOADED = {"version_text": "libfabric: 1.22.0", "info_text": "provider: verbs", "info_status": 0, "loader_status": 0}
LOADED |= {"loader_text": "/usr/lib/habanalabs/libhccl_ofi_wrapper.so\n"}
PRINTED = (
    "[BENCHMARK] hcclAllReduce(dataSize=33554432, count=8388608, dtype=float, iterations=10000)\n"
    "[BENCHMARK]     NW Bandwidth   : {:f} GB/s\n[BENCHMARK]     Algo Bandwidth : {:f} GB/s\n"
)
Run = Callable[..., dict[str, Any]]


def full(modules: list[int]) -> float:
    """GB/s of sound HL-225."""
    return 258.209121 * (len(modules) - 1) / 7


@dataclass
class FabricNode:
    """A scripted node: what its cards are, and what hccl_demo prints over modules."""

    folder: Path
    name: str = "HL-225"
    modules: list[int] = field(default_factory=lambda: list(range(8)))
    driver: str = "1.22.1-97ec1a4"
    users: dict[int, list[dict[str, Any]]] = field(default_factory=dict)
    down: list[tuple[int, int]] = field(default_factory=list)
    tells_ports: bool = True
    mtu: int = 9000
    bandwidth: Callable[[list[int]], float] = full
    status: int = 0
    # How many ranks the figures are printed for; as many as the run has modules where nothing is said.
    ranks: int = 0
    # The process of the container that measures; 0 where it has ended.
    pid: int = 0
    # Whether the kernel ended the container for want of memory.
    no_memory: bool = False
    image: bool = True
    # Other images than the one that measures, with their ids; what is not here is not on the node.
    others: dict[str, str] = field(default_factory=dict)
    has_demo: bool = True
    labels: dict[str, str] = field(default_factory=dict)
    # Images that measure: what a build says that fails, those that were built, and what earlier ones left.
    build_fails: str = ""
    rm_fails: str = ""
    built: list[str] = field(default_factory=list)
    old_images: list[str] = field(default_factory=list)
    # Status and output of hl_qual.
    qual: tuple[int, str] = (0, "")
    # Seconds on the node's clock, and how long a command that ends with a limit's status takes.
    clock: float = 0.0
    takes: float = 1e6
    # What a run over host NICs that asks for Gaudi Direct prints; empty where it has it.
    without_direct: str = ""
    # Whether the image has libfabric with a provider, and the wrapper.
    loads: bool = False
    # Whether the image has PyTorch for the cards, which modules of them compute wrongly, and the requests of the check.
    computes: bool = False
    wrong: list[int] = field(default_factory=list)
    computed: list[dict[str, Any]] = field(default_factory=list)
    # Who has which card while numbers are checked.
    reserved: list[dict[str, Any]] = field(default_factory=list)
    # What the container ends with; 137 and nothing printed where somebody ended it.
    compute_status: int = 0
    boot: str = "boot-1"
    # What systemd says of every instance.
    active: str = "inactive"
    # What every run ends with; empty where it ends well.
    fails: str = ""
    commands: list[list[str]] = field(default_factory=list)

    def tick(self) -> float:
        """The node's clock, which goes on while somebody waits."""
        self.clock += 0.2
        return self.clock

    def topology(self, *_: Any, **__: Any) -> dict[str, Any]:
        cards = []
        for module in self.modules:
            card = new_card(7 - module, module)
            card.update(name=self.name, serial=f"AM{module}", bus_id=f"0000:{module:02x}:00.0", state="operational")
            card.update(users=self.users.get(module, []), temperature_c=30, firmware="fw-61")
            cards.append(card)
        return new_topology(cards, driver_version=self.driver)

    def ports(self, *_: Any, **__: Any) -> list[tuple[int, int, bool, bool]]:
        external = (8, 22, 23)
        return [
            (module, port, port in external, (module, port) not in self.down)
            for module in self.modules
            for port in range(24 if self.tells_ports else 0)
        ]

    def interfaces(self, *_: Any) -> list[tuple[int, str, str, bool, int, int | None]]:
        return [
            (module, f"card{module}p{port}", f"b0:fd:0b:00:{module:02x}:{port:02x}", True, self.mtu, 100000)
            for module in self.modules
            for port in (8, 22, 23)
        ]

    def answer(self, command: list[str]) -> tuple[int, str, str]:
        self.commands.append(command)
        if command[1:3] == ["rm", "--force"] and self.rm_fails:
            return 1, "", self.rm_fails
        if command[1:3] == ["rm", "--force"]:
            rest = {
                m: [user for user in users if user["container_name"] != command[4]] for m, users in self.users.items()
            }
            self.users = {module: users for module, users in rest.items() if users}
        if "-dis_mon" in command:
            return self.qual[0], self.qual[1], ""
        if "--format" in command and "{{.State.OOMKilled}}" in command:
            return 0, f"{str(self.no_memory).lower()}\n", ""
        if "build" in command:
            self.built += [] if self.build_fails else [command[command.index("--tag") + 1]]
            return (1, "", self.build_fails) if self.build_fails else (0, "", "")
        if "ls" in command:
            return 0, "\n".join([*self.old_images, *self.built]), ""
        if "--format" in command and "{{.State.Pid}}" in command:
            return 0, f"{self.pid}\n", ""
        if "inspect" in command and command[-1].startswith("gaudi-serving/measuring:"):
            return (0, "sha256:2", "") if command[-1] in self.built else (1, "", "no such image")
        if "inspect" in command:
            known = {**({IMAGE: "sha256:1"} if self.image else {}), **self.others}.get(command[-1])
            return (0, json.dumps([{"Id": known, "Config": {"Labels": self.labels}}]), "") if known else (1, "", "no")
        if "--property=ActiveState" in command:
            return 0, f"ActiveState={self.active}\n", ""
        if "HCCL_GAUDI_DIRECT=1" in command and self.without_direct:
            return 1, self.without_direct, ""
        if "--interactive" in command:
            return self.compute(json.loads(command[-1]))
        if "HCCL_COMM_ID" in " ".join(command) and self.fails:
            return 1, self.fails, ""
        if "HCCL_COMM_ID" in " ".join(command):
            listed = next(word for word in command if word.startswith("HABANA_VISIBLE_MODULES="))
            modules = [int(part) for part in listed.partition("=")[2].split(",")]
            network, ranks = self.bandwidth(modules), self.ranks or len(modules)
            self.clock += self.takes if self.status in containers.TIMED_OUT else 1
            return self.status, PRINTED.format(network, network / (2 * (ranks - 1) / ranks)), ""
        if "run" in command and self.loads:
            return 0, json.dumps({**LOOKED, **LOADED}), ""
        if "run" in command:
            demo = LOOKED["hccl_demo"] if self.has_demo else None
            return 0, json.dumps({**LOOKED, "hccl_demo": demo, "computes": self.computes}), ""
        return 0, "", ""

    def compute(self, asked: dict[str, Any]) -> tuple[int, str, str]:
        """What the program of the compute check prints for a request."""
        self.computed.append(asked)
        self.reserved.append(json.loads((self.folder / "cards.lock").read_text())["reservations"])
        said = []
        for module in asked["cards"] if not self.compute_status else ():
            of = {"module": module, "group": []}
            wrong = {"wrong": int(module in self.wrong), "of": 9, "at": 4, "expected": "1", "got": "2"}
            said += [{**of, "check": check, **wrong} for check in ("copy", "gather")]
            said += [{**of, "check": "matmul", "of": 9, "error": 0.0}, {**of, "done": True}]
        for group in asked["groups"] if not self.compute_status and not self.wrong else ():
            said += [{"module": each, "group": group, "check": "all_reduce", "wrong": 0, "of": 9} for each in group]
        return self.compute_status, "".join(f"gaudi-compute {json.dumps(each)}\n" for each in said), ""

    def measured(self) -> list[list[str]]:
        """The commands that ran hccl_demo."""
        return [command for command in self.commands if "HCCL_COMM_ID" in " ".join(command)]

    def verdict(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads((self.folder / "acceptance.json").read_text())
        return document


def answer_all(patch: pytest.MonkeyPatch, answer: Callable[[list[str]], tuple[int, str, str]]) -> None:
    """Have every command answered, those of containers as well."""
    patch.setattr(AnsibleModule, "run_command", lambda _self, command, **_: answer(command))

    def run_limited(
        command: list[str], _data: str = "", began: Callable[[], None] | None = None
    ) -> tuple[int, str, str]:
        said = answer(command)
        if began is not None:
            began()
        return said

    patch.setattr(containers, "run_limited", run_limited)


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FabricNode:
    made = FabricNode(tmp_path)
    monkeypatch.setattr(links, "VERDICT", tmp_path / "acceptance.json")
    monkeypatch.setattr(links, "boot", lambda: made.boot)
    monkeypatch.setattr(computing, "STATE", tmp_path)
    monkeypatch.setattr(computing, "PLANS", tmp_path / "instances")
    monkeypatch.setattr(fabric_check, "REPORT", tmp_path / "acceptance.html")
    monkeypatch.setattr(links, "LOCK", tmp_path / "acceptance.lock")
    monkeypatch.setattr(links, "read_topology", made.topology)
    monkeypatch.setattr(links, "read_ports", made.ports)
    monkeypatch.setattr(links, "read_interfaces", made.interfaces)
    monkeypatch.setattr(links, "known_hosts", lambda _names: {})
    # Not the processes of this machine, among which are those of simulated nodes.
    monkeypatch.setattr(links, "read_facts", lambda devices: Facts(cards=tuple(sorted(devices.values()))))
    monkeypatch.setattr(links, "GAUDINET", (tmp_path / "gaudinet.json", tmp_path / "older.json"))
    monkeypatch.setattr(AnsibleModule, "get_bin_path", lambda _self, program, **_: f"/usr/bin/{program}")
    answer_all(monkeypatch, made.answer)
    monkeypatch.setattr(time, "monotonic", made.tick)
    return made


def check(check: bool = False, **given: Any) -> dict[str, Any]:
    arguments = {"node": "n", "image": IMAGE, "card_types": CARD_TYPES, "expected_cards": 8, **given}
    return run_main("library.fabric_check", arguments, check=check)


def plan(*modules: int, instance: str = "one", image: str = IMAGE) -> dict[str, Any]:
    cards = [{"module_id": module} for module in modules]
    return {"instance": instance, "image": image, "modules": cards, "requires": {"host_nics": False}}


def test_a_sound_node_is_measured_once_and_accepted(node: FabricNode) -> None:
    first = check(plans=[plan(0, 1, 2, 3)])
    assert (first["changed"], first["measured"], first["held_back"]) == (True, True, [])
    assert node.verdict()["state"] == "accepted"
    for name in ("acceptance.json", "acceptance.html"):
        assert (node.folder / name).stat().st_mode & 0o777 == 0o644
    again = check(plans=[plan(0, 1, 2, 3)])
    assert (again["changed"], again["measured"], again["held_back"]) == (False, False, [])
    assert len(node.measured()) == 1


def test_hccl_demo_runs_in_a_walled_container_with_the_cards_of_the_run(node: FabricNode) -> None:
    check(limit=77)
    (command,) = node.measured()
    assert command[:4] == ["/usr/bin/timeout", "--kill-after=10", "77", "/usr/bin/docker"]
    text = " ".join(command)
    assert "--cap-drop ALL" in text
    assert "--read-only" in text
    assert "--privileged" not in text
    # Module 0 has the index 7 here.
    assert "HABANA_VISIBLE_DEVICES=7,6,5,4,3,2,1,0" in text
    assert re.search(r"HCCL_COMM_ID=127\.0\.0\.1:[0-9]{4,5} ", text)
    assert command[command.index(IMAGE) :] == [
        *(IMAGE, "/opt/hccl_demo/run_hccl_demo.py", "--test", "all_reduce", "--nranks", "8", "--ranks_per_node", "8"),
        *("--node_id", "0", "--size", "32m", "--loop", "10000", "--no_color"),
    ]
    place = node.commands.index(command)
    end = ["/usr/bin/docker", "rm", "--force", "--volumes", "gaudi-fabric-check"]
    assert node.commands[place - 1] == node.commands[place + 2] == end
    assert node.commands[place + 1][1:] == ["inspect", "--format", "{{.State.Pid}}", "gaudi-fabric-check"]


@pytest.mark.parametrize("over_nics", [False, True])
def test_a_container_that_looks_into_an_image_has_no_card_and_no_network(node: FabricNode, over_nics: bool) -> None:
    """Instances serve beside it, and the image says what it likes of the cards that it wants."""
    check(host_nics=over_nics)
    (looked,) = [command for command in node.commands if links.LOOK in command]
    before = " ".join(looked[: looked.index(IMAGE)])
    assert "--env HABANA_VISIBLE_DEVICES=none" in before
    # fi_info looks at the node's NICs, with what a run is given.
    assert f"--network {'host' if over_nics else 'none'}" in before
    assert (
        "--env LD_LIBRARY_PATH=/opt/libfabric/lib:/opt/amazon/openmpi/lib:/usr/lib/habanalabs" in before
    ) is over_nics
    for wall in (
        "--cap-drop ALL",
        "--security-opt no-new-privileges",
        "--read-only",
        "--ulimit core=0:0",
        "--pids-limit 256",
        "--memory 16g",
    ):
        assert wall in before
    assert "--cap-add" not in before
    assert "memlock" not in before


@pytest.mark.parametrize(
    ("made", "status", "words"),
    [("library", 0, "/libhccl_ofi_wrapper.so\n"), ("text", 1, "OSError"), ("", 1, "cannot open shared object file")],
)
def test_the_wrapper_is_what_the_loader_loads(made: str, status: int, words: str, tmp_path: Path) -> None:
    """As HCL asks for it: by its name, along the path of the loader, and not where somebody has put it."""
    wrapper = tmp_path / "libhccl_ofi_wrapper.so"
    if made == "library":
        maps = Path("/proc/self/maps").read_text(encoding="utf-8")
        wrapper.write_bytes(Path(re.findall(r" (/\S+/libm[.-]\S+)$", maps, re.MULTILINE)[0]).read_bytes())
    elif made:
        wrapper.write_text("simulated\n", encoding="utf-8")
    looked = subprocess.run(
        [sys.executable, "-c", links.LOOK, "/nowhere", "verbs"],
        env={"PATH": "/usr/bin", "LD_LIBRARY_PATH": str(tmp_path)},
        check=True,
        stdout=subprocess.PIPE,
    )
    found = json.loads(looked.stdout)
    assert found["loader_status"] == status
    assert words in found["loader_text"]
    assert set(found) == set(links.LOOKED)


def test_the_vendors_runtime_gives_all_cards_to_whom_nobody_names_any() -> None:
    """As the stand-in has it from the vendor's sources; "none" is the name of no card."""
    assert choose(None, [0, 1])[0] == [0, 1]
    assert choose("none", [0, 1])[0] == []


@pytest.mark.parametrize("printed", ["", "[]", "7", "{}", "no JSON", json.dumps({**LOOKED, "hccl_demo": {"a": 1}})])
def test_an_image_that_prints_something_else_is_refused(
    printed: str, node: FabricNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lying(command: list[str]) -> tuple[int, str, str]:
        return (0, printed, "") if "run" in command else node.answer(command)

    answer_all(monkeypatch, lying)
    assert check()["refused_id"] == "image_not_looked_into"
    assert not (node.folder / "acceptance.json").exists()


@pytest.mark.parametrize(
    ("error", "advice", "no_advice"),
    [
        ('exec: "docker-init": executable file not found in $PATH.', "--reinstall docker-ce installs", "--runtime"),
        ("unknown or invalid runtime name: habana.", "docker run --runtime habana", "docker-init"),
        ("no space left on device.", "no space left on device.", "--runtime"),
    ],
)
def test_an_engine_that_starts_no_container_is_quoted_as_the_cause(
    error: str, advice: str, no_advice: str, node: FabricNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(command: list[str]) -> tuple[int, str, str]:
        said = f"docker: Error response from daemon: {error}\n\nRun 'docker run --help' for more information\n"
        if command[0] == "dpkg-query":
            return 0, "docker-ce: /usr/bin/dockerd\n", ""
        if command[:2] == ["systemctl", "show"] and "docker.service" in command:
            return 0, "LoadState=loaded\nActiveState=active\n", ""
        return (127, "", said) if "run" in command else node.answer(command)

    (node.folder / "usr/bin").mkdir(parents=True)
    (node.folder / "usr/bin/dockerd").touch(mode=0o755)
    (node.folder / "os-release").write_text("ID=ubuntu\n")
    monkeypatch.setattr(engine_look, "ROOT", node.folder)
    monkeypatch.setattr(engine_look, "PROC", node.folder / "proc")
    monkeypatch.setattr(package_states, "OS_RELEASE", node.folder / "os-release")
    answer_all(monkeypatch, failing)
    said = check()
    assert said["refused_id"] == "engine_starts_no_container"
    assert f"The engine could not start a container: {error}" in said["msg"]
    assert advice in said["msg"]
    assert no_advice not in said["msg"]


def test_a_container_that_looks_into_an_image_is_ended_as_well(
    node: FabricNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it printed is no text to trust."""

    def hanging(command: list[str]) -> tuple[int, str, str]:
        done = node.answer(command)
        node.clock += 60 if "run" in command else 0
        return (124, "\x1b[31mwaiting", "") if "run" in command else done

    answer_all(monkeypatch, hanging)
    said = check()
    assert said["refused_id"] == "image_not_looked_into"
    assert "did not end within 60 seconds: " in said["msg"]
    assert "\x1b" not in said["msg"]
    assert node.commands[-1] == ["/usr/bin/docker", "rm", "--force", "--volumes", links.LOOKING]
    for options in ({"required": False}, {"override": "the window is on Sunday"}):
        let = check(plans=[plan(0, 1)], **options)
        assert let["held_back"] == []
        assert "did not end within 60 seconds" in node.verdict()["not_measured"]


def test_a_link_that_is_down_is_found_without_running_anything(node: FabricNode) -> None:
    node.down = [(5, 9)]
    said = check(plans=[plan(4, 5), plan(0, instance="alone")])
    assert node.measured() == []
    assert [fault["modules"] for fault in node.verdict()["faults"]] == [[5]]
    (refused,) = said["held_back"]
    assert refused.startswith("one: ")
    assert "internal ports down: 9" in refused
    assert not check()["changed"], "the same fault is no news"
    node.down = []
    assert check(plans=[plan(4, 5)])["held_back"] == []
    assert len(node.measured()) == 1


def test_interfaces_are_looked_at_where_the_cards_talk_to_other_nodes(node: FabricNode) -> None:
    node.mtu = 1500
    assert check()["verdict"]["state"] == "accepted"
    assert check(external=True)["verdict"]["faults"] == []
    said = check(external=True, external_mtu=9000, external_speed=100000, plans=[plan(0), plan(1, 2, instance="two")])
    assert {fault["id"] for fault in node.verdict()["faults"]} == {"interface-wrong"}
    (refused,) = said["held_back"]
    assert refused.startswith("two: ")
    assert "card1p8 of module 1" in refused
    assert "an MTU of 1500 where 9000 is wanted" in refused


@pytest.mark.parametrize("name", ["gaudinet.json", "older.json"])
def test_a_gaudinet_of_other_cards_is_found_without_running_anything(node: FabricNode, name: str) -> None:
    entries = [
        {"NIC_MAC": mac, "NIC_IP": f"10.0.{module}.{place}", "SUBNET_MASK": "255.255.255.0"}
        for place, (module, _, mac, *_) in enumerate(node.interfaces())
    ]
    (node.folder / name).write_text(json.dumps({"NIC_NET_CONFIG": entries}))
    assert check()["verdict"]["state"] == "accepted"
    entries[0]["NIC_MAC"] = "b0:fd:0b:ff:ff:ff"
    (node.folder / name).write_text(json.dumps({"NIC_NET_CONFIG": entries}))
    said = check(plans=[plan(0), plan(1, 2, instance="two")])
    assert [sentence[:5] for sentence in said["held_back"]] == ["two: "]
    assert "is stale: 1 of its 24 addresses" in said["held_back"][0]
    assert len(node.measured()) == 1
    (node.folder / name).unlink()
    (node.folder / name).mkdir()
    check()
    assert [fault["id"] for fault in node.verdict()["faults"]] == ["gaudinet-unreadable"]


@pytest.fixture
def qual(node: FabricNode, monkeypatch: pytest.MonkeyPatch) -> Path:
    """hl_qual as a package installs it."""
    program = node.folder / "hl_qual"
    program.touch()
    monkeypatch.setattr(burn_in, "program", lambda _generation: str(program))
    monkeypatch.setattr(fabric_check, "LOG", node.folder / "burn_in.log")
    return program


PASSED = "lots of text\nTest result summary\nMemory : PASSED\n"


def test_a_burn_in_comes_first_and_is_kept_as_long_as_the_cards(node: FabricNode, qual: Path) -> None:
    node.qual = (0, PASSED)
    said = check(burn_in=["power", "memory"], burn_in_limit=99, plans=[plan(0)])
    calls = [command for command in node.commands if str(qual) in command]
    assert calls[0] == [
        *("/usr/bin/timeout", "--kill-after=30", "99", "/usr/bin/bash", "-lc", 'exec "$@"', "hl_qual", str(qual)),
        *("-gaudi2", "-c", "all", "-rmod", "parallel", "-dis_mon", "-mb", "-memOnly"),
    ]
    assert calls[1][-1] == "-s"
    assert node.commands.index(calls[1]) < node.commands.index(node.measured()[0])
    assert node.verdict()["burn_in"]["passed"] is True
    assert "burn-in: hl_qual passed: memory, power." in "\n".join(said["lines"])
    assert (node.folder / "burn_in.log").read_text().count(PASSED) == 2
    check(again=True)
    assert node.verdict()["burn_in"]["passed"] is True
    assert len([command for command in node.commands if str(qual) in command]) == 2


def test_the_log_of_a_burn_in_does_nothing_to_a_terminal(node: FabricNode, qual: Path) -> None:
    node.qual = (0, f"\x1b]0;title\x07\x1b[2J{PASSED}")
    check(burn_in=["memory"])
    log = (qual.parent / "burn_in.log").read_text()
    assert log.count(PASSED) == 1
    assert "\x1b" not in log
    assert "\x07" not in log


def test_a_failed_burn_in_keeps_every_instance_until_another_one_passes(node: FabricNode, qual: Path) -> None:
    node.qual = (1, "Test result summary\nMemory : FAILED\n")
    said = check(burn_in=["memory"], plans=[plan(0)])
    assert node.verdict()["state"] == "failed"
    assert "hl_qual failed: Memory" in said["held_back"][0]
    assert check(again=True, plans=[plan(0)])["held_back"] == said["held_back"]
    node.qual = (0, PASSED)
    assert check(burn_in=["memory"], plans=[plan(0)])["held_back"] == []
    assert qual.exists()


def test_a_burn_in_is_refused_while_a_card_is_used_and_left_out_where_it_cannot_be(
    node: FabricNode, qual: Path
) -> None:
    node.qual = (0, PASSED)
    node.users = {5: [{"pid": 1, "name": "python3", "unit": None, "container": None, "container_name": None}]}
    assert check(burn_in=["memory"])["refused_id"] == "cards_in_use_to_measure"
    node.users = {}
    assert check(burn_in=["everything"])["failed"]
    foreseen = check(check=True, burn_in=["memory", "pci"])
    assert foreseen["plan"].startswith(
        "memory, pci of hl_qual, which may reset cards and take an hour each; all_reduce"
    )
    assert not [command for command in node.commands if str(qual) in command]
    node.down = [(5, 9)]
    check(burn_in=["memory"])
    assert "was not run: the static checks" in node.verdict()["burn_in"]["sentence"]
    node.down = []
    qual.unlink()
    check(burn_in=["memory"])
    assert "habanalabs-qual" in node.verdict()["burn_in"]["sentence"]


def test_a_missing_card_is_found_without_running_anything(node: FabricNode) -> None:
    node.modules = [0, 1, 2, 3, 4, 5, 6]
    said = check(plans=[plan(0, 1)])
    assert node.measured() == []
    assert "7 cards are seen (modules: 0-6), but gaudi_expected_cards says 8" in said["held_back"][0]
    assert check(plans=[plan(0)])["held_back"] == [], "one card asks for itself only"


def test_a_slow_card_is_named(node: FabricNode) -> None:
    node.bandwidth = lambda modules: full(modules) * (0.5 if 5 in modules else 1)
    said = check(plans=[plan(*range(8))])
    (located,) = node.verdict()["located"]
    assert (located["kind"], located["modules"]) == ("card", [5])
    assert "module 5" in said["held_back"][0].lower()
    assert 1 < len(node.measured()) <= 1 + 6


def test_a_run_that_hangs_is_ended_and_named(node: FabricNode) -> None:
    node.status = 124
    said = check(plans=[plan(*range(8))], limit=10)
    assert node.verdict()["state"] == "failed"
    assert node.verdict()["measurements"][0]["failure"]
    assert re.search(r"\b10 s", said["held_back"][0])
    assert node.commands[-1] != node.measured()[-1], "its container is removed"


@pytest.mark.parametrize(("no_memory", "word"), [(True, "[hccl-no-memory]"), (False, "[hccl-killed]")])
def test_a_container_that_others_ended_says_nothing_of_the_cards(node: FabricNode, no_memory: bool, word: str) -> None:
    """Status 137 before the limit is no hang, and the node is measured again as soon as somebody asks."""
    node.status, node.takes, node.no_memory = 137, 3, no_memory
    said = check(plans=[plan(0), plan(1, 2, instance="two")])
    assert node.verdict()["state"] == "not_measured"
    assert word in node.verdict()["not_measured"]
    assert [sentence[:5] for sentence in said["held_back"]] == ["two: "]
    assert len(node.measured()) == 1, "no card is looked for"
    node.status = 0
    assert check(plans=[plan(1, 2)])["held_back"] == []


@pytest.mark.parametrize("status", containers.TIMED_OUT)
def test_one_that_is_ended_at_the_limit_hung(node: FabricNode, status: int) -> None:
    node.status, node.takes = status, 20
    check(limit=10)
    assert node.verdict()["measurements"][0]["failure"] == "hccl-hangs"


@pytest.mark.parametrize(
    ("said", "id_"),
    [
        ("Affinity: Issue while trying to run hl-smi, aborting...", "hccl-affinity"),
        ("HCCL demo error: [validate_arguments] Argument loop was set to: 0", "hccl-arguments"),
        ("HCCL demo error: [make_demo] The following make command has failed: make", "hccl-demo-not-built"),
    ],
)
def test_what_fails_with_any_cards_has_nobody_looked_for(node: FabricNode, said: str, id_: str) -> None:
    node.fails = said
    check()
    (measured,) = node.verdict()["measurements"]
    assert (measured["failure"], node.verdict()["located"]) == (id_, [])
    assert len(node.measured()) == 1


@pytest.mark.parametrize(
    ("pid", "passed", "id_"),
    [
        (4242, (0, 1, 2, 4, 5, 6, 7), "card-not-passed"),
        (4242, tuple(range(8)), "card-not-acquired"),
        (4242, None, "card-not-acquired"),
        # It ended before anybody looked.
        (0, (), "card-not-acquired"),
    ],
)
def test_a_card_that_the_measuring_container_lacks_is_named(
    node: FabricNode, monkeypatch: pytest.MonkeyPatch, pid: int, passed: tuple[int, ...] | None, id_: str
) -> None:
    node.fails = (
        "HCCL demo error: In function initDevice(): synDeviceAcquire(&handle, nullptr) failed with synapse error: 26"
    )
    asked: list[tuple[int, dict[int, int]]] = []

    def read_passed(process: int, devices: dict[int, int]) -> tuple[int, ...] | None:
        asked.append((process, devices))
        return passed

    node.pid = pid
    monkeypatch.setattr(links, "read_passed", read_passed)
    check()
    (measured, *_) = node.verdict()["measurements"]
    assert (measured["failure"], "no device of module 3." in measured["sentence"]) == (id_, id_ == "card-not-passed")
    assert asked[:1] == ([(pid, {7 - module: module for module in range(8)})] if pid else [])
    # Other cards of the same container would not tell more.
    assert (len(node.measured()) == 1) is (id_ == "card-not-passed")


def test_a_search_that_somebody_ends_names_nobody(node: FabricNode, monkeypatch: pytest.MonkeyPatch) -> None:
    node.bandwidth = lambda modules: full(modules) * (0.5 if 5 in modules else 1)
    answer = node.answer

    def ended(command: list[str]) -> tuple[int, str, str]:
        return (137, "", "") if len(node.measured()) == 2 and "run" in command else answer(command)

    answer_all(monkeypatch, ended)
    check()
    (located,) = node.verdict()["located"]
    assert (located["kind"], located["modules"]) == ("group", list(range(8)))
    assert "Somebody ended" in located["sentence"]


def test_two_groups_that_nothing_joins_are_measured_apart_only(node: FabricNode) -> None:
    node.name = "HL-338"
    node.tells_ports = False
    said = check(plans=[plan(0, 1, 2, 3), plan(2, 5, instance="across")])
    assert [each["modules"] for each in node.verdict()["measurements"]] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    (refused,) = said["held_back"]
    assert refused.startswith("across: ")


def over_host(modules: list[int], across: float = 17.9) -> float:
    """GB/s of an HL-288E: its own links join modules 0 to 3 and 4 to 7, and the host joins the two groups."""
    return across if len({module // 4 for module in modules}) > 1 else full(modules)


ACROSS_HL_288E = [plan(0, 1, 2, 3), plan(2, 5, instance="two"), plan(*range(8), instance="all")]


def test_two_groups_that_the_host_joins_are_measured_together_as_well(node: FabricNode) -> None:
    node.name, node.tells_ports, node.bandwidth = "HL-288E", False, over_host
    said = check(plans=ACROSS_HL_288E)
    assert (groups(node), said["held_back"]) == ([[0, 1, 2, 3], [4, 5, 6, 7], list(range(8))], [])
    last = node.verdict()["measurements"][-1]
    assert (last["over_host"], last["class"], last["floor_gb_s"]) == (True, "good", pytest.approx(16.2))
    assert not any("HCCL_OVER_OFI=1" in command for command in node.measured())


def test_a_slow_host_holds_back_what_spans_the_groups_and_names_no_card(node: FabricNode) -> None:
    node.name, node.tells_ports, node.bandwidth = "HL-288E", False, lambda modules: over_host(modules, 16.1)
    said = check(plans=ACROSS_HL_288E)
    assert [sentence[:4] for sentence in said["held_back"]] == ["two:", "all:"]
    assert (len(node.measured()), node.verdict()["located"]) == (3, [])


def test_a_verdict_of_before_is_completed_once_all_cards_are_free(node: FabricNode) -> None:
    """Earlier releases measured the groups alone; the figures that they have stay."""
    node.name, node.tells_ports, node.bandwidth = "HL-288E", False, over_host
    check(plans=ACROSS_HL_288E)
    before = node.verdict()
    before["measurements"] = [
        {key: value for key, value in each.items() if key != "over_host"} for each in before["measurements"][:2]
    ]
    (node.folder / "acceptance.json").write_text(json.dumps(before))
    node.users = {5: [STRANGER]}
    waits = check(plans=ACROSS_HL_288E)
    assert (waits["measured"], len(waits["held_back"])) == (False, 2)
    node.users = {}
    said = check(plans=ACROSS_HL_288E)
    assert (len(node.measured()), groups(node)[-1], said["held_back"]) == (4, list(range(8)), [])
    assert "over PCIe and UPI" in said["why"]
    assert [each.get("time") for each in node.verdict()["measurements"][:2]] == [before["time"]] * 2


def test_a_mistyped_image_takes_no_verdict_away(node: FabricNode) -> None:
    """Whether the figures are stale nobody can tell without it; what is there stays."""
    check()
    before = node.verdict()
    said = check(again=True, image="nowhere/none:1")
    assert said["refused_id"] == "no_image_to_measure_with"
    assert "The image nowhere/none:1 is not on the node" in said["msg"]
    waits = check(image="nowhere/none:1", plans=[plan(0, 1, image="nowhere/none:1")])
    assert (waits["measured"], waits["changed"], len(waits["held_back"])) == (False, False, 1)
    assert node.verdict() == before
    node.down = [(5, 9)]
    assert check(image="nowhere/none:1")["measured"], "what the static checks find is news"


def test_what_cannot_be_measured_is_not_said_to_be(node: FabricNode) -> None:
    foreseen = check(check=True, again=True, image="nowhere/none:1")
    assert foreseen["plan"] == "nothing: The image nowhere/none:1 is not on the node"
    assert check(check=True, again=True)["plan"].startswith("all_reduce")


def test_check_mode_refuses_what_the_static_checks_end(node: FabricNode) -> None:
    """Nothing has to be run to know that."""
    check()
    before = node.verdict()
    node.down = [(5, 9)]
    foreseen = check(check=True, plans=[plan(4, 5)])
    assert node.verdict() == before
    assert "FAILED" in foreseen["lines"][0]
    done = check(plans=[plan(4, 5)])
    time = re.compile(r"20[0-9-]{8}T[0-9:+]+")
    assert [time.sub("", said) for said in foreseen["held_back"]] == [time.sub("", said) for said in done["held_back"]]
    assert len(done["held_back"]) == 1


STRANGER = {"pid": 1, "name": "python3", "unit": None, "container": None, "container_name": None}


def groups(node: FabricNode) -> list[list[int]]:
    """The cards of each measurement in the verdict."""
    return [each["modules"] for each in node.verdict()["measurements"]]


@pytest.fixture
def quads(node: FabricNode) -> FabricNode:
    """A node of two groups of four, which nothing but host NICs joins."""
    node.name, node.tells_ports = "HL-338", False
    return node


def test_a_group_is_measured_while_the_other_one_serves(quads: FabricNode) -> None:
    """The verdict says which cards it is not about; they are measured when they are free, and nothing else is."""
    quads.users = {5: [STRANGER]}
    plans = [plan(0, 1, 2, 3), plan(4, 5, 6, 7, instance="two")]
    said = check(plans=plans)
    assert groups(quads) == [[0, 1, 2, 3]]
    assert quads.verdict()["state"] == "accepted"
    (refused,) = said["held_back"]
    assert refused.startswith("two: Modules 4-7 were not measured. Modules 4-7 were in use")
    assert "  Modules 4-7 were in use, and not measured yet." in said["lines"]
    again = check(plans=plans)
    assert (again["measured"], again["held_back"]) == (False, [refused])
    quads.users = {1: [STRANGER]}
    foreseen = check(plans=plans, check=True)
    assert foreseen["plan"].startswith("all_reduce of 32m over modules 4, 5, 6, 7 ")
    said = check(plans=plans)
    assert (groups(quads), said["held_back"]) == ([[0, 1, 2, 3], [4, 5, 6, 7]], [])
    assert quads.verdict()["not_measured"] == ""
    assert len(quads.measured()) == 2
    assert not check(plans=plans)["measured"]
    quads.users = {}
    assert not check(plans=plans)["measured"]


def test_a_stale_verdict_is_made_anew_for_a_group_that_is_free(quads: FabricNode) -> None:
    """Of the other one nothing that was measured before holds; who runs there goes on."""
    check()
    quads.driver, quads.users = "1.23.0-2eae87a", {5: [STRANGER]}
    assert check(plans=[plan(4, 5, 6, 7)])["held_back"], "nobody asks for the free group"
    assert groups(quads) == [[0, 1, 2, 3], [4, 5, 6, 7]]
    quads.active = "active"
    said = check(plans=[plan(0, 1), plan(4, 5, 6, 7, instance="two")])
    assert (groups(quads), said["held_back"]) == ([[0, 1, 2, 3]], [])
    (warned,) = said["warnings_of_start"]
    assert warned.startswith("two: Modules 4-7 were not measured.")


def test_a_group_that_is_added_keeps_what_is_known_of_the_other_one(quads: FabricNode) -> None:
    quads.users = {5: [STRANGER]}
    quads.bandwidth = lambda modules: full(modules) * (0.5 if 2 in modules else 1)
    assert check(plans=[plan(0, 1, 2, 3)], floors=[{"collective": "all_reduce", "nw_gb_s": 90}])["held_back"]
    first = quads.verdict()
    quads.users = {}
    said = check(plans=[plan(0, 1, 2, 3), plan(4, 5, 6, 7, instance="two")])
    assert [sentence[:5] for sentence in said["held_back"]] == ["one: "]
    assert first["time"] in said["held_back"][0]
    found = quads.verdict()
    assert (found["state"], found["located"], groups(quads)) == (
        "failed",
        first["located"],
        [[0, 1, 2, 3], [4, 5, 6, 7]],
    )
    assert found["measurements"][0]["time"] == first["time"]
    quads.bandwidth = full
    assert check(again=True)["verdict"]["state"] == "accepted"
    assert [each.get("time") for each in quads.verdict()["measurements"]] == [None, None]


def test_cards_of_one_group_of_eight_are_measured_together_or_not_at_all(node: FabricNode) -> None:
    node.users = {5: [STRANGER]}
    assert check(plans=[plan(0, 1, 2, 3)])["held_back"]
    assert node.measured() == []


def test_to_measure_again_asks_for_all_cards(quads: FabricNode) -> None:
    quads.users = {5: [STRANGER]}
    assert check(again=True, plans=[plan(0, 1, 2, 3)])["refused_id"] == "cards_in_use_to_measure"


def test_all_cards_over_host_nics_wait_for_all_cards(quads: FabricNode) -> None:
    quads.loads, quads.users = True, {5: [STRANGER]}
    check(host_nics=True, plans=[plan(0, 1, 2, 3)])
    assert (groups(quads), quads.verdict()["host_nics"]) == ([[0, 1, 2, 3]], None)
    quads.users = {1: [STRANGER]}
    check(host_nics=True, plans=[plan(0, 1, 2, 3), plan(4, 5, 6, 7)])
    assert (groups(quads), quads.verdict()["host_nics"]) == ([[0, 1, 2, 3], [4, 5, 6, 7]], None)
    quads.users = {}
    assert check(host_nics=True, plans=[plan(0, 1, 2, 3)])["measured"]
    assert groups(quads)[-1] == list(range(8))
    assert quads.verdict()["host_nics"]["gaudi_direct"] is True
    assert not check(host_nics=True)["measured"]


def test_fewer_ranks_are_no_measurement_of_the_others(node: FabricNode) -> None:
    check(ranks=4)
    said = check(plans=[plan(4, 5)])
    assert (said["measured"], said["held_back"], groups(node)) == (True, [], [list(range(8))])


OTHER = "gaudi-serving/vllm:1.23"


@pytest.mark.parametrize(("base", "refused"), [("sha256:1", []), ("sha256:9", ["other"]), (None, ["other"])])
def test_another_image_has_to_have_what_was_measured(node: FabricNode, base: str | None, refused: list[str]) -> None:
    """One image measures; an instance with another one is not let in on its word."""
    node.others = {OTHER: base} if base else {}
    plans = [plan(0, 1), plan(2, 3, instance="other", image=OTHER), plan(4, instance="alone", image=OTHER)]
    said = check(plans=plans)
    assert [sentence.partition(":")[0] for sentence in said["held_back"]] == refused
    assert not refused or f"{base or 'not there'}. Give all instances" in said["held_back"][0]
    # An image that is still to come refuses nothing beforehand.
    assert len(check(check=True, plans=plans)["held_back"]) == (base == "sha256:9")
    assert len(node.measured()) == 1


def test_another_image_without_hccl_demo_counts_as_the_one_that_would_measure_for_it(node: FabricNode) -> None:
    node.has_demo, node.others = False, {OTHER: "sha256:1"}
    assert check(demo=DEMO, plans=[plan(0, 1), plan(2, 3, instance="other", image=OTHER)])["held_back"] == []
    assert len(builds(node)) == 1, "nothing measures with it"


NO_DIRECT = "Gaudi-direct not supported due to libfabric version 1.17"


@pytest.mark.parametrize(
    ("said", "runs", "holds"), [("", ["DIRECT", "DIRECT"], True), (NO_DIRECT, ["DIRECT", "OFI", "OFI"], False)]
)
def test_over_host_nics_gaudi_direct_is_asked_for_first(
    node: FabricNode, said: str, runs: list[str], holds: bool
) -> None:
    """Where there is none, the run is made again over the host's memory, and that one counts; later runs do not ask."""
    node.name, node.tells_ports, node.without_direct = "HL-288E", False, said
    check(host_nics=True, provider="efa", tests=["all_reduce", {"collective": "all_reduce", "size": "16m"}])
    over = [" ".join(command) for command in node.measured() if "FI_EFA_USE_DEVICE_RDMA=1" in command]
    assert [re.search("HCCL_(?:GAUDI_|OVER_)(DIRECT|OFI)=1", command)[1] for command in over] == runs  # type: ignore[index]
    assert node.verdict()["host_nics"]["gaudi_direct"] is holds
    assert [each["modules"] for each in node.verdict()["measurements"]][-1] == list(range(8))


def test_cards_of_one_group_of_eight_use_no_host_nics_and_that_is_said(
    node: FabricNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On HL-225 nothing over one node tells whether Gaudi Direct is in use."""
    node.loads = True
    (node.folder / "kallsyms").write_text("0000000000000000 T ib_umem_dmabuf_get\t[ib_uverbs]\n")
    monkeypatch.setattr(fabric_check, "KALLSYMS", node.folder / "kallsyms")
    said = check(host_nics=True, plans=[{**plan(*range(8)), "requires": {"host_nics": True}}])
    assert (node.verdict()["state"], said["held_back"]) == ("accepted", [])
    words = "Cards of one group talk over their own links, so that no run on this node went over the host NICs"
    assert "Gaudi Direct not known" in said["lines"][1]
    assert words in said["lines"][2]
    assert words in re.sub("<[^>]*>", "", (node.folder / "acceptance.html").read_text())


def test_host_nics_that_are_configured_later_are_measured(node: FabricNode) -> None:
    """A verdict without them holds, and says nothing of them."""
    node.name, node.tells_ports = "HL-288E", False
    needs = {**plan(*range(8)), "requires": {"host_nics": True}}
    (refused,) = check(plans=[needs])["held_back"]
    assert "fabric_check_host_nics: true" in refused
    node.users = {5: [{"pid": 1, "name": "python3", "unit": None, "container": None, "container_name": None}]}
    waits = check(plans=[needs], host_nics=True)
    assert (waits["measured"], "Module 5 was in use" in waits["why"]) == (False, True)
    node.users = {}
    said = check(plans=[needs], host_nics=True)
    assert (said["measured"], len(node.verdict()["measurements"])) == (True, 3)
    assert not check(plans=[needs], host_nics=True)["measured"]


def test_a_bandwidth_that_went_another_way_than_the_host_nics_does_not_count(node: FabricNode) -> None:
    node.name, node.tells_ports = "HL-288E", False
    node.without_direct = "Error loading OFI wrapper\n" + PRINTED.format(100, 57)
    check(host_nics=True)
    assert node.verdict()["state"] != "accepted"


def test_a_stale_verdict_is_measured_when_the_cards_are_free(node: FabricNode) -> None:
    check()
    node.driver = "1.23.0-2eae87a"
    node.users = {5: [{"pid": 1, "name": "python3", "unit": None, "container": None, "container_name": None}]}
    waits = check(plans=[plan(0, 1)])
    assert not waits["changed"]
    assert "stale" in waits["held_back"][0]
    assert "1.22.1" in waits["held_back"][0]
    node.users = {}
    assert check(plans=[plan(0, 1)])["held_back"] == []
    assert len(node.measured()) == 2


@pytest.mark.parametrize(
    ("active", "goes_on"),
    [("active", True), ("activating", True), ("reloading", True), ("inactive", False), ("failed", False)],
)
def test_a_stale_verdict_is_a_warning_for_who_runs_or_starts(node: FabricNode, active: str, goes_on: bool) -> None:
    check()
    node.driver, node.active = "1.23.0-2eae87a", active
    node.users = {5: [{"pid": 1, "name": "python3", "unit": None, "container": None, "container_name": None}]}
    said = check(plans=[plan(0, 1)])
    assert (said["held_back"] == []) is goes_on
    assert (
        any("goes on, also where this run restarts it" in warning for warning in said["warnings_of_start"]) is goes_on
    )


def test_cards_in_use_keep_one_card_from_nothing(node: FabricNode) -> None:
    user = {"pid": 1, "name": "x", "unit": "vllm-tiny.service", "container": None, "container_name": None}
    node.users = {5: [user]}
    said = check(plans=[plan(0), plan(1, 2, instance="two")])
    assert node.measured() == []
    assert [sentence[:5] for sentence in said["held_back"]] == ["two: "]
    assert check(again=True)["refused_id"] == "cards_in_use_to_measure"
    assert check(again=True, drain=True, check=True)["measured"]
    node.users = {}
    assert check(plans=[plan(1, 2)])["held_back"] == []


STATES = {"a": "active", "b": "inactive", "c": "activating", "d": "failed"}


@pytest.fixture
def instances(monkeypatch: pytest.MonkeyPatch) -> None:
    """Instances of the node in every state that systemd has."""
    monkeypatch.setattr(states, "installed", lambda: list(STATES))
    monkeypatch.setattr(
        units,
        "read",
        lambda _module, names: [{"instance": name, "active": STATES[name]} for name in names],
    )


UNITS = ["vllm-a.service", "vllm-c.service"]


@pytest.mark.usefixtures("instances")
def test_instances_are_stopped_for_a_measurement_alone(node: FabricNode) -> None:
    user = {"pid": 1, "name": "x", "unit": "vllm-a.service", "container": None, "container_name": None}
    node.users = {5: [user]}
    assert check(drain=True)["verdict"]["state"] == "accepted"
    asked = [command[1:] for command in node.commands if command[0] == "/usr/bin/systemctl"]
    assert asked == [["stop", *UNITS], ["start", *UNITS]]
    (measured,) = node.measured()
    places = [node.commands.index(["/usr/bin/systemctl", verb, *UNITS]) for verb in ("stop", "start")]
    assert places[0] < node.commands.index(measured) < places[1]
    node.commands.clear()
    assert not check(drain=True)["measured"], "it holds"
    check(drain=True, again=True, check=True)
    assert not [command for command in node.commands if command[0] == "/usr/bin/systemctl"]


@pytest.mark.usefixtures("instances")
def test_nobody_is_stopped_where_nothing_can_be_measured(node: FabricNode) -> None:
    node.image = False
    check(drain=True)
    node.image, node.down = True, [(0, 0)]
    check(drain=True, again=True)
    assert node.measured() == []
    assert not [command for command in node.commands if "stop" in command]


@pytest.mark.usefixtures("instances")
def test_an_instance_starts_again_where_another_does_not_stop(
    node: FabricNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    def half(command: list[str]) -> tuple[int, str, str]:
        done = node.answer(command)
        return (1, "", "vllm-c.service does not stop") if "stop" in command else done

    answer_all(monkeypatch, half)
    assert "does not stop" in check(drain=True)["msg"]
    assert node.commands[-1] == ["/usr/bin/systemctl", "start", *UNITS]


@pytest.mark.usefixtures("instances")
def test_instances_start_again_however_the_measurement_ends(node: FabricNode, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise Refusal("some", "It broke.")

    monkeypatch.setattr(fabric_check, "measure", broken)
    assert check(drain=True)["refused_id"] == "some"
    assert node.commands[-1] == ["/usr/bin/systemctl", "start", *UNITS]


@pytest.mark.usefixtures("instances")
def test_without_the_wish_nobody_is_stopped(node: FabricNode) -> None:
    check()
    assert not [command for command in node.commands if command[1] in ("stop", "start")]


def test_a_reason_lets_through_and_is_kept(node: FabricNode) -> None:
    node.down = [(5, 9)]
    check()
    said = check(plans=[plan(4, 5)], override="cable ordered")
    assert (said["changed"], said["held_back"]) == (True, [])
    assert "cable ordered" in said["warnings_of_start"][0]
    assert node.verdict()["override"] == "cable ordered"
    assert any("cable ordered" in line for line in said["lines"])
    assert not check(override="cable ordered")["changed"]
    assert check(required=False, plans=[plan(4, 5)])["held_back"] == []


def test_check_mode_says_what_would_be_measured_and_writes_nothing(node: FabricNode) -> None:
    said = check(check=True, plans=[plan(0, 1)])
    assert (said["changed"], said["held_back"], said["verdict"]) == (True, [], {})
    assert said["plan"].startswith("all_reduce of 32m over modules 0, 1, 2")
    assert said["seconds"] > 0
    assert list(node.folder.iterdir()) == []
    assert node.measured() == []


def test_two_measurements_at_a_time_are_refused(node: FabricNode) -> None:
    with (node.folder / "acceptance.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert check()["refused_id"] == "measured_by_another_run"
    assert node.measured() == []
    assert check()["changed"]


def test_a_damaged_verdict_is_none_and_is_said(node: FabricNode, monkeypatch: pytest.MonkeyPatch) -> None:
    warned: list[str] = []
    monkeypatch.setattr(AnsibleModule, "warn", lambda _self, warning: warned.append(warning))
    (node.folder / "acceptance.json").write_text("{")
    said = check()
    assert said["measured"]
    assert any("acceptance.json is damaged" in warning for warning in warned)


@pytest.mark.parametrize("kind", DAMAGES)
def test_every_damage_of_the_verdict_has_it_made_anew(node: FabricNode, kind: str) -> None:
    damage(node.folder / "acceptance.json", kind)
    assert check(plans=[plan(0, 1)])["held_back"] == []
    assert node.verdict()["state"] == "accepted"


def test_a_directory_in_the_place_of_a_file_ends_nothing_without_words(node: FabricNode) -> None:
    for name in ("acceptance.json", "acceptance.html"):
        (node.folder / name).mkdir()
    assert check()["changed"]
    assert node.verdict()["state"] == "accepted"
    (node.folder / "acceptance.lock").unlink()
    (node.folder / "acceptance.lock").mkdir()
    assert check(again=True)["refused_id"] == "acceptance_lock_damaged"


DEMO = {
    "repository": "https://github.com/HabanaAI/hccl_demo",
    "commit": "f623d692a4e9eee3fa602a6dfe69190b617003b8",
    "reference": "main",
    "mirrors": {"https://github.com/": "https://git.example.com/github/", "https://github.com/other/": "https://no/"},
}


def builds(node: FabricNode) -> list[list[str]]:
    """The commands that built an image."""
    return [command for command in node.commands if "build" in command]


def test_a_ready_image_without_hccl_demo_is_measured_in_one_that_is_built_on_top(node: FabricNode) -> None:
    node.has_demo, node.old_images = False, ["gaudi-serving/measuring:0ld"]
    assert check(demo=DEMO, plans=[plan(0, 1)])["held_back"] == []
    (built,) = builds(node)
    (name,) = node.built
    assert name.startswith("gaudi-serving/measuring:")
    assert f"BASE={IMAGE}" in built
    assert "REPOSITORY=https://git.example.com/github/HabanaAI/hccl_demo" in built
    assert "--network=default" in built
    assert built[-1] == "-", "nothing of the node is sent"
    (measured,) = node.measured()
    assert name in measured
    assert IMAGE not in measured
    assert node.verdict()["made_of"]["hccl_demo"] == DEMO["commit"]
    assert ["/usr/bin/docker", "image", "rm", "gaudi-serving/measuring:0ld"] in node.commands
    assert not check(demo=DEMO, plans=[plan(0, 1)])["measured"], "the verdict holds"
    assert len(builds(node)) == 1


PROXY = "http://me:p4ss@proxy.example:3128"


def test_a_build_goes_the_way_that_the_site_says(node: FabricNode, monkeypatch: pytest.MonkeyPatch) -> None:
    """Through its proxy, whose password nobody reads, in its network, with hosts that the node alone knows."""
    node.has_demo, environments = False, []

    def heard(_self: Any, command: list[str], **given: Any) -> tuple[int, str, str]:
        environments.extend([given["environ_update"]] if "build" in command else [])
        return node.answer(command)

    monkeypatch.setattr(AnsibleModule, "run_command", heard)
    monkeypatch.setattr(links, "known_hosts", lambda names: dict.fromkeys(names, "10.0.0.7"))
    proxies = {"https_proxy": PROXY, "http_proxy": ""}
    check(demo={**DEMO, "network": "host"}, proxies=proxies, plans=[plan(0, 1)])
    (built,) = builds(node)
    assert {"--network=host", "--add-host=git.example.com:10.0.0.7", "--add-host=proxy.example:10.0.0.7"} <= set(built)
    assert built[built.index("https_proxy") - 1] == "--build-arg"
    assert "p4ss" not in " ".join(built)
    assert environments == [{"https_proxy": PROXY}], "no builder is asked for: there may be no buildx"


def test_a_verdict_has_no_password_of_a_proxy(node: FabricNode) -> None:
    node.has_demo, node.build_fails = False, f"fatal: unable to access: Could not resolve proxy: {PROXY}"
    check(demo=DEMO, proxies={"https_proxy": PROXY}, plans=[plan(0, 1)])
    assert "Could not resolve proxy" in node.verdict()["not_measured"]
    assert "p4ss" not in json.dumps(node.verdict())


@pytest.mark.parametrize(("network", "starts"), [("default", False), ("host", True)])
def test_a_mirror_on_the_nodes_loopback_is_reached_in_the_nodes_network_alone(
    node: FabricNode, network: str, starts: bool
) -> None:
    node.has_demo = False
    demo = {**DEMO, "mirrors": {"https://github.com/": "http://127.0.0.1:8092/"}, "network": network}
    assert (check(demo=demo, plans=[plan(0, 1)])["held_back"] == []) is starts
    assert starts or "serving_image_build_network: host" in node.verdict()["not_measured"]


def test_what_a_build_asks_without_its_proxies_is_no_mirror(node: FabricNode, monkeypatch: pytest.MonkeyPatch) -> None:
    node.has_demo = False
    monkeypatch.setattr(links, "known_hosts", lambda _names: {})
    # Not the processes of this machine, among which are those of simulated nodes.
    monkeypatch.setattr(links, "read_facts", lambda devices: Facts(cards=tuple(sorted(devices.values()))))
    assert (
        check(demo=DEMO, proxies={"https_proxy": PROXY, "no_proxy": "localhost"}, plans=[plan(0, 1)])["held_back"] == []
    )


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (
            "Step 6/6 : RUN git\n\x1b[91mfatal: unable to access 'https://git/': Could not resolve host: git\n\x1b[0m\n"
            "The command '/bin/sh -c git init' returned a non-zero code: 128\n",
            "on top: fatal: unable to access 'https://git/': Could not resolve host: git. Have",
        ),
        (
            "#7 0.3 /bin/sh: 1: git: not found\n#7 ERROR: process did not complete successfully: exit code: 127\n"
            "ERROR: failed to solve\n",
            "on top: sh: 1: git: not found. Have",
        ),
        ("ERROR: no space left\n", "on top: ERROR: no space left. Have"),
        ("", "on top: it said nothing. Have"),
    ],
)
def test_the_reason_of_a_build_is_not_the_builders_last_word(said: str, why: str) -> None:
    assert why in measuring.not_built(IMAGE, said)


def test_what_cannot_be_built_is_not_measured_and_says_why(node: FabricNode) -> None:
    node.has_demo, node.build_fails = False, "fatal: unable to access 'https://git': Could not resolve host"
    said = check(demo=DEMO, plans=[plan(0), plan(1, 2, instance="two")])
    assert [sentence[:5] for sentence in said["held_back"]] == ["two: "]
    assert "Could not resolve host" in said["held_back"][0]
    node.build_fails = ""
    assert check(demo=DEMO, plans=[plan(1, 2)])["held_back"] == []


def test_nothing_is_built_for_one_card_in_check_mode_or_without_a_wish(node: FabricNode) -> None:
    node.has_demo = False
    check(demo=DEMO, plans=[plan(0)])
    assert "has no hccl_demo" in node.verdict()["not_measured"]
    assert check(check=True, demo=DEMO, again=True)["measured"]
    check(plans=[plan(0, 1)])
    check(plans=[plan(0, 1)], demo={"mirrors": {}}, again=True)
    assert builds(node) == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"repository": "ext::sh -c id"},
        {"repository": "--upload-pack=x"},
        {"repository": "https://me:secret@git.example.com/hccl_demo"},
        {"repository": "ssh://me:secret@git.example.com/hccl_demo"},
        {"commit": "main"},
        {"network": "--privileged"},
    ],
)
def test_where_hccl_demo_comes_from_is_an_address_and_a_commit(node: FabricNode, wrong: dict[str, str]) -> None:
    node.has_demo = False
    said = check(demo={**DEMO, **wrong}, again=True)
    assert said["failed"]
    assert "secret" not in said["msg"]
    assert builds(node) == []


@pytest.mark.parametrize(("image", "why"), [("", "No image measures: plan an instance"), (IMAGE, IMAGE)])
def test_without_an_image_only_one_card_starts(node: FabricNode, image: str, why: str) -> None:
    node.image = False
    said = check(image=image, plans=[plan(0), plan(1, 2, instance="two")])
    assert [sentence[:5] for sentence in said["held_back"]] == ["two: "]
    assert why in node.verdict()["not_measured"]


@pytest.mark.parametrize(
    ("given", "id"),
    [
        ({"ranks": 9}, "more_ranks_than_cards"),
        ({"tests": [{"collective": "all2all", "size": 4}]}, "size_too_small"),
        ({"floors": [{"collective": "all_reduce", "nw_gb_s": "fast"}]}, None),
    ],
)
def test_a_bad_wish_is_refused_before_anything_runs(node: FabricNode, given: dict[str, Any], id: str | None) -> None:
    said = check(**given)
    assert said["failed"]
    assert said["refused_id"] == id or (id is None and said["refused_id"])
    assert node.measured() == []
    assert not (node.folder / "acceptance.json").exists()


NUMBERS: dict[str, Any] = {
    "compute": True,
    "compute_program": "print()",
    "plans": [plan(0, 1, 2, 3), plan(7, instance="seven")],
}


def outcomes(node: FabricNode) -> dict[str, str]:
    """The outcomes of the compute check in the verdict, by modules."""
    return {",".join(map(str, row["modules"])): row["outcome"] for row in node.verdict()["compute_check"]["rows"]}


def reboot(node: FabricNode) -> None:
    node.boot = "boot-2"


def used(*modules: int) -> dict[int, list[dict[str, Any]]]:
    user = {"pid": 1, "name": "x", "unit": "vllm-seven.service", "container": None, "container_name": None}
    return {module: [user] for module in modules}


def test_the_numbers_of_all_cards_are_part_of_a_new_verdict(node: FabricNode) -> None:
    node.computes = True
    said = check(**NUMBERS)
    assert (said["changed"], said["held_back"], node.verdict()["state"]) == (True, [], "accepted")
    assert set(outcomes(node)) == {*"01234567", "0,1,2,3,4,5,6,7"}
    assert any("numbers: proved on modules 0-7" in each for each in said["lines"])
    (asked,) = node.computed
    assert asked["copy_bytes"] == 4 << 30
    # It shares the node's network, but nothing of it is to be reached from there.
    (command,) = [each for each in node.commands if "--interactive" in each]
    assert {"HCCL_SOCKET_IFNAME=lo", "GLOO_SOCKET_IFNAME=lo"} <= set(command)
    again = check(**NUMBERS)
    assert (again["changed"], again["measured"], len(node.computed)) == (False, False, 1)
    check(**NUMBERS, again=True, compute_mib=16)
    assert node.computed[1]["copy_bytes"] == 16 << 20


def test_the_numbers_are_computed_in_a_walled_container_with_the_cards_reserved(node: FabricNode) -> None:
    node.computes = True
    check(**NUMBERS, compute_limit=99)
    (command,) = [each for each in node.commands if "--interactive" in each]
    assert command[:4] == ["/usr/bin/timeout", "--kill-after=10", "99", "/usr/bin/docker"]
    text = " ".join(command)
    for wall in ("--cap-drop ALL", "--security-opt no-new-privileges", "--read-only"):
        assert wall in text
    # Module 0 has the index 7 here.
    assert "HABANA_VISIBLE_DEVICES=7,6,5,4,3,2,1,0" in text
    assert command[-3:-1] == [IMAGE, "-"]
    (reserved,) = node.reserved
    assert [card["module_id"] for card in reserved["compute-check"]["cards"]] == list(range(8))
    assert json.loads((node.folder / "cards.lock").read_text())["reservations"] == {}


def test_cards_of_instances_stay_reserved_for_them(node: FabricNode) -> None:
    node.computes = True
    held = {"other": {"cards": [{"module_id": 3, "serial": "AM3"}], "since": "then"}}
    left = {"compute-check": {"cards": [{"module_id": 5, "serial": "AM5"}], "since": "then"}}
    (node.folder / "cards.lock").write_text(json.dumps({"schema": 1, "reservations": {**held, **left}}))
    check(**NUMBERS)
    (reserved,) = node.reserved
    assert reserved["other"] == held["other"]
    assert [card["module_id"] for card in reserved["compute-check"]["cards"]] == [0, 1, 2, 4, 5, 6, 7]
    assert json.loads((node.folder / "cards.lock").read_text())["reservations"] == held


LEFT = {"pid": 9, "name": "python3", "unit": None, "container": "c1", "container_name": "gaudi-fabric-check"}


def test_what_an_interrupted_check_left_does_not_keep_the_next_one_from_its_cards(node: FabricNode) -> None:
    node.computes, node.users = True, {3: [LEFT]}
    left = {"compute-check": {"cards": [{"module_id": each, "serial": None} for each in range(8)], "since": "then"}}
    (node.folder / "cards.lock").write_text(json.dumps({"schema": 1, "reservations": left}))
    lock = node.folder / "acceptance.lock"
    lock.touch()
    foreseen = check(check=True, **NUMBERS, again=True)
    assert "modules 0, 1, 2, 3" in foreseen["plan"]
    assert (node.users, node.computed) == ({3: [LEFT]}, []), "check mode leaves it there"
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert check(**NUMBERS, again=True)["refused_id"] == "measured_by_another_run"
        assert node.users == {3: [LEFT]}, "it is not interrupted"
    assert check(**NUMBERS, again=True)["verdict"]["state"] == "accepted"
    assert node.computed[-1]["cards"] == list(range(8))
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert not check(**NUMBERS)["changed"], "a verdict that holds needs no measurement"
    node.users = {3: [LEFT]}
    assert (check(**NUMBERS)["changed"], node.users) == (False, {})


@pytest.mark.parametrize(("error", "ended"), [("container is stuck", False), ("Error: No such container: x", True)])
def test_cards_of_a_check_that_cannot_be_removed_are_in_use(node: FabricNode, error: str, ended: bool) -> None:
    node.computes, node.users, node.rm_fails = True, {3: [LEFT]}, error
    (node.folder / "acceptance.lock").touch()
    check(**NUMBERS, again=True)
    assert any(3 in asked["cards"] for asked in node.computed) is ended


def test_a_card_that_computes_wrongly_lets_no_instance_start_on_it(node: FabricNode) -> None:
    node.computes, node.wrong = True, [7]
    said = check(**NUMBERS)
    assert [sentence.partition(":")[0] for sentence in said["held_back"]] == ["seven"]
    assert "Module 7 computes wrong numbers: a copy to the card and back: value 4 is 2 and should be 1" in str(said)
    assert node.verdict()["state"] == "failed"
    assert not check(**NUMBERS)["changed"], "only a person repeats it"
    assert check(**NUMBERS, override="replaced tomorrow")["held_back"] == []
    node.wrong = []
    assert check(**NUMBERS, again=True)["held_back"] == []


def test_a_verdict_without_numbers_holds_and_gets_them_when_cards_are_free(node: FabricNode) -> None:
    check(plans=NUMBERS["plans"])
    assert "compute_check" not in node.verdict()
    node.computes, node.users = True, used(7)
    before = node.verdict()
    said = check(**NUMBERS)
    assert (said["held_back"], said["changed"], len(node.measured())) == ([], True, 1)
    assert set(outcomes(node)) == set("0123456")
    assert {key: node.verdict()[key] for key in before} == before
    assert not check(**NUMBERS)["changed"]
    node.users = {}
    assert "are to be proved" in check(**NUMBERS)["why"]
    assert set(outcomes(node)) == {*"01234567", "0,1,2,3,4,5,6,7"}


def test_a_running_instance_is_not_stopped_for_numbers_alone(node: FabricNode, monkeypatch: pytest.MonkeyPatch) -> None:
    check(plans=NUMBERS["plans"])
    node.computes, node.users = True, used(*range(8))
    monkeypatch.setattr(states, "installed", lambda: ["seven"])
    monkeypatch.setattr(
        units, "read", lambda _module, names: [{"instance": name, "active": "active"} for name in names]
    )
    assert not check(**NUMBERS, drain=True)["changed"]
    assert not [command for command in node.commands if "stop" in command]
    assert check(**NUMBERS, drain=True, again=True)["changed"]
    assert set(outcomes(node)) == {*"01234567", "0,1,2,3,4,5,6,7"}


def test_after_a_reboot_cards_are_checked_again_in_the_short_form(node: FabricNode) -> None:
    node.computes = True
    check(**NUMBERS)
    reboot(node)
    node.users = used(7)
    assert check(**NUMBERS)["changed"]
    assert node.computed[1]["copy_bytes"] == 512 << 20
    assert node.computed[1]["cards"] == list(range(7))
    assert not check(**NUMBERS)["changed"]
    assert len(node.measured()) == 1


def test_wrong_numbers_of_a_former_boot_are_checked_again_in_full(node: FabricNode) -> None:
    """As of a node whose IOMMU is set right."""
    node.computes, node.wrong = True, list(range(8))
    assert len(check(**NUMBERS)["held_back"]) == 2
    assert "iommu=pt" in str(node.verdict()) or "iommu=pt" in str(check(**NUMBERS)["held_back"])
    reboot(node)
    assert check(**NUMBERS, check=True)["held_back"] == [], "not known before it is checked"
    node.wrong = []
    said = check(**NUMBERS)
    assert (said["held_back"], node.verdict()["state"]) == ([], "accepted")
    assert node.computed[1]["copy_bytes"] == 4 << 30


def test_links_are_measured_later_though_a_card_computes_wrongly(node: FabricNode) -> None:
    node.computes, node.wrong, node.has_demo = True, [7], False
    check(**NUMBERS)
    assert (node.verdict()["state"], node.measured()) == ("failed", [])
    node.has_demo = True
    check(**NUMBERS)
    assert len(node.measured()) == 1


def test_an_image_without_pytorch_refuses_nothing(node: FabricNode) -> None:
    said = check(**NUMBERS)
    assert said["held_back"] == []
    assert any("has no PyTorch for the cards" in each for each in said["lines"])
    assert (node.computed, check(**NUMBERS)["changed"]) == ([], False)
    node.computes = True
    check(**NUMBERS)
    assert set(outcomes(node)) == {*"01234567", "0,1,2,3,4,5,6,7"}


def test_a_check_that_is_ended_from_outside_is_no_verdict(node: FabricNode) -> None:
    node.computes, node.compute_status = True, 137
    said = check(**NUMBERS)
    assert (said["held_back"], outcomes(node), node.verdict()["state"]) == ([], {}, "accepted")
    assert "ended from outside" in str(said["lines"])
    node.compute_status = 0
    check(**NUMBERS)
    assert set(outcomes(node)) == {*"01234567", "0,1,2,3,4,5,6,7"}


def test_check_mode_says_what_would_be_computed(node: FabricNode) -> None:
    check(plans=NUMBERS["plans"])
    node.computes = True
    said = check(**NUMBERS, check=True)
    assert (said["changed"], said["measured"], node.computed, said["held_back"]) == (True, True, [], [])
    assert said["plan"].startswith("the numbers of modules 0-7 (copies of 4096 MiB")
    assert said["seconds"] > 0


def test_nothing_is_computed_where_a_static_check_fails(node: FabricNode) -> None:
    node.computes, node.down = True, [(5, 9)]
    check(**NUMBERS)
    assert node.computed == []


def test_a_stale_verdict_with_cards_in_use_gets_no_numbers(node: FabricNode) -> None:
    check(plans=NUMBERS["plans"])
    node.computes, node.driver, node.users = True, "1.23.0-2eae87a", used(7)
    check(**NUMBERS)
    assert node.computed == []
