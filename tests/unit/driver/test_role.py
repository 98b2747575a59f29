"""What the role's own expressions make of what Ansible gives it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.driver.made import RECORDED
from tests.unit.preflight.test_contracts import ROOT, load, tasks
from tests.unit.preflight.test_templates import evaluate, results, runs, task_of

LOCKED = "E: Could not get lock /var/lib/dpkg/lock-frontend."


@pytest.mark.parametrize(
    "failed",
    [
        {"msg": LOCKED},
        {"msg": "'/usr/bin/apt-get install' failed: ", "stderr": LOCKED, "stdout": "Reading package lists..."},
        {
            "msg": "One or more items failed",
            "results": [{"failed": False, "stderr": ""}, {"failed": True, "stderr": LOCKED}, {"skipped": True}],
        },
    ],
)
def test_what_a_task_said_is_found_wherever_ansible_left_it(failed: dict[str, Any]) -> None:
    fails = task_of("gaudi_driver", "replace", "Say why")["ansible.builtin.fail"]["msg"]
    known = {"ansible_failed_result": failed, "gaudi_driver_before": {"driver": {"version": "1.21.3-57"}}}
    said = evaluate("gaudi_driver", fails, **known)
    assert said.endswith(f"{LOCKED} The driver 1.21.3-57 from before is back.")
    assert "\\n" not in said, "a line break in a string of a template stays what it is"


@pytest.mark.parametrize(
    ("check", "repository", "foreseen"),
    [(False, "https://x.example/debian", True), (True, "https://x.example/debian", False), (True, "", True)],
)
def test_what_a_repository_has_is_seen_when_it_is_known(check: bool, repository: str, foreseen: bool) -> None:
    given = {"ansible_check_mode": check, "gaudi_driver_repository": repository}
    looks = task_of("gaudi_driver", "install", "Write how programs reach what is outside")
    assert runs("gaudi_driver", looks, **given) is foreseen


@pytest.mark.parametrize("module", ["brought_packages", "ansible.builtin.apt", "ansible.builtin.dnf"])
def test_headers_alone_are_installed_where_the_driver_is_there(module: str) -> None:
    """The next kernel lacks its headers: ``steps`` builds, and installs none of the driver's packages."""
    (arguments,) = [
        task[module] for task in tasks(load(ROOT / "roles/gaudi_driver/tasks/install.yml")) if module in task
    ]
    found = {"steps": {"install": [], "build": ["6.8.0-60-generic"]}}
    headers = ["linux-headers-6.8.0-60-generic"]
    names = arguments["packages" if module == "brought_packages" else "name"]
    known = results("gaudi_driver", gaudi_driver_info={**found, "kernel_packages": headers})
    assert evaluate("gaudi_driver", names, **known) == headers


@pytest.mark.parametrize(
    ("steps", "said", "named"),
    [
        ({"forget": [], "unpack": ["habanalabs-dkms=1.22.2-32"]}, False, ["habanalabs-dkms=1.22.2-32"]),
        # Nothing comes: apt configures what waits for it.
        ({"forget": ["habanalabs/1.22.2-32"], "unpack": []}, True, []),
    ],
)
def test_what_is_installed_by_half_is_repaired_under_apts_lock(
    steps: dict[str, list[str]], said: bool, named: list[str]
) -> None:
    headers = ["linux-headers-6.8.0-45-generic"]
    given = results("gaudi_driver", gaudi_driver_info={"steps": steps, "kernel_packages": headers})
    given |= {"gaudi_driver_replace": True, "gaudi_driver_take_over": False, "gaudi_driver_lock_timeout": 60}
    repairs = task_of("gaudi_driver", "install", "nothing of the driver is installed by half")
    command = evaluate("gaudi_driver", repairs["ansible.builtin.command"]["argv"], **given)
    assert command[:4] == ["apt-get", "--yes", "--quiet", "--reinstall"]
    assert command[command.index("install") + 1 :] == [*headers, *named]
    assert ("DPkg::Pre-Invoke::=dkms remove habanalabs/1.22.2-32 --all" in command) is said
    assert "--allow-downgrades" in command
    assert "Dpkg::Options::=--force-confold" in command


