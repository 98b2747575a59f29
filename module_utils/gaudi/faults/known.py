"""The list of faults: everything that is known to go wrong with a node or an instance, and what to do about it.

All sentences about faults are here. Preflight, doctor, supervisor and the checks of cards use them, and docs/faults.md
is generated from them (python -m tests.unit.faults.page). A new fault is an entry here; if a line of a log shows it
(``signs``), nothing else is needed. The list is Python, because only Python files reach a node with a module. Errors in
a request or an inventory are refusals; docs/refusals.md lists them.
"""

from __future__ import annotations

from .entry import CARDS, ENGINE, HOST, INFO, INSTANCES, KERNEL, WARNING, Known

# The code that finds the fault.
_LOG_FILE = "module_utils/gaudi/doctor/log_file.py"
_FINDINGS = "module_utils/gaudi/cards/findings.py"
_STATIC = "module_utils/gaudi/fabric/static.py"
_CHECKS = "module_utils/gaudi/preflight/checks.py"
_COMPATIBILITY = "module_utils/gaudi/preflight/compatibility.py"
_DOCTOR = "module_utils/gaudi/doctor/findings.py"
_CAUSES = "module_utils/gaudi/faults/causes.py"
_SERVING = "module_utils/gaudi/doctor/while_serving.py"
_PLAN = "module_utils/gaudi/serving/plan.py"
_SUPERVISOR = "roles/vllm_service/files/gaudi_supervisor/"

# Sources.
_TABLE = "catalog/compatibility.yml"
_MANUAL = "manual v1.22, 3.4.4"
_PLUGIN = "the troubleshooting page of vllm-gaudi, or its public issues"

# Phrases that several entries share.
_LINK = (
    "Nothing over several cards is measured or started with it. Look at dmesg | grep habanalabs; if it stays, have the "
    "card and its neighbours on the board checked."
)
_MODULES = "Unload all habanalabs modules and load those of one release, or install the driver anew."
_FLASH = (
    "No role flashes firmware: with no instance running, unload the habanalabs modules, run hl-fw-loader (package "
    "habanalabs-firmware-odm), load them again (docs/compatibility.md)."
)
_OF_SITE = (
    " of gaudi_release, from gaudi_driver_repository or else from the node's own package sources (docs/driver.md). "
    "With --tags, name gaudi_driver as well."
)
_COMPACT = (
    "With vllm_service_drop_caches a start has caches dropped where compacting is not enough. By hand, as root: write "
    "3 to /proc/sys/vm/drop_caches and 1 to /proc/sys/vm/compact_memory; then start it again."
)
_STILL_TRANSLATES = (
    "The kernel was started with iommu=pt, but the IOMMU still translates; dmesg | grep -i iommu shows why, for "
    "example a setting of the firmware"
)
_FULL = r"MODULE:PT_DEVMEM|Allocation failed for size|\bOutOfMemory|[Oo]ut of (?:device )?memory"

_NOT_ACQUIRED = (
    r"Device already acquired|Device acquire failed|Device not found|synStatus=(?:8|20)\b"
    r"|synDeviceAcquire[A-Za-z]*\(.{0,200}? failed"
)

