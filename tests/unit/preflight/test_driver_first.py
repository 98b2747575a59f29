"""A node that gets its driver in the same run: what is judged before, what after, and how many such nodes at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.module_utils.gaudi.base.places import Room
from ansible.module_utils.gaudi.base.refusal import Refusal
from ansible.module_utils.gaudi.cards.foreseen import foreseen_topology
from ansible.module_utils.gaudi.cards.sources import PciCard, Sources
from ansible.module_utils.gaudi.driver.decision import Steps
from ansible.module_utils.gaudi.node.driver import next_boot
from ansible.module_utils.gaudi.preflight import driver_first
from ansible.module_utils.gaudi.preflight.compatibility import JUDGES, CompatibilityCheck, Mismatch, Row

from filter_plugins.nodes_at_once import nodes_at_once, nodes_refusing, nodes_without_driver
from filter_plugins.summary_lines import summary_lines
from library import gaudi_preflight
from tests.unit.driver.made import DOCUMENT
from tests.unit.image.made import document, made
from tests.unit.preflight.conftest import Answer, Run
from tests.unit.preflight.test_contracts import ROOT, load
from tests.unit.preflight.test_modules import against, preflight, site
from tests.unit.preflight.test_templates import evaluate, fact_of, runs, task_of, trusted

INSTALL = Steps(install=("habanalabs-dkms=1.22.2-32", "habanalabs-thunk=1.22.2-32"), load=("habanalabs",))
HEADERS = "linux-headers-6.8.0-45-generic"
NO_HEADERS = Refusal("kernel_headers_not_offered", "Kernel 6.8.0-45-generic has no headers.")


def mismatch(name: str) -> Mismatch:
    return Mismatch(CompatibilityCheck(name, "refuse", "", ""), Row("this", "that", "Do it."))


def told(
    *refusals: Refusal, running: tuple[str, ...] = (), foreseen: bool = True, replace: bool = False, **steps: Any
) -> driver_first.DriverFirst:
    return driver_first.told(
        "1.22.2-32",
        (Steps(**steps) if steps else INSTALL).as_dict(),
        refusals,
        [HEADERS],
        running,
        foreseen=foreseen,
        replace=replace,
    )


@pytest.mark.parametrize(
    ("foreseen", "replace", "differs", "lacks_runtime", "due"),
    [
        (True, False, "", False, True),
        (False, False, "", True, True),
        (False, True, "driver", False, True),
        # As a settled node is: nobody asks it.
        (False, False, "", False, False),
        (False, False, "driver", False, False),
        (False, True, "", False, False),
        (False, True, "docker", False, False),
    ],
)
def test_the_driver_is_looked_at_where_there_may_be_something_to_do(
    foreseen: bool, replace: bool, differs: str, lacks_runtime: bool, due: bool
) -> None:
    mismatches = [mismatch(differs)] if differs else []
    assert driver_first.may_be_due(foreseen, replace, mismatches, lacks_runtime) is due


def test_what_comes_and_what_is_judged_later_is_said() -> None:
    found = told()
    assert (found.first, found.problems) == (True, ())
    comes, later = found.findings
    assert f"3 packages ({HEADERS}, habanalabs-dkms, habanalabs-thunk)" in comes
    assert later.startswith("Judged after the driver: driver, ")
    assert "who uses a card" in later


def test_what_is_repaired_is_named() -> None:
    comes, _ = told(repair=("habanalabs-dkms",), install=("habanalabs-dkms=1.22.2-32",)).findings
    assert (
        f"2 packages ({HEADERS}, habanalabs-dkms), habanalabs-dkms, which is installed by half, is repaired." in comes
    )


def test_a_kernel_that_gets_its_modules_is_named() -> None:
    comes, _ = told(foreseen=False, build=("6.17.0-22-generic",)).findings
    assert comes == (
        f"The driver 1.22.2-32 comes first: 1 packages ({HEADERS}), its modules are built for kernel 6.17.0-22-generic."
    )
    # Modules that are there need no package.
    found = driver_first.told(
        "1.22.2-32", Steps(load=("habanalabs",)).as_dict(), (), (), (), foreseen=False, replace=False
    )
    assert found.findings[0] == "The driver 1.22.2-32 comes first: its modules are loaded."


def test_who_stops_for_it_is_said() -> None:
    comes, _ = told(running=("chat", "embed"), foreseen=False, replace=True).findings
    assert comes.endswith(" For it chat, embed stops; if driver or instances do not come up, those from before do.")


def test_what_keeps_the_driver_from_a_node_is_a_problem() -> None:
    found = told(NO_HEADERS)
    assert (found.first, [problem.id for problem in found.problems]) == (False, ["kernel_headers_not_offered"])
    assert told(NO_HEADERS, foreseen=False, replace=True).problems
    # Its driver is as it should be: what keeps a package of ours from it is nobody's problem.
    assert told(NO_HEADERS, foreseen=False) == driver_first.DriverFirst()


def test_a_driver_that_needs_nothing_ends_no_finding() -> None:
    assert (
        driver_first.told("1.22.2-32", Steps().as_dict(), (), (), (), foreseen=True, replace=False)
        == driver_first.DriverFirst()
    )


def test_checks_of_the_driver_wait_for_it() -> None:
    assert set(driver_first.CHECKS) < set(JUDGES)
    left = driver_first.still_judged([mismatch("driver"), mismatch("kernel"), mismatch("firmware")])
    assert [each.check.name for each in left] == ["kernel"]


# The module

PCI = tuple(PciCard(f"0000:{bus:02x}:00.0", 0, "0-39", "1da3:1020") for bus in range(8))
BARE = Sources(uid=0, seen=None, pci=PCI)


class FakeLook:
    """What was read of a node's driver: all of it to be installed, and what keeps it from that."""

    def __init__(self, _module: object, given: dict[str, Any], _sources: Sources) -> None:
        self.given = given
        self.wanted = type("Wanted", (), {"version": given["software"]["driver"]})
        self.found = type("Found", (), {"instances": ("chat",)})
        free = 5 if "small" in given["repository"] else 6
        self.rooms = [Room("the driver's packages", "/var/cache/apt/archives", "/", 6, free)]

    def judgement(self) -> Any:
        return type("Judgement", (), {"steps": INSTALL, "refusals": (), "replaces": False})

    def boot(self, _judged: Any) -> tuple[list[Refusal], list[str]]:
        return [], []

    def kernel_refusals(self) -> list[Refusal]:
        return []

    def kernel_sentence(self) -> str:
        return "The kernel 6.8.0-110-generic comes first, by a reboot."

    def offers(self) -> tuple[list[Refusal], list[str]]:
        return ([NO_HEADERS] if "old" in self.given["repository"] else []), [HEADERS]


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setattr(gaudi_preflight, "Look", FakeLook)
    monkeypatch.setattr(gaudi_preflight, "read_sources", lambda _module, links: BARE)
    driver = {"facts": DOCUMENT, "replace": False, "take_over": False, "no_way_back": False, "suite": ""}
    topology = foreseen_topology(BARE, {"1da3:1020": "HL-225"})
    return against(topology=topology, driver=driver, driver_repository="http://mirror", habana_path="/nowhere/runtime")