def test_a_kernel_without_the_driver_is_built_for_anew() -> None:
    """What dkms calls built may be an earlier attempt's, and what it calls installed may be empty."""
    named = {task["name"]: task for task in tasks(load(ROOT / "roles/gaudi_driver/tasks/install.yml"))}
    build = named["install | Ensure the kernels without it have the driver"]
    lacking = {"steps": {"build": ["6.8.0-45-generic", "6.8.0-60-generic"]}}
    given = results("gaudi_driver", gaudi_driver_info={**lacking, "version": "1.24.1-482"})
    pairs = evaluate("gaudi_driver", build["loop"], **given)
    argv = build["ansible.builtin.command"]["argv"]
    commands = [[evaluate("gaudi_driver", word, **given, item=list(pair)) for word in argv] for pair in pairs]
    module = "habanalabs/1.24.1-482"
    assert commands == [
        ["dkms", verb, module, "-k", kernel, "--force"]
        for kernel in ("6.8.0-45-generic", "6.8.0-60-generic")
        for verb in ("build", "install")
    ]


@pytest.mark.parametrize(
    ("build_failure", "said"),
    [
        ({"id": "headers_layout_misread", "message": "The vendor's script misreads the headers."}, "misreads"),
        ({}, "The driver does not build on kernel 6.1.0-53-amd64; the compiler's messages are in"),
    ],
)
def test_the_reason_of_a_build_is_that_of_its_log(build_failure: dict[str, str], said: str) -> None:
    printed = (RECORDED / "apt_install_1.24.1_debian12.txt").read_text(encoding="utf-8")
    failed = {"msg": "'/usr/bin/apt-get install' failed: E: Sub-process dpkg returned 1", "stdout": printed}
    fails = task_of("gaudi_driver", "install", "could not be installed")["ansible.builtin.fail"]["msg"]
    given = results("gaudi_driver", gaudi_driver_info={"build_failure": build_failure})
    given |= {"ansible_failed_result": failed, "gaudi_driver_repository": ""}
    reason = evaluate("gaudi_driver", fails, **given)
    assert said in reason.partition("It said")[0]
    # A fault of another kind is not explained with an old log.
    other = {**given, "ansible_failed_result": {"msg": LOCKED}}
    assert "misreads" not in evaluate("gaudi_driver", fails, **other)


@pytest.mark.parametrize("file", ["fetch.yml", "install.yml"])
def test_dpkg_takes_up_its_notes_before_apt_is_asked(file: str) -> None:
    """apt does nothing before that: "dpkg was interrupted"."""
    named = [task["name"] for task in tasks(load(ROOT / "roles/gaudi_driver/tasks" / file))]
    (taken_up,) = [index for index, name in enumerate(named) if "take up what it was cut off from" in name]
    assert taken_up < min(named.index(name) for name in named if "packages" in name or "do not offer" in name)


@pytest.mark.parametrize(
    ("reboot", "waits", "checking", "acts"),
    [
        ("if_needed", True, False, True),
        ("if_needed", False, False, False),
        ("never", True, False, False),
        ("if_needed", True, True, False),
    ],
)
def test_the_chosen_kernel_is_booted_where_the_site_allows_it(
    reboot: str, waits: bool, checking: bool, acts: bool
) -> None:
    given = {
        "gaudi_driver_found": {
            "chosen": {"waits": waits, "kernel": "6.8.0-110-generic"},
            "kernel": "6.17.0-10-generic",
        },
        "gaudi_driver_reboot": reboot,
        "ansible_check_mode": checking,
    }
    one = task_of("gaudi_driver", "kernel", "Reboot into it")
    assert runs("gaudi_driver", one, **given) is acts
    # Without the reboot, nothing is built for a kernel that does not take the driver.
    refuses = task_of("gaudi_driver", "kernel", "Refuse to build for a kernel")
    assert refuses["gaudi_driver_info"]["refuse"] == "booted"
    assert runs("gaudi_driver", refuses, **given) is (waits and not checking)


def test_a_reboot_into_the_chosen_kernel_begins_without_instances_and_ends_with_the_node_read_again() -> None:
    named = [
        task["name"].partition("| ")[2] for task in tasks(load(ROOT / "roles/gaudi_driver/tasks/kernel_reboot.yml"))
    ]
    assert named == [
        "Ensure our instances are stopped, their requests answered",
        "Reboot into the chosen kernel",
        "Read the node again",
        "Refuse a node that booted another kernel",
    ]
    found = {"kernel": "6.17.0-10-generic", "chosen": {"kernel": "6.8.0-110-generic", "waits": True}}
    refuses = task_of("gaudi_driver", "kernel_reboot", "booted another kernel")["ansible.builtin.assert"]
    given = results("gaudi_driver", gaudi_driver_info=found)
    assert evaluate("gaudi_driver", f"{{{{ {refuses['that']} }}}}", **given) is False
    said = evaluate("gaudi_driver", refuses["fail_msg"], **given)
    assert said.startswith("The node was to boot kernel 6.8.0-110-generic, but kernel 6.17.0-10-generic runs.")
