"""What a node's next boot changes for its driver: a chosen kernel that waits for it, or a kernel without the driver."""

from __future__ import annotations

from dataclasses import dataclass

from . import dkms


@dataclass(frozen=True)
class NextBoot:
    """The kernels of a node, and for which of them the driver is built.

    running: the kernel now. chosen: that of our drop-in for GRUB, "" without one. coming: the one that boots next.
    regenerated: the one that boots once grub.cfg is written again, and place: what chooses it; "" where that is
    unknown. built: what DKMS shows.
    """

    running: str
    chosen: str
    coming: str
    regenerated: str = ""
    place: str = ""
    built: tuple[dkms.DkmsBuild, ...] = ()

    @property
    def kernel_waits(self) -> str:
        """Why the chosen kernel waits for a reboot; "" if it runs, or none is chosen."""
        if self.chosen in ("", self.running):
            return ""
        return f"Kernel {self.chosen} is chosen (gaudi_driver_kernel), kernel {self.running} runs: reboot the node."

    @property
    def loses_driver(self) -> str:
        """Why the node would lose its driver at a reboot; "" if it would not, or boots the same kernel.

        A run may write grub.cfg again before it reboots the node, so the kernel that this would choose counts as well.
        """
        lost: str = dkms.lost_at_reboot(self.built, self.running, self.coming)
        if lost or not self.regenerated:
            return lost
        later: str = dkms.lost_at_reboot(self.built, self.running, self.regenerated, self.place)
        return later