def ids(ran: Any) -> list[str]:
    return [problem["id"] for problem in ran["problems"]]


def test_a_node_without_a_driver_is_ready_for_one(run: Run, bare: dict[str, Any]) -> None:
    ran = run(gaudi_preflight, bare)
    assert (ids(ran), ran["report"], ran["driver_first"]) == ([], "", True)
    assert ran["node"]["cards"] == 8
    assert [said for said in ran["findings"] if said.startswith(("The driver 1.22", "Judged after"))]


def test_what_keeps_it_from_its_driver_is_in_the_report(run: Run, bare: dict[str, Any]) -> None:
    ran = run(gaudi_preflight, {**bare, "driver_repository": "http://old"})
    # Not that it has no hl-smi, no driver and no runtime: that would come with it.
    assert ids(ran) == ["kernel_headers_not_offered"]
    assert ran["driver_first"] is False


def test_a_repository_that_cannot_be_read_is_all_that_is_wrong_with_a_bare_node(
    run: Run, monkeypatch: pytest.MonkeyPatch, bare: dict[str, Any]
) -> None:
    def offers(_look: FakeLook) -> None:
        raise Refusal("repository_without_index", "gaudi_driver_repository has no index.")

    monkeypatch.setattr(FakeLook, "offers", offers)
    assert ids(run(gaudi_preflight, bare)) == ["repository_without_index"]


