"""Every decision of preflight: what it accepts, and the sentence it refuses with."""

from __future__ import annotations

from typing import Any

import pytest
from ansible.module_utils.gaudi.base import systems
from ansible.module_utils.gaudi.base.listeners import Listener, parse_listeners
from ansible.module_utils.gaudi.base.places import Room
from ansible.module_utils.gaudi.cards.users import new_user
from ansible.module_utils.gaudi.engine import packages
from ansible.module_utils.gaudi.planning.many import Catalogue, plan_all
from ansible.module_utils.gaudi.preflight import checks as preflight
from hypothesis import given
from hypothesis import strategies as st

from plugin_utils.catalogue_files import CATALOG, load_checked

UBUNTU_22 = 'PRETTY_NAME="Ubuntu 22.04.5 LTS"\nID=ubuntu\nVERSION_ID="22.04"\nNAME="Ubuntu"\n'
MIB = 1024**2
GIB = 1024**3


def only(problems: list[preflight.Problem]) -> str:
    assert len(problems) == 1
    return str(problems[0].message)


def os_release(system: str, version: str) -> dict[str, str]:
    return {"ID": system, "VERSION_ID": version, "PRETTY_NAME": f"{system} {version}"}


@pytest.mark.parametrize(
    ("system", "version"),
    [("debian", "12"), ("debian", "13"), ("ubuntu", "22.04"), ("ubuntu", "24.04"), ("rhel", "9.4"), ("rhel", "9")],
)
def test_a_system_the_roles_know_is_accepted(system: str, version: str) -> None:
    assert preflight.check_system(os_release(system, version)) == []


@pytest.mark.parametrize(
    ("system", "version"),
    [
        ("debian", "120"),
        ("debian", "1"),
        ("debian", "14"),
        ("debian", ""),
        ("sles", "15.5"),
        ("rhel", "10.0"),
        ("rocky", "8.10"),
        ("almalinux", "10.1"),
        ("ol", "9.6"),
        ("centos", "9"),
    ],
)
def test_another_system_is_refused_with_those_that_are_known(system: str, version: str) -> None:
    message = only(preflight.check_system(os_release(system, version)))
    assert f"runs {system} {version}, but" in message
    assert "Debian 12, Debian 13, Ubuntu 22.04, Ubuntu 24.04, Red Hat Enterprise Linux 9 and its rebuilds" in message
    assert "(AlmaLinux, Rocky Linux)" in message


# Files of real systems, as they were published.
ROCKY = """\
NAME="Rocky Linux"
VERSION="9.6 (Blue Onyx)"
ID="rocky"
ID_LIKE="rhel centos fedora"
VERSION_ID="9.6"
PLATFORM_ID="platform:el9"
PRETTY_NAME="Rocky Linux 9.6 (Blue Onyx)"
ANSI_COLOR="0;32"
LOGO="fedora-logo-icon"
CPE_NAME="cpe:/o:rocky:rocky:9::baseos"
HOME_URL="https://rockylinux.org/"
VENDOR_NAME="RESF"
VENDOR_URL="https://resf.org/"
BUG_REPORT_URL="https://bugs.rockylinux.org/"
SUPPORT_END="2032-05-31"
ROCKY_SUPPORT_PRODUCT="Rocky-Linux-9"
ROCKY_SUPPORT_PRODUCT_VERSION="9.6"
REDHAT_SUPPORT_PRODUCT="Rocky Linux"
REDHAT_SUPPORT_PRODUCT_VERSION="9.6"
"""
ALMA = """\
NAME="AlmaLinux"
VERSION="9.6 (Sage Margay)"
ID="almalinux"
ID_LIKE="rhel centos fedora"
VERSION_ID="9.6"
PLATFORM_ID="platform:el9"
PRETTY_NAME="AlmaLinux 9.6 (Sage Margay)"
ANSI_COLOR="0;34"
LOGO="fedora-logo-icon"
CPE_NAME="cpe:/o:almalinux:almalinux:9::baseos"
HOME_URL="https://almalinux.org/"
DOCUMENTATION_URL="https://wiki.almalinux.org/"
BUG_REPORT_URL="https://bugs.almalinux.org/"

ALMALINUX_MANTISBT_PROJECT="AlmaLinux-9"
ALMALINUX_MANTISBT_PROJECT_VERSION="9.6"
REDHAT_SUPPORT_PRODUCT="AlmaLinux"
REDHAT_SUPPORT_PRODUCT_VERSION="9.6"
"""
DEBIAN_13 = """\
PRETTY_NAME="Debian GNU/Linux 13 (trixie)"
NAME="Debian GNU/Linux"
VERSION_ID="13"
VERSION="13 (trixie)"
VERSION_CODENAME=trixie
DEBIAN_VERSION_FULL=13.8
ID=debian
HOME_URL="https://www.debian.org/"
SUPPORT_URL="https://www.debian.org/support"
BUG_REPORT_URL="https://bugs.debian.org/"
"""


