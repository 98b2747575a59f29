"""The judgement of a node's driver, by causing what is wrong."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
from ansible.module_utils.gaudi.driver import decision, dkms, packages

from tests.unit.driver.made import DEBS, FACTS, KERNEL, bare, decide, ids, listed, node, status, steps, wanted

NEW_ORDER = ["habanalabs_compat", "habanalabs", "habanalabs_cn", "habanalabs_en", "habanalabs_ib"]
IN_TREE = f"/lib/modules/{KERNEL}/kernel/drivers/accel/habanalabs/habanalabs.ko"
TRACE = ("/root/habanalabs-installer-log",)


def test_a_bare_node_gets_everything() -> None:
    judged = decide(bare())
    assert (judged.present.state, judged.origin, ids(judged)) == ("absent", "", [])
    assert steps(judged) == {"install": [f"{name}=1.22.2-32" for name in DEBS], "load": NEW_ORDER}


def test_what_is_right_is_left_alone() -> None:
    judged = decide(node())
    assert (judged.present.state, judged.origin, ids(judged), steps(judged)) == ("right", "packages", [], {})
    assert judged.reboot == ()


def test_a_release_that_is_held_or_of_the_installer_and_right_is_left_alone() -> None:
    held = packages.parse(listed("1.22.2-32", status="hold installed ok"))
    judged = decide(node(packages=held, traces=TRACE))
    assert (judged.origin, ids(judged), steps(judged)) == ("installer", [], {})


@pytest.mark.parametrize(("version", "kind"), [("1.21.3-57", "an older driver"), ("1.24.0-1007", "a newer driver")])
def test_another_release_needs_a_wish(version: str, kind: str) -> None:
    judged = decide(node(version))
    assert ids(judged) == ["driver_of_other_release"]
    assert f"{kind}: {version}" in str(judged.refusals[0])
    assert "1.22.2-32" in str(judged.refusals[0])
    assert ids(decide(node(version), replace=True)) == []


def test_several_releases_at_once_need_a_wish() -> None:
    mixed = packages.parse(listed("1.22.2-32", *DEBS[:1]) + listed("1.21.3-57", *DEBS[1:]))
    assert ids(decide(node(packages=mixed))) == ["driver_of_other_release"]


def test_modules_are_unloaded_as_they_were_and_loaded_as_they_will_be() -> None:
    """From 1.18, whose order is another one, to 1.22."""
    found = node("1.18.0-524")
    assert steps(decide(found, replace=True))["unload"] == [
        "habanalabs",
        "habanalabs_cn",
        "habanalabs_ib",
        "habanalabs_en",
    ]
    assert steps(decide(found, replace=True))["load"] == NEW_ORDER
    back = steps(decide(node(), "1.18", replace=True))
    assert back["unload"] == ["habanalabs_ib", "habanalabs_en", "habanalabs_cn", "habanalabs", "habanalabs_compat"]
    assert back["load"] == ["habanalabs_en", "habanalabs_ib", "habanalabs_cn", "habanalabs"]


def test_cards_in_use_keep_their_driver() -> None:
    users = ("module 0: vllm-chat (pid 4242)",)
    assert ids(decide(node("1.21.3-57", users=users), replace=True)) == ["cards_in_use"]
    # Of its build the loaded driver says nothing.
    assert ids(decide(node("1.22.2-30", users=users), replace=True)) == ["cards_in_use"]
    assert "vllm-chat (pid 4242)" in str(decide(node("1.21.3-57", users=users), replace=True).refusals[0])
    # A missing tool disturbs nobody.
    some = packages.parse(listed("1.22.2-32", *DEBS[:5]))
    assert ids(decide(node(packages=some, users=users))) == []


def test_our_instances_keep_their_driver_unless_they_are_stopped_for_it() -> None:
    running = node("1.21.3-57", instances=("chat",))
    (refusal,) = decide(running, replace=True).refusals
    assert refusal.id == "cards_in_use"
    assert "the instance chat. " in str(refusal)
    assert "site.yml" in str(refusal)
    assert ids(decide(running, replace=True, drain=True)) == []
    # Somebody else is not stopped.
    other = dataclasses.replace(running, users=("module 3: pid 4242 python3",))
    (refusal,) = decide(other, replace=True, drain=True).refusals
    assert "in use: module 3: pid 4242 python3. " in str(refusal)


@pytest.mark.parametrize(
    ("found", "replaces"),
    [
        (bare(), False),
        (node(), False),
        (node(next_kernel="6.17.0-22-generic"), False),
        (node(packages=packages.parse(listed("1.22.2-32", *DEBS[:5]))), False),
        (node("1.21.3-57"), True),
        (node("1.22.2-30"), True),
        (node(version="1.21.3-97ec1a4"), True),
    ],
)
def test_what_takes_the_place_of_another_driver_is_told(found: decision.DriverState, replaces: bool) -> None:
    assert decide(found, replace=True).replaces is replaces
    assert decide(found, replace=True).as_dict()["replaces"] is replaces


def test_packages_that_were_installed_and_not_loaded_wait_for_a_reboot() -> None:
    judged = decide(node(version="1.21.3-97ec1a4"))
    assert judged.reboot == ("1.22.2-32 is installed, 1.21.3-97ec1a4 is loaded",)
    assert list(steps(judged)) == ["unload", "load"]


EMPTY = {KERNEL: ("habanalabs.ko.zst", "habanalabs_cn.ko.zst")}


def emptied(**changes: Any) -> decision.DriverState:
    """A node whose module files have no content, though DKMS calls them installed."""
    said = dkms.with_files(dkms.parse(status("1.22.2-32", KERNEL)), EMPTY)
    return node(status=said, empty=EMPTY, **changes)


def test_modules_without_content_are_built_anew() -> None:
    judged = decide(emptied(modules=frozenset(), version=""))
    assert (judged.present.state, ids(judged)) == ("right", [])
    assert steps(judged) == {"build": [KERNEL], "load": NEW_ORDER}


def test_modules_without_content_are_no_driver() -> None:
    (wrong,) = decision.verify(emptied(), wanted(), FACTS, 8, 8, 8)
    assert wrong.id == "driver_modules_empty"
    assert f"The modules of kernel {KERNEL}, which runs, are files of 0 bytes (habanalabs.ko.zst," in str(wrong)
    assert f"dkms build habanalabs/1.22.2-32 -k {KERNEL} --force" in str(wrong)


def test_a_reboot_with_modules_without_content_loses_the_driver() -> None:
    said = dkms.lost_at_reboot(emptied().status, KERNEL, KERNEL)
    assert "has habanalabs modules of 0 bytes, though dkms status calls them installed" in said
    both = dkms.parse(status("1.22.2-32", KERNEL, "6.8.0-60-generic"))
    next_ = "6.8.0-60-generic"
    assert "of 0 bytes" in dkms.lost_at_reboot(dkms.with_files(both, {next_: ("habanalabs.ko",)}), KERNEL, next_)
    assert dkms.lost_at_reboot(both, KERNEL, next_) == ""


def test_a_package_whose_build_failed_is_finished_by_the_next_run() -> None:
    """As recorded on Debian 12: dpkg configured the others, and DKMS has the module, built for no kernel."""
    found = node(packages=halves("half-configured ok"), status=ADDED, modules=frozenset(), version="")
    judged = decide(found)
    assert (judged.present.state, ids(judged)) == ("broken", [])
    assert steps(judged)["repair"] == ["habanalabs-dkms"]
    assert steps(judged)["forget"] == ["habanalabs/1.22.2-32"]
    assert "unpack" not in steps(judged)


def halves(dkms_is: str, version: str = "1.22.2-32", others: str = "1.22.2-32") -> dict[str, packages.DriverPackage]:
    """Packages of which dpkg was kept from finishing the first, with what dpkg has of it."""
    return packages.parse(listed(others, *DEBS[1:]) + f"habanalabs-dkms install {dkms_is} {version}\n")


ADDED = dkms.parse("habanalabs/1.22.2-32: added\n")


def test_a_package_that_was_not_configured_is_configured() -> None:
    """Of the version that is wanted: nothing has to come."""
    for state in ("half-configured ok", "unpacked ok"):
        found = node(packages=halves(state), status=(), modules=frozenset(), version="")
        judged = decide(found)
        assert (ids(judged), judged.replaces) == ([], False)
        assert {name: items for name, items in steps(judged).items() if name != "load"} == {
            "repair": ["habanalabs-dkms"],
            "install": [f"{name}=1.22.2-32" for name in DEBS],
        }


def test_a_package_that_was_not_unpacked_comes_anew() -> None:
    """dpkg --configure -a and apt-get --fix-broken install pass over it, as was seen in Debian 12."""
    judged = decide(node(packages=halves("half-installed reinstreq"), status=ADDED))
    assert (ids(judged), judged.replaces) == ([], False)
    assert steps(judged)["unpack"] == ["habanalabs-dkms=1.22.2-32"]
    # dpkg has no script of it run but the last, which adds to DKMS.
    assert steps(judged)["forget"] == ["habanalabs/1.22.2-32"]
    # Cut off in the script that an upgrade begins with: it is run again, and may want to find what it takes away.
    leaving = steps(decide(node(packages=halves("half-configured reinstreq"))))
    assert leaving["unpack"] == ["habanalabs-dkms=1.22.2-32"]
    assert "forget" not in leaving


def test_halves_of_another_release_need_a_wish() -> None:
    found = node(packages=halves("half-installed reinstreq", "1.21.3-57", "1.21.3-57"))
    (refusal,) = decide(found).refusals
    assert refusal.id == "driver_of_other_release"
    assert "has packages of another release, some of them installed by half: 1.21.3-57, where" in str(refusal)
    judged = decide(found, replace=True)
    assert (ids(judged), judged.replaces) == ([], True)
    assert steps(judged)["unpack"] == ["habanalabs-dkms=1.22.2-32"]
    (refusal,) = decide(dataclasses.replace(found, users=("module 3: pid 4242",)), replace=True).refusals
    assert refusal.id == "cards_in_use"


def test_dkms_forgets_what_a_script_that_was_cut_off_left_with_it() -> None:
    """As it was seen on a host with 1.24.0: half-configured, and added to DKMS without being installed."""
    half = packages.parse("habanalabs-dkms install half-configured ok 1.22.2-32\n")
    assert steps(decide(bare(packages=half, status=ADDED)))["forget"] == ["habanalabs/1.22.2-32"]
    # Also where the script was all but through: it begins at its beginning.
    assert steps(decide(node(packages=halves("half-configured ok"))))["forget"] == ["habanalabs/1.22.2-32"]
    assert "forget" not in steps(decide(node("1.21.3-57", packages=halves("half-configured ok"))))


def test_whoever_installs_packages_now_is_not_disturbed() -> None:
    half = node(packages=halves("unpacked ok"), holder="712 (unattended-upgr)", others=("vim",))
    (refusal,) = decide(half).refusals
    assert refusal.id == "packages_locked"
    assert "712 (unattended-upgr)" in str(refusal)
    # apt waits for it where nothing is to be repaired.
    assert ids(decide(bare(holder="712 (apt)"))) == []


@pytest.mark.report("A07")
def test_packages_of_others_are_not_repaired() -> None:
    (refusal,) = decide(node(packages=halves("unpacked ok"), others=("gcc-12", "vim"))).refusals
    assert refusal.id == "other_packages_half_installed"
    assert "installed by half: gcc-12, vim. This run" in str(refusal)
    assert ids(decide(node(others=("vim",)))) == [], "nothing is to be done"
    assert ids(decide(bare(others=("vim",)))) == ["other_packages_half_installed"]


def test_what_an_interrupted_install_left_with_dkms_alone_is_refused_before_it_fails_again() -> None:
    added = ADDED
    assert ids(decide(bare(status=added))) == ["dkms_left_over"]
    # Whole packages whose modules were never built are built.
    assert steps(decide(node(status=added))) == {"build": [KERNEL]}


def test_a_held_package_is_named() -> None:
    held = packages.parse(listed("1.21.3-57", "habanalabs-graph", status="hold installed ok"))
    judged = decide(bare(packages=held), replace=True)
    assert ids(judged) == ["driver_packages_held"]
    assert "apt-mark unhold habanalabs-graph" in str(judged.refusals[0])
    assert ids(decide(bare(packages=held), replace=True, take_over=True)) == []


def test_the_installers_driver_is_taken_over_by_wish() -> None:
    found = node("1.21.3-57", traces=TRACE)
    assert ids(decide(found, replace=True)) == ["driver_of_installer"]
    assert TRACE[0] in str(decide(found, replace=True).refusals[0])
    assert ids(decide(found, replace=True, take_over=True)) == []


@pytest.mark.report("S06")
def test_the_kernels_own_driver_gives_way() -> None:
    found = bare(file=IN_TREE, modules=frozenset({"habanalabs"}))
    judged = decide(found)
    assert (judged.origin, ids(judged)) == ("kernel", [])
    assert steps(judged)["unload"] == ["habanalabs"]


def test_a_driver_of_nobody_is_refused() -> None:
    found = bare(file=f"/lib/modules/{KERNEL}/extra/habanalabs.ko", version="1.20.0-1234567")
    assert ids(decide(found)) == ["driver_of_nobody"]
    assert "extra/habanalabs.ko" in str(decide(found).refusals[0])


def test_a_kernel_that_boots_next_gets_its_modules() -> None:
    judged = decide(node(next_kernel="6.17.0-22-generic"))
    assert steps(judged) == {"build": ["6.17.0-22-generic"]}
    assert judged.reboot == ()


def test_a_kernel_that_runs_without_modules_waits_for_the_next() -> None:
    found = node(next_kernel="6.8.0-110-generic", status=dkms.parse(status("1.22.2-32", "6.8.0-110-generic")))
    judged = decide(dataclasses.replace(found, modules=frozenset(), version=""))
    assert judged.reboot == (
        f"kernel 6.8.0-110-generic, which boots next, has the driver; kernel {KERNEL}, which runs, has not",
    )


def test_the_judgement_survives_json() -> None:
    told = decide(node("1.21.3-57")).as_dict()
    assert json.loads(json.dumps(told)) == told
    assert told["refusals"][0]["id"] == "driver_of_other_release"


def verified(found: decision.DriverState, cards: int = 8, devices: int = 8, shown: int | None = 8) -> list[str]:
    return [wrong.id for wrong in decision.verify(found, wanted(), FACTS, cards, devices, shown)]


def test_a_whole_node_is_verified() -> None:
    assert verified(node()) == []


@pytest.mark.parametrize(
    ("changes", "id_"),
    [
        ({"packages": packages.parse(listed("1.22.2-32", *DEBS[1:]))}, "driver_not_as_wanted"),
        (
            {"packages": packages.parse(listed("1.22.2-32", *DEBS[1:]) + listed("1.22.1-6", DEBS[0]))},
            "driver_not_as_wanted",
        ),
        ({"status": ()}, "kernel_has_no_driver"),
        ({"status": dkms.parse(status("1.21.3-57", KERNEL))}, "kernel_has_no_driver"),
        ({"next_kernel": "6.17.0-22-generic"}, "kernel_has_no_driver"),
        ({"modules": frozenset({"habanalabs"})}, "driver_not_loaded"),
        ({"version": "1.21.3-97ec1a4"}, "other_driver_loaded"),
    ],
)
def test_what_is_missing_is_found(changes: dict[str, Any], id_: str) -> None:
    assert verified(node(**changes)) == [id_]


def test_the_kernel_that_lacks_the_driver_is_named() -> None:
    (wrong,) = decision.verify(node(next_kernel="6.17.0-22-generic"), wanted(), FACTS, 8, 8, 8)
    assert wrong.id == "kernel_has_no_driver"
    assert {"6.17.0-22-generic,", "1.22.2-32."} <= {*str(wrong).split()}


@pytest.mark.parametrize(
    ("devices", "shown", "expected"),
    [(7, 8, ["cards_missing"]), (8, 7, ["cards_missing"]), (8, None, ["no_hl_smi"]), (0, 0, ["cards_missing"])],
)
def test_cards_that_are_missing_are_counted(devices: int, shown: int | None, expected: list[str]) -> None:
    assert verified(node(), 8, devices, shown) == expected