def test_packages_that_do_not_fit_are_refused_with_what_else_goes_there(run: Run, bare: dict[str, Any]) -> None:
    (problem,) = run(gaudi_preflight, {**bare, "driver_repository": "http://small"})["problems"]
    assert problem["id"] == "disk"
    assert problem["message"].startswith("5 bytes are free on /, but 6 bytes for the driver's packages")


def test_without_a_role_that_brings_it_a_missing_driver_is_refused(run: Run, bare: dict[str, Any]) -> None:
    assert ids(run(gaudi_preflight, {**bare, "driver": {}})) == ["no-hl-smi", "no-driver", "habana-runtime"]


def test_fewer_cards_on_the_bus_than_the_inventory_promises_are_refused_before_anything_comes(
    run: Run, bare: dict[str, Any]
) -> None:
    ran = run(gaudi_preflight, {**bare, "inventory": site(gaudi_expected_cards=9)})
    assert ids(ran) == ["card-count"]


def test_a_settled_node_is_not_looked_at(run: Run, monkeypatch: pytest.MonkeyPatch, bare: dict[str, Any]) -> None:
    monkeypatch.setattr(gaudi_preflight, "Look", None)
    assert run(gaudi_preflight, preflight(driver=bare["driver"]))["driver_first"] is False


KERNEL = "6.8.0-45-generic"


@pytest.fixture
def updated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Answer]:
    """A node whose kernel was updated; its driver is built for the one that runs alone."""
    (tmp_path / "osrelease").write_text(f"{KERNEL}\n")
    (tmp_path / "vmlinuz-6.17.0-22-generic").touch()
    monkeypatch.setattr(next_boot, "RUNNING", tmp_path / "osrelease")
    monkeypatch.setattr(next_boot, "BOOT", tmp_path)
    monkeypatch.setattr(next_boot, "PIN", tmp_path / "pin.cfg")
    monkeypatch.setattr(gaudi_preflight, "Look", FakeLook)
    monkeypatch.setattr(gaudi_preflight, "read_sources", lambda _module, links: BARE)
    return {"dkms status": (0, f"habanalabs/1.22.2-32, {KERNEL}, x86_64: installed\n", "")}


LOST = "Kernel 6.17.0-22-generic, which boots next, has no habanalabs module: "


def test_a_kernel_update_is_found_before_the_reboot(run: Run, updated: dict[str, Answer], bare: dict[str, Any]) -> None:
    """The node serves on: that is said. A run that may reboot it is refused."""
    for given in (preflight(driver=bare["driver"]), preflight()):
        ran = run(gaudi_preflight, given, updated)
        assert (ran["driver_first"], ids(ran)) == (False, [])
        assert [said for said in ran["findings"] if said.startswith(LOST)]
    ran = run(gaudi_preflight, preflight(reboots=True), updated)
    assert ids(ran) == ["reboot_loses_driver"]
    assert "playbooks/driver.yml builds it for that kernel." in ran["report"]
    # Who gets a driver in this run is told by its role.
    ran = run(gaudi_preflight, {**bare, "reboots": True}, updated)
    assert (ran["driver_first"], ids(ran)) == (True, [])


def test_a_kernel_that_has_the_driver_is_nothing_to_say(
    run: Run, updated: dict[str, Answer], bare: dict[str, Any]
) -> None:
    both = updated["dkms status"][1] + "habanalabs/1.22.2-32, 6.17.0-22-generic, x86_64: installed\n"
    ran = run(gaudi_preflight, preflight(driver=bare["driver"]), {"dkms status": (0, both, "")})
    assert ran["driver_first"] is False
    assert not [said for said in ran["findings"] if "boots next" in said]


# The order


