"""Known faults of the host and its kernel. A part of the list in known.py."""

from __future__ import annotations

from .entry import HOST, KERNEL, WARNING, KnownFault
from .shared import CHECKS, COMPACT, COMPATIBILITY, DOCTOR, FLASH, JUDGED, MODULES, PLUGIN, STILL_TRANSLATES, TABLE

FAULTS = (
    # The host compared with its release. catalog/compatibility.yml has each check's severity and source.
    KnownFault(
        "system",
        HOST,
        COMPATIBILITY,
        "system: found {found}, wanted {wanted}",
        "Watch the first start: the vendor tests its release on these systems only.",
        TABLE,
        WARNING,
    ),
    KnownFault(
        "kernel",
        HOST,
        COMPATIBILITY,
        "kernel: found {found}, wanted {wanted}",
        "Install a newer kernel and reboot.",
        TABLE,
    ),
    KnownFault(
        "kernel-untested",
        HOST,
        COMPATIBILITY,
        "kernel-untested: found {found}, wanted {wanted}",
        "Boot a kernel {newest} if the driver's modules do not build or load.",
        TABLE,
        WARNING,
    ),
    KnownFault(
        "iommu",
        HOST,
        COMPATIBILITY,
        "iommu: found {found}, wanted {wanted}",
        "Run playbooks/tune_host.yml with host_tuning_reboot=if_needed: {because}.",
        "catalog/host.yml, rules iommu",
        remedies={"started-so": STILL_TRANSLATES + ": {because}."},
    ),
    KnownFault(
        "driver",
        HOST,
        COMPATIBILITY,
        "driver: found {found}, wanted {wanted}",
        "Install the driver {driver}, or set gaudi_release to a release of {minor}.",
        TABLE,
        remedies={"installed": "The package {package} is installed: load its modules, or reboot."},
    ),
    KnownFault(
        "driver-build",
        HOST,
        COMPATIBILITY,
        "driver-build: found {found}, wanted {wanted}",
        "Install the driver {driver} at the next maintenance.",
        TABLE,
        WARNING,
    ),
    KnownFault(
        "nic-driver",
        HOST,
        COMPATIBILITY,
        "nic-driver: found {found}, wanted {wanted}",
        MODULES,
        TABLE,
    ),
    KnownFault(
        "runtime-package",
        HOST,
        COMPATIBILITY,
        "runtime-package: found {found}, wanted {wanted}",
        "Install {package}.",
        TABLE,
    ),
    KnownFault(
        "runtime-package-build",
        HOST,
        COMPATIBILITY,
        "runtime-package-build: found {found}, wanted {wanted}",
        "Install {package}.",
        TABLE,
        WARNING,
    ),
    KnownFault(
        "docker",
        HOST,
        COMPATIBILITY,
        "docker: found {found}, wanted {wanted}",
        "Update Docker when it suits; the vendor does not say that an older one fails.",
        TABLE,
        WARNING,
    ),
    KnownFault(
        "image",
        HOST,
        COMPATIBILITY,
        "image: found {found}, wanted {wanted}",
        "Correct serving_image_ref or serving_image_base, or gaudi_release.",
        TABLE,
    ),
    KnownFault(
        "image-python",
        HOST,
        COMPATIBILITY,
        "image-python: found {found}, wanted {wanted}",
        "Use an image with one of these: the vendor's packages are made for them.",
        TABLE,
        WARNING,
    ),
    KnownFault(
        "warm-up",
        HOST,
        COMPATIBILITY,
        "warm-up: found {found}, wanted {wanted}",
        "Leave skip_warmup out, at least of the first start: it fills the cache. Release 1.21 has a shorter warm-up, "
        "too: partial_warmup.",
        TABLE,
    ),
    KnownFault(
        "card-type",
        HOST,
        COMPATIBILITY,
        "card-type: found {found}, wanted {wanted}",
        "Set gaudi_release to a release that is for these cards.",
        TABLE,
    ),
    KnownFault(
        "firmware",
        HOST,
        COMPATIBILITY,
        "firmware: found {found}, wanted {wanted}",
        FLASH,
        TABLE,
        WARNING,
    ),
    KnownFault(
        "firmware-rule",
        HOST,
        COMPATIBILITY,
        "firmware-rule: found {found}, wanted {wanted}",
        FLASH,
        TABLE,
    ),
    # The host, independent of its release.
    KnownFault(
        "system-unknown",
        HOST,
        CHECKS,
        "The node runs {name}, but the roles know how to set up {wanted}.",
        "Install one of these on it.",
        "",
    ),
    KnownFault(
        "clock",
        HOST,
        CHECKS,
        "The node's clock is {off} {where} the controller's, and at most {allowed} are allowed: certificates and "
        "package indexes would be refused.",
        "Set the clocks with NTP (timedatectl set-ntp true), then run again.",
        "",
    ),
    KnownFault(
        "disk",
        HOST,
        CHECKS,
        "{free} are free on {filesystem}, but {needs} are needed.",
        "Free {lacking}, or put them on another file system.",
        "",
    ),
    KnownFault(
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
    KnownFault(
        "weights",
        HOST,
        CHECKS,
        "{instance}: {seen}.",
        "Copy them to the node, or set gaudi_weights_root to where they are.",
        "",
        remedies={"known": "{advice}"},
    ),
    KnownFault(
        "habana-runtime",
        HOST,
        CHECKS,
        "{path} is not on the node, but without it no container gets a card.",
        'Install the package habanalabs-container-runtime (the installer\'s type "base" leaves it out), or set '
        "container_runtime_habana_repository, container_runtime_habana_key and "
        "container_runtime_habana_key_fingerprint so that it is installed.",
        "",
    ),
    KnownFault(
        "port",
        HOST,
        CHECKS,
        "{instance}: port {port} on {host} is in use by {holder}.",
        "Stop that program, or give the instance another port, such as {free}: the option port in "
        'gaudi_serving_instances, or with a serve playbook -e \'{{"serve_options": {{"port": {free}}}}}\'.',
        "",
        remedies={
            "instance": "Give one of the two another port, such as {free}: the option port in gaudi_serving_instances, "
            'or with a serve playbook -e \'{{"serve_options": {{"port": {free}}}}}\'.'
        },
    ),
    KnownFault(
        "no-room",
        HOST,
        DOCTOR,
        "{instances}: {what}.",
        "What serves goes on, but nobody writes down how it is, and it may not come back from a restart. Make room "
        "there, or mount it for writing; dmesg says why a disk became read-only.",
        "of /run systemd says how much it needs (RELOAD_DISK_SPACE_MIN)",
    ),
    # How many pieces a start takes is not published; that none of them is left is a guess. Their size:
    # host/low_memory.py.
    KnownFault(
        "low-memory-fragmented",
        HOST,
        DOCTOR,
        "The host's low memory has no free piece of 4 MiB; on such a host a start was seen to end with ctx_init "
        "failed.",
        COMPACT,
        PLUGIN,
        WARNING,
        remedies={
            "short": "The driver may find no piece for a card, and the start end with ctx_init failed. "
            "vllm_service_drop_caches: true has caches dropped before a start.",
            "dropped": "The driver may find no piece for a card, and the start end with ctx_init failed. A reboot "
            "makes low memory whole.",
        },
    ),
    KnownFault(
        "process-limit",
        HOST,
        "",
        "The server may not start more threads or open more files.",
        "Raise the limit of its container or unit: docker run --pids-limit and --ulimit nofile, TasksMax and "
        "LimitNOFILE of systemd, the pod's limit in Kubernetes.",
        "the kernel: EAGAIN and EMFILE",
        retry=True,
        signs=r"can't start new thread|pthread_create failed|\[Errno 24\]|Too many open files",
        example="RuntimeError: can't start new thread",
    ),
    KnownFault(
        "memory-corrupted",
        HOST,
        "",
        "The host's memory had an error that cannot be corrected, and the kernel ended the process that used it.",
        "ras-mc-ctl --errors or ipmitool sel elist name the memory module: have it replaced. A start may go well until "
        "then, with other memory.",
        "mm/memory-failure.c of the kernel",
        retry=True,
        signs=r"due to hardware memory corruption|Memory failure: 0x[0-9a-f]{1,16}: (?:Killing|Sending SIGBUS)",
        example="Memory failure: 0x1234: Sending SIGBUS to python3:4242 due to hardware memory corruption",
    ),
    KnownFault(
        "host-memory-short",
        HOST,
        "",
        "A process asked for more host memory than it gets.",
        "Free host memory (free -h), lower vm.nr_hugepages, or raise the container's limit (docker run --memory).",
        "PyTorch's allocator for the host, and the C library",
        retry=True,
        signs=r"DefaultCPUAllocator: (?:can't allocate|not enough) memory|\[Errno 12\] Cannot allocate memory"
        r"|\bstd::bad_alloc\b|^MemoryError\b|synStatus[= ]+(?:synStatus )?3\b"
        r"|unable to mmap \d{1,20} bytes from file <[^>]{1,200}>: Cannot allocate memory",
        example="RuntimeError: [enforce fail at alloc_cpu.cpp:117] err == 0. DefaultCPUAllocator: can't allocate "
        "memory: you tried to allocate 34359738368 bytes. Error code 12 (Cannot allocate memory)",
    ),
    # Kernel settings.
    KnownFault(
        "not-in-effect",
        KERNEL,
        JUDGED,
        "{item} is {now}, and {wanted} is wanted (after a reboot: {after_reboot}).",
        "playbooks/tune_host.yml sets it.",
        "catalog/host.yml",
    ),
    KnownFault(
        "not-persistent",
        KERNEL,
        JUDGED,
        "{item} is {now}, as wanted, but nothing of ours keeps it so (after a reboot: {after_reboot}).",
        "playbooks/tune_host.yml sets it.",
        "catalog/host.yml",
    ),
    KnownFault(
        "not-configured",
        KERNEL,
        JUDGED,
        "{item} is not set to {wanted} yet, for the instances to come.",
        "playbooks/tune_host.yml sets it.",
        "catalog/host.yml",
    ),
    KnownFault(
        "serving-refused",
        KERNEL,
        JUDGED,
        "Serving is refused. {refused}",
        "Run playbooks/tune_host.yml after that.",
        "catalog/host.yml",
    ),
)
