"""What DKMS says, which kernel boots next, and the order of modules."""

from __future__ import annotations

import pytest
from ansible.module_utils.gaudi.driver import dkms, kernels
from ansible.module_utils.gaudi.driver.dkms import DkmsBuild
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.driver.made import FACTS, lsmod

KERNEL = "6.8.0-110-generic"


@pytest.mark.report("A15")
@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (f"habanalabs/1.24.0-1007, {KERNEL}, x86_64: installed", ("1.24.0-1007", KERNEL, "installed")),
        (
            "habanalabs, 1.14.0-493, 5.15.0-91-generic, x86_64: installed",
            ("1.14.0-493", "5.15.0-91-generic", "installed"),
        ),
        ("habanalabs/1.24.0-1007: added", ("1.24.0-1007", "", "added")),
        (f"habanalabs/1.24.0-1007, {KERNEL}, x86_64: built", ("1.24.0-1007", KERNEL, "built")),
        (
            f"habanalabs/1.24.0-1007, {KERNEL}, x86_64: installed (original_module exists)",
            ("1.24.0-1007", KERNEL, "installed"),
        ),
        (
            f"habanalabs/1.24.0-1007, {KERNEL}, x86_64: installed (WARNING! Diff between built and installed module!)",
            ("1.24.0-1007", KERNEL, "installed"),
        ),
        ("habanalabs/1.24.0-1007: broken", ("1.24.0-1007", "", "broken")),
    ],
)
def test_the_forms_of_dkms_status(line: str, expected: tuple[str, str, str]) -> None:
    others = "virtualbox/7.0.16, 6.17.0-19-generic, x86_64: installed\nError! Could not locate dkms.conf file.\n"
    assert dkms.parse(f"{others}{line}\n") == (DkmsBuild(*expected),)


def test_for_which_kernels_it_is_installed() -> None:
    status = dkms.parse(
        f"habanalabs/1.24.0-1007, {KERNEL}, x86_64: installed\nhabanalabs/1.24.0-1007, 6.17.0-22, x86_64: built\n"
    )
    assert dkms.installed(status, KERNEL) == ["1.24.0-1007"]
    assert dkms.installed(status, "6.17.0-22") == []


@pytest.mark.parametrize(
    ("status", "left"),
    [
        ("", False),
        ("habanalabs/1.24.0-1007: added\n", True),
        ("habanalabs/1.23.0-695: added\n", False),
        (f"habanalabs/1.24.0-1007, {KERNEL}, x86_64: installed\n", False),
    ],
)
def test_what_an_interrupted_install_leaves(status: str, left: bool) -> None:
    assert dkms.left_over(dkms.parse(status), "1.24.0-1007") is left


@pytest.mark.report("A12")
@pytest.mark.parametrize(
    ("status", "lost"),
    [
        (f"habanalabs/1.24.0-1007, {KERNEL}, x86_64: installed\n", True),
        (
            f"habanalabs/1.24.0-1007, {KERNEL}, x86_64: installed\nhabanalabs/1.24.0-1007, 6.17.0-22, x86_64: built\n",
            True,
        ),
        (
            f"habanalabs/1.24.0-1007, {KERNEL}, x86_64: installed\n"
            "habanalabs/1.24.0-1007, 6.17.0-22, x86_64: installed\n",
            False,
        ),
        # A driver that DKMS did not build: it says nothing of any kernel.
        ("", False),
    ],
)
def test_a_kernel_update_that_loses_the_driver_is_seen(status: str, lost: bool) -> None:
    said = dkms.lost_at_reboot(dkms.parse(status), KERNEL, "6.17.0-22")
    assert said.startswith("Kernel 6.17.0-22, which boots next, has no habanalabs module: ") is lost
    assert bool(said) is lost


@pytest.mark.report("H14")
@pytest.mark.report("A15")
@pytest.mark.parametrize(
    ("images", "chosen", "expected"),
    [
        ([], "", "6.8.0-45-generic"),
        (["vmlinuz-6.8.0-9-generic", "vmlinuz-6.8.0-110-generic"], "", "6.8.0-110-generic"),
        (["vmlinuz-6.8.0-110-generic", "vmlinuz-6.17.0-22-generic"], "", "6.17.0-22-generic"),
        (
            ["vmlinuz", "vmlinuz.old", "vmlinuz-0-rescue-1f3a", "vmlinuz-5.14.0-427.el9.x86_64"],
            "",
            "5.14.0-427.el9.x86_64",
        ),
        (["vmlinuz-6.1.0-9-amd64", "vmlinuz-6.1.0-10-amd64", "vmlinuz-6.1.0-11-amd64.dpkg-bak"], "", "6.1.0-10-amd64"),
        (["vmlinuz-6.17.0-22-generic"], "/boot/vmlinuz-6.8.0-45-generic", "6.8.0-45-generic"),
    ],
)
def test_which_kernel_boots_next(images: list[str], chosen: str, expected: str) -> None:
    assert kernels.boots_next(images, "6.8.0-45-generic", chosen) == expected


def test_modules_as_they_were_recorded() -> None:
    assert {"habanalabs_compat", "habanalabs", "ib_uverbs"} <= lsmod("lsmod_1.23.0.txt")
    new, old = FACTS.order("1.23.0"), FACTS.order("1.18.0")
    assert kernels.to_load(new.load, lsmod("lsmod_1.23.0.txt")) == []
    # The documentation's host has an older driver.
    assert kernels.to_load(old.load, lsmod("lsmod_documentation.txt")) == []
    assert kernels.to_unload(old.unload, lsmod("lsmod_documentation.txt")) == list(old.unload)
    assert kernels.to_load(new.load, lsmod("lsmod_documentation.txt")) == ["habanalabs_compat"]


def test_a_module_that_the_order_does_not_name_goes_first() -> None:
    found = kernels.to_unload(FACTS.order("1.18.0").unload, ["habanalabs_new", "habanalabs"])
    assert found == ["habanalabs_new", "habanalabs"]


@given(st.text(max_size=200))
def test_any_text_is_read(text: str) -> None:
    for built in dkms.parse(text):
        assert built.version
    kernels.loaded(text)
    kernels.boots_next(text.splitlines(), "6.8.0", text)


@given(st.lists(st.from_regex(r"[0-9]{1,3}(\.[0-9]{1,3}){2}-[0-9]{1,3}-[a-z]{1,5}", fullmatch=True), min_size=1))
def test_the_newest_kernel_does_not_depend_on_the_listing(found: list[str]) -> None:
    images = [f"vmlinuz-{kernel}" for kernel in found]
    assert kernels.boots_next(images, "") == kernels.boots_next(sorted(images), "")
    numbers = [tuple(int(part) for part in kernel.replace("-", ".").split(".")[:4]) for kernel in found]
    newest = kernels.boots_next(images, "")
    assert tuple(int(part) for part in newest.replace("-", ".").split(".")[:4]) == max(numbers)
