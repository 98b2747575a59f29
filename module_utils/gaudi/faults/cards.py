"""Known faults of cards and links. A part of the list in known.py."""

from __future__ import annotations

from .entry import CARDS, INFO, WARNING, KnownFault
from .shared import (
    CHECKS,
    DOCTOR,
    FINDINGS,
    GAUDINET,
    JUDGED,
    LINK,
    LOG_FILE,
    MODULES,
    OF_SITE,
    STATIC,
    STILL_TRANSLATES,
    WRITE_GAUDINET,
)

# What stands before a line of the driver in the kernel's log.
_DRIVER = r"(?:\bhabanalabs\b|\baccel accel\d).{0,80}?"

FAULTS = (
    # Cards and links, as hl-smi, the driver and the PCI bus show them.
    KnownFault(
        "not-root",
        CARDS,
        FINDINGS,
        "The topology was read by user id {uid}, not by root: hl-smi then answers N/A for most values, and other "
        "users' processes on the cards stay unseen.",
        "Run the task with become: true.",
        "",
    ),
    KnownFault(
        "no-hl-smi",
        CARDS,
        FINDINGS,
        "hl-smi is not installed, or not in a directory where programs are looked for; PCI shows {on_pci}.",
        "Install habanalabs-firmware-tools of the driver's release.",
        "",
        remedies={
            "bare": "site.yml installs it with the driver" + OF_SITE,
            "driver": "Install habanalabs-firmware-tools of the driver's release; playbooks/driver.yml does, if that "
            "is gaudi_release.",
        },
    ),
    KnownFault(
        "no-driver",
        CARDS,
        FINDINGS,
        "No habanalabs driver is loaded: PCI shows {on_pci}, but there is no device in /sys/class/accel{and_hl_smi}.",
        "Load it with modprobe habanalabs, or install habanalabs-dkms; dmesg | grep habanalabs says why it does not "
        "start.",
        "",
        remedies={"bare": "site.yml installs and loads the driver" + OF_SITE},
    ),
    KnownFault(
        "hl-smi-failed",
        CARDS,
        FINDINGS,
        "hl-smi {failed}, although the driver is loaded and shows {driven}. A card in reset or a driver of another "
        "release does this.",
        "Look at dmesg | grep habanalabs, and run hl-smi by hand.",
        "",
    ),
    KnownFault(
        "no-cards",
        CARDS,
        FINDINGS,
        "This node has no Gaudi card: PCI shows no device of vendor 1da3.",
        "If there should be some, look at lspci -d 1da3: and at the machine's BIOS; to a virtual machine the cards "
        "must be passed through.",
        "",
    ),
    KnownFault(
        "lost-card",
        CARDS,
        FINDINGS,
        "{who} at {bus_id} is lost: {counts}, and {driven}. A card whose start failed vanishes like this.",
        "Look at dmesg | grep {bus_id}, reset it (hl-smi -r -i {bus_id}), then power the machine off and on.",
        "",
    ),
    KnownFault(
        "not-operational",
        CARDS,
        FINDINGS,
        "{Card} is not operational: the driver calls its state {state}.",
        "Look at dmesg | grep {bus_id}; stop what uses the card and reset it with hl-smi -r -i {bus_id}.",
        "",
    ),
    KnownFault(
        "zero-temperature",
        CARDS,
        FINDINGS,
        "{Card} shows a temperature of 0 C: its initialisation failed, whatever else it shows.",
        "Look at dmesg | grep {bus_id}, reset it (hl-smi -r -i {bus_id}) or power the machine off and on.",
        "the vendor's manual",
    ),
    KnownFault(
        "module-id-unknown",
        CARDS,
        FINDINGS,
        "Neither hl-smi nor the driver gives a module id for {card}; without it the card cannot be used.",
        "Look at hl-smi -Q index,module_id -f csv.",
        "",
    ),
    KnownFault(
        "duplicate-identity",
        CARDS,
        FINDINGS,
        "Two cards have {word} {value}: {cards}.",
        "A card is known by it; read again, and look at hl-smi -L.",
        "",
    ),
    KnownFault(
        "implausible-temperature",
        CARDS,
        FINDINGS,
        "{Card} shows {celsius} C, which no card survives: the sensor or its reading is broken.",
        "The temperature is left out; compare with the machine's BMC.",
        "a reading of 505712272 was seen",
        WARNING,
        limit=150,
    ),
    KnownFault(
        "not-available",
        CARDS,
        FINDINGS,
        "hl-smi answers N/A for {values} of {card}, although root asked: the card may be in reset or about to fail.",
        "Ask again; if it stays, look at dmesg | grep habanalabs.",
        "",
        WARNING,
    ),
    KnownFault(
        "nic-driver-mismatch",
        CARDS,
        FINDINGS,
        "The network driver is {nic}, the compute driver {driver}: two releases. Links between cards may fail.",
        MODULES,
        "docs.habana.ai, Firmware Upgrade: the modules of one driver are loaded together",
        WARNING,
    ),
    KnownFault(
        "link-down",
        CARDS,
        FINDINGS,
        "{Card} has {up} of {total} internal links up; down: {ports}. A model on more than one card needs all of them.",
        LINK,
        "",
        WARNING,
    ),
    KnownFault(
        "rows-pending",
        CARDS,
        FINDINGS,
        "{Card} has memory rows waiting to be replaced.",
        "Reset it when it is free: hl-smi -r -i {bus_id}.",
        "",
        WARNING,
    ),
    KnownFault(
        "memory-without-process",
        CARDS,
        FINDINGS,
        "{Card} has {used} MiB in use and no process that owns them; it counts as in use. A process outside this "
        "node's view holds them, or they were left behind:",
        "then hl-smi -r -i {bus_id} frees them.",
        "idle cards were recorded with 512 to 768 MiB, releases 1.12 to 1.23",
        WARNING,
        limit=2048,
    ),
    KnownFault(
        "unknown-card",
        CARDS,
        FINDINGS,
        "{name} is no card of catalog/cards.yml: its memory, its FP8 format and its links are not known.",
        "Compare with hl-smi -Q name -f csv, or add it there.",
        "",
        WARNING,
    ),
    KnownFault("sources-disagree", CARDS, FINDINGS, "{what}.", "{advice}", "", WARNING),
    KnownFault("unreadable", CARDS, FINDINGS, "{what}.", "Run the command by hand, as root, and compare.", "", WARNING),
    KnownFault(
        "hl-smi-mismatch",
        CARDS,
        FINDINGS,
        "hl-smi is of release {hl_smi}, the driver is {driver}.",
        "That is usual in a container; on a node, install firmware-tools and driver of one release.",
        "",
        INFO,
    ),
    KnownFault(
        "groups",
        CARDS,
        FINDINGS,
        "The links of {name} join modules {groups}, and nothing joins these groups but host NICs:",
        "an instance has cards of one group.",
        "catalog/cards.yml",
        INFO,
    ),
    KnownFault(
        "numa-unknown",
        CARDS,
        FINDINGS,
        "No source names a NUMA node for {card}: its processes will not be bound to cores.",
        "This is usual in a virtual machine; on bare metal look at the NUMA settings of the BIOS.",
        "",
        INFO,
    ),
    KnownFault(
        "card-count",
        CARDS,
        CHECKS,
        "{seen} cards are seen (modules: {modules}), but gaudi_expected_cards says {expected}.",
        "Look for the missing ones with lspci -d 1da3: and dmesg, or correct gaudi_expected_cards.",
        "",
        remedies={"more": "No card is missing: set gaudi_expected_cards to {seen}."},
    ),
    # Cards and links, as the verdict judges them.
    KnownFault(
        "wrong-numbers",
        CARDS,
        "module_utils/gaudi/fabric/compute.py",
        "{name} {verb} wrong numbers: {what}",
        "Check the node again with its cards free (playbooks/accept.yml), and have a card that stays wrong replaced.",
        "records of three owners of Gaudi servers, releases 1.24.0 and 1.24.1: without passthrough large data is wrong",
        remedies={
            "all": "All cards compute wrongly, so look at the node first: its IOMMU has to be in passthrough "
            "(iommu=pt), and image and driver of one release."
        },
    ),
    KnownFault(
        "cards-differ",
        CARDS,
        STATIC,
        "The cards are of {count} types ({names}): they are not measured together.",
        "Have cards of one type in a server.",
        "",
    ),
    KnownFault(
        "internal-port-down",
        CARDS,
        STATIC,
        "{Card} has internal ports down: {ports}.",
        LINK,
        "",
    ),
    KnownFault(
        "internal-port-missing",
        CARDS,
        STATIC,
        "hl-smi shows {seen} internal ports of {card}, a {kind} has {wanted}.",
        LINK,
        "catalog/cards.yml",
    ),
    KnownFault(
        "external-port-down",
        CARDS,
        STATIC,
        "{Card} has external ports down: {ports}.",
        "Look at cable and switch.",
        "",
    ),
    KnownFault(
        "interface-missing",
        CARDS,
        STATIC,
        "{seen} of {wanted} interfaces of {card} are there.",
        "Load habanalabs_en; see dmesg.",
        "catalog/cards.yml",
    ),
    KnownFault(
        "interface-wrong",
        CARDS,
        STATIC,
        "{name} of {card} {wrong}.",
        "Set it right, and look at the switch.",
        "",
    ),
    # gaudinet.json: the addresses of external ports.
    KnownFault(
        "gaudinet-empty",
        CARDS,
        GAUDINET,
        "{path} is empty: the habana runtime leaves it out.",
        "Remove it, or write it for the cards that are there.",
        "habana-container-runtime",
        WARNING,
    ),
    KnownFault("gaudinet-unreadable", CARDS, GAUDINET, "{path} {wrong}.", WRITE_GAUDINET, "HCL, which reads it"),
    KnownFault("gaudinet-entry", CARDS, GAUDINET, "{path}: {wrong}.", WRITE_GAUDINET, "HCL, which reads it"),
    KnownFault(
        "gaudinet-not-compared",
        CARDS,
        GAUDINET,
        "{path} is there, and no interface of a card is: nobody can tell whether it is of these cards.",
        "Load habanalabs_en; see dmesg.",
        "",
        WARNING,
    ),
    KnownFault(
        "gaudinet-stale",
        CARDS,
        GAUDINET,
        "{path} is stale: {count} of its {total} addresses belong to no card here, {first} first. Runs between nodes "
        "end with QPC errors.",
        WRITE_GAUDINET,
        "HCL, which reads it",
    ),
    KnownFault(
        "gaudinet-incomplete",
        CARDS,
        GAUDINET,
        "{path} lacks {count} addresses of the cards here, {first} first.",
        WRITE_GAUDINET,
        "HCL, which reads it",
    ),
    KnownFault(
        "pci-link-lost",
        CARDS,
        "",
        "The host lost the PCI link of a card.",
        "Compare lspci -d 1da3: with the cards that there should be, and read the lines of pcieport and AER in dmesg. "
        "Power the machine off and on: a reset of the card does not bring the link back. If it is lost again, have the "
        "card, its slot and its power checked.",
        "is_pci_link_healthy in drivers/accel/habanalabs/common/device.c",
        signs=rf"{_DRIVER}(?i:PCIe? link (?:is )?(?:broken|down|lost))",
        example="accel accel0: Device heartbeat failed! PCI link is broken",
    ),
    KnownFault(
        "card-without-heartbeat",
        CARDS,
        "",
        "A card stopped answering the driver (its heartbeat failed).",
        "The driver resets it: check that hl-smi lists it again, then start what used it. If it happens again, compare "
        "the card's firmware with that of the driver's release (hl-smi, docs/compatibility.md), read power and "
        "temperature in the BMC's log, and have the card checked (playbooks/accept.yml).",
        "hl_device_heartbeat in drivers/accel/habanalabs/common/device.c",
        retry=True,
        signs=rf"{_DRIVER}(?i:heartbeat (?:event )?(?:failed|lost|timeout|was not received))",
        example="habanalabs 0000:33:00.0: Device heartbeat failed! PCI link is healthy",
    ),
    KnownFault(
        "card-not-initialised",
        CARDS,
        "",
        "The driver could not initialise a card.",
        "Power the machine off and on: a reboot may not be enough. If it stays, compare the card's firmware with that "
        "of the driver's release (hl-smi, hl-fw-loader; docs/compatibility.md), and have the card checked.",
        "Setup_and_Install 1, a public issue",
        signs=r"Device is NOT usable|failed to initialize the H/W|\(CPU-CP timeout\)",
        example="habanalabs 0000:1a:00.0: Failed to initialize hl2. Device is NOT usable !",
    ),
    KnownFault(
        "no-interfaces",
        CARDS,
        "",
        "The driver offers no network interface of a card.",
        "Load habanalabs_en, and read dmesg | grep habanalabs: a card that could not be initialised has none, nor has "
        "one in most virtual machines. Cards in one server that are joined over their internal links serve without.",
        "manage_network_ifs.sh of habanalabs-qual",
        signs=r"^no interfaces were detected",
        example="no interfaces were detected",
    ),
    # Users of cards, found by the doctor.
    KnownFault(
        "card-used-by-orphaned-container",
        CARDS,
        JUDGED,
        "Module {module} is held by {who}, but the unit vllm-{instance}.service does not run.",
        "If nobody started it by hand, remove the container: docker rm --force vllm-{instance}.",
        "",
    ),
    KnownFault(
        "card-used-by-other-process",
        CARDS,
        JUDGED,
        "Module {module} is reserved for the instance {holder}, and {who} uses it.",
        "Stop that, or give {holder} other cards.",
        "",
    ),
    KnownFault(
        "card-in-use",
        CARDS,
        JUDGED,
        "Module {module} is used by {who}, which is no instance.",
        "Nothing, unless an instance is to have this card: stop the process then.",
        "",
        INFO,
    ),
    KnownFault(
        "firmware-missing",
        CARDS,
        DOCTOR,
        "The driver found no firmware {file}, so that its card is not usable.",
        "The vendor's packages are missing, and the kernel's own driver has taken the card: run playbooks/driver.yml, "
        "then reboot.",
        "the record of an owner of an HL-225, kernel 6.8 of Ubuntu 24.04",
    ),
    KnownFault(
        "symbols-missing",
        CARDS,
        DOCTOR,
        "The kernel did not load {module}: it lacks {symbols}.",
        "habanalabs_ib needs ib_uverbs: on Ubuntu install linux-modules-extra of the running kernel, then load "
        "ib_uverbs and habanalabs_ib.",
        "a public troubleshooting page of a host with Gaudi 3 and 1.24.0",
    ),
    KnownFault(
        "driver-errors",
        CARDS,
        DOCTOR,
        "The kernel's log has {count} error(s) of the driver since boot, the last: {last}.",
        "All: journalctl --dmesg --boot --priority=err --grep=habanalabs",
        "",
        WARNING,
    ),
    # Any x86 kernel prints these lines for bad memory as well, and they do not name the driver.
    KnownFault(
        "page-tables-overwritten",
        CARDS,
        DOCTOR,
        "The kernel's log has {count} message(s) of corrupted page tables, of {who}: the driver overwrites other "
        "memory, because an IOMMU translates what cards address (iommu_group/type {cards}, identity is required).",
        "Stop the instances, then run playbooks/tune_host.yml with host_tuning_reboot=if_needed. Trust no answer until "
        "then.",
        "public records of two owners: YpS-YpS/gaudi-images-port and JChen-318/gaudi2-single-card-driver",
        remedies={"started-so": "Stop the instances. " + STILL_TRANSLATES + ". Trust no answer until then."},
    ),
    # The same lines in a log of which nothing else is known.
    KnownFault(
        "page-tables-corrupted",
        CARDS,
        LOG_FILE,
        "The kernel's log has {count} message(s) of corrupted page tables, of {who}. With the driver of 1.24 "
        "and 1.24.1 this was seen where an IOMMU translates what cards address: the driver then overwrites "
        "other memory.",
        "Read /sys/kernel/iommu_groups/*/type of the cards' groups: identity is required, which "
        "playbooks/tune_host.yml sets (iommu=pt). Trust no answer until then. Where it is identity already, "
        "test the host's memory: it gives the same lines.",
        "public records of two owners: YpS-YpS/gaudi-images-port and JChen-318/gaudi2-single-card-driver",
    ),
)
