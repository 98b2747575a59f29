"""The kernel that a site chooses: which one an option means, what is refused, and what keeps it."""

from __future__ import annotations

import re
import subprocess
from typing import Any

import pytest
from ansible.module_utils.gaudi.driver import decision, dkms, kernel_choice, kernel_pin
from ansible.module_utils.gaudi.driver.kernel_choice import KernelChoice
from hypothesis import given
from hypothesis import strategies as st

from library import gaudi_driver_info
from plugin_utils import releases
from simulator import drivers
from tests.unit.driver.made import FACTS, KERNEL, RECORDED, bare, decide, ids, node, status, wanted
from tests.unit.driver.test_module import GIVEN, RHEL, System, grub, system
from tests.unit.preflight.conftest import Run

__all__ = ["system"]

NEW, OLD = "6.17.0-22-generic", "6.8.0-110-generic"
# Names that apt-cache pkgnames prints on Ubuntu 24.04.
NAMES = [
    *(f"linux-image-{kernel}" for kernel in ("6.8.0-45-generic", OLD, "6.8.0-99-generic", NEW, "6.11.0-9-generic")),
    *("linux-image-6.8.0-1030-aws", "linux-image-6.8.0-110-lowlatency", "linux-image-generic"),
    *("linux-image-unsigned-6.8.0-111-generic", "linux-image-6.8.0-112-generic-dbgsym"),
]


@pytest.mark.parametrize(
    ("release", "system_name", "expected"),
    [
        ("1.24", "ubuntu24.04", "6.8"),
        ("1.22", "ubuntu22.04", "5.15"),
        # The vendor lists no Debian: what was seen to run there, else a kernel of the list.
        ("1.24.1", "debian12", "6.1"),
        ("1.24", "debian12", "6.8"),
        ("1.24.1", "debian13", "6.8"),
        ("1.16", "ubuntu22.04", "5.15"),
    ],
)
def test_the_list_of_a_release_names_its_newest_kernel(release: str, system_name: str, expected: str) -> None:
    assert kernel_choice.listed(releases.read(release)["software"], system_name) == expected


def test_a_release_without_a_list_names_none() -> None:
    assert kernel_choice.listed({"systems": ["ubuntu24.04"]}, "ubuntu24.04") == ""


@pytest.mark.parametrize(
    ("kernel", "kind"),
    [(OLD, "generic"), ("6.1.0-56-cloud-amd64", "cloud-amd64"), ("6.1.0-0.deb11.13-amd64", "amd64"), ("6.8.0", "")],
)
def test_the_kind_of_a_kernel_is_what_follows_its_numbers(kernel: str, kind: str) -> None:
    assert kernel_choice.flavour(kernel) == kind


def choose(requested: str, running: str = NEW, pinned: str = "", listing: str = "6.8") -> KernelChoice:
    offered = kernel_choice.of_packages(NAMES)
    return kernel_choice.choose(requested, listing, running, pinned, ["6.8.0-45-generic", NEW], offered)


def test_supported_is_the_newest_of_the_list_and_of_the_running_kernels_kind() -> None:
    assert choose("supported").kernel == OLD
    assert choose("supported", running="6.11.0-1-aws").kernel == "6.8.0-1030-aws"
    assert choose("supported", listing="6.5").kernel == ""
    assert choose("supported", listing="").kernel == ""
    assert choose("6.11.0-9-generic").kernel == "6.11.0-9-generic"


def test_debians_package_without_a_kernel_of_its_own_is_none() -> None:
    """linux-image-6.12-cloud-amd64 only depends on the newest package of that line."""
    own, update = "6.1.0-56-cloud-amd64", "6.12.117+deb12-cloud-amd64"
    names = [f"linux-image-{kernel}" for kernel in ("6.12-cloud-amd64", update, own)]
    assert kernel_choice.of_packages(names) == [update, own]
    assert kernel_choice.choose("supported", "6.1", update, "", [update], [update, own]).kernel == own


def test_a_pinned_kernel_of_the_list_stays_when_a_newer_one_is_offered() -> None:
    assert choose("supported", pinned="6.8.0-99-generic").up_to_date
    # The list of another release.
    assert choose("supported", pinned=NEW).kernel == OLD


@given(st.lists(st.from_regex(r"[0-9]{1,2}\.[0-9]{1,2}\.0-[0-9]{1,3}-(generic|aws)", fullmatch=True)), st.text())
def test_a_chosen_kernel_is_always_one_that_is_there(there: list[str], listing: str) -> None:
    found = kernel_choice.newest(listing, NEW, there)
    assert found == "" or found in there
    found = kernel_choice.newest("6.8", NEW, there)
    assert found == "" or re.match(r"6\.8\..*-generic$", found)


def test_what_the_simulated_repository_offers_is_chosen_from() -> None:
    """The newest kernel in it is not of the list."""
    names = [package.name for package in drivers.offered()]
    offered = kernel_choice.of_packages(names)
    assert NEW in offered
    choice = kernel_choice.choose("supported", "6.8", KERNEL, "", [], offered)
    assert choice.kernel == drivers.NEXT
    assert set(kernel_choice.missing(FACTS, choice.kernel, [])) <= set(names)


