"""Packages as dpkg, rpm and the repositories list them."""

from __future__ import annotations

import pytest
from ansible.module_utils.gaudi.driver import apt_files, offered, packages
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.driver.made import DEBS, listed, wanted

HALF = "habanalabs-dkms install half-configured ok 1.24.0-1007\n"
WORDS = st.text(alphabet=st.characters(codec="utf-8", exclude_characters="\n\r"), max_size=20)


def state(text: str) -> str:
    return packages.judge(packages.parse(text), wanted()).state


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "absent"),
        (listed("1.22.2-32"), "right"),
        (listed("1.22.2-32", *DEBS[:4]), "incomplete"),
        (listed("1.22.1-6"), "older"),
        (listed("1.22.2-31"), "older"),
        (listed("1.16.0-526"), "older"),
        (listed("1.22.2-33"), "newer"),
        (listed("1.24.0-1007"), "newer"),
        (listed("1.22.2-32", *DEBS[:4]) + listed("1.21.3-57", *DEBS[4:]), "mixed"),
        (listed("1.21.3-57", *DEBS[:4]) + listed("1.24.0-1007", *DEBS[4:]), "mixed"),
        (listed("of nobody".replace(" ", "-")), "mixed"),
        (listed("1.22.2-32", *DEBS[1:]) + HALF, "broken"),
        # Removed, with its configuration left: nothing.
        (listed("1.22.2-32", status="deinstall config-files ok"), "absent"),
        (listed("1.22.2-32", status="install installed reinstreq"), "broken"),
        (listed("1.22.2-32", status="hold installed ok"), "right"),
    ],
)
def test_what_is_installed_against_a_release(text: str, expected: str) -> None:
    assert state(text) == expected


def test_a_hold_is_seen() -> None:
    found = packages.judge(packages.parse(listed("1.21.3-57", status="hold installed ok")), wanted())
    assert found.held == DEBS
    assert found.seen == "1.21.3-57"


def test_several_versions_are_told_with_their_packages() -> None:
    text = listed("1.16.1-7", "habanalabs-container-runtime") + listed("1.16.0-526", "habanalabs-dkms")
    assert packages.judge(packages.parse(text), wanted()).seen == (
        "1.16.0-526 (habanalabs-dkms); 1.16.1-7 (habanalabs-container-runtime)"
    )


def test_the_form_of_rpm() -> None:
    text = "habanalabs install installed ok 1.24.1-482.el9\npackage habanalabs-qual is not installed\n"
    found = packages.parse(text)
    assert {name: package.version for name, package in found.items()} == {"habanalabs": "1.24.1-482.el9"}
    assert packages.judge(found, wanted("1.22", "RedHat", ".el9")).state == "newer"


def test_what_the_databases_are_asked() -> None:
    assert packages.query("deb", ["habanalabs*"])[:2] == ["dpkg-query", "--show"]
    assert packages.query("rpm", ["habanalabs*"])[:3] == ["rpm", "--query", "--all"]


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("1.22.2-32", "1.22.2-32", 0),
        ("1.22.2-9", "1.22.2-32", -1),
        ("1.22.10-1", "1.22.9-99", 1),
        ("1.22.2-97ec1a4", "1.22.2-32", 0),
        ("1.24.1-482.el9", "1.24.1-482", 0),
        ("none", "1.22.2-32", None),
    ],
)
def test_the_order_of_versions(one: str, other: str, expected: int | None) -> None:
    assert packages.order(one, other) == expected


@given(st.lists(WORDS, max_size=6).map("\n".join))
def test_any_listing_is_read(text: str) -> None:
    for name, package in packages.parse(text).items():
        assert package.name == name
        assert not name.startswith("-")
    for name, versions in offered.parse(text).items():
        assert name
        assert versions
        assert len(set(versions)) == len(versions)


@given(st.lists(st.sampled_from(DEBS), unique=True), st.lists(st.sampled_from(["1.21.3-57", "1.22.2-32"]), max_size=9))
def test_nothing_is_right_but_what_is_wanted(names: list[str], versions: list[str]) -> None:
    text = "".join(listed(version, name) for name, version in zip(names, versions, strict=False))
    whole = len(names) <= len(versions) and set(names) == set(DEBS) and {*versions[: len(names)]} == {"1.22.2-32"}
    assert (state(text) == "right") is whole


MADISON = """\
 habanalabs-dkms |  1.23.0-695 | https://vault.habana.ai/artifactory/debian jammy/main amd64 Packages
 habanalabs-dkms |  1.22.2-32 | https://vault.habana.ai/artifactory/debian jammy/main amd64 Packages
habanalabs-graph | 1.23.0-695 | https://vault.habana.ai/artifactory/debian jammy/main amd64 Packages
     firmware-x | 1.22.2-32 | https://archive.example/debian jammy/main Sources
"""


def test_what_is_on_offer() -> None:
    """The form is apt-cache(8)'s; the lines are constructed."""
    found = offered.parse(MADISON)
    assert found == {"habanalabs-dkms": ("1.23.0-695", "1.22.2-32"), "habanalabs-graph": ("1.23.0-695",)}
    assert offered.refusal(found, wanted(), ["habanalabs-dkms"]) is None
    missing = offered.refusal(found, wanted(), ["habanalabs-dkms", "habanalabs-qual"])
    assert missing is not None
    assert missing.id == "driver_package_not_offered"
    assert "has habanalabs-qual." in str(missing)
    other = offered.refusal(found, wanted(), ["habanalabs-dkms", "habanalabs-graph"])
    assert other is not None
    assert other.id == "driver_version_not_offered"
    assert "1.22.2-32 of habanalabs-graph. They have habanalabs-graph 1.23.0-695." in str(other)


def test_the_preferences() -> None:
    text = apt_files.preferences(wanted(), {"linux-image-generic": "6.8.0-45.45"}, replace=False)
    assert text.endswith("\nPackage: linux-image-generic\nPin: version 6.8.0-45.45\nPin-Priority: 990\n")
    assert f"Package: {' '.join(DEBS)}\nPin: version 1.22.2-32\nPin-Priority: 990\n" in text


def test_a_newer_driver_makes_way_only_by_wish() -> None:
    """apt goes back to an older version at a priority of 1000 and above; a kernel never goes back."""
    text = apt_files.preferences(wanted(), {"linux-image-generic": "6.8.0-45.45"}, replace=True)
    assert f"Package: {' '.join(DEBS)}\nPin: version 1.22.2-32\nPin-Priority: 1001\n" in text
    assert text.endswith("\nPin: version 6.8.0-45.45\nPin-Priority: 990\n")


def test_what_unattended_upgrades_leave_alone() -> None:
    text = apt_files.unattended(wanted(), ["linux-image-generic"])
    assert '  "^habanalabs-dkms$";\n' in text
    assert '  "^linux-image-generic$";\n};\n' in text


def test_which_packages_bring_a_kernel() -> None:
    names = ["linux-image-generic", "linux-headers-6.8.0-45", "linux-modules-extra-6.8.0-45-generic", "linux-libc-dev"]
    assert list(apt_files.kernel_packages(dict.fromkeys(names, "6.8"))) == sorted(names[:3])
