"""What a driver is made of: the file, and what a release and a system want of it."""

from __future__ import annotations

import copy
import json
from typing import Any

import jsonschema
import pytest
from ansible.module_utils.gaudi.base.refusal import Refusal
from ansible.module_utils.gaudi.driver.facts import DriverCatalogue

from plugin_utils import releases
from tests.unit.driver.made import DOCUMENT, FACTS, ROOT, wanted
from tests.unit.refused import refused

SCHEMA = json.loads((ROOT / "catalog/schemas/driver.schema.json").read_text(encoding="utf-8"))
# Manuals 002 and 004 ask for these on every host.
ASKED = {"firmware-tools", "graph", "rdma-core", "thunk", "container-runtime"}


def test_the_file_has_its_form() -> None:
    jsonschema.Draft202012Validator(SCHEMA).validate(DOCUMENT)


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("packages", 0, "deb"), "Habana Labs"),
        (("packages", 0, "source"), ""),
        (("modules", 0, "since"), "one"),
        (("kernel_packages", "headers", "deb", 0), "linux-headers"),
        (("installer", "traces", 0), "relative"),
    ],
)
def test_the_form_refuses_what_is_wrong(place: tuple[Any, ...], value: str) -> None:
    document = copy.deepcopy(DOCUMENT)
    inner = document
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    assert not jsonschema.Draft202012Validator(SCHEMA).is_valid(document)


def test_a_key_that_nobody_reads_is_refused() -> None:
    with refused("unknown_key", "'module'"):
        DriverCatalogue.from_document({**DOCUMENT, "module": []})


@pytest.mark.parametrize("release", releases.names())
def test_every_release_of_the_catalogue_can_be_installed(release: str) -> None:
    version = releases.read(release)["software"]["driver"]
    assert wanted(release).exact[0] == f"habanalabs-dkms={version}"
    assert wanted(release, "RedHat", ".el9").exact[0] == f"habanalabs-{version}.el9"


def test_what_the_manuals_ask_for_is_among_the_packages() -> None:
    assert {f"habanalabs-{name}" for name in ASKED} <= set(wanted().packages)


@pytest.mark.parametrize("driver", [None, "1.22.2", "1.22.2-97ec1a4", "latest"])
def test_a_release_without_a_build_is_refused(driver: str | None) -> None:
    with pytest.raises(Refusal) as refused:
        FACTS.wanted({} if driver is None else {"driver": driver}, "Debian")
    assert refused.value.id == "driver_without_build"


def test_a_system_of_another_family_is_refused() -> None:
    with pytest.raises(Refusal) as refused:
        wanted(family="Suse")
    assert refused.value.id == "no_packages_for_system"


@pytest.mark.parametrize(
    ("version", "first", "last"),
    [
        ("1.16.0-526", "habanalabs_en", "habanalabs"),
        ("1.20.1-97ec1a4", "habanalabs_en", "habanalabs"),
        ("1.21.0-555", "habanalabs_compat", "habanalabs_ib"),
        ("1.24.1-482.el9", "habanalabs_compat", "habanalabs_ib"),
        ("unknown", "habanalabs_compat", "habanalabs_ib"),
    ],
)
def test_the_order_of_modules_changed_at_1_21(version: str, first: str, last: str) -> None:
    order = FACTS.order(version)
    assert (order.load[0], order.load[-1]) == (first, last)
    assert sorted(order.load) == sorted(order.unload)


def test_packages_of_a_kernel() -> None:
    assert FACTS.headers_of("deb", "6.8.0-45-generic") == ["linux-headers-6.8.0-45-generic"]
    assert FACTS.extra_of("deb", "6.8.0-45-generic") == ["linux-modules-extra-6.8.0-45-generic"]
    assert FACTS.headers_of("rpm", "5.14.0-427.el9.x86_64")[0] == "kernel-devel-5.14.0-427.el9.x86_64"
    with refused("no_kernel_release", "reboot"):
        FACTS.headers_of("deb", "6.8 $(reboot)")