FAULTS = (
    # Cards and links, as hl-smi, the driver and the PCI bus show them.
    Known(
        "not-root",
        CARDS,
        _FINDINGS,
        "The topology was read by user id {uid}, not by root: hl-smi then answers N/A for most values, and other "
        "users' processes on the cards stay unseen.",
        "Run the task with become: true.",
        "",
    ),
    Known(
        "no-hl-smi",
        CARDS,
        _FINDINGS,
        "hl-smi is not installed, or not in a directory where programs are looked for; PCI shows {on_pci}.",
        "Install habanalabs-firmware-tools of the driver's release.",
        "",
        remedies={
            "bare": "site.yml installs it with the driver" + _OF_SITE,
            "driver": "Install habanalabs-firmware-tools of the driver's release; playbooks/driver.yml does, if that "
            "is gaudi_release.",
        },
    ),
    Known(
        "no-driver",
        CARDS,
        _FINDINGS,
        "No habanalabs driver is loaded: PCI shows {on_pci}, but there is no device in /sys/class/accel{and_hl_smi}.",
        "Load it with modprobe habanalabs, or install habanalabs-dkms; dmesg | grep habanalabs says why it does not "
        "start.",
        "",
        remedies={"bare": "site.yml installs and loads the driver" + _OF_SITE},
    ),
    Known(
        "hl-smi-failed",
        CARDS,
        _FINDINGS,
        "hl-smi {failed}, although the driver is loaded and shows {driven}. A card in reset or a driver of another "
        "release does this.",
        "Look at dmesg | grep habanalabs, and run hl-smi by hand.",
        "",
    ),
    Known(
        "no-cards",
        CARDS,
        _FINDINGS,
        "This node has no Gaudi card: PCI shows no device of vendor 1da3.",
        "If there should be some, look at lspci -d 1da3: and at the machine's BIOS; to a virtual machine the cards "
        "must be passed through.",
        "",
    ),
    Known(
        "lost-card",
        CARDS,
        _FINDINGS,
        "{who} at {bus_id} is lost: {counts}, and {driven}. A card whose start failed vanishes like this.",
        "Look at dmesg | grep {bus_id}, reset it (hl-smi -r -i {bus_id}), then power the machine off and on.",
        "",
    ),
    Known(
        "not-operational",
        CARDS,
        _FINDINGS,
        "{Card} is not operational: the driver calls its state {state}.",
        "Look at dmesg | grep {bus_id}; stop what uses the card and reset it with hl-smi -r -i {bus_id}.",
        "",
    ),
    Known(
        "zero-temperature",
        CARDS,
        _FINDINGS,
        "{Card} shows a temperature of 0 C: its initialisation failed, whatever else it shows.",
        "Look at dmesg | grep {bus_id}, reset it (hl-smi -r -i {bus_id}) or power the machine off and on.",
        "the vendor's manual",
    ),
    Known(
        "module-id-unknown",
        CARDS,
        _FINDINGS,
        "Neither hl-smi nor the driver gives a module id for {card}; without it the card cannot be used.",
        "Look at hl-smi -Q index,module_id -f csv.",
        "",
    ),
    Known(
        "duplicate-identity",
        CARDS,
        _FINDINGS,
        "Two cards have {word} {value}: {cards}.",
        "A card is known by it; read again, and look at hl-smi -L.",
        "",
    ),
    Known(
        "implausible-temperature",
        CARDS,
        _FINDINGS,
        "{Card} shows {celsius} C, which no card survives: the sensor or its reading is broken.",
        "The temperature is left out; compare with the machine's BMC.",
        "a reading of 505712272 was seen",
        WARNING,
        limit=150,
    ),
    Known(
        "not-available",
        CARDS,
        _FINDINGS,
        "hl-smi answers N/A for {values} of {card}, although root asked: the card may be in reset or about to fail.",
        "Ask again; if it stays, look at dmesg | grep habanalabs.",
        "",
        WARNING,
    ),
    Known(
        "nic-driver-mismatch",
        CARDS,
        _FINDINGS,
        "The network driver is {nic}, the compute driver {driver}: two releases. Links between cards may fail.",
        _MODULES,
        "docs.habana.ai, Firmware Upgrade: the modules of one driver are loaded together",
        WARNING,
    ),
    Known(
        "link-down",
        CARDS,
        _FINDINGS,
        "{Card} has {up} of {total} internal links up; down: {ports}. A model on more than one card needs all of them.",
        _LINK,
        "",
        WARNING,
    ),
    Known(
        "rows-pending",
        CARDS,
        _FINDINGS,
        "{Card} has memory rows waiting to be replaced.",
        "Reset it when it is free: hl-smi -r -i {bus_id}.",
        "",
        WARNING,
    ),
    Known(
        "memory-without-process",
        CARDS,
        _FINDINGS,
        "{Card} has {used} MiB in use and no process that owns them; it counts as in use. A process outside this "
        "node's view holds them, or they were left behind:",
        "then hl-smi -r -i {bus_id} frees them.",
        "idle cards were recorded with 512 to 768 MiB, releases 1.12 to 1.23",
        WARNING,
        limit=2048,
    ),
    Known(
        "unknown-card",
        CARDS,
        _FINDINGS,
        "{name} is no card of catalog/cards.yml: its memory, its FP8 format and its links are not known.",
        "Compare with hl-smi -Q name -f csv, or add it there.",
        "",
        WARNING,
    ),
    Known("sources-disagree", CARDS, _FINDINGS, "{what}.", "{advice}", "", WARNING),
    Known("unreadable", CARDS, _FINDINGS, "{what}.", "Run the command by hand, as root, and compare.", "", WARNING),
    Known(
        "hl-smi-mismatch",
        CARDS,
        _FINDINGS,
        "hl-smi is of release {hl_smi}, the driver is {driver}.",
        "That is usual in a container; on a node, install firmware-tools and driver of one release.",
        "",
        INFO,
    ),
    Known(
        "groups",
        CARDS,
        _FINDINGS,
        "The links of {name} join modules {groups}, and nothing joins these groups but host NICs:",
        "an instance has cards of one group.",
        "catalog/cards.yml",
        INFO,
    ),
    Known(
        "numa-unknown",
        CARDS,
        _FINDINGS,
        "No source names a NUMA node for {card}: its processes will not be bound to cores.",
        "This is usual in a virtual machine; on bare metal look at the NUMA settings of the BIOS.",
        "",
        INFO,
    ),
    Known(
        "card-count",
        CARDS,
        _CHECKS,
        "{seen} cards are seen (modules: {modules}), but gaudi_expected_cards says {expected}.",
        "Look for the missing ones with lspci -d 1da3: and dmesg, or correct gaudi_expected_cards.",
        "",
        remedies={"more": "No card is missing: set gaudi_expected_cards to {seen}."},
    ),
    # Cards and links, as the verdict judges them.
    Known(
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
    Known(
        "cards-differ",
        CARDS,
        _STATIC,
        "The cards are of {count} types ({names}): they are not measured together.",
        "Have cards of one type in a server.",
        "",
    ),
    Known(
        "internal-port-down",
        CARDS,
        _STATIC,
        "{Card} has internal ports down: {ports}.",
        _LINK,
        "",
    ),
    Known(
        "internal-port-missing",
        CARDS,
        _STATIC,
        "hl-smi shows {seen} internal ports of {card}, a {kind} has {wanted}.",
        _LINK,
        "catalog/cards.yml",
    ),
    Known(
        "external-port-down",
        CARDS,
        _STATIC,
        "{Card} has external ports down: {ports}.",
        "Look at cable and switch.",
        "",
    ),
    Known(
        "interface-missing",
        CARDS,
        _STATIC,
        "{seen} of {wanted} interfaces of {card} are there.",
        "Load habanalabs_en; see dmesg.",
        "catalog/cards.yml",
    ),
    Known(
        "interface-wrong",
        CARDS,
        _STATIC,
        "{name} of {card} {wrong}.",
        "Set it right, and look at the switch.",
        "",
    ),
    # Users of cards, found by the doctor.
    Known(
        "card-held-by-orphan",
        CARDS,
        _DOCTOR,
        "Module {module} is held by {who}, but the unit vllm-{instance}.service does not run.",
        "If nobody started it by hand, remove the container: docker rm --force vllm-{instance}.",
        "",
    ),
    Known(
        "card-held-by-stranger",
        CARDS,
        _DOCTOR,
        "Module {module} is reserved for the instance {holder}, and {who} uses it.",
        "Stop that, or give {holder} other cards.",
        "",
    ),
    Known(
        "card-in-use",
        CARDS,
        _DOCTOR,
        "Module {module} is used by {who}, which is no instance.",
        "Nothing, unless an instance is to have this card: stop the process then.",
        "",
        INFO,
    ),
    Known(
        "firmware-missing",
        CARDS,
        _DOCTOR,
        "The driver found no firmware {file}, so that its card is not usable.",
        "The vendor's packages are missing, and the kernel's own driver has taken the card: run playbooks/driver.yml, "
        "then reboot.",
        "the record of an owner of an HL-225, kernel 6.8 of Ubuntu 24.04",
    ),
    Known(
        "symbols-missing",
        CARDS,
        _DOCTOR,
        "The kernel did not load {module}: it lacks {symbols}.",
        "habanalabs_ib needs ib_uverbs: on Ubuntu install linux-modules-extra of the running kernel, then load "
        "ib_uverbs and habanalabs_ib.",
        "a public troubleshooting page of a host with Gaudi 3 and 1.24.0",
    ),
    Known(
        "driver-errors",
        CARDS,
        _DOCTOR,
        "The kernel's log has {count} error(s) of the driver since boot, the last: {last}.",
        "All: journalctl --dmesg --boot --priority=err --grep=habanalabs",
        "",
        WARNING,
    ),
    # Any x86 kernel prints these lines for bad memory as well, and they do not name the driver.
    Known(
        "page-tables-overwritten",
        CARDS,
        _DOCTOR,
        "The kernel's log has {count} message(s) of corrupted page tables, of {who}: the driver overwrites other "
        "memory, because an IOMMU translates what cards address (iommu_group/type {cards}, identity is required).",
        "Stop the instances, then run playbooks/tune_host.yml with host_tuning_reboot=if_needed. Trust no answer until "
        "then.",
        "public records of two owners: YpS-YpS/gaudi-images-port and JChen-318/gaudi2-single-card-driver",
        remedies={"started-so": "Stop the instances. " + _STILL_TRANSLATES + ". Trust no answer until then."},
    ),
    # The same lines in a log of which nothing else is known.
    Known(
        "page-tables-corrupted",
        CARDS,
        _LOG_FILE,
        "The kernel's log has {count} message(s) of corrupted page tables, of {who}. With the driver of 1.24 "
        "and 1.24.1 this was seen where an IOMMU translates what cards address: the driver then overwrites "
        "other memory.",
        "Read /sys/kernel/iommu_groups/*/type of the cards' groups: identity is required, which "
        "playbooks/tune_host.yml sets (iommu=pt). Trust no answer until then. Where it is identity already, "
        "test the host's memory: it gives the same lines.",
        "public records of two owners: YpS-YpS/gaudi-images-port and JChen-318/gaudi2-single-card-driver",
    ),
    # The host compared with its release. catalog/compatibility.yml has each check's severity and source.
    Known(
        "system",
        HOST,
        _COMPATIBILITY,
        "system: found {found}, wanted {wanted}",
        "Watch the first start: the vendor tests its release on these systems only.",
        _TABLE,
        WARNING,
    ),
    Known(
        "kernel",
        HOST,
        _COMPATIBILITY,
        "kernel: found {found}, wanted {wanted}",
        "Install a newer kernel and reboot.",
        _TABLE,
    ),
    Known(
        "kernel-untested",
        HOST,
        _COMPATIBILITY,
        "kernel_untested: found {found}, wanted {wanted}",
        "Boot a kernel {newest} if the driver's modules do not build or load.",
        _TABLE,
        WARNING,
    ),
    Known(
        "iommu",
        HOST,
        _COMPATIBILITY,
        "iommu: found {found}, wanted {wanted}",
        "Run playbooks/tune_host.yml with host_tuning_reboot=if_needed: {because}.",
        "catalog/host.yml, rules iommu",
        remedies={"started-so": _STILL_TRANSLATES + ": {because}."},
    ),
    Known(
        "driver",
        HOST,
        _COMPATIBILITY,
        "driver: found {found}, wanted {wanted}",
        "Install the driver {driver}, or set gaudi_release to a release of {minor}.",
        _TABLE,
        remedies={"installed": "The package {package} is installed: load its modules, or reboot."},
    ),
    Known(
        "driver-build",
        HOST,
        _COMPATIBILITY,
        "driver_build: found {found}, wanted {wanted}",
        "Install the driver {driver} at the next maintenance.",
        _TABLE,
        WARNING,
    ),
    Known(
        "nic-driver",
        HOST,
        _COMPATIBILITY,
        "nic_driver: found {found}, wanted {wanted}",
        _MODULES,
        _TABLE,
    ),
    Known(
        "runtime-package",
        HOST,
        _COMPATIBILITY,
        "runtime_package: found {found}, wanted {wanted}",
        "Install {package}.",
        _TABLE,
    ),
    Known(
        "runtime-package-build",
        HOST,
        _COMPATIBILITY,
        "runtime_package_build: found {found}, wanted {wanted}",
        "Install {package}.",
        _TABLE,
        WARNING,
    ),
    Known(
        "docker",
        HOST,
        _COMPATIBILITY,
        "docker: found {found}, wanted {wanted}",
        "Update Docker when it suits; the vendor does not say that an older one fails.",
        _TABLE,
        WARNING,
    ),
    Known(
        "image",
        HOST,
        _COMPATIBILITY,
        "image: found {found}, wanted {wanted}",
        "Correct serving_image_ref or serving_image_base, or gaudi_release.",
        _TABLE,
    ),
    Known(
        "image-python",
        HOST,
        _COMPATIBILITY,
        "image_python: found {found}, wanted {wanted}",
        "Use an image with one of these: the vendor's packages are made for them.",
        _TABLE,
        WARNING,
    ),
    Known(
        "warm-up",
        HOST,
        _COMPATIBILITY,
        "warm_up: found {found}, wanted {wanted}",
        "Leave skip_warmup out, at least of the first start: it fills the cache. Release 1.21 has a shorter warm-up, "
        "too: partial_warmup.",
        _TABLE,
    ),
    Known(
        "card-type",
        HOST,
        _COMPATIBILITY,
        "card_type: found {found}, wanted {wanted}",
        "Set gaudi_release to a release that is for these cards.",
        _TABLE,
    ),
    Known(
        "firmware",
        HOST,
        _COMPATIBILITY,
        "firmware: found {found}, wanted {wanted}",
        _FLASH,
        _TABLE,
        WARNING,
    ),
    Known(
        "firmware-rule",
        HOST,
        _COMPATIBILITY,
        "firmware_rule: found {found}, wanted {wanted}",
        _FLASH,
        _TABLE,
    ),
    # The host, independent of its release.
    Known(
        "system-unknown",
        HOST,
        _CHECKS,
        "The node runs {name}, but the roles know how to set up {wanted}.",
        "Install one of these on it.",
        "",
    ),
    Known(
        "clock",
        HOST,
        _CHECKS,
        "The node's clock is {off} {where} the controller's, and at most {allowed} are allowed: certificates and "
        "package indexes would be refused.",
        "Set the clocks with NTP (timedatectl set-ntp true), then run again.",
        "",
    ),
    Known(
        "disk",
        HOST,
        _CHECKS,
        "{free} are free on {filesystem}, but {wishes} are needed.",
        "Free {lacking}, or put them on another file system.",
        "",
    ),
    Known(
        "unmounted",
        HOST,
        "module_utils/gaudi/preflight/mounts.py",
        "{named_in} asks for {source} at {point}, but nothing is mounted there: {folders} would be on another file "
        "system.",
        "Nothing that lies on it is seen, and what a run brings would be hidden once it is mounted. Mount it: mount "
        "{point} (dmesg says why that fails). If it is no longer to be there, take its line out of /etc/fstab and run "
        "systemctl daemon-reload, or disable its own unit (systemctl disable).",
        "",
    ),
    Known(
        "weights",
        HOST,
        _CHECKS,
        "{instance}: {seen}.",
        "Copy them to the node, or set gaudi_weights_root to where they are.",
        "",
        remedies={"known": "{advice}"},
    ),
    Known(
        "habana-runtime",
        HOST,
        _CHECKS,
        "{path} is not on the node, but without it no container gets a card.",
        'Install the package habanalabs-container-runtime (the installer\'s type "base" leaves it out), or set '
        "container_runtime_habana_repository and container_runtime_habana_key so that it is installed.",
        "",
    ),
    Known(
        "port",
        HOST,
        _CHECKS,
        "{instance}: port {port} on {host} is in use by {holder}.",
        "Stop that program, or give the instance another port, such as {free}: the option port in "
        'gaudi_serving_instances, or with a serve playbook -e \'{{"serve_options": {{"port": {free}}}}}\'.',
        "",
        remedies={
            "instance": "Give one of the two another port, such as {free}: the option port in gaudi_serving_instances, "
            'or with a serve playbook -e \'{{"serve_options": {{"port": {free}}}}}\'.'
        },
    ),
    Known(
        "no-room",
        HOST,
        _DOCTOR,
        "{instances}: {what}.",
        "What serves goes on, but nobody writes down how it is, and it may not come back from a restart. Make room "
        "there, or mount it for writing; dmesg says why a disk became read-only.",
        "of /run systemd says how much it needs (RELOAD_DISK_SPACE_MIN)",
    ),
    # How many pieces a start takes is not published; that none of them is left is a guess. Their size:
    # host/low_memory.py.
    Known(
        "low-memory-fragmented",
        HOST,
        _DOCTOR,
        "The host's low memory has no free piece of 4 MiB; on such a host a start was seen to end with ctx_init "
        "failed.",
        _COMPACT,
        _PLUGIN,
        WARNING,
        remedies={
            "short": "The driver may find no piece for a card, and the start end with ctx_init failed. "
            "vllm_service_drop_caches: true has caches dropped before a start.",
            "dropped": "The driver may find no piece for a card, and the start end with ctx_init failed. A reboot "
            "makes low memory whole.",
        },
    ),
    # Kernel settings.
    Known(
        "not-in-effect",
        KERNEL,
        _DOCTOR,
        "{item} is {now}, and {wanted} is wanted (after a reboot: {after_reboot}).",
        "playbooks/tune_host.yml sets it.",
        "catalog/host.yml",
    ),
    Known(
        "not-kept",
        KERNEL,
        _DOCTOR,
        "{item} is {now}, as wanted, but nothing of ours keeps it so (after a reboot: {after_reboot}).",
        "playbooks/tune_host.yml sets it.",
        "catalog/host.yml",
    ),
    Known(
        "not-configured",
        KERNEL,
        _DOCTOR,
        "{item} is not set to {wanted} yet, for the instances to come.",
        "playbooks/tune_host.yml sets it.",
        "catalog/host.yml",
    ),
    Known(
        "serving-refused",
        KERNEL,
        _DOCTOR,
        "Serving is refused. {refused}",
        "Run playbooks/tune_host.yml after that.",
        "catalog/host.yml",
    ),
    # The engine.
    Known(
        "engine-gone",
        ENGINE,
        _SUPERVISOR + "instance.py",
        "{what}.",
        "Look at journalctl -u docker; the role container_runtime installs and starts it.",
        "",
        remedies={
            "stopping": "{name} may still be running. The next start takes it over, or playbooks/stop.yml removes it."
        },
    ),
    Known(
        "engine-restarted",
        ENGINE,
        _SUPERVISOR + "run.py",
        "The container engine went away and returned without the container: it was stopped, or live-restore is off.",
        '"live-restore": true in /etc/docker/daemon.json keeps containers running; the role container_runtime sets it.',
        "",
    ),
    Known(
        "engine-missing",
        ENGINE,
        _SUPERVISOR + "engine.py",
        "The docker command is not installed.",
        "Run the playbook again (role container_runtime).",
        "",
    ),
    # Instances, found by the doctor.
    Known(
        "no-unit",
        INSTANCES,
        "module_utils/gaudi/serving/state.py",
        "{instance} {what}, so it cannot be started:",
        "run site.yml, which writes the unit of an instance that the inventory names, or remove it "
        "(playbooks/remove.yml --limit {node} -e instance={instance}).",
        "",
    ),
    Known(
        "state-damaged", INSTANCES, _DOCTOR, "{instance}: {what}.", "Its supervisor writes it anew when it starts.", ""
    ),
    Known(
        "crash-loop",
        INSTANCES,
        _DOCTOR,
        "{instance} ends again and again: {status}.",
        "What it says last has to be mended: playbooks/logs.yml -e instance={instance}.",
        "",
    ),
    Known(
        "waiting",
        INSTANCES,
        _DOCTOR,
        "{instance} does not serve: {status}.",
        "It goes on by itself once that is mended.",
        "",
    ),
    Known(
        "unit-failed",
        INSTANCES,
        _DOCTOR,
        "{instance}: its unit ended with {result}, and its supervisor did not say why.",
        "Look at journalctl -u vllm-{instance}, then: systemctl start vllm-{instance}.",
        "",
    ),
    Known("stopped", INSTANCES, _DOCTOR, "{instance} is stopped;", "playbooks/start.yml starts it.", "", INFO),
    Known(
        "not-as-planned",
        INSTANCES,
        "library/node_faults_info.py",
        "{instance} does not run with what lies on the node: it was changed after the start.",
        "Run site.yml, which starts the instance anew.",
        "",
        remedies={
            "going-back": "The way back to the plan {plan} was cut off before the start. Run playbooks/restart.yml "
            "-e instance={instance}, which starts that plan."
        },
    ),
    # Instances, found by their supervisor before a start.
    Known(
        "plan",
        INSTANCES,
        _SUPERVISOR + "instance.py",
        "{what}.",
        "Run site.yml, which writes it.",
        "",
    ),
    Known(
        "guard-missing",
        INSTANCES,
        _SUPERVISOR + "instance.py",
        "{path} cannot be read ({why}).",
        "Run site.yml, which writes it.",
        "",
    ),
    Known(
        "keys",
        INSTANCES,
        _SUPERVISOR + "instance.py",
        "{what}.",
        "Run site.yml, which writes it.",
        "",
    ),
    Known(
        "container-name-taken",
        INSTANCES,
        _SUPERVISOR + "instance.py",
        "A container named {name} is there that is not ours.",
        "Remove or rename it.",
        "",
    ),
    Known(
        "reservation",
        INSTANCES,
        _SUPERVISOR + "instance.py",
        "{what}.",
        "Run the playbook again, which reserves cards.",
        "",
    ),
    Known(
        "iommu-translates",
        HOST,
        _SUPERVISOR + "instance.py",
        "An IOMMU translates what cards address (iommu_group/type {cards}, identity is required): from release 1.24 on "
        "answers are then wrong with no error, or the kernel panics.",
        "Run playbooks/tune_host.yml with host_tuning_reboot=if_needed, which starts the kernel with iommu=pt. With "
        "preflight_allow_mismatch: [iommu] it starts in spite of this.",
        "catalog/host.yml, rules iommu",
        remedies={"started-so": _STILL_TRANSLATES + "."},
    ),
    Known(
        "card-missing",
        CARDS,
        _PLAN,
        "The card of module {module} (serial {serial}) is not there: hl-smi lists the modules {seen}.",
        "Look at dmesg and lspci -d 1da3:.",
        "",
    ),
    Known(
        "card-exchanged",
        CARDS,
        _PLAN,
        "The card of module {module} has serial {serial}, the plan was made for {wanted}: cards were exchanged.",
        "Run the playbook again to plan with the new one.",
        "",
    ),
    Known(
        "ports-open",
        INSTANCES,
        _SUPERVISOR + "closing.py",
        "Ports {ports} of the server's own processes cannot be closed to others: {why}",
        "Look at nft list ruleset.",
        "",
        remedies={"missing": "Install the package nftables; the role container_runtime does so."},
    ),
    Known(
        "going-back",
        INSTANCES,
        _SUPERVISOR + "past.py",
        "The instance cannot go back to its former plan: {why}.",
        "{cause}",
        "",
    ),
    # Instances, found by their supervisor while a server runs.
    Known(
        "probe",
        INSTANCES,
        _SUPERVISOR + "run.py",
        "The supervisor has nothing to ask its server with: {why}.",
        "Run the playbook again, which writes the instance's files anew.",
        "",
    ),
    Known(
        "stalled",
        INSTANCES,
        _SUPERVISOR + "run.py",
        "No sign of progress for {seconds} s while {doing}.",
        "The journal has the last lines.",
        "",
    ),
    Known(
        "over-budget",
        INSTANCES,
        _SUPERVISOR + "starting.py",
        "The start is not done after {taken} ({why}): {doing}.",
        "Warm up fewer buckets, or set a higher vllm_service_longest_start.",
        "",
    ),
    Known(
        "card-memory-held",
        CARDS,
        _SUPERVISOR + "freeing.py",
        "Cards of this instance were not free for {seconds} s: {held}.",
        "It was left behind, or a process outside this node's view holds it. hl-smi -r -i with the card's bus id frees "
        "it; if it does not, load the driver's modules again.",
        "public records: a card's memory is free about 10 s after its container is gone, a failed acquire can leave it "
        "in use until the driver is loaded again, and killed servers left workers with 82 GB of each card",
        remedies={
            "held": "End the process (kill, systemctl stop, or docker rm --force for a container), or plan other "
            "cards. The next attempt starts then."
        },
    ),
    Known(
        "lost-while-serving",
        CARDS,
        _SUPERVISOR + "run.py",
        "The card of module {module} was lost while it served: the driver no longer has it up.",
        "Look at dmesg and lspci -d 1da3:. The instance waits for the card, and starts when hl-smi lists it again.",
        "",
        remedies={
            "disabled": "The driver calls its state disabled: look at dmesg, and reset it (hl-smi -r -i with its bus "
            "id). The instance starts then."
        },
    ),
    Known(
        "not-answering",
        INSTANCES,
        _SUPERVISOR + "run.py",
        "The server did not answer for {seconds} s ({problem}).",
        "playbooks/logs.yml has its last lines.",
        "",
    ),
    Known(
        "port-shut",
        INSTANCES,
        _SUPERVISOR + "run.py",
        "The server listens at {endpoint}, and for {seconds} s no connection to it came through, although the node "
        "itself asked.",
        "That is a firewall which drops packets to its port (nft list ruleset; iptables -S), or a server that is stuck "
        "(playbooks/logs.yml).",
        "",
    ),
    # Instances whose server ended without a line that gives the reason.
    Known(
        "out-of-host-memory",
        HOST,
        _CAUSES,
        "The kernel killed {count} process(es) for want of host memory and the server ended with status {status}.",
        "dmesg names them. Free host memory, or lower vm.nr_hugepages.",
        "",
    ),
    Known(
        "container-killed",
        INSTANCES,
        _CAUSES,
        "The container was killed from outside ({signal}): docker stop, docker kill or kill by somebody.",
        "It starts again by itself. journalctl -u docker and dmesg show who did it.",
        "",
    ),
    Known(
        "crashed",
        INSTANCES,
        _CAUSES,
        "The server crashed (SIGSEGV).",
        "Its last lines are in the journal.",
        "",
    ),
    Known(
        "engine-died",
        INSTANCES,
        _CAUSES,
        "The server's engine process ended, and the server with it (status {status}).",
        "It said {said}",
        "core_client.py, multiproc_executor.py, utils.py and exceptions.py in vllm/v1",
        remedies={"silent": "It said nothing; dmesg tells whether the kernel or the driver ended it."},
    ),
    Known(
        "container-not-started",
        INSTANCES,
        _CAUSES,
        "docker could not start the container (status {status}).",
        "Its last words: {said}",
        "",
        remedies={"silent": "It said nothing."},
    ),
    Known(
        "server-ended",
        INSTANCES,
        _CAUSES,
        "The server ended by itself with status {status}.",
        "Its last words: {said}",
        "",
        remedies={"silent": "It said nothing."},
    ),
    # Instances, by a line of the server's log or of docker's. The order matters: of all entries with a match among the
    # last lines, the first one is the reason; the others are its consequences.
    Known(
        "card-busy",
        CARDS,
        "",
        "A card of this instance is held by another process or container: {holders}.",
        "Stop it, or plan other cards; containers with HABANA_VISIBLE_DEVICES=all each take every card.",
        "tgi-gaudi 93, GenAIExamples 137, public issues",
        retry=True,
        signs=r"Device already acquired|synStatus=20\b|synDeviceAcquire.{0,200}synapse error: 20\b",
        hints=_NOT_ACQUIRED,
        when="card_held",
        check="hl-smi shows processes on a card of the plan, or docker ps shows another container with all cards: stop "
        "it, or give each its own cards",
        example="RuntimeError: synStatus=20 [Device already acquired] Device acquire failed.",
    ),
    Known(
        "other-release",
        ENGINE,
        "",
        "Driver ({driver}) and software of the image ({image}) are of two releases.",
        "Install the driver of the image's release (playbooks/driver.yml), or serve with an image of the driver's.",
        "vllm-fork 484, a public issue: the vendor's image of the driver's release cured it",
        hints=f"{_NOT_ACQUIRED}|Graph compile failed",
        when="releases_differ",
        check="hl-smi and the image are of two releases: install the driver of the image's (playbooks/driver.yml)",
        example="RuntimeError: Graph compile failed. synStatus=synStatus 26 [Generic failure].",
    ),
    Known(
        "engine-ready-timeout",
        INSTANCES,
        "",
        "Loading and warm-up took longer than the server waits for them.",
        "Raise VLLM_ENGINE_READY_TIMEOUT_S in extra_environment, or warm up fewer buckets.",
        _PLUGIN,
        signs=r"Timed out waiting for (?:engine core processes to start|engines to send ?initial message)",
        example="TimeoutError: Timed out waiting for engine core processes to start.",
    ),
    Known(
        "vendor-libraries",
        INSTANCES,
        "",
        "The vendor's plugin for PyTorch does not load: the image lacks its libraries, or has another PyTorch "
        "than the one that it was built for.",
        "Use the vendor's image of the driver's release as it is. Where packages are added to it, keep its torch "
        "(serving_image_constraints): pip replaces it when a package asks for another version.",
        "the dynamic linker; docs/images.md",
        signs=r"lib(?:Synapse|SynapseMme|hcl|hl-thunk|synapse_logger|tpc\w*)\w*\.so[.\d]*: cannot open shared object"
        r"|habana\S*\.so\S*: undefined symbol",
        example="OSError: libSynapse.so: cannot open shared object file: No such file or directory",
    ),
    Known(
        "no-plugin",
        INSTANCES,
        "",
        "The image has no vllm-gaudi, or none of the vendor's PyTorch.",
        "Build it (serving_image_build), or name one of the vendor's ready-made ones.",
        _PLUGIN,
        signs=r"running on UnspecifiedPlatform|Failed to infer device type|No module named 'habana_frameworks"
        r"|No module named 'vllm_gaudi|is detected as neither HPU fork nor CPU upstream",
        example="RuntimeError: Failed to infer device type",
    ),
    Known(
        "context-not-created",
        HOST,
        "",
        "The driver found no whole piece of the host's low memory, though the cards are free.",
        _COMPACT,
        _PLUGIN,
        retry=True,
        signs=r"ctx_init failed|Failed to create context -12\b",
        example="habanalabs 0000:33:00.0: Failed to create context -12",
    ),
    Known(
        "no-verbs",
        CARDS,
        "",
        "HCCL found no card over verbs: habanalabs_ib is not loaded.",
        "Load ib_uverbs, then habanalabs_ib; on Ubuntu it needs linux-modules-extra of the running kernel.",
        _PLUGIN,
        signs=r"ibv initialization failed|failed to find matching Habana IB device",
        when="verbs_missing",
        check="lsmod lacks habanalabs_ib: load ib_uverbs, then habanalabs_ib",
        example="hcl_device_control_factory.cpp:84(initDevice): The condition [ g_ibv.init(deviceConfig) == "
        "hcclSuccess ] failed. ibv initialization failed",
    ),
    Known(
        "verbs-not-passed",
        ENGINE,
        "",
        "The module habanalabs_ib is loaded, but /dev/infiniband is not there.",
        "Load ib_uverbs, and run the playbook again (role container_runtime): its runtime passes /dev/infiniband on.",
        "habana-container-runtime",
        hints=r"ibv initialization failed|failed to find matching Habana IB device",
        when="verbs_not_passed",
        check="/dev/infiniband is missing: load ib_uverbs",
        example="ibv initialization failed",
    ),
    Known(
        "verbs-failed",
        CARDS,
        "",
        "HCCL found no card over verbs, although habanalabs_ib is loaded.",
        "Check the links of the cards (hl-smi -Q, playbooks/accept.yml), and dmesg | grep habanalabs.",
        "HCL's own line",
        signs=r"ibv initialization failed|failed to find matching Habana IB device",
        example="ibv initialization failed",
    ),
    Known(
        "wrong-buckets",
        INSTANCES,
        "",
        "The buckets contradict themselves, or a line of the bucket file is malformed.",
        "Correct the bucket variables or the file.",
        _PLUGIN,
        signs=r"_lru_cache_wrapper' object has no attribute|Generated 0 (?:prompt|decode) buckets"
        r"|Min\. batch size cannot be greater than max|bucketing_strategy: .* is not in allowed options",
        example="AssertionError: Min. batch size cannot be greater than max",
    ),
    Known(
        "lazy-mode",
        INSTANCES,
        "",
        "The server cannot run this model in lazy mode on this card.",
        "Leave lazy_mode out; or set PT_HPUGRAPH_DISABLE_TENSOR_CACHE to false in extra_environment, or "
        "enforce_eager. A card of the first generation (HL-205) serves with no release.",
        _PLUGIN,
        remedies={
            "first_generation": "The card is of the first generation, which the vendor's server does not support. "
            "Serve from a Gaudi 2 or Gaudi 3."
        },
        cases=True,
        signs=r"ValidateSyncInputTensors tensor_data is empty|Neither storage attached to input tensor",
        example="RuntimeError: Neither storage attached to input tensor, not its view.",
    ),
    Known(
        "scale-patching",
        INSTANCES,
        "",
        "Scales cannot be patched at run time with this scaling method.",
        "Set RUNTIME_SCALE_PATCHING to 0 in extra_environment, or calibrate with another scaling method.",
        _PLUGIN,
        signs=r"Scaling method \S+ is not supported for runtime scale patching",
        example="ValueError: Scaling method MAXABS_HW is not supported for runtime scale patching",
    ),
    Known(
        "graph-compiler",
        INSTANCES,
        "",
        "The graph compiler could not build a graph.",
        "Check first that driver and image are of one release (hl-smi, playbooks/status.yml). If they are, try "
        "enforce_eager, or another release.",
        _PLUGIN + "; vllm-fork 484",
        remedies={
            "gated_delta": "It was seen with models of gated delta layers on 1.24.1, which ran with plugin 0.24.0. Try "
            "enforce_eager, or another release."
        },
        cases=True,
        signs=r"Graph compile failed",
        example="RuntimeError: Graph compile failed. synStatus=synStatus 26 [Generic failure].",
    ),
    Known(
        "model-not-for-card",
        INSTANCES,
        "",
        "The server of this release cannot run this model on Gaudi.",
        "Serve it with another release, or serve another model; docs/models.md lists what was validated.",
        _PLUGIN + "; vllm 13054",
        remedies={
            "gpt_oss": "gpt-oss is validated on Gaudi 3 only.",
            "gemma4_too_early": "Gemma 4 is validated from 1.24.1 on.",
        },
        cases=True,
        signs=r"Head size \d+ is not supported by PagedAttention|view size is not compatible with input tensor"
        r"|NotImplementedError: (?!Medusa).{0,200}not (?:supported|implemented) (?:on|for) HPU",
        example="NotImplementedError: Sparse Attention is not supported on HPU.",
    ),
    Known(
        "quantization-not-for-card",
        INSTANCES,
        "",
        "This release has no kernel for weights that are quantized so.",
        "Serve other weights (BF16, or FP8 of the vendor's kind), or take a release with plugin 0.21 or later.",
        "vllm-gaudi 567, a public issue",
        signs=r"KeyError: <PlatformEnum\.(?:HPU|OOT)",
        example="KeyError: <PlatformEnum.HPU: 4>",
    ),
    Known(
        "model-unknown",
        INSTANCES,
        "",
        "The server of this release does not know the architecture of this model.",
        "Serve it with a release that has it (docs/models.md lists models and releases), or serve another model.",
        "the model registry of vLLM, and transformers",
        signs=r"Model architectures \[.{0,200}\] (?:are not supported|failed to be inspected)"
        r"|Transformers does not recognize this architecture|has no vLLM implementation",
        example="ValueError: Model architectures ['GlmMoeDsaForCausalLM'] are not supported for now.",
    ),
    Known(
        "code-not-trusted",
        INSTANCES,
        "",
        "The folder of the weights has code of its own, and the server was not told to run it.",
        "Read the code, then set trust_remote_code in the request; or serve a model without code.",
        "transformers/dynamic_module_utils.py",
        signs=r"contains custom code which must be executed|[Pp]lease (?:pass|set) .{0,40}trust_remote_code=True",
        example="ValueError: The repository for /models/x contains custom code which must be executed to "
        "correctly load the model.",
    ),
    Known(
        "too-many-at-once",
        INSTANCES,
        "",
        "More requests came at once than the KV cache holds.",
        "The log says how many it holds (Maximum concurrency). Lower max_num_seqs or max_model_len, or what "
        "clients send at once.",
        _PLUGIN,
        retry=True,
        signs=r"AssertionError: req_id: ",
        example="AssertionError: req_id: chatcmpl-1",
    ),
    Known(
        "speculation",
        INSTANCES,
        "",
        "A server with n-gram speculation was seen to end so in its warm-up.",
        "Leave speculative_config out, or try eagle.",
        _PLUGIN,
        asked="ngram",
        signs=r"IndexError: index \d+ is out of bounds",
        example="IndexError: index 8 is out of bounds for dimension 0 with size 8",
    ),
    Known(
        "no-drafter",
        INSTANCES,
        "",
        "The plugin has no such speculation.",
        "Leave speculative_config out, or try eagle.",
        _PLUGIN,
        signs=r"Medusa speculative decoding is not supported|Unknown speculative decoding method",
        example="NotImplementedError: Medusa speculative decoding is not supported",
    ),
    Known(
        "profiled",
        INSTANCES,
        "",
        "A server that is told to profile ends when it has done so.",
        "Leave VLLM_PROFILE_PROMPT, VLLM_PROFILE_DECODE and VLLM_PT_PROFILE out of extra_environment.",
        _PLUGIN,
        signs=r"AssertionError: Finished profiling",
        example="AssertionError: Finished profiling",
    ),
    Known(
        "kv-cache-too-small",
        INSTANCES,
        "",
        "Too little device memory is left for the KV cache.",
        "Raise gpu_memory_utilization, lower max_model_len or the ranges, or raise tensor_parallel_size; "
        "then run the playbook again.",
        "the workers and kv_cache_utils.py of vLLM",
        signs=r"No available memory for the cache blocks|can be stored in KV cache"
        r"|KV cache is needed, which is larger",
        example="ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`.",
    ),
    Known(
        "picture-too-large",
        INSTANCES,
        "",
        "Too little device memory is left beside the KV cache, and a large picture takes much of it: one of 7952x5304 "
        "was seen to take too much.",
        "Lower gpu_memory_utilization (0.6 to 0.7 was seen to help), or have pictures made smaller "
        "(mm_processor_kwargs with max_pixels); then run the playbook again.",
        _MANUAL,
        retry=True,
        asked='"image"',
        served=True,
        signs=_FULL,
        example="RuntimeError: [Rank:0] FATAL ERROR :: MODULE:PT_DEVMEM Allocation failed for size::46661632 (44.5)MB",
    ),
    Known(
        "out-of-device-memory",
        INSTANCES,
        "",
        "The cards' memory is full.",
        "Too little of it is left beside the KV cache, for graphs and requests. Lower gpu_memory_utilization, raise "
        "graph_reserved_mem (1.16 does not read it; 0.25 was seen to help models of gated delta nets), or lower "
        "max_num_seqs or max_num_batched_tokens; the last resort is enforce_eager, which makes no graphs. Then run the "
        "playbook again.",
        "docs/features/quantization/calibration.md of vllm-gaudi, and public issues",
        remedies={
            "weights": "The weights do not fit on the cards. Raise tensor_parallel_size, or serve weights in FP8; then "
            "run the playbook again.",
            "profiling": "The profiling run, a batch of the longest prompts, does not fit beside the weights. Lower "
            "max_model_len or the ranges, and max_num_batched_tokens, or raise tensor_parallel_size; then run the "
            "playbook again.",
        },
        cases=True,
        signs=_FULL,
        example="RuntimeError: [Rank:0] FATAL ERROR :: MODULE:PT_DEVMEM Allocation failed for size::46661632 (44.5)MB",
    ),
    # A hub that the server asks by itself: huggingface_hub's errors, and what transformers and datasets say of them.
    Known(
        "hub-gated",
        INSTANCES,
        "",
        "The hub gives this repository only to accounts that have accepted its licence, and the server asked without a "
        "token, or with one of another account.",
        "Accept the licence on the repository's page with the account of the token. Then fetch the weights with that "
        "token (docs/weights.md, Sources) and serve the folder: its server asks no hub.",
        "tgi-gaudi 93, a public issue; huggingface_hub/errors.py",
        signs=r"GatedRepoError|[Cc]annot access gated repo|[Yy]ou are trying to access a gated repo"
        r"|\bis (?:restricted|gated)\. You must (?:have access to it|be authenticated)"
        r"|(?:is restricted and )?you are not in the authorized list",
        example="huggingface_hub.errors.GatedRepoError: 401 Client Error.",
    ),
    Known(
        "weights-path-missing",
        INSTANCES,
        "",
        "The server finds no folder at the path that it was given, and takes the path for a name on a hub.",
        "Correct the path. In a container it has to be the path there: mount the folder of the weights (plans of this "
        "project do).",
        "huggingface_hub/utils/_validators.py and transformers/utils/hub.py",
        signs=r"HFValidationError|Repo id must (?:be in the form|use alphanumeric)|Incorrect path_or_model_id",
        example="huggingface_hub.errors.HFValidationError: Repo id must be in the form 'repo_name' or "
        "'namespace/repo_name': '/models/x'.",
    ),
    Known(
        "hub-not-found",
        INSTANCES,
        "",
        "The hub knows no such repository, file or revision, or does not show it to this account: it answers the same "
        "for a private repository.",
        "Compare the name with the repository's page. Give a token that may read it, or serve a folder of the node "
        "(docs/weights.md).",
        "huggingface_hub/errors.py and transformers/utils/hub.py",
        signs=r"(?:Repository|Revision|\bEntry)NotFoundError|modelscope\.\S+\.NotExistError|(?:Repository"
        r"|Revision|Entry) Not Found for url|is not a local folder and is not a valid model identifier"
        r"|401 Client Error: Unauthorized for url|Invalid (?:username or password|user token|credentials in Auth)",
        example="huggingface_hub.errors.RepositoryNotFoundError: 401 Client Error. (Request ID: Root=1-a;b)",
    ),
    Known(
        "hub-busy",
        INSTANCES,
        "",
        "The hub answers this address no further for now: too many requests.",
        "Wait some minutes. Fetch the weights once, and serve the folder (docs/weights.md): then no start asks "
        "the hub.",
        "huggingface_hub, which quotes HTTP's status 429",
        retry=True,
        signs=r"429 Client Error|429 Too Many Requests|[Ww]e had to rate limit your IP",
        example="huggingface_hub.errors.HfHubHTTPError: 429 Client Error: Too Many Requests for url: "
        "https://huggingface.co/api/models/a/b",
    ),
    Known(
        "hub-offline",
        INSTANCES,
        "",
        "The server may not ask a hub (HF_HUB_OFFLINE), and what it looks for is neither a folder of the container nor "
        "in its cache.",
        "Fetch the weights, and name the folder (docs/weights.md). Where a folder is named, mind its spelling.",
        "huggingface_hub/errors.py: OfflineModeIsEnabled",
        signs=r"OfflineModeIsEnabled|[Oo]ffline mode is enabled|outgoing traffic has been disabled"
        r"|HF_HUB_OFFLINE=1|to run the library in offline mode",
        example="huggingface_hub.errors.OfflineModeIsEnabled: Cannot reach https://huggingface.co/api/models/a/b: "
        "offline mode is enabled. To disable it, please unset the `HF_HUB_OFFLINE` environment variable.",
    ),
    Known(
        "hub-certificate",
        INSTANCES,
        "",
        "The server does not trust the certificate of its hub, as behind a proxy that reads what passes.",
        "Fetch the weights with gaudi_ca_certificates set, and serve the folder: its server asks no hub "
        "(docs/network.md). In another container name the certificates with SSL_CERT_FILE and REQUESTS_CA_BUNDLE.",
        "the ssl module of Python",
        signs=r"CERTIFICATE_VERIFY_FAILED",
        example="ssl.SSLCertVerificationError: [SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: self-signed "
        "certificate in certificate chain",
    ),
    Known(
        "hub-unreachable",
        INSTANCES,
        "",
        "The server does not reach its hub.",
        "Fetch the weights through the site's proxy or mirror (docs/weights.md), and serve the folder: its server asks "
        "no hub. A data set for a calibration is named with fp8_calibration_dataset.",
        "transformers/utils/hub.py, datasets/load.py, and urllib3",
        retry=True,
        signs=r"[Ww]e couldn't connect to '|CAS service error|Couldn't reach '?\S+'? on the Hub|LocalEntryNotFoundError"
        r"|(?:host='|://)(?:[\w.-]+\.)?(?:huggingface\.co|hf\.co|hf-mirror\.com|modelscope\.cn)\b.*"
        r"(?:Max retries exceeded|[Tt]imed out|resol|refused|unreachable|SSLError|ProxyError)",
        example="OSError: We couldn't connect to 'https://huggingface.co' to load the files, and couldn't find them in "
        "the cached files.",
    ),
    # The calibration tool: calibrate_model.sh of vllm-hpu-extension, run_example_tp.py of the fork.
    Known(
        "calibration-versions",
        INSTANCES,
        "",
        "The fork of vLLM and vllm-hpu-extension, or Intel Neural Compressor, are of two versions: one calls the other "
        "with other arguments than it takes.",
        "Install the pair of one release: the fork's requirements for HPU name the commit of the "
        "extension. An image that serving_image_build makes has both from one release.",
        "vllm-hpu-extension 68, 164 and vllm-fork 453, public issues",
        signs=r"Patched\w+\.\w+\(\) (?:missing|takes|got an unexpected)"
        r"|cannot import name '\w+' from '(?:vllm_hpu_extension|neural_compressor)"
        r"|No module named '(?:vllm_hpu_extension|neural_compressor)"
        r"|module '(?:vllm_hpu_extension|neural_compressor)[\w.]*' has no attribute"
        r"|(?:EngineArgs|LLM)\.__init__\(\) got an unexpected keyword argument",
        example="[rank0]: TypeError: PatchedVLLMKVCache.forward_measure() missing 2 required positional arguments: "
        "'block_indices' and 'block_offset'",
    ),
    Known(
        "calibration-tool-missing",
        INSTANCES,
        "",
        "The image does not have the vendor's calibration tool where it is looked for.",
        "Serve with an image that has vllm-hpu-extension (serving_image_build), or name its folder in "
        "fp8_calibration_extension_directory.",
        "bash and python3, of the commands in calibration/run.py",
        signs=r"calibrate_model\.sh: (?:No such file|not found)"
        r"|can't open file '?[^']*(?:run_example_tp|step-\d-[\w-]+)\.py",
        example="bash: /opt/vllm-hpu-extension/calibration/calibrate_model.sh: No such file or directory",
    ),
    Known(
        "calibration-dataset",
        INSTANCES,
        "",
        "The data set for the calibration could not be read.",
        "On a site without its hub name a folder of the node with fp8_calibration_dataset.",
        "datasets/load.py, and scripts/run_example_tp.py of the fork",
        retry=True,
        signs=r"Failed to load prompts|DatasetNotFoundError|Dataset '[^']*' doesn't exist on the Hub"
        r"|No such file or directory: '?[^']*calibration-dataset\.pkl",
        example="datasets.exceptions.DatasetNotFoundError: Dataset 'NeelNanda/pile-10k' doesn't exist on the Hub or "
        "cannot be accessed.",
    ),
    Known(
        "calibration-not-measured",
        INSTANCES,
        "",
        "No measurements are where they are looked for.",
        "In a calibration, the step that measures failed and the script went on: read the first error above "
        "this line. Of a server, QUANT_CONFIG names another folder or card type, or the measurements are of "
        "another number of cards (playbooks/calibrate.yml makes them).",
        "calibrate_model.sh of vllm-hpu-extension 7717587, whose steps go on after a failed one",
        consequence=True,
        signs=r"cannot stat '[^']*inc_tmp/|No such file or directory: '[^']*(?:inc_tmp|inc_output)",
        example="cp: cannot stat 'inc_tmp/llama-3.1-8b-instruct/g2/*': No such file or directory",
    ),
    Known(
        "unknown-argument",
        INSTANCES,
        "",
        "This release does not know, or does not take, what it was given:",
        "plan and image are of different releases, or extra_args or extra_environment is wrong.",
        "argparse, and vLLM's own words",
        signs=r"error: .* knows no |error: unrecognized arguments|error: argument \S+: "
        r"|error: the following arguments|(?i:unknown|unrecognized|unsupported) (?:argument|option"
        r"|variable|environment variable)s?\b",
        example="api_server.py: error: unrecognized arguments: --swap-space 4",
    ),
    Known(
        "refused-configuration",
        INSTANCES,
        "",
        "The server refuses what it is asked for.",
        "Correct the request; then run the playbook again.",
        "pydantic, which vllm/config is made of",
        signs=r"(?:^|\) ) *Value error, ",
        example="  Value error, max_model_len is larger than the model takes",
    ),
    Known(
        "chat-template-missing",
        INSTANCES,
        "",
        "The server cannot read the chat template.",
        "Put the template where the container sees it, beside the weights, or correct chat_template; then "
        "run the playbook again.",
        "load_chat_template in vllm/entrypoints or vllm/renderers/chat_utils.py",
        signs=r"The supplied chat template .*(?:path-like|looks like a file path), but",
        example="ValueError: The supplied chat template (/t.jinja) looks like a file path, but it cannot be opened.",
    ),
    Known(
        "port-taken",
        INSTANCES,
        "",
        "Another process took the port.",
        "Stop it, or give the instance another port.",
        "uvicorn",
        retry=True,
        remedies={"instance": "Stop it (systemctl stop vllm-{other}), or give one of the two another port."},
        signs=r"\[Errno 98\]|[Aa]ddress already in use",
        example="OSError: [Errno 98] Address already in use",
    ),
    Known(
        "weights-incomplete",
        INSTANCES,
        "",
        "The weights are incomplete or damaged.",
        "Fetch them again or verify their checksums.",
        "safetensors and transformers",
        signs=r"SafetensorError|MetadataIncompleteBuffer|InvalidHeaderDeserialization|HeaderTooLarge"
        r"|Cannot find any model weights|does not appear to have a file named"
        r"|No such file or directory: .*\.(?:safetensors|json|bin)",
        example="safetensors_rust.SafetensorError: Error while deserializing header: MetadataIncompleteBuffer",
    ),
    Known(
        "pipeline-parallel",
        INSTANCES,
        "",
        "With pipeline parallelism a worker that is not the last returns no tokens, and this server expects them from "
        "all.",
        "Leave --pipeline-parallel-size out, and use the cards of one node (tensor_parallel_size).",
        "vllm-gaudi 728, a public issue; plans of this project are refused with it",
        signs=r"'NoneType' object has no attribute 'sampled_token_ids'",
        example="AttributeError: 'NoneType' object has no attribute 'sampled_token_ids'",
    ),
    # Docker and the runtime that it starts a container with.
    Known(
        "runtime-hook-failed",
        ENGINE,
        "",
        "The part of habana-container-runtime that gives a container its cards failed.",
        "Check that hl-smi lists the cards. Then install habanalabs-container-runtime of the driver's release "
        "(playbooks/driver.yml): one of another release may not find its devices.",
        "habana-container-runtime; GenAIInfra 200, a public issue",
        retry=True,
        signs=r"habana-container-(?:cli|hook)\b.*(?:error|failed)|error running hook.*habana",
        example="docker: Error response from daemon: OCI runtime create failed: error running hook: exit "
        "status 1, stderr: habana-container-cli: initialization error: unknown.",
    ),
    Known(
        "registry-unreachable",
        ENGINE,
        "",
        "Docker does not reach the registry of the image.",
        "Check the address, and the engine's proxy (container_runtime_https_proxy): it does not read that of "
        "your shell. Or bring the image as a file (playbooks/save_image.yml, playbooks/load_image.yml).",
        "a record of an owner of eight Gaudi 3: dockerd without a proxy",
        retry=True,
        signs=r"failed to resolve reference|\bdial tcp\b.*(?:timeout|refused|no such host|unreachable)"
        r"|Error response from daemon: Get \"?https?://\S+/v2/|net/http: (?:TLS handshake timeout|request canceled)",
        example="Error response from daemon: failed to resolve reference "
        '"vault.habana.ai/gaudi-docker/1.24.1": failed to do request: Head "https://vault.habana.ai/v2/": dial '
        "tcp 198.18.0.30:443: i/o timeout",
    ),
    Known(
        "other-vendors-option",
        ENGINE,
        "",
        "Docker was asked for the cards of another vendor (--gpus).",
        "Leave --gpus out, and give --runtime=habana with HABANA_VISIBLE_DEVICES instead.",
        "docker's command line",
        signs=r"could not select device driver .* with capabilities: \[\[gpu\]\]",
        example='docker: Error response from daemon: could not select device driver "" with capabilities: [[gpu]].',
    ),
    Known(
        "engine-forbidden",
        ENGINE,
        "",
        "This user may not use Docker.",
        "Run it as root (sudo), or have an administrator add the user to the group docker, which is as much as root.",
        "docker's command line",
        signs=r"permission denied while trying to connect to the (?:Docker daemon socket|docker API)",
        example="docker: permission denied while trying to connect to the Docker daemon socket at "
        "unix:///var/run/docker.sock",
    ),
    Known(
        "runtime-too-old",
        ENGINE,
        "",
        "The container runtime does not know an option that this Docker gives it: habana-container-runtime is older "
        "than Docker.",
        "Install habanalabs-container-runtime of the driver's release (playbooks/driver.yml), then run again.",
        "Model-References 5, a public issue: cured by the runtime of the next release",
        signs=r"flag provided but not defined: -",
        example="docker: Error response from daemon: OCI runtime create failed: flag provided but not defined: "
        "-console-socket: unknown.",
    ),
    Known(
        "runtime-not-installed",
        ENGINE,
        "",
        "Docker has the runtime in its configuration, but its program is not on the node.",
        "Install habanalabs-container-runtime of the driver's release (playbooks/driver.yml), then run again.",
        "Docker and containerd, when they start a runtime",
        signs=r"habana-container-runtime\W+(?:executable file not found|no such file or directory)"
        r"|habana-container-runtime\S*: (?:no such file|not found|permission denied)"
        r"|habana-container-hook was not found",
        example="docker: Error response from daemon: failed to create task for container: failed to create shim task: "
        "OCI runtime create failed: unable to retrieve OCI runtime error: fork/exec /usr/bin/habana-container-runtime: "
        "no such file or directory: unknown.",
    ),
    Known(
        "image-missing",
        ENGINE,
        "",
        "The serving image is not on this node.",
        "Run the playbook again, which pulls it.",
        "docker's command line",
        signs=r"No such image|Unable to find image|pull access denied|manifest unknown",
        example="docker: Error response from daemon: No such image: gaudi-serving/vllm:1.",
    ),
    Known(
        "runtime-missing",
        ENGINE,
        "",
        "The container engine does not know the runtime.",
        "Run the playbook again (role container_runtime).",
        "docker's command line",
        signs=r"[Uu]nknown (?:or invalid )?runtime",
        example="docker: Error response from daemon: Unknown runtime specified habana.",
    ),
    Known(
        "driver-silent",
        CARDS,
        "",
        "The driver does not offer the cards.",
        "Look at hl-smi and at dmesg.",
        "habana-container-runtime, and public issues",
        retry=True,
        remedies={"missing": "Install the driver packages first (playbooks/driver.yml)."},
        signs=r"no AIPs available|error gathering device information .{0,60}/dev/(?:accel|hl)"
        r"|no habanalabs devices found|driver might not be loaded|requested device does not exist|HABANA_RUNTIME_ERROR",
        hints=_NOT_ACQUIRED,
        when="card_missing",
        check="hl-smi lacks a card of the plan: look at dmesg | grep habanalabs",
        example="habana-container-runtime: no habanalabs devices found",
    ),
    Known(
        "card-not-acquired",
        CARDS,
        "",
        "A card could not be acquired, and this line has several causes.",
        "Check in this order: {checks}. If it is none of these, look at dmesg | grep habanalabs.",
        "GenAIExamples 137 and public records: three of three reports of synStatus=8 had a card that was held",
        retry=True,
        signs=r"(?<!already acquired\] )Device acquire failed|Device not found|synStatus=8\b"
        r"|synDeviceAcquire[A-Za-z]*\(.{0,200}? failed",
        example="RuntimeError: synStatus=8 [Device not found] Device acquire failed.",
    ),
    Known(
        "cpu-binding",
        INSTANCES,
        "",
        "The planned CPU binding does not fit this node's CPUs any more.",
        "Run the playbook again, which plans anew.",
        "numactl and libnuma",
        signs=r"^libnuma: Warning: (?:cpu|node) argument|^<[^>]*> is invalid$|^usage: numactl",
        example="libnuma: Warning: cpu argument 56-69 is out of range",
    ),
    Known(
        "shared-memory",
        HOST,
        "",
        "A file system is full:",
        "make room (df -h), /dev/shm included.",
        "PyTorch, and the C library",
        retry=True,
        signs=r"Insufficient space in /dev/shm|No space left on device|Bus error",
        example="RuntimeError: Insufficient space in /dev/shm",
    ),
    Known(
        "mount",
        INSTANCES,
        "",
        "A directory the server needs is missing or not writable.",
        "Run the playbook again, which makes it.",
        "docker's command line",
        signs=r"invalid mount config|bind source path does not exist|Read-only file system",
        example='docker: Error response from daemon: invalid mount config for type "bind": bind source path does '
        "not exist: /data",
    ),
    # Logs that playbooks/explain.yml reads, and that none of the above explains.
    Known(
        "unknown",
        INSTANCES,
        _LOG_FILE,
        "The cause is not known: no entry of docs/faults.md is in this log.",
        "Read the lines below, and the first error in the log. If a part of it was given, give all of it, from "
        "the start of the program, with its standard error. Then open an issue with the log.",
        "",
        WARNING,
    ),
    Known(
        "no-failure",
        INSTANCES,
        _LOG_FILE,
        "The log shows no failure.",
        "If the program runs, wait for its next line. A warm-up or a load that prints nothing for half an hour has "
        "stalled: read dmesg | grep habanalabs and hl-smi then. If it ended, give all of its log, and -e "
        "status=NUMBER.",
        "",
        INFO,
    ),
    # Messages of a server about a request, after which it goes on.
    Known(
        "media-fetch-timeout",
        INSTANCES,
        _DOCTOR,
        "{instance}: since yesterday, pictures, films or sounds that were asked about did not come in time: {count}.",
        "Raise VLLM_IMAGE_FETCH_TIMEOUT, VLLM_VIDEO_FETCH_TIMEOUT or VLLM_AUDIO_FETCH_TIMEOUT in extra_environment "
        "(seconds; 5, 30 and 10 where they are not set), or have clients send the data itself.",
        _MANUAL + "; the lines: aiohttp, with which vllm/connections.py fetches, and its own of 1.24.1",
        WARNING,
        signs=r"raise asyncio\.TimeoutError from|HTTP fetch failed for \S+ \(attempt [^)]*\):  -- retrying",
        example="raise asyncio.TimeoutError from e",
    ),
    # What the supervisor counts while an instance serves.
    Known(
        "not-warmed-up",
        INSTANCES,
        _SERVING,
        "{instance}: since {since}, shapes that were not warmed up compiled while requests waited for them: {count}; "
        "most often {shape}.",
        "",
        "_check_config in the model runner of each release's vllm-fork or vllm-gaudi, which logs each such shape",
        WARNING,
        remedies={
            "variable": "{option} in extra_environment covers it. A warm-up then takes {more} more, {total} in all; "
            "input_range and output_range of the request set such variables, too.",
            "option": "{option} covers it. A warm-up then takes {more} more, {total} in all.",
            "file": "{option} that has the plan's shapes and those in the log covers it. A warm-up then takes {more} "
            "more, {total} in all.",
            "skipped": "Its plan skips the warm-up ({option}). Without that option each start captures {more}.",
            "log": "{option} cover it; each takes more graphs of the warm-up, which playbooks/plan.yml shows.",
            "unknown": "No option is known to cover it: {why}. playbooks/plan.yml shows the plan's shapes.",
        },
    ),
    Known(
        "preempted",
        INSTANCES,
        _SERVING,
        "{instance}: since {since}, the server interrupted requests because its KV cache was full, and computed them "
        "again: {count}.",
        "Lower max_num_seqs or max_model_len, or give it more memory: gpu_memory_utilization, or more cards "
        "(tensor_parallel_size).",
        "vllm:num_preemptions_total, vllm/engine/metrics.py of the forks and vllm/v1/metrics/loggers.py",
        WARNING,
    ),
    Known(
        "requests-wait",
        INSTANCES,
        _SERVING,
        "{instance}: since {since}, requests waited at {waited} of {checks} checks with requests, at most {most} at "
        "once.",
        "If they wait for long, raise max_num_seqs as far as the KV cache allows, or serve the model more than once.",
        "vllm:num_requests_waiting, which the supervisor reads every ten seconds",
        WARNING,
    ),
    Known(
        "answers-cut",
        INSTANCES,
        _SERVING,
        "{instance}: since {since}, {cut} of {count} answers were cut at their length.",
        "Clients raise max_tokens; without it an answer ends at max_model_len. Runs of site.yml count as well: they "
        "ask for answers of a fixed length.",
        "vllm:request_success_total with finished_reason length",
        WARNING,
    ),
)
