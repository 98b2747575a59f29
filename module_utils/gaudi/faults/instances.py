"""Known faults of the engine and instances, found by code. A part of the list in known.py."""

from __future__ import annotations

from .entry import CARDS, ENGINE, HOST, INFO, INSTANCES, KnownFault
from .shared import CAUSES, DOCTOR, PLAN, STILL_TRANSLATES, SUPERVISOR

_KERNEL_LOG = (
    "Read the kernel's log of that time (dmesg -T | grep -iE 'out of memory|killed process|segfault|habanalabs') and "
    "docker inspect --format '{{{{.State.OOMKilled}}}}' NAME."
)
_FREE_MEMORY = "free host memory, lower vm.nr_hugepages, or raise the container's limit"
_SHM = (
    "df -h /dev/shm in the container shows it full, or with Docker's 64 MiB: docker run --shm-size=16g or --ipc=host, "
    "shm_size in Compose, an emptyDir with medium: Memory at /dev/shm in Kubernetes"
)
_CUT = (
    "a file of the weights was cut short or written while the server read it, or its disk does not answer: compare the "
    "files (playbooks/verify_weights.yml), and serve a copy that nothing writes"
)
_BUS_LAST = (
    "3. dmesg -T | grep -iE 'hardware error|memory failure|I/O error' shows memory or a disk that fails; 4. "
    "HugePages_Free in /proc/meminfo is 0: raise vm.nr_hugepages. If it is none of these, open an issue with the log."
)
# Who reports the status of a process: vLLM of its workers, docker compose, and a shell of a script.
_EXIT_CODE = r"(?:Worker \w{1,60} pid \d{1,9} died, |^\S{1,80} )?(?i:\bexit(?:ed with)? ?code[:=]?\s{1,8})(?:"
_OF_A_SHELL = r"(?:\S{1,80}: line \d{1,6}: +\d{1,9} )?"