@pytest.mark.parametrize(
    ("text", "title"), [(ROCKY, "Rocky Linux 9.6 (Blue Onyx)"), (ALMA, "AlmaLinux 9.6 (Sage Margay)")]
)
def test_a_rebuild_counts_as_the_system_that_it_rebuilds(text: str, title: str) -> None:
    read = systems.parse_os_release(text)
    assert preflight.check_system(read) == []
    assert systems.is_rebuild(read)
    assert systems.vendor_system(read) == "rhel9.6"
    assert systems.system_title(read) == f"{title}, which counts as rhel9.6"
    assert packages.family_of(text) == "RedHat"


def test_debian_13_is_set_up_under_its_own_name() -> None:
    read = systems.parse_os_release(DEBIAN_13)
    assert preflight.check_system(read) == []
    assert not systems.is_rebuild(read)
    assert systems.vendor_system(read) == "debian13"
    assert systems.system_title(read) == "Debian GNU/Linux 13 (trixie)"


def test_no_os_release_is_said_so() -> None:
    assert "a system without /etc/os-release" in only(preflight.check_system(systems.parse_os_release("")))


def test_quotes_in_os_release_are_taken_off() -> None:
    assert systems.vendor_system(systems.parse_os_release(UBUNTU_22)) == "ubuntu22.04"
    assert systems.vendor_system(systems.parse_os_release("ID='rhel'\nVERSION_ID='9.4'\n# x\n")) == "rhel9.4"


@given(st.text())
def test_any_os_release_can_be_read(text: str) -> None:
    assert all(key.isupper() or "_" in key for key in systems.parse_os_release(text))


@pytest.mark.parametrize("off", [-60.0, 0.0, 60.0])
def test_clocks_within_the_tolerance_are_accepted(off: float) -> None:
    assert preflight.check_clock(1e9 + off, 1e9, 60) == []


@pytest.mark.report("A18")
@pytest.mark.parametrize(
    ("off", "words"),
    [
        (86400, "24 hours ahead of"),
        (-3600, "60 minutes behind"),
        (61, "61 seconds ahead of"),
        (-400 * 86400, "400 days behind"),
    ],
)
def test_a_clock_far_off_is_refused_with_how_far(off: float, words: str) -> None:
    message = only(preflight.check_clock(1.7e9 + off, 1.7e9, 60))
    assert f"The node's clock is {words} the controller's, and at most 60 seconds are allowed" in message
    assert "timedatectl" in message


def cards(*modules: int) -> dict[str, object]:
    return {"cards": [{"module_id": module} for module in modules], "findings": []}


def test_missing_cards_are_named_by_those_that_are_there() -> None:
    assert preflight.check_cards(cards(*range(8)), 8) == []
    message = only(preflight.check_cards(cards(0, 1, 3), 4))
    assert message.startswith("3 cards are seen (modules: 0, 1, 3), but gaudi_expected_cards says 4.")


def test_more_cards_than_promised_is_a_problem_too() -> None:
    assert "gaudi_expected_cards says 1" in only(preflight.check_cards(cards(0, 1), 1))


def test_no_driver_is_said_once_and_not_as_missing_cards() -> None:
    topology = {
        "cards": [],
        "findings": [
            {"id": "no-driver", "severity": "error", "message": "The driver is not loaded. Run modprobe habanalabs."},
            {"id": "nic", "severity": "warning", "message": "Another matter."},
        ],
    }
    assert only(preflight.check_cards(topology, 8)) == "The driver is not loaded. Run modprobe habanalabs."