def test_the_packages_of_a_kernel_are_those_that_are_missing() -> None:
    names = [f"linux-{kind}-{OLD}" for kind in ("image", "headers", "modules-extra")]
    assert kernel_choice.missing(FACTS, OLD, []) == names
    assert kernel_choice.missing(FACTS, OLD, names[:2]) == names[2:]


def test_the_drop_in_names_its_kernel() -> None:
    text = kernel_pin.render_pin(OLD, f"a>gnulinux-{OLD}-advanced-1")
    assert kernel_pin.pinned_in(text) == OLD
    assert kernel_pin.pinned_in("GRUB_DEFAULT=0\n") == ""


def test_autoremove_keeps_exactly_the_named_packages() -> None:
    text = kernel_choice.render_keep(["linux-image-6.8.0-110-generic"])
    (pattern,) = re.findall(r'"(.*)"', text)
    assert re.search(pattern, "linux-image-6.8.0-110-generic")
    assert not re.search(pattern, "linux-image-6.8.0-1100-generic")
    assert not re.search(pattern, "linux-image-6x8.0-110-generic")


def test_apt_reads_what_keeps_packages(tmp_path: Any) -> None:
    file = tmp_path / "53keep"
    file.write_text(kernel_choice.render_keep(["linux-image-6.8.0-110-generic"]))
    dump = subprocess.run(["apt-config", "-c", str(file), "dump"], capture_output=True, text=True, check=True).stdout
    # A backslash before a dot is the regular expression's.
    assert r'APT::NeverAutoRemove:: "^linux-image-6\.8\.0-110-generic$";' in dump


@pytest.mark.report("A15")
def test_a_kernel_on_which_an_owner_saw_the_build_fail_is_refused_beforehand() -> None:
    """The log names the kernel; the release is 1.24.0."""
    log = (RECORDED / "dkms_build_1.24.0_kernel_6.17.txt").read_text()
    kernel = log.partition("on kernel: ")[2].split()[0]
    judged = decide(bare(kernel=kernel, next_kernel=kernel), "1.24")
    assert ids(judged) == ["kernel_unbuildable"]
    assert "gaudi_driver_kernel: supported" in str(judged.refusals[0])
    assert kernel in str(judged.refusals[0])


@pytest.mark.parametrize(
    ("release", "kernel", "refused"),
    [
        ("1.24", "6.8.0-110-generic", False),
        ("1.24", "6.11.0-9-generic", True),
        ("1.22", NEW, True),
        ("1.24", "6.1.0-53-amd64", False),
        # Not known: it is only reported that nobody tests it (kernel-untested).
        ("1.24.1", NEW, False),
    ],
)
def test_a_driver_is_refused_where_it_is_known_not_to_build(release: str, kernel: str, refused: bool) -> None:
    assert ("kernel_unbuildable" in ids(decide(bare(kernel=kernel, next_kernel=kernel), release))) is refused


def test_a_kernel_that_has_the_driver_is_not_refused() -> None:
    """Its owner has patched it."""
    both = dkms.parse(status("1.22.2-32", KERNEL, NEW))
    assert ids(decide(node(next_kernel=NEW, status=both))) == []
    assert ids(decide(node(next_kernel=NEW))) == ["kernel_unbuildable"]


def test_a_chosen_kernel_counts_in_the_place_of_the_running_one() -> None:
    assert ids(decide(bare(kernel=NEW, next_kernel=OLD, chosen=OLD), "1.24")) == []
    judged = decide(bare(kernel=OLD, next_kernel=NEW, chosen=NEW), "1.24")
    assert ids(judged) == ["kernel_unbuildable"]
    assert "Name an older kernel" in str(judged.refusals[0])


def test_rhel_is_told_to_choose_a_kernel_itself() -> None:
    found = bare(kernel=NEW, next_kernel=NEW)
    judged = decision.decide(found, wanted("1.24", "RedHat", ".el9"), FACTS, decision.DriverPolicy())
    assert "gaudi_driver_kernel" not in str(judged.refusals[0])


def test_no_node_is_rebooted_under_somebody_who_uses_a_card() -> None:
    used = node(chosen=OLD, next_kernel=OLD, users=("module 0: pid 4242 python3",))
    assert ids(decide(used)) == []
    assert ids(decide(used, reboots=True)) == ["cards_in_use"]
    ours = node(chosen=OLD, next_kernel=OLD, instances=("chat",))
    assert ids(decide(ours, reboots=True)) == ["cards_in_use"]
    assert ids(decide(ours, reboots=True, drain=True)) == []
    # It runs already.
    assert ids(decide(node(chosen=KERNEL, instances=("chat",)), reboots=True)) == []