def test_nodes_come_one_by_one_where_any_gets_a_driver() -> None:
    settled: dict[str, Any] = {"preflight_node": {"driver_first": False}}
    bare: dict[str, Any] = {"preflight_node": {"driver_first": True}}
    assert nodes_at_once({"one": settled, "two": settled, "not in this run": {}}) == "100%"
    assert nodes_at_once({"one": settled, "two": bare}) == 1
    assert nodes_at_once({"one": settled, "two": {"preflight_node": {"restarts": ["chat"]}}}) == 1
    assert nodes_at_once({"one": {**bare, "gaudi_nodes_at_once": "auto"}}) == 1
    assert nodes_at_once({"one": {**bare, "gaudi_nodes_at_once": "3"}}) == 3
    assert nodes_at_once({"one": settled, "two": {**settled, "gaudi_nodes_at_once": "25%"}}) == "25%"
    # As --syntax-check and --list-tasks have it.
    assert nodes_at_once({}) == "100%"


def test_who_gets_a_driver_fetches_it_and_nobody_else_has_a_task_for_it() -> None:
    settled: dict[str, Any] = {"preflight_node": {"driver_first": False}}
    bare: dict[str, Any] = {"preflight_node": {"driver_first": True}}
    assert nodes_without_driver({"one": settled, "two": bare, "not in this run": {}}) == ["two"]
    # An empty list would mean every host.
    assert nodes_without_driver({"one": settled}) == nodes_without_driver({}) == "all:!all"


@pytest.mark.parametrize("value", [-1, "1.5", "a while", True, 86401])
def test_what_is_no_pause_is_refused(run: Run, value: object) -> None:
    assert ids(run(gaudi_preflight, preflight(inventory=site(gaudi_nodes_pause=value)))) == ["inventory"]
    assert ids(run(gaudi_preflight, preflight(inventory=site(gaudi_nodes_pause=30)))) == []


@pytest.mark.parametrize("value", ["auto", 1, "4", "25%", "100%"])
def test_how_many_at_once_may_be_said(run: Run, value: object) -> None:
    assert ids(run(gaudi_preflight, preflight(inventory=site(gaudi_nodes_at_once=value)))) == []


@pytest.mark.parametrize("value", [0, -1, "all", "0%", "101%", True, 1.5])
def test_what_is_no_number_of_nodes_is_refused(run: Run, value: object) -> None:
    assert ids(run(gaudi_preflight, preflight(inventory=site(gaudi_nodes_at_once=value)))) == ["inventory"]


def test_the_site_looks_then_fetches_then_goes_node_by_node() -> None:
    plays = load(ROOT / "site.yml")
    looked, *fetched, brought_up, _said, refused = plays
    assert ("nodes_refusing" in refused["hosts"], refused["tags"]) == (True, ["always"])
    assert looked["any_errors_fatal"] is True
    assert [play["tags"] for play in fetched] == [
        ["gaudi_driver"],
        ["container_runtime"],
        ["serving_image"],
        ["weights"],
        ["vllm_service"],
    ]
    assert "nodes_carrying_recipes" in fetched[-1]["hosts"]
    assert "nodes_at_once" in brought_up["serial"]
    tags = list(dict.fromkeys(task["tags"][0] for task in brought_up["tasks"]))
    assert tags == ["gaudi_driver", "host_tuning", "fabric_check", "vllm_service"]


def test_a_replaced_driver_goes_back_with_its_instances() -> None:
    """Where the driver, the second look or an instance fails; and the node's run ends all the same."""
    (brought_up,) = [play for play in load(ROOT / "site.yml") if "serial" in play]
    given = {"gaudi_driver_before": {"driver": {"version": "1.21.3-57"}, "plans": {"chat": {"instance": "chat"}}}}
    runs = {task["name"]: evaluate("gaudi_driver", f"{{{{ {task['when']} }}}}", **given)
            for task in brought_up["tasks"] if "gaudi_driver_before" in str(task.get("when"))}  # fmt: skip
    assert runs == {"Ensure every instance serves": False, "Ensure every instance serves with the new driver": True}
    for name in ("driver_or_back", "serve_or_back"):
        *_judged, block = load(ROOT / f"playbooks/tasks/{name}.yml")
        assert [task["ansible.builtin.include_tasks"]["file"] for task in block["rescue"]] == ["driver_back.yml"]
    said = restored([{"instance": "chat"}], "chat did not come up.", **given)
    assert said == (["chat"], [], "chat did not come up. The driver 1.21.3-57 is back, and chat served again.")
    assert restored([], "chat did not come up.") == ([], [], "chat did not come up. The driver was not changed.")