def test_wishes_on_one_file_system_are_added_up() -> None:
    image = Room("the image", "/var/lib/docker", "/", 6 * GIB, 10 * GIB)
    weights = Room("weights", "/data", "/", 6 * GIB, 10 * GIB)
    elsewhere = Room("weights", "/data", "/data", 6 * GIB, 10 * GIB)
    assert preflight.check_room([image, elsewhere]) == []
    message = only(preflight.check_room([image, weights]))
    assert message == (
        "10.0 GiB are free on /, but 6.0 GiB for the image (/var/lib/docker) "
        "and 6.0 GiB for weights (/data) are needed. Free 2.0 GiB, or put them on another file system."
    )


@pytest.mark.parametrize(
    ("expected", "todo"),
    [(7, "No card is missing: set gaudi_expected_cards to 8."), (9, "Look for the missing ones with lspci -d 1da3:")],
)
def test_more_cards_than_expected_are_none_missing(expected: int, todo: str) -> None:
    cards = {"findings": [], "cards": [{"module_id": module} for module in range(8)]}
    said = only(preflight.check_cards(cards, expected))
    assert f"gaudi_expected_cards says {expected}. {todo}" in said
    assert said.count("missing") == 1


def test_exactly_enough_room_is_enough() -> None:
    assert preflight.check_room([Room("it", "/x", "/", 10, 10)]) == []
    assert "10 bytes are free" in only(preflight.check_room([Room("it", "/x", "/", 11, 10)]))


@pytest.mark.parametrize(
    ("wanted", "free", "said"),
    [
        (2 * GIB, GIB, ["1.0 GiB are free", "2.0 GiB for it", "Free 1.0 GiB"]),
        (120 * MIB, 90 * MIB, ["0.09 GiB are free", "0.12 GiB for it", "Free 0.03 GiB"]),
        (GIB + 2 * MIB, GIB, ["1.000 GiB are free", "1.002 GiB for it", "Free 0.002 GiB"]),
    ],
)
def test_two_sizes_that_differ_are_said_with_digits_that_differ(wanted: int, free: int, said: list[str]) -> None:
    room = Room("it", "/x", "/", wanted, free)
    sentences = [only(preflight.check_room([room])), *preflight.room_findings([room])]
    assert [words for words in said if words not in sentences[0]] == []
    assert f"grow to {said[1].removesuffix(' for it')} in /x, and {said[0]} on /" in sentences[1]


def plan(**changes: object) -> dict[str, object]:
    return {
        "instance": "qwen3-8b",
        "listen": {"host": "127.0.0.1", "port": 30001},
        "requires": {"weights_path": "/data/models/Qwen3-8B", "weights_bytes": 16 * GIB},
        **changes,
    }


def test_missing_weights_are_refused_with_place_and_size() -> None:
    assert preflight.check_weights(plan(), present=True, advice="") == []
    message = only(preflight.check_weights(plan(), present=False, advice=""))
    assert message.startswith(
        "qwen3-8b: the weights are not at /data/models/Qwen3-8B (no config.json there); they take 16.0 GiB."
    )
    unknown = plan(requires={"weights_path": "/data/models/Own", "weights_bytes": None})
    assert "they take" not in only(preflight.check_weights(unknown, present=False, advice=""))


def test_weights_that_are_not_complete_are_refused_by_name() -> None:
    missing = [f"model-{n}.safetensors" for n in range(7)]
    half = plan(requires={"weights_path": "/data/models/Half", "weights_missing": missing})
    message = only(preflight.check_weights(half, present=True, advice="Fetch them again."))
    assert message.startswith("qwen3-8b: the weights in /data/models/Half are not complete: model-0.safetensors, ")
    assert message.endswith("model-4.safetensors and 2 more missing or not as recorded. Fetch them again.")


def test_a_hubs_id_is_no_directory() -> None:
    hub = plan(requires={"weights_path": None, "weights_bytes": None})
    assert "named by a hub's id" in only(preflight.check_weights(hub, present=False, advice=""))


def test_a_request_without_a_name_cannot_be_served() -> None:
    assert preflight.check_name(plan()) == []
    message = only(preflight.check_name(plan(instance=None, model="qwen3-8b")))
    assert message.startswith("A request for qwen3-8b in gaudi_serving_instances has no instance.")


