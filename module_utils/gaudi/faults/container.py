"""Known faults of Docker and the runtime of a container. A part of the list in known.py."""

from __future__ import annotations

from .entry import CARDS, ENGINE, HOST, INSTANCES, KnownFault
from .shared import NOT_ACQUIRED

FAULTS = (
    # Docker and the runtime that it starts a container with.
    KnownFault(
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
    KnownFault(
        "image-not-in-registry",
        ENGINE,
        "",
        "The registry has no such image or tag, or does not show it to this account.",
        "Correct the name: the vendor's images are named in catalog/releases. For a private one log in (docker login).",
        "docker's command line and the distribution's API",
        signs=r"manifest unknown|pull access denied|manifest for \S+ not found"
        r"|failed to resolve reference .{1,300}: not found$"
        r"|failed to (?:authorize|fetch (?:anonymous|oauth) token)|unauthorized: authentication required"
        r"|insufficient_scope",
        example="docker: Error response from daemon: manifest for vault.habana.ai/x:1 not found: manifest unknown.",
    ),
    KnownFault(
        "registry-busy",
        ENGINE,
        "",
        "The registry answers this address or account no further for now: too many pulls.",
        "Wait, log in (docker login), or pull from a mirror of the site.",
        "Docker Hub",
        retry=True,
        signs=r"\btoomanyrequests\b|pull rate limit",
        example="Error response from daemon: toomanyrequests: You have reached your unauthenticated pull rate limit.",
    ),
    KnownFault(
        "registry-certificate",
        ENGINE,
        "",
        "Docker does not trust the certificate of the registry, as behind a proxy that reads what passes.",
        "Set gaudi_ca_certificates (docs/network.md), or put the authority's certificate into "
        "/etc/docker/certs.d/HOST/ca.crt.",
        "Go's crypto/x509",
        signs=r"(?:daemon|registry).{0,200}x509: ",
        example='Error response from daemon: Get "https://vault.habana.ai/v2/": tls: failed to verify certificate: '
        "x509: certificate signed by unknown authority",
    ),
    KnownFault(
        "registry-unreachable",
        ENGINE,
        "",
        "Docker does not reach the registry of the image.",
        "Check the address, and the engine's proxy (container_runtime_https_proxy): it does not read that of "
        "your shell. Or bring the image as a file (playbooks/save_image.yml, playbooks/load_image.yml).",
        "a record of an owner of eight Gaudi 3: dockerd without a proxy",
        retry=True,
        signs=r"failed to resolve reference"
        r"|(?:\b(?:daemon|pull|registry|failed to do request)\b|/v2/).*\bdial tcp\b.*(?:timeout|refused|no such host"
        r"|unreachable)|Error response from daemon: Get \"?https?://\S+/v2/|net/http: (?:TLS handshake timeout"
        r"|request canceled)",
        example="Error response from daemon: failed to resolve reference "
        '"vault.habana.ai/gaudi-docker/1.24.1": failed to do request: Head "https://vault.habana.ai/v2/": dial '
        "tcp 198.18.0.30:443: i/o timeout",
    ),
    KnownFault(
        "other-vendors-option",
        ENGINE,
        "",
        "Docker was asked for the cards of another vendor (--gpus).",
        "Leave --gpus out, and give --runtime=habana with HABANA_VISIBLE_DEVICES instead.",
        "docker's command line",
        signs=r"could not select device driver .* with capabilities: \[\[gpu\]\]",
        example='docker: Error response from daemon: could not select device driver "" with capabilities: [[gpu]].',
    ),
    KnownFault(
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
    KnownFault(
        "engine-not-running",
        ENGINE,
        "",
        "Docker's engine does not run, or not at this socket.",
        "Run systemctl status docker and journalctl -u docker; the role container_runtime installs and starts it.",
        "docker's command line",
        retry=True,
        signs=r"Cannot connect to the Docker daemon|failed to connect to the docker API",
        example="docker: Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon "
        "running?",
    ),
    KnownFault(
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
    KnownFault(
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
    KnownFault(
        "image-missing",
        ENGINE,
        "",
        "The serving image is not on this node.",
        "Pull it (docker pull), or bring it as a file (docker load); for an instance of this project run the playbook "
        "again, which pulls it.",
        "docker's command line",
        signs=r"No such image",
        # docker run says so of every image that it pulls.
        hints=r"Unable to find image",
        when="engine_refused",
        example="docker: Error response from daemon: No such image: gaudi-serving/vllm:1.",
    ),
    KnownFault(
        "runtime-missing",
        ENGINE,
        "",
        "The container engine does not know the runtime.",
        "Install habanalabs-container-runtime, name it under runtimes in /etc/docker/daemon.json, and restart Docker; "
        "in Kubernetes create the RuntimeClass. For a node of this project run the playbook again (role "
        "container_runtime).",
        "docker's command line",
        signs=r"[Uu]nknown (?:or invalid )?runtime (?:specified|name)"
        r"|no runtime for \W{0,3}\w{1,40}\W{0,3} is configured|RuntimeClass \W{0,3}\w{1,40}\W{0,3} not found",
        example="docker: Error response from daemon: Unknown runtime specified habana.",
    ),
    KnownFault(
        "cards-not-offered",
        CARDS,
        "",
        "The driver does not offer the cards.",
        "Look at hl-smi and at dmesg.",
        "habana-container-runtime, and public issues",
        retry=True,
        remedies={"missing": "Install the driver packages first (playbooks/driver.yml)."},
        signs=r"no AIPs available|error gathering device information .{0,60}/dev/(?:accel|hl)"
        r"|no habanalabs devices found|driver (?:might not be|is not) loaded"
        r"|hl-smi\b.{0,60} driver not loaded|requested device does not exist|HABANA_RUNTIME_ERROR",
        hints=NOT_ACQUIRED,
        when="card_missing",
        check="hl-smi lacks a card of the plan: look at dmesg | grep habanalabs",
        example="habana-container-runtime: no habanalabs devices found",
    ),
    KnownFault(
        "kubernetes-short",
        HOST,
        "",
        "Kubernetes has no node with enough of what the pod asks for: {it}.",
        "kubectl describe node shows what each node has and who has it. No habana.ai/gaudi at all: the device plugin "
        "of habanalabs does not run there, or the driver has no card. hugepages-2Mi: set vm.nr_hugepages on the node, "
        "and restart its kubelet. Otherwise ask for less, or end what has it.",
        "the scheduler of Kubernetes",
        retry=True,
        signs=r"nodes are available: .{0,200}?\b(Insufficient [\w.-]{1,60}(?:/[\w.-]{0,60}\w)?)"
        r"|requested number of devices (unavailable for [\w.-]{1,60}/[\w.-]{0,60}\w)",
        example="Warning  FailedScheduling  2m  default-scheduler  0/3 nodes are available: 3 Insufficient "
        "habana.ai/gaudi. preemption: 0/3 nodes are available.",
    ),
    KnownFault(
        "probe-failed",
        INSTANCES,
        "",
        "Kubernetes ended the container, because its {it} failed.",
        "A start takes minutes to hours: its log shows how far it came (kubectl logs --previous), and "
        "playbooks/plan.yml the number of graphs. Give the container a startupProbe whose failureThreshold times "
        "periodSeconds is longer than that; a livenessProbe waits for it. If the log shows an error, have that "
        "explained.",
        "the kubelet of Kubernetes; GenAIComps 1557, a public issue",
        signs=r"Container \S{1,80} failed ((?:startup|liveness) probe)",
        example="Normal  Killing  2m  kubelet  Container vllm failed startup probe, will be restarted",
    ),
    KnownFault(
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
    KnownFault(
        "container-name-in-use",
        ENGINE,
        "",
        "Another container has the name.",
        "Rename it, or remove it if nobody needs it (docker rename, docker rm).",
        "docker's command line",
        signs=r"The container name .{1,200} is already in use",
        example='docker: Error response from daemon: Conflict. The container name "/vllm" is already in use by '
        'container "0123".',
    ),
    KnownFault(
        "cpu-binding",
        INSTANCES,
        "",
        "The CPU binding does not fit this node's CPUs.",
        "Name CPUs and NUMA nodes that it has (lscpu), or leave the binding out. For an instance of this project run "
        "the playbook again, which makes another plan.",
        "numactl and libnuma",
        signs=r"^libnuma: Warning: (?:cpu|node) argument|^<[^>]*> is invalid$|^usage: numactl",
        example="libnuma: Warning: cpu argument 56-69 is out of range",
    ),
    KnownFault(
        "shared-memory-full",
        ENGINE,
        "",
        "The shared memory of the container (/dev/shm) is full or too small.",
        "Docker gives 64 MiB where nothing else is set: docker run --shm-size=16g or --ipc=host, shm_size in Compose, "
        "an emptyDir with medium: Memory at /dev/shm in Kubernetes. Instances of this project have 16 GiB; with ipc: "
        "host in the request they have the node's, where the release's manual uses it. df -h /dev/shm in the container "
        "shows how much is used.",
        "Python's multiprocessing, PyTorch and Ray; Megatron-LM 878, hopsworks 1557, gpustack 5014 and vllm-ascend "
        "3519, public issues",
        signs=r"Insufficient space in /dev/shm|exceeds memory available in /dev/shm"
        r"|[Nn]o space left on device.{0,200}'/(?:psm_|torch_|dev/shm/)"
        r"|[Uu]nable to (?:allocate shared memory|write to file </torch_)|\bout of shared memory",
        example="OSError: [Errno 28] No space left on device: '/psm_1b2c3d4e'",
    ),
    KnownFault(
        "disk-full",
        HOST,
        "",
        "A file system is full, or the quota of its user or pod.",
        "Make room (df -h), /dev/shm included; quota -s shows a quota. docker system df shows what Docker has, and "
        "docker builder prune removes what builds have cached.",
        "PyTorch, and the C library",
        retry=True,
        signs=r"[Nn]o space left on device|Disk quota exceeded|low on resource: ephemeral-storage",
        example="OSError: [Errno 28] No space left on device",
    ),
    KnownFault(
        "mount",
        INSTANCES,
        "",
        "A directory the server needs is missing or not writable.",
        "Create it, or correct the path and how it is mounted (docker run -v); for an instance of this project run the "
        "playbook again, which creates it. dmesg says why a disk became read-only.",
        "docker's command line",
        signs=r"invalid mount config|bind source path does not exist|Read-only file system",
        example='docker: Error response from daemon: invalid mount config for type "bind": bind source path does '
        "not exist: /data",
    ),
)