def restored(plans: list[dict[str, Any]], failed: str, **given: Any) -> tuple[list[str], list[str], str]:
    """Which instances come back after a failure, which are kept stopped, and what the run ends with."""
    given |= {"preflight_serving": {"plans": plans}, "ansible_failed_result": {"msg": failed}}
    (whole,) = load(ROOT / "playbooks/tasks/driver_back.yml")
    driver, stopped, instances, end = whole["block"]
    assert driver["ansible.builtin.include_role"]["tasks_from"] == "back"
    # Variables are evaluated where they are used.
    given |= {name: trusted(text) for part in (whole, end) for name, text in part["vars"].items()}
    assert stopped["ansible.builtin.systemd_service"] | {"name": ""} == {
        "name": "",
        "enabled": False,
        "state": "stopped",
    }
    back, left = (evaluate("gaudi_driver", task["loop"], **given) for task in (instances, stopped))
    said = evaluate("gaudi_driver", end["ansible.builtin.fail"]["msg"], **given)
    return [plan["instance"] for plan in back], left, said.strip()


def listening(
    instance: str, host: str = "127.0.0.1", *, guarded: bool | None = True, port: int = 30001
) -> dict[str, Any]:
    """A plan, as far as it is compared with another one."""
    listen = {"host": host, "port": port, "closed_ports": [28000, 28015]}
    return {"instance": instance, "guarded": guarded, "listen": listen}


@pytest.mark.parametrize(
    ("before", "desired", "opens"),
    [
        # It may have served with its guard already, when another instance failed.
        (listening("chat", guarded=False), listening("chat"), "it asks for no key"),
        (listening("chat", "0.0.0.0", guarded=None), listening("chat", guarded=False), "at 0.0.0.0, port 30001"),
        (listening("chat", "10.20.0.11"), listening("chat"), "at 10.20.0.11, port 30001"),
        # It has another name by now.
        (listening("chat", guarded=False), listening("talk"), "it asks for no key"),
    ],
)
def test_driver_rollback_leaves_an_instance_stopped_that_would_be_more_open(
    before: dict[str, Any], desired: dict[str, Any], opens: str
) -> None:
    same = listening("other", port=30002)
    plans = {"chat": before, "other": same}
    given = {"gaudi_driver_before": {"driver": {"version": "1.21.3-57"}, "plans": plans}}
    back, left, said = restored([desired, same], "other did not come up.", **given)
    assert (back, left) == (["other"], ["chat"])
    assert said.startswith("other did not come up. The driver 1.21.3-57 is back, and other served again. chat ")
    assert opens in said
    # What a person may do.
    assert "playbooks/start.yml -e instance=chat" in said
    assert "playbooks/rollback.yml -e instance=chat" in said


def test_driver_rollback_restores_an_instance_that_is_no_more_open() -> None:
    plans = {"chat": listening("chat"), "gone": listening("gone", guarded=False, port=30003)}
    given = {"gaudi_driver_before": {"driver": {"version": "1.21.3-57"}, "plans": plans}}
    back, left, _ = restored([listening("chat", "0.0.0.0")], "chat did not come up.", **given)
    # Of the second one this run wants nothing, so that it is as it was.
    assert (back, left) == (["chat", "gone"], [])


@pytest.mark.parametrize(
    ("foreseen", "state", "asked"),
    [
        (False, "older", True),
        (False, None, True),
        (True, "absent", False),
        # A change that was cut off goes on.
        (False, "broken", False),
        (False, "mixed", False),
    ],
)
def test_what_cannot_serve_is_refused_before_the_driver_is_touched(
    foreseen: bool, state: str | None, asked: bool
) -> None:
    """Outside of the block whose rescue brings the driver back; a plan only where its cards were seen."""
    refused, block = load(ROOT / "playbooks/tasks/driver_or_back.yml")
    assert "rescue" in block
    images, judged = refused["block"]
    assert images["ansible.builtin.import_tasks"] == "all_served.yml"
    assert judged["ansible.builtin.include_role"]["tasks_from"] == "compare"
    (compared,) = load(ROOT / "roles/vllm_service/tasks/compare.yml")
    assert "vllm_service_changes" in compared
    given: dict[str, Any] = {
        "preflight_serving": {"release": {"software": {"driver": "1.22.2-32"}}},
        "preflight_node": {"topology": {"foreseen": True} if foreseen else {}},
        **({} if state is None else {"gaudi_driver_found": {"state": state}}),
    }
    assert all(evaluate("vllm_service", f"{{{{ {each} }}}}", **given) for each in refused["when"]) is asked
    assert evaluate("vllm_service", judged["vars"]["vllm_service_coming_driver"], **given) == "1.22.2-32"