def test_a_missing_container_runtime_is_refused_unless_a_role_brings_it() -> None:
    assert preflight.check_runtime("/usr/bin/habana", present=True) == []
    assert preflight.check_runtime("", present=False) == []
    assert "/usr/bin/habana is not on the node" in only(preflight.check_runtime("/usr/bin/habana", present=False))


def test_what_may_grow_is_a_finding() -> None:
    cache = Room("one: the recipe cache", "/data/cache", "/data", 40 * GIB, 10 * GIB)
    assert preflight.room_findings([cache]) == [
        "one: the recipe cache may grow to 40.0 GiB in /data/cache, and 10.0 GiB are free on /data."
    ]
    assert preflight.room_findings([Room("x", "/x", "/", 1, 1)]) == []


# The columns of a real /proc/net/tcp and tcp6 (Debian 12) that matter: local and remote address, state, ..., inode.
def proc_net(*sockets: tuple[str, str, int]) -> str:
    columns = "00000000:00000000 00:00000000 00000000     0        0"
    lines = [f"   {n}: {local} 0:0000 {state} {columns} {inode} 1" for n, (local, state, inode) in enumerate(sockets)]
    return "\n".join(["  sl  local_address rem_address   st tx_queue ...", *lines, ""])


PROC_TCP = proc_net(("00000000:0016", "0A", 19203), ("0100007F:7531", "0A", 20391), ("0100007F:7535", "01", 20400))
PROC_TCP6 = proc_net(
    ("00000000000000000000000000000000:7532", "0A", 5),
    ("00000000000000000000000001000000:7533", "0A", 6),
    ("0000000000000000FFFF00000100007F:7534", "0A", 7),
)


def test_listening_sockets_are_read_and_others_are_not() -> None:
    found = parse_listeners(PROC_TCP) + parse_listeners(PROC_TCP6)
    assert [(each.address, each.port, each.inode) for each in found] == [
        ("*", 22, 19203),
        ("127.0.0.1", 30001, 20391),
        ("*", 30002, 5),
        ("::1", 30003, 6),
        ("127.0.0.1", 30004, 7),
    ]
    assert parse_listeners("") == []


@pytest.mark.parametrize(
    ("host", "port", "blocked"),
    [
        ("127.0.0.1", 22, True),  # somebody listens on every address
        ("127.0.0.1", 30001, True),
        ("0.0.0.0", 30001, True),
        ("10.0.0.5", 30001, False),  # another address of the machine is free
        ("127.0.0.1", 30002, True),  # [::] takes IPv4 as well
        ("127.0.0.1", 30003, False),
        ("::1", 30003, True),
        ("0:0:0:0:0:0:0:1", 30003, True),
        ("127.0.0.1", 30004, True),
        ("127.0.0.1", 30005, False),
    ],
)
def test_what_keeps_an_address_from_being_bound(host: str, port: int, blocked: bool) -> None:
    found = parse_listeners(PROC_TCP) + parse_listeners(PROC_TCP6)
    assert bool(preflight.blocking_listeners(found, host, port)) is blocked


def test_a_busy_port_is_refused_with_its_holder() -> None:
    assert preflight.check_port(plan(), None, 30002) == []
    stranger = {**new_user(), "pid": 4242, "name": "python3"}
    message = only(preflight.check_port(plan(), stranger, 30002))
    assert message.startswith("qwen3-8b: port 30001 on 127.0.0.1 is in use by pid 4242 python3. Stop that program")
    assert """-e '{"serve_options": {"port": 30002}}'""" in message


@pytest.mark.parametrize(
    "user",
    [
        {"container": "c0c0c0c0c0c0", "container_name": "vllm-qwq-32b"},
        {"unit": "vllm-qwq-32b.service"},
    ],
)
def test_another_instance_on_the_port_is_named(user: dict[str, str]) -> None:
    message = only(preflight.check_port(plan(), {**new_user(), "pid": 7, "name": "python3", **user}, 30002))
    assert "in use by the instance qwq-32b (vllm-qwq-32b.service). Give one of the two another port" in message
    other = only(preflight.check_port(plan(), {**new_user(), "container_name": "grafana"}, 30002))
    assert "container grafana" in other


