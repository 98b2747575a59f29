"""Nodes for these tests, and the facts of the catalogue."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import yaml
from ansible.module_utils.gaudi.driver import decision, dkms, kernels, packages
from ansible.module_utils.gaudi.driver.decision import DriverState
from ansible.module_utils.gaudi.driver.facts import DriverCatalogue, ReleasePackages

from plugin_utils import releases

ROOT = Path(__file__).resolve().parents[3]
RECORDED = Path(__file__).parent / "recorded"
DOCUMENT = yaml.safe_load((ROOT / "catalog/driver.yml").read_text(encoding="utf-8"))
FACTS = DriverCatalogue.from_document(DOCUMENT)
KERNEL = "6.8.0-45-generic"

# Names as apt list printed them on hosts with 1.16 and 1.23.
DEBS = FACTS.packages["deb"]


def wanted(release: str = "1.22", family: str = "Debian", suffix: str = "") -> ReleasePackages:
    return FACTS.wanted(releases.read(release)["software"], family, suffix)


def listed(version: str, *names: str, status: str = "install installed ok") -> str:
    """What dpkg-query prints as packages.query() asks it."""
    return "".join(f"{name} {status} {version}\n" for name in names or DEBS)


def status(version: str, *on: str) -> str:
    """What dkms 3 prints of a driver that is installed for kernels."""
    return "".join(f"habanalabs/{version}, {kernel}, x86_64: installed\n" for kernel in on)


def node(release: str = "1.22.2-32", **changes: Any) -> DriverState:
    """A node with a driver that is whole, loaded and built for its kernel."""
    said = f"{release.partition('-')[0]}-97ec1a4"
    right = DriverState(
        kernel=KERNEL,
        next_kernel=KERNEL,
        packages=packages.parse(listed(release)),
        modules=frozenset(FACTS.order(release).load),
        version=said,
        file=f"/lib/modules/{KERNEL}/updates/dkms/habanalabs.ko",
        status=dkms.parse(status(release, KERNEL)),
    )
    return dataclasses.replace(right, **changes)


def bare(**changes: Any) -> DriverState:
    """A node on which nothing of the vendor's is."""
    return dataclasses.replace(DriverState(KERNEL, KERNEL), **changes)


def decide(found: DriverState, release: str = "1.22", **policy: bool) -> decision.Judgement:
    return decision.decide(found, wanted(release), FACTS, decision.DriverPolicy(**policy))


def ids(judged: decision.Judgement) -> list[str]:
    return [refusal.id for refusal in judged.refusals]


def steps(judged: decision.Judgement) -> dict[str, list[str]]:
    """Those with something to do."""
    return {name: items for name, items in judged.steps.as_dict().items() if items}


def lsmod(name: str) -> frozenset[str]:
    return kernels.loaded((RECORDED / name).read_text(encoding="utf-8"))
