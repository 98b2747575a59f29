"""What a node loads and brings up at boot."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.gaudi.driver import at_boot
from ansible.module_utils.gaudi.node.driver import look

from library import gaudi_driver_info
from simulator import drivers
from tests.unit.driver.made import FACTS, RECORDED, ROOT
from tests.unit.driver.test_module import GIVEN, System, system
from tests.unit.preflight.conftest import Run

__all__ = ["system"]

VENDORS = (RECORDED / "modules_load_1.24.1.conf").read_text()


def named(text: str) -> list[str]:
    """The modules of a file as systemd-modules-load reads it (modules-load.d(5))."""
    return [line.strip() for line in text.splitlines() if line.strip() and line[0] not in "#;"]


def test_the_vendors_file_lacks_the_driver_itself_and_ours_has_it() -> None:
    ours = named(at_boot.modules_file(FACTS.order("1.24.1").load))
    assert "habanalabs" not in named(VENDORS)
    assert set(named(VENDORS)) | {"habanalabs", "ib_uverbs"} == set(ours)


@pytest.mark.parametrize("version", ["1.18.0-524", "1.24.1-482"])
def test_modules_are_loaded_in_the_order_of_the_release(version: str) -> None:
    ours = named(at_boot.modules_file(FACTS.order(version).load))
    assert ours == ["ib_uverbs", *FACTS.order(version).load]


def test_ours_is_read_before_the_vendors() -> None:
    """systemd-modules-load sorts the files of its folders by their names."""
    assert Path(at_boot.MODULES_FILE).name < "habanalabs.conf"


def test_the_simulated_file_of_the_vendor_is_the_recorded_one() -> None:
    image = ROOT / "simulator/vm/image/files/etc/modules-load.d/habanalabs.conf"
    assert drivers.MODULES_LOAD.split() == named(VENDORS) == named(image.read_text())


class Ports:
    """Cards with interfaces in a folder like /sys, and an ip that records what it is called with."""

    def __init__(self, root: Path) -> None:
        self.root, self.log = root, root / "log"
        (root / "bin").mkdir()
        ip = root / "bin/ip"
        ip.write_text(f'#!/bin/sh\necho "$*" >>{self.log}\ncase "$*" in *broken*) exit 2;; esac\n')
        ip.chmod(0o755)

    def device(self, bus: str, vendor: str, *interfaces: str) -> None:
        folder = self.root / "devices" / f"0000:{bus}:00.0"
        folder.mkdir(parents=True)
        (folder / "vendor").write_text(f"{vendor}\n")
        for name in interfaces:
            (folder / "net" / name).mkdir(parents=True)

    def run(self) -> tuple[int, list[str]]:
        command = at_boot.ports_command(str(self.root / "devices"))
        environment = {"PATH": f"{self.root}/bin:/usr/bin:/bin"}
        status = subprocess.run(["sh", "-c", command], env=environment, check=False).returncode
        return status, self.log.read_text().splitlines() if self.log.exists() else []


@pytest.fixture
def ports(tmp_path: Path) -> Ports:
    return Ports(tmp_path)


def test_the_interfaces_of_all_cards_and_of_no_other_device_come_up(ports: Ports) -> None:
    ports.device("19", "0x1da3", "ens1", "ens2")
    ports.device("1a", "0x1da3")
    ports.device("1b", "0x8086", "eth0")
    ports.device("1c", "0x1da3", "ens3")
    assert ports.run() == (0, [f"link set dev {name} up" for name in ("ens1", "ens2", "ens3")])


def test_a_node_without_cards_has_nothing_to_bring_up(ports: Ports) -> None:
    ports.device("1b", "0x8086", "eth0")
    assert ports.run() == (0, [])


def test_one_port_that_does_not_come_up_fails_the_unit_and_no_other_port(ports: Ports) -> None:
    ports.device("19", "0x1da3", "broken")
    ports.device("1a", "0x1da3", "ens2")
    assert ports.run() == (1, ["link set dev broken up", "link set dev ens2 up"])


def test_systemd_reads_the_unit(tmp_path: Path) -> None:
    unit = tmp_path / at_boot.UNIT
    unit.write_text(at_boot.ports_unit())
    verified = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False)
    assert at_boot.UNIT not in verified.stderr


@pytest.mark.parametrize("used", [False, True])
def test_the_module_says_whether_a_node_does_at_boot_what_it_is_to_do(run: Run, system: System, used: bool) -> None:
    files = {"modules": system.root / "modules.conf", "unit": system.root / "ports.service"}
    system.patch.setattr(look, "AT_BOOT", files)
    system.patch.setattr(look, "ENABLED", system.root / "enabled")
    system.installed()

    def asked(external_ports: bool = used) -> dict[str, Any]:
        given = {**GIVEN, "external_ports": external_ports}
        found: dict[str, Any] = run(gaudi_driver_info, given, system.answers)["at_boot"]
        return found

    assert not asked()["up_to_date"]
    files["modules"].write_text(asked()["modules"])
    assert asked()["up_to_date"] is not used
    if used:
        files["unit"].write_text(asked()["unit"])
        assert not asked()["up_to_date"], "nothing starts it at boot"
        (system.root / "enabled").symlink_to(files["unit"])
        assert asked()["up_to_date"]
        assert not asked(external_ports=False)["up_to_date"]
        assert asked(external_ports=False)["ports"]


def test_a_driver_that_is_there_in_another_version_has_its_own_modules_at_boot(run: Run, system: System) -> None:
    """What the way back writes, after the old packages are installed again."""
    system.installed("1.18.0-524")
    assert named(run(gaudi_driver_info, GIVEN, system.answers)["at_boot"]["modules"])[1:] == list(
        FACTS.order("1.18.0").load
    )