def test_the_port_to_take_instead_is_free() -> None:
    listeners = [Listener("*", port, 1) for port in (30001, 30002, 30003, 30005)]
    assert preflight.free_port(listeners, 30001) == 30004
    assert preflight.free_port(listeners, 22) == 1024
    assert preflight.free_port(listeners, 65535) == 65535


def test_an_unknown_release() -> None:
    assert preflight.check_release("1.22", ["1.21", "1.22"]) == []
    assert "gaudi_release is '9.9', but the catalogue has 1.21, 1.22" in only(
        preflight.check_release("9.9", ["1.22", "1.21"])
    )


def test_refusals_of_the_planner_are_passed_on_once() -> None:
    plans: list[dict[str, Any]] = [
        {"refused": "Unknown release 9.9.", "refused_id": "not_in_catalogue"},
        {"refused": "Unknown release 9.9.", "refused_id": "not_in_catalogue"},
        plan(),
        {"refused": "Two.", "refused_id": "port_taken"},
    ]
    found = preflight.check_requests(plans, cards_seen=True)
    assert [problem.message for problem in found] == ["Unknown release 9.9.", "Two."]
    # A sentence about one request says which; what stood before it in the inventory was no request.
    found = preflight.check_requests(plans, True, [0, 2, 3, 5])
    assert [problem.message for problem in found] == ["Unknown release 9.9.", "gaudi_serving_instances[5]: Two."]


def test_what_only_follows_from_a_missing_driver_is_not_said_again() -> None:
    """The planner itself is asked, so that another id of its refusal is noticed here; its wording is free."""
    topology = {"schema": 1, "cards": [], "addresses": [], "findings": []}
    model = load_checked("model", CATALOG / "models" / "qwen3-8b.yml")
    catalogue = Catalogue.from_mappings(
        load_checked("release", CATALOG / "releases" / "1.22.yml"),
        {"qwen3-8b": model},
        load_checked("cards", CATALOG / "cards.yml"),
    )
    requests: list[dict[str, Any]] = [
        {"instance": "one", "model": "qwen3-8b"},
        {"instance": "two", "model": "qwen3-8b", "port": -1},
    ]
    plans = plan_all(requests, catalogue, topology, weights_root="/data/models")
    assert [bool(each.get("refused")) for each in plans] == [True, True]
    assert "port" in only(preflight.check_requests(plans, cards_seen=False))
    reworded = [{**each, "refused": f"Sentence {number}."} for number, each in enumerate(plans)]
    assert only(preflight.check_requests(reworded, cards_seen=False)) == "Sentence 1."
    assert len(preflight.check_requests(plans, cards_seen=True)) == 2


def test_the_report_counts_and_numbers() -> None:
    text = preflight.report("gaudi-01", [preflight.Problem("a", "First."), preflight.Problem("b", "Second.")])
    assert text == "gaudi-01: 2 problems, nothing was changed.\n  1. First. [a]\n  2. Second. [b]"
    asked = preflight.Problem("request", "No.", "no_such_model")
    assert preflight.report("gaudi-01", [asked]).endswith("1. No. [no_such_model]")
    assert preflight.report("gaudi-01", [preflight.Problem("a", "x")]).startswith("gaudi-01: 1 problem, ")


def test_files_a_plan_names_must_be_there() -> None:
    message = only(preflight.check_start(plan(), ["/data/quant/maxabs_quant_g2.json"], 0))
    assert "/data/quant/maxabs_quant_g2.json not there" in message


@pytest.mark.parametrize(("found", "refused"), [(0, True), (23, True), (24, False), (25, False)])
def test_measurements_are_three_files_a_card(found: int, refused: bool) -> None:
    measured = plan(model="deepseek-r1-0528", requires={"measurements": {"path": "/data/models/m", "files": 24}})
    problems = preflight.check_start(measured, [], found)
    assert bool(problems) is refused
    if refused:
        assert f"holds {found} measurement files, 24 are needed" in only(problems)
        for playbook in ("fetch_weights", "calibrate"):
            assert f"playbooks/{playbook}.yml -e model=deepseek-r1-0528" in only(problems)