def test_nobody_is_told_of_modules_that_nobody_knows() -> None:
    topology = foreseen_topology(BARE, {"1da3:1020": "HL-225"})
    assert summary_lines(topology, "gaudi-01", "1.22", [], {}, []) == [
        "gaudi-01: 8 cards (HL-225), driver none yet, release 1.22",
        "No instances are installed.",
    ]


def test_an_answer_names_nothing_of_the_repository() -> None:
    assert gaudi_preflight.ARGUMENT_SPEC["driver_repository"]["no_log"] is True
    specs = yaml.safe_load((ROOT / "roles/preflight/meta/argument_specs.yml").read_text(encoding="utf-8"))
    assert specs["argument_specs"]["main"]["options"]["preflight_driver_repository"]["no_log"] is True


def test_images_are_looked_into_again_under_the_runtime_that_came_with_the_driver() -> None:
    names = [task["name"] for task in load(ROOT / "playbooks/tasks/driver_first.yml")]
    *_, last, served = load(ROOT / "playbooks/tasks/driver_first.yml")
    assert names.index("Prove that containers get the cards") == len(names) - 3
    # With the driver from before an instance that is refused now may serve.
    assert (served["ansible.builtin.import_tasks"], served["when"]) == (
        "all_served.yml",
        "gaudi_driver_before is defined",
    )
    assert last["ansible.builtin.include_role"]["tasks_from"] == "again"
    # Whoever asks for the driver alone gets no image.
    for tags, skipped, due in ((["all"], [], True), (["gaudi_driver"], [], False), (["all"], ["serving_image"], False)):
        given = {"ansible_run_tags": tags, "ansible_skip_tags": skipped}
        assert evaluate("serving_image", f"{{{{ {last['when']} }}}}", **given) is due


def test_an_image_that_only_the_plans_after_the_driver_need_is_built_as_any_other() -> None:
    """Their tag may be on Docker Hub, of whoever owns the name there. Nodes that are not here give and take nothing."""
    task = task_of("serving_image", "again", "Get them")
    assert task["ansible.builtin.include_tasks"]["file"] == "get.yml"
    builds, shares, takes = (
        task_of("serving_image", "get", words) for words in ("Build the images", "Decide which images", "Take images")
    )
    looked = task_of("serving_image", "look", "serving_image")["register"]
    settled = fact_of("serving_image", "shares", "Decide who gives")
    given = {
        "serving_image_build": True,
        "serving_image_share": True,
        "serving_image_plans": [],
        "serving_image_release": document(),
        "inventory_hostname": "one",
        "ansible_play_hosts": ["one", "two"],
        settled: {"gaudi-serving/vllm:1.22-before": {"give": ["one"], "take": {"two": "one"}}},
        looked: {"results": [{"item": made().reference, "pulled": True, "current": False}]},
        **task["vars"],
    }
    assert [runs("serving_image", each, **given) for each in (builds, shares, takes)] == [True, False, False]


REFUSING: dict[str, dict[str, Any]] = {
    "one": {"serving_image_refused": {}},
    "two": {
        "serving_image_refused": {
            "sound": {"refused": "sound: the image lacks audio.", "refused_id": "image_lacks_part"}
        }
    },
    "three": {},
}


def test_nodes_with_a_refused_instance_are_those_of_the_last_play() -> None:
    assert nodes_refusing(REFUSING) == ["two"]
    assert nodes_refusing({"one": REFUSING["one"]}) == nodes_refusing({}) == "all:!all"


