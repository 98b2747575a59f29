"""What a node does at boot for its driver: the modules that it loads, and the unit that brings external ports up."""

from __future__ import annotations

from collections.abc import Sequence

from ..cards.sources import HABANA_VENDOR

MODULES_FILE = "/etc/modules-load.d/gaudi-serving-driver.conf"
"""Before the vendor's habanalabs.conf by its name: what it loads is there already then."""
UNIT = "gaudi-external-ports.service"
UNIT_FILE = f"/etc/systemd/system/{UNIT}"
ENABLED = f"/etc/systemd/system/multi-user.target.wants/{UNIT}"
# habanalabs_ib needs symbols of it, and servers need habanalabs_ib ("ibv initialization failed").
FIRST = "ib_uverbs"


def modules_file(load: Sequence[str]) -> str:
    """Return the file for /etc/modules-load.d. load: the driver's modules, in the order in which they are loaded."""
    about = (
        "# Written by gaudi-serving (role gaudi_driver): all modules of the driver, in its order.\n"
        "# The vendor's own file, habanalabs.conf, lacks habanalabs.\n"
    )
    return about + "".join(f"{module}\n" for module in (FIRST, *load))


def ports_command(devices: str) -> str:
    """Return the shell command that enables the interfaces of all cards. devices: the folder of PCI devices in /sys.

    It ends with status 1 if one of them cannot be enabled, and goes on with the others. Cards without external ports
    have no interface.
    """
    return (
        f'for card in {devices}/*; do read -r vendor <"$card/vendor"; [ "$vendor" = {HABANA_VENDOR} ] || continue; '
        'for port in "$card"/net/*; do [ ! -e "$port" ] || ip link set dev "${port##*/}" up || failed=1; done; done; '
        'exit "${failed:-0}"'
    )


def ports_unit() -> str:
    """Return the unit that brings external ports up, as the vendor's manage_network_ifs.sh --up does.

    The modules make the interfaces, and all of them are down at first.
    """
    command = ports_command("/sys/bus/pci/devices").replace("$", "$$")
    return (
        "# Written by gaudi-serving (role gaudi_driver).\n"
        "[Unit]\n"
        "Description=External ports of the Gaudi cards\n"
        "After=systemd-modules-load.service\n"
        "Before=gaudi-serving.target\n"
        "\n"
        "[Service]\n"
        "Type=oneshot\n"
        "RemainAfterExit=yes\n"
        f"ExecStart=/bin/sh -c '{command}'\n"
        "\n"
        "[Install]\n"
        "WantedBy=multi-user.target\n"
    )
