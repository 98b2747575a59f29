"""What the next boot changes for the driver, from GRUB, DKMS and the role's drop-in."""

from __future__ import annotations

import pytest
from ansible.module_utils.gaudi.driver import kernel_pin
from ansible.module_utils.gaudi.node.driver import next_boot

from tests.unit.driver.made import KERNEL
from tests.unit.driver.test_kernel_choice import OLD
from tests.unit.driver.test_module import NEXT, System, booting, grub, lost, system

__all__ = ["system"]


@pytest.mark.report("A12")
@pytest.mark.parametrize(
    ("default", "drop_in", "said"),
    [
        ("1>2", "GRUB_DEFAULT='1>2'", ""),
        ("0", "GRUB_DEFAULT='1>2'", f"Kernel {NEXT}, which boots next, has no habanalabs module"),
        # update-grub, which a change of kernel arguments runs, would take the pin out of the menu.
        ("1>2", "GRUB_DEFAULT=0", f"Kernel {NEXT}, which "),
        # The shell cannot parse it, so update-grub fails.
        ("1>2", "GRUB_DEFAULT='0", ""),
    ],
)
def test_a_reboot_that_loses_the_driver_is_seen_in_grub_and_in_its_files(
    system: System, default: str, drop_in: str, said: str
) -> None:
    grub(system, default, drop_in)
    found = lost(system)
    assert found.startswith(said)
    assert bool(found) is bool(said)
    assert ("0.cfg:1 chooses once grub.cfg is written again" in found) is (said.endswith("which "))


def test_a_chosen_kernel_that_waits_for_a_reboot_is_reported(system: System) -> None:
    pin = system.root / "pin.cfg"
    system.patch.setattr(next_boot, "PIN", pin)
    assert booting(system).kernel_waits == ""
    pin.write_text(kernel_pin.render_pin(OLD, "1>2"))
    expected = f"Kernel {OLD} is chosen (gaudi_driver_kernel), kernel {KERNEL} runs: reboot the node."
    assert booting(system).kernel_waits == expected
    (system.root / "osrelease").write_text(f"{OLD}\n")
    assert booting(system).kernel_waits == ""