def test_nothing_is_built_for_a_kernel_that_does_not_take_the_driver() -> None:
    def waits(found: decision.DriverState, release: str) -> list[str]:
        return [refusal.id for refusal in decision.waits_for_reboot(found, wanted(release), FACTS)]

    assert waits(bare(kernel=NEW, next_kernel=OLD, chosen=OLD), "1.24") == ["kernel_waits_for_reboot"]
    assert waits(bare(kernel=OLD, next_kernel=OLD, chosen=OLD), "1.24") == []
    # The running kernel takes it as well: the node serves on until somebody reboots it.
    assert waits(bare(kernel="6.8.0-45-generic", next_kernel=OLD, chosen=OLD), "1.24") == []
    assert waits(bare(kernel=NEW, next_kernel=NEW), "1.24") == []


def offering(system: System, *names: str) -> None:
    """A node that has read package lists with these packages."""
    system.answers["apt-cache pkgnames linux-image-"] = (0, "\n".join(names), "")
    lines = "".join(f"{name} | 6.8 | https://x noble/main amd64 Packages\n" for name in names)
    system.answers["apt-cache madison"] = (0, lines, "")
    (system.root / "lists").mkdir()
    (system.root / "lists" / "noble_main_Packages").touch()


SEEN = [*NAMES, *(f"linux-{kind}-{OLD}" for kind in ("headers", "modules-extra"))]


def test_the_module_says_what_comes_for_a_kernel(run: Run, system: System) -> None:
    grub(system, "0")
    system.answers["update-grub"] = (0, "", "")
    offering(system, *SEEN)
    (system.root / "osrelease").write_text(f"{NEW}\n")
    ran = run(gaudi_driver_info, {**GIVEN, "kernel": "supported", "offered": True, "refuse": "kernel"}, system.answers)
    assert "msg" not in ran.result
    chosen = ran["chosen"]
    assert (chosen["kernel"], chosen["waits"], chosen["up_to_date"]) == (OLD, True, False)
    assert chosen["packages"] == [f"linux-{kind}-{OLD}" for kind in ("image", "headers", "modules-extra")]
    assert ran["next_kernel"] == OLD, "what is judged is the kernel that will boot"


def test_a_kernel_that_is_there_needs_no_package(run: Run, system: System) -> None:
    """Such as one that somebody built."""
    grub(system, "0")
    system.answers["update-grub"] = (0, "", "")
    (system.root / "modules" / KERNEL / "build").mkdir(parents=True)
    ran = run(gaudi_driver_info, {**GIVEN, "kernel": KERNEL, "offered": True, "refuse": "kernel"}, system.answers)
    assert (ran["chosen"]["packages"], ran["chosen"]["waits"]) == ([], False)


@pytest.mark.parametrize(
    ("requested", "names", "id_", "words"),
    [
        ("supported", ["linux-image-6.11.0-9-generic"], "no_supported_kernel", "They have 6.11.0-9-generic."),
        ("6.8.0-999-generic", SEEN, "kernel_not_offered", "has linux-image-6.8.0-999-generic. They have kernels"),
        ("Supported", SEEN, "kernel_not_named", "gaudi_driver_kernel is 'Supported'. Set supported, or the full name"),
        ("[]", SEEN, "kernel_not_named", "gaudi_driver_kernel is '[]'."),
    ],
)
def test_a_kernel_that_nobody_offers_is_refused(
    run: Run, system: System, requested: str, names: list[str], id_: str, words: str
) -> None:
    grub(system, "0")
    system.answers["update-grub"] = (0, "", "")
    (system.root / "boot" / f"vmlinuz-{KERNEL}").unlink()
    offering(system, *names)
    ran = run(gaudi_driver_info, {**GIVEN, "kernel": requested, "offered": True, "refuse": "kernel"}, system.answers)
    assert ran["refused_id"] == id_
    assert words in ran["msg"]


def test_a_node_without_grub_is_refused_before_anything_is_installed(run: Run, system: System) -> None:
    ran = run(gaudi_driver_info, {**GIVEN, "kernel": OLD, "refuse": "before"}, system.answers)
    assert ran["refused_id"] == "kernel_without_grub"


def test_rhel_chooses_no_kernel(run: Run, system: System) -> None:
    (system.root / "os").write_text(RHEL)
    system.answers["rpm --query --all"] = (1, "", "")
    ran = run(gaudi_driver_info, {**GIVEN, "kernel": "supported", "refuse": "before"}, system.answers)
    assert ran["refused_id"] == "kernel_not_chosen_here"


def test_a_choice_that_is_taken_back_is_judged_by_what_boots_then(run: Run, system: System) -> None:
    """Without the pin the node would boot a kernel on which the driver does not build."""
    grub(system, "1>2", "GRUB_DEFAULT=0")
    system.patch.setattr("ansible.module_utils.gaudi.node.driver.next_boot.PIN", system.root / "default/grub.d/z.cfg")
    (system.root / "default/grub.d/z.cfg").write_text(kernel_pin.render_pin(KERNEL, "1>2"))
    ran = run(gaudi_driver_info, {**GIVEN, "kernel": "", "refuse": "before"}, system.answers)
    assert ran["refused_id"] == "kernel_unbuildable"
    assert ran["next_kernel"] == NEW
    # A verification asks for what is.
    assert run(gaudi_driver_info, GIVEN, system.answers)["next_kernel"] == KERNEL
