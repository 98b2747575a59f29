"""Places, sources and phrases that several entries of the list of faults name."""

from __future__ import annotations

# The code that finds the fault.
LOG_FILE = "module_utils/gaudi/doctor/log_file.py"
FINDINGS = "module_utils/gaudi/cards/findings.py"
STATIC = "module_utils/gaudi/fabric/static.py"
GAUDINET = "module_utils/gaudi/fabric/gaudinet.py"
CHECKS = "module_utils/gaudi/preflight/checks.py"
COMPATIBILITY = "module_utils/gaudi/preflight/compatibility.py"
DOCTOR = "module_utils/gaudi/doctor/findings.py"
JUDGED = "module_utils/gaudi/doctor/judged.py"
CAUSES = "module_utils/gaudi/faults/causes.py"
SERVING = "module_utils/gaudi/doctor/while_serving.py"
PLAN = "module_utils/gaudi/serving/plan_cards.py"
SUPERVISOR = "roles/vllm_service/files/gaudi_supervisor/"

# Sources.
TABLE = "catalog/compatibility.yml"
MANUAL = "manual v1.22, 3.4.4"
PLUGIN = "the troubleshooting page of vllm-gaudi, or its public issues"

# Phrases that several entries share.
LINK = (
    "Nothing over several cards is measured or started with it. Look at dmesg | grep habanalabs; if it stays, have the "
    "card and its neighbours on the board checked."
)
WRITE_GAUDINET = "Write it for the cards that are there, or remove it where the NICs are not routed."
MODULES = "Unload all habanalabs modules and load those of one release, or install the driver again."
FLASH = (
    "No role flashes firmware: with no instance running, unload the habanalabs modules, run hl-fw-loader (package "
    "habanalabs-firmware-odm), load them again (docs/compatibility.md)."
)
OF_SITE = (
    " of gaudi_release, from gaudi_driver_repository or else from the node's own package sources (docs/driver.md). "
    "With --tags, name gaudi_driver as well."
)
COMPACT = (
    "With vllm_service_drop_caches a start has caches dropped where compacting is not enough. By hand, as root: write "
    "3 to /proc/sys/vm/drop_caches and 1 to /proc/sys/vm/compact_memory; then start it again."
)
STILL_TRANSLATES = (
    "The kernel was started with iommu=pt, but the IOMMU still translates; dmesg | grep -i iommu shows why, for "
    "example a setting of the firmware"
)
START_AGAIN = "then start it again (for an instance of this project run the playbook again)."
FULL = (
    r"MODULE:PT_DEVMEM|Allocation failed for size|(?<!ray\.exceptions\.)\bOutOfMemory"
    r"|(?<!cgroup )[Oo]ut of (?:device )?memory(?!: Killed)"
    r"|workspace Allocation of size \S+ failed|synStatus[= ]+(?:synStatus )?(?:4|14)\b"
)

NOT_ACQUIRED = (
    r"Device already acquired|Device acquire failed|Device not found|synStatus=(?:8|20)\b"
    r"|synDeviceAcquire[A-Za-z]*\(.{0,200}? failed"
)