@pytest.mark.parametrize(
    ("check", "pulled", "found"),
    [
        (False, [{"unserved": {"sound": {}}}, {"unserved": {"picture": {}}}, {}], {"sound": {}, "picture": {}}),
        (False, [], {}),
        # What is not there yet can refuse nobody.
        (True, None, {"chat": {}}),
    ],
)
def test_refusals_of_all_images_are_published_together(check: bool, pulled: Any, found: dict[str, Any]) -> None:
    looked, pulls = (task_of("serving_image", file, "serving_image")["register"] for file in ("look", "pull"))
    given: dict[str, Any] = {
        "ansible_check_mode": check,
        looked: {"results": [{"unserved": {"chat": {}}}, {"unserved": {}}]},
        **({} if pulled is None else {pulls: {"results": pulled}}),
    }
    published = task_of("serving_image", "publish", "set_fact")["ansible.builtin.set_fact"]["serving_image_refused"]
    assert evaluate("serving_image", published, **given) == found


def test_what_comes_last_for_the_refused_is_said_in_one_place() -> None:
    """Where nothing else of the role ran, too: the sentence and the id of the refusal are of desired_state_check."""
    (task,) = load(ROOT / "playbooks/tasks/all_served.yml")
    for refused in REFUSING.values():
        due = bool(refused.get("serving_image_refused"))
        assert evaluate("serving_image", f"{{{{ {task['when']} }}}}", **refused) is due
    assert (
        evaluate("serving_image", task["desired_state_check"]["unserved"], **REFUSING["two"])
        == (REFUSING["two"]["serving_image_refused"])
    )
    assert set(task["desired_state_check"]) == {"unserved"}


def test_a_node_serves_the_instances_that_are_not_refused() -> None:
    (brought_up,) = [play for play in load(ROOT / "site.yml") if "serial" in play]
    chat, sound = {"instance": "chat"}, {"instance": "sound"}
    given: dict[str, Any] = {"preflight_serving": {"plans": [chat, sound]}}
    served = brought_up["vars"]["plans_served"]
    assert list(evaluate("vllm_service", served, **given)) == [chat, sound]
    assert list(evaluate("vllm_service", served, **given, serving_image_refused={"sound": {}})) == [chat]
    # Its image stays wanted: nothing of a refused instance goes.
    prune = next(task for task in brought_up["tasks"] if task["name"].startswith("Remove images"))
    assert prune["vars"]["serving_image_plans"] == "{{ preflight_serving.plans }}"
    wished = next(task for task in brought_up["tasks"] if "desired state" in task["name"])
    assert wished["vars"]["vllm_service_unserved"] == "{{ serving_image_refused | default({}) }}"


@pytest.mark.parametrize(
    ("requested", "pinned", "reboots", "due"),
    [
        ("", "", False, False),
        ("supported", "", False, True),
        ("6.8.0-110-generic", "", False, True),
        ("6.8.0-110-generic", "6.8.0-110-generic", False, False),
        ("supported", "6.8.0-110-generic", False, False),
        # It waits for a reboot.
        ("supported", "6.8.0-110-generic", True, True),
        ("6.8.0-60-generic", "6.8.0-110-generic", False, True),
        # Taken back.
        ("", "6.8.0-110-generic", False, True),
    ],
)
def test_a_kernel_that_is_not_as_requested_comes_before_anything_else(
    run: Run,
    tmp_path: Path,
    updated: dict[str, Answer],
    bare: dict[str, Any],
    requested: str,
    pinned: str,
    reboots: bool,
    due: bool,
) -> None:
    if pinned:
        (tmp_path / "pin.cfg").write_text(f"# Kernel {pinned}\n")
    driver = {**bare["driver"], "kernel": requested, "reboots": reboots}
    ran = run(gaudi_preflight, against(driver=driver, driver_repository="http://mirror"), updated)
    assert ran["driver_first"] is due
    assert any(said.startswith("The kernel 6.8.0-110-generic comes first") for said in ran["findings"]) is due


def test_a_kernel_that_is_too_new_is_not_judged_where_another_one_comes() -> None:
    found = [mismatch("kernel-untested"), mismatch("system")]
    assert driver_first.still_judged(found) == found
    assert driver_first.still_judged(found, kernel=True) == found[1:]