FAULTS = (
    # The engine.
    KnownFault(
        "engine-unreachable",
        ENGINE,
        SUPERVISOR + "container.py",
        "{what}.",
        "Look at journalctl -u docker; the role container_runtime installs and starts it.",
        "",
        remedies={
            "stopping": "{name} may still be running. The next start takes it over, or playbooks/stop.yml removes it."
        },
    ),
    KnownFault(
        "engine-restarted",
        ENGINE,
        SUPERVISOR + "run.py",
        "The container engine went away and returned without the container: it was stopped, or live-restore is off.",
        '"live-restore": true in /etc/docker/daemon.json keeps containers running; the role container_runtime sets it.',
        "",
    ),
    KnownFault(
        "engine-missing",
        ENGINE,
        SUPERVISOR + "engine.py",
        "The docker command is not installed.",
        "Run the playbook again (role container_runtime).",
        "",
    ),
    # Instances, found by the doctor.
    KnownFault(
        "no-unit",
        INSTANCES,
        "module_utils/gaudi/serving/unserved.py",
        "{instance} {what}, so it cannot be started:",
        "run site.yml, which writes the unit of an instance that the inventory names, or remove it "
        "(playbooks/remove.yml --limit {node} -e instance={instance}).",
        "",
    ),
    KnownFault(
        "state-damaged", INSTANCES, DOCTOR, "{instance}: {what}.", "Its supervisor writes it again when it starts.", ""
    ),
    KnownFault(
        "crash-loop",
        INSTANCES,
        DOCTOR,
        "{instance} ends again and again: {status}.",
        "What it says last has to be fixed: playbooks/logs.yml -e instance={instance}.",
        "",
    ),
    KnownFault(
        "waiting",
        INSTANCES,
        DOCTOR,
        "{instance} does not serve: {status}.",
        "It goes on by itself once that is fixed.",
        "",
    ),
    KnownFault(
        "unit-failed",
        INSTANCES,
        DOCTOR,
        "{instance}: its unit ended with {result}, and its supervisor did not say why.",
        "Look at journalctl -u vllm-{instance}, then: systemctl start vllm-{instance}.",
        "",
    ),
    KnownFault("stopped", INSTANCES, DOCTOR, "{instance} is stopped;", "playbooks/start.yml starts it.", "", INFO),
    KnownFault(
        "not-as-planned",
        INSTANCES,
        "library/node_faults_info.py",
        "{instance} does not run with what lies on the node: it was changed after the start.",
        "Run site.yml, which restarts the instance.",
        "",
        remedies={
            "going-back": "The way back to the plan {plan} was cut off before the start. Run playbooks/restart.yml "
            "-e instance={instance}, which starts that plan."
        },
    ),
    # Instances, found by their supervisor before a start.
    KnownFault(
        "plan",
        INSTANCES,
        SUPERVISOR + "startup_checks.py",
        "{what}.",
        "Run site.yml, which writes it.",
        "",
    ),
    KnownFault(
        "guard-missing",
        INSTANCES,
        SUPERVISOR + "startup_checks.py",
        "{path} cannot be read ({why}).",
        "Run site.yml, which writes it.",
        "",
    ),
    KnownFault(
        "keys",
        INSTANCES,
        SUPERVISOR + "startup_checks.py",
        "{what}.",
        "Run site.yml, which writes it.",
        "",
    ),
    KnownFault(
        "container-name-taken",
        INSTANCES,
        SUPERVISOR + "container.py",
        "A container named {name} is there that is not ours.",
        "Remove or rename it.",
        "",
    ),
    KnownFault(
        "reservation",
        INSTANCES,
        SUPERVISOR + "startup_checks.py",
        "{what}.",
        "Run the playbook again, which reserves cards.",
        "",
    ),
    KnownFault(
        "iommu-translates",
        HOST,
        SUPERVISOR + "startup_checks.py",
        "An IOMMU translates what cards address (iommu_group/type {cards}, identity is required): from release 1.24 on "
        "answers are then wrong with no error, or the kernel panics.",
        "Run playbooks/tune_host.yml with host_tuning_reboot=if_needed, which starts the kernel with iommu=pt. With "
        "preflight_allow_mismatch: [iommu] it starts in spite of this.",
        "catalog/host.yml, rules iommu",
        remedies={"started-so": STILL_TRANSLATES + "."},
    ),
    KnownFault(
        "card-missing",
        CARDS,
        PLAN,
        "The card of module {module} (serial {serial}) is not there: hl-smi lists the modules {seen}.",
        "Look at dmesg and lspci -d 1da3:.",
        "",
    ),
    KnownFault(
        "card-replaced",
        CARDS,
        PLAN,
        "The card of module {module} has serial {serial}, the plan was made for {wanted}: cards were exchanged.",
        "Run the playbook again to plan with the new one.",
        "",
    ),
    KnownFault(
        "ports-open",
        INSTANCES,
        SUPERVISOR + "closing.py",
        "Ports {ports} of the server's own processes cannot be closed to others: {why}",
        "Look at nft list ruleset.",
        "",
        remedies={"missing": "Install the package nftables; the role container_runtime does so."},
    ),
    KnownFault(
        "going-back",
        INSTANCES,
        SUPERVISOR + "plan_history.py",
        "The instance cannot go back to its former plan: {why}.",
        "{cause}",
        "",
    ),
    # Instances, found by their supervisor while a server runs.
    KnownFault(
        "probe",
        INSTANCES,
        SUPERVISOR + "run.py",
        "The supervisor has nothing to ask its server with: {why}.",
        "Run the playbook again, which writes the instance's files again.",
        "",
    ),
    KnownFault(
        "stalled",
        INSTANCES,
        SUPERVISOR + "run.py",
        "No sign of progress for {seconds} s while {doing}.",
        "The journal has the last lines.",
        "",
    ),
    KnownFault(
        "start-timeout",
        INSTANCES,
        SUPERVISOR + "starting.py",
        "The start is not done after {taken} ({why}): {doing}.",
        "Warm up fewer buckets, or set a higher vllm_service_longest_start.",
        "",
    ),
    KnownFault(
        "card-memory-held",
        CARDS,
        SUPERVISOR + "freeing.py",
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
    KnownFault(
        "lost-while-serving",
        CARDS,
        SUPERVISOR + "run.py",
        "The card of module {module} was lost while it served: the driver no longer has it up.",
        "Look at dmesg and lspci -d 1da3:. The instance waits for the card, and starts when hl-smi lists it again.",
        "",
        remedies={
            "disabled": "The driver calls its state disabled: look at dmesg, and reset it (hl-smi -r -i with its bus "
            "id). The instance starts then."
        },
    ),
    KnownFault(
        "not-answering",
        INSTANCES,
        SUPERVISOR + "run.py",
        "The server did not answer for {seconds} s ({problem}).",
        "playbooks/logs.yml has its last lines.",
        "",
    ),
    KnownFault(
        "port-blocked",
        INSTANCES,
        SUPERVISOR + "run.py",
        "The server listens at {endpoint}, and for {seconds} s no connection to it came through, although the node "
        "itself asked.",
        "That is a firewall which drops packets to its port (nft list ruleset; iptables -S), or a server that is stuck "
        "(playbooks/logs.yml).",
        "",
    ),
    # Instances whose server ended without a line that gives the reason.
    KnownFault(
        "out-of-host-memory",
        HOST,
        CAUSES,
        "The kernel killed {count} process(es) for want of host memory.",
        "dmesg names them. Free host memory, or lower vm.nr_hugepages.",
        "",
        remedies={
            "limit": "It was the limit of their container or unit: raise it (docker run --memory, limits in "
            "Kubernetes, MemoryMax of systemd), or leave it out."
        },
    ),
    KnownFault(
        "container-killed",
        INSTANCES,
        CAUSES,
        "The container was killed from outside ({signal}): docker stop, docker kill or kill by somebody.",
        "journalctl -u docker and dmesg show who did it.",
        "",
    ),
    KnownFault(
        "memory-limit",
        HOST,
        "",
        "Host memory ran out, of the container's limit or of the node, and a process was ended for it.",
        "Raise the limit (docker run --memory, limits in Kubernetes, --shm-size for files in /dev/shm), or free host "
        "memory (free -h, vm.nr_hugepages). Loading weights takes the most of it.",
        "Docker and Kubernetes, which name the kernel's kill so; ray/exceptions.py",
        retry=True,
        signs=r"\bOOMKilled\b(?!\W{1,4}false)|ray\.exceptions\.OutOfMemoryError|due to the node running low on memory"
        r"|fatal signal: .{0,40}oom|\bkilled by the OOM killer\b|Failed with result 'oom-kill'"
        r"|\bKilled \S{1,200} due to memory pressure\b|low on resource: memory\b",
        example="      Reason:       OOMKilled",
    ),
    KnownFault(
        "process-killed",
        HOST,
        CAUSES,
        "A process of the server was ended (signal 9) and could not say why: the first suspect is the kernel, when the "
        "host or the container runs out of memory.",
        f"{_KERNEL_LOG} If one shows it, {_FREE_MEMORY}. If none does, somebody stopped it (journalctl -u docker), or "
        "the log lacks the process's standard error.",
        "vllm/v1/executor/multiproc_executor.py and v1/engine/utils.py, which print no more of such an end",
        retry=True,
        consequence=True,
        signs=r"signaled to shutdown with signal 9\b|(?:^[\w.]{1,80}: )?process \d{1,6} terminated with signal SIGKILL"
        rf"|\bSignals\.SIGKILL\b|{_EXIT_CODE}(?:-9|137))\b|Failed core proc\(s\): \{{[^}}]{{0,200}}: (?:-9|137)\b"
        rf"|^{_OF_A_SHELL}Killed(?:$|\s{{2,}})",
        example="RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): "
        "{'EngineCore_DP0': -9}",
    ),
    KnownFault(
        "process-vanished",
        INSTANCES,
        CAUSES,
        "A process of the server ended without an exception, and the log does not show how: it was killed, most often "
        "for want of memory, or it crashed.",
        f"{_KERNEL_LOG} Killed: {_FREE_MEMORY}. A segfault: check that driver and image are of one release (hl-smi). "
        "Neither: somebody stopped it (journalctl -u docker), or the log lacks the process's standard error.",
        "vllm/v1/executor/multiproc_executor.py and v1/engine/core_client.py, which print no more of such an end",
    ),
    KnownFault(
        "crashed",
        INSTANCES,
        CAUSES,
        "The server crashed (SIGSEGV).",
        "The lines after it in the log may name the library, and dmesg | grep -iE 'segfault|habanalabs' the process. "
        "Check that driver and image are of one release (hl-smi). If they are, leave out the option that leads there, "
        "or serve with another release.",
        "handlers of signals of PyTorch, Python and Ray; vllm 6823 and 44780, surya 543, public issues",
        retry=True,
        consequence=True,
        signs=r"!{3,9} Segfault encountered !|(?:Received signal - |Fatal Python error: |Signal: )Segmentation fault"
        r"|(?:^[\w.]{1,80}: )?process \d{1,6} terminated with signal SIGSEGV|(?:traceback : )?Signal 11 \(SIGSEGV\)"
        rf"|\*\*\* (?:SIGSEGV received|Received signal 11\b)|\bSIGSEGV\b(?! or )|{_EXIT_CODE}(?:-11|139))\b"
        r"|\bstatus=11/SEGV\b"
        r"|\b(?:python[\d.]{0,6}|(?i:vllm|ray|EngineCore|Worker)[\w:-]{0,30})\[\d{1,9}\]: segfault at "
        rf"|Failed core proc\(s\): \{{[^}}]{{0,200}}: (?:-11|139)\b|Segmentation fault \(core dumped\)"
        rf"|^{_OF_A_SHELL}Segmentation fault(?:$|\s{{2,}})",
        example="!!!!!!! Segfault encountered !!!!!!!",
    ),
    KnownFault(
        "bus-error",
        INSTANCES,
        CAUSES,
        "A process of the server was ended by a bus error (SIGBUS): what it had mapped into its memory was not there. "
        "This has several causes.",
        f"Check in this order: 1. {_SHM}; 2. {_CUT}; {_BUS_LAST}",
        "the kernel; vllm-ascend 3519, a public issue",
        remedies={"weights": f"Check in this order: 1. {_CUT}; 2. {_SHM}; {_BUS_LAST}"},
        cases=True,
        consequence=True,
        signs=r"\bBus error\b(?!\. It is possible that dataloader)|\bSignals\.SIGBUS\b|terminated with signal SIGBUS"
        rf"|{_EXIT_CODE}(?:-7|135))\b|\bstatus=7/BUS\b|Failed core proc\(s\): \{{[^}}]{{0,200}}: (?:-7|135)\b",
        example="Fatal Python error: Bus error",
    ),
    KnownFault(
        "package-missing",
        INSTANCES,
        "",
        "The image lacks a Python package that the model needs: {it}.",
        "Install it in an image of its own (FROM the image, RUN pip install NAME) and serve with that "
        "(serving_image_ref). pip must not replace the vendor's PyTorch: compare pip list before and after.",
        "transformers and vLLM, of what they import only for some models",
        signs=r"\brequires? the (\w{1,40}) library but it was not found|packages that were not found in your "
        r"environment: ([^.]{1,100})|Cannot instantiate this tokenizer from a slow version.{0,60}?(sentencepiece)"
        r"|Please install ([\w-]{1,40})\S{0,40} via `?pip install",
        example="ImportError: This modeling file requires the following packages that were not found in your "
        "environment: einops. Run `pip install einops`",
    ),
    KnownFault(
        "engine-died",
        INSTANCES,
        CAUSES,
        "The server's engine process ended, and the server with it (status {status}).",
        "It said {said}",
        "core_client.py, multiproc_executor.py, utils.py and exceptions.py in vllm/v1",
        remedies={"silent": "It said nothing; dmesg tells whether the kernel or the driver ended it."},
    ),
    KnownFault(
        "container-not-started",
        INSTANCES,
        CAUSES,
        "docker could not start the container (status {status}).",
        "Its last words: {said}",
        "",
        remedies={"silent": "It said nothing."},
    ),
    KnownFault(
        "server-ended",
        INSTANCES,
        CAUSES,
        "The server ended by itself with status {status}.",
        "Its last words: {said}",
        "",
        remedies={"silent": "It said nothing."},
    ),
)
