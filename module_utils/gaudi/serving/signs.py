"""What the lines of a server mean: the reason why it ended, and how far it is on its way to ready."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from signal import Signals

from ..base.printable import printable


@dataclass(frozen=True)
class Reason:
    """Why an instance is not serving, for a person: kind for programs, message for people."""

    kind: str
    message: str
    retry: bool

    def __post_init__(self) -> None:
        """Make the message printable: it may quote what a container, the engine or a tool said."""
        object.__setattr__(self, "message", printable(self.message))


class Failure(Exception):
    """The instance cannot run, or stopped running; carries the Reason."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason.message)
        self.reason = reason


class EngineGone(Exception):
    """The container engine does not answer."""


def configuration(kind: str, message: str) -> Failure:
    """Trying again cannot help: somebody has to change something first."""
    return Failure(Reason(kind, message, retry=False))


def transient(kind: str, message: str) -> Failure:
    """Trying again may help."""
    return Failure(Reason(kind, message, retry=True))


@dataclass(frozen=True)
class Symptom:
    """What a line of the server (or of docker) means. ``advice`` follows the quoted line.

    ``advice_while`` has another advice for what device memory was being filled with (``Progress.filling``).
    ``asked`` is a word of the server's command, without which the line means something else.
    """

    kind: str
    pattern: re.Pattern[str]
    advice: str
    # Whether a start that ended so is worth another try. A server that had been serving always is: what it served with
    # was right, and what it said last may be the words of whoever asked it.
    retry: bool
    advice_while: Mapping[str, str] = field(default_factory=dict)
    asked: str = ""


# How a worker fills a card: weights, then a profiling run on a longest batch; gpu_memory_utilization is the share of
# what is still free that the KV cache and graph_reserved_mem divide, the rest is left for graphs and requests. On 1.16
# it is a share of the whole card, and graph_reserved_mem is not read. 1.22 captures every graph, whatever that takes;
# 1.18, 1.21 and deepseek-r1 stop before the rest is used (determine_num_available_blocks and warmup_model in
# vllm/worker of each release's fork).

# Ordered: the first symptom found in the last lines is the reason, whatever followed from it.
# Sources: Habana's texts from public issues (tgi-gaudi 93: "synStatus=20 [Device already acquired]";
# habana-container-runtime: "no habanalabs devices found. driver might not be loaded"), vLLM's and
# argparse's from their code, docker's from its command line.
SYMPTOMS = (
    Symptom(
        "card-busy",
        re.compile(r"Device already acquired|synStatus=20\b|synStatus=26\b.*Device acquire failed"),
        "A card of this instance is held by another process. hl-smi names it: stop it, or plan other cards.",
        retry=True,
    ),
    # From here to the KV cache: of vLLM with the plugin, which 1.23 and later serve with. Texts from its
    # troubleshooting page and from public issues of vllm-gaudi; what a text means is theirs, or what the code does.
    Symptom(
        "engine-ready-timeout",
        re.compile(r"Timed out waiting for engine core processes to start"),
        "Loading and warm-up took longer than the server waits for them. Raise VLLM_ENGINE_READY_TIMEOUT_S in"
        " extra_environment, or warm up fewer buckets.",
        retry=False,
    ),
    Symptom(
        "no-plugin",
        re.compile(
            r"running on UnspecifiedPlatform|Failed to infer device type|No module named 'habana_frameworks"
            r"|No module named 'vllm_gaudi"
        ),
        "The image has no vllm-gaudi, or none of the vendor's PyTorch. Build it (serving_image_build), or name one of"
        " the vendor's ready-made ones.",
        retry=False,
    ),
    Symptom(
        "low-memory-fragmented",
        re.compile(r"ctx_init failed|Failed to create context -12\b"),
        "The driver found no whole piece of the host's low memory, though the cards are free. As root: sync, write 3 to"
        " /proc/sys/vm/drop_caches and 1 to /proc/sys/vm/compact_memory; then start it again.",
        retry=True,
    ),
    Symptom(
        "no-verbs",
        re.compile(r"ibv initialization failed"),
        "HCCL found no card over verbs. Load habanalabs_ib; on Ubuntu it needs linux-modules-extra of the running"
        " kernel.",
        retry=False,
    ),
    Symptom(
        "wrong-buckets",
        re.compile(
            r"_lru_cache_wrapper' object has no attribute|Generated 0 (?:prompt|decode) buckets"
            r"|Min\. batch size cannot be greater than max|bucketing_strategy: .* is not in allowed options"
        ),
        "The buckets contradict themselves, or a line of the bucket file is malformed. Correct the bucket variables or"
        " the file.",
        retry=False,
    ),
    Symptom(
        "lazy-mode",
        re.compile(r"ValidateSyncInputTensors tensor_data is empty|Neither storage attached to input tensor"),
        "This model does not run in lazy mode as it is. Leave lazy_mode out; or set PT_HPUGRAPH_DISABLE_TENSOR_CACHE to"
        " false in extra_environment, or enforce_eager.",
        retry=False,
    ),
    Symptom(
        "scale-patching",
        re.compile(r"Scaling method \S+ is not supported for runtime scale patching"),
        "Set RUNTIME_SCALE_PATCHING to 0 in extra_environment, or calibrate with another scaling method.",
        retry=False,
    ),
    Symptom(
        "graph-compiler",
        re.compile(r"Graph compile failed"),
        "The graph compiler could not build a graph. It was seen with models of gated delta layers on 1.24.1, which ran"
        " with plugin 0.24.0. Try enforce_eager, or another release.",
        retry=False,
    ),
    Symptom(
        "model-not-for-card",
        re.compile(r"Head size \d+ is not supported by PagedAttention|view size is not compatible with input tensor"),
        "The plugin of this release does not run this model on this card. gpt-oss is validated on Gaudi 3 only, Gemma 4"
        " from 1.24.1 on.",
        retry=False,
    ),
    Symptom(
        "too-many-at-once",
        re.compile(r"AssertionError: req_id: "),
        "More requests came at once than the KV cache holds. The log says how many it holds (Maximum concurrency)."
        " Lower max_num_seqs or max_model_len, or what clients send at once.",
        retry=True,
    ),
    Symptom(
        "speculation",
        re.compile(r"IndexError: index \d+ is out of bounds"),
        "A warm-up of 1.24.1 with n-gram speculation was seen to end so. Leave speculative_config out, or try eagle.",
        retry=False,
        asked="ngram",
    ),
    Symptom(
        "no-drafter",
        re.compile(r"Medusa speculative decoding is not supported|Unknown speculative decoding method"),
        "The plugin has no such speculation. Leave speculative_config out, or try eagle.",
        retry=False,
    ),
    Symptom(
        "profiled",
        re.compile(r"AssertionError: Finished profiling"),
        "A server that is told to profile ends when it has done so. Leave VLLM_PROFILE_PROMPT, VLLM_PROFILE_DECODE and"
        " VLLM_PT_PROFILE out of extra_environment.",
        retry=False,
    ),
    Symptom(
        "kv-cache-too-small",
        re.compile(
            r"No available memory for the cache blocks|can be stored in KV cache|KV cache is needed, which is larger"
        ),
        "Too little device memory is left for the KV cache. Raise gpu_memory_utilization, lower max_model_len or the"
        " ranges, or raise tensor_parallel_size; then run the playbook again.",
        retry=False,
    ),
    Symptom(
        "out-of-device-memory",
        re.compile(r"MODULE:PT_DEVMEM|Allocation failed for size|\bOutOfMemory|[Oo]ut of (?:device )?memory"),
        "Too little device memory is left beside the KV cache, for graphs and requests. Lower gpu_memory_utilization,"
        " raise graph_reserved_mem (1.16 does not read it; 0.25 was seen to help models of gated delta nets), or lower"
        " max_num_seqs or max_num_batched_tokens; the last resort is enforce_eager, which makes no graphs. Then run the"
        " playbook again.",
        retry=False,
        advice_while={
            "weights": "The weights do not fit on the cards. Raise tensor_parallel_size, or serve weights in FP8; then"
            " run the playbook again.",
            "profiling": "The profiling run, a batch of the longest prompts, does not fit beside the weights. Lower"
            " max_model_len or the ranges, and max_num_batched_tokens, or raise tensor_parallel_size; then run the"
            " playbook again.",
        },
    ),
    Symptom(
        "unknown-argument",
        re.compile(
            r"error: .* knows no |error: unrecognized arguments|error: argument \S+: |error: the following arguments"
            r"|(?i:unknown|unrecognized|unsupported) (?:argument|option|variable|environment variable)s?\b"
        ),
        "This release does not know, or does not take, what it was given: plan and image are of different"
        " releases, or extra_args or extra_environment is wrong.",
        retry=False,
    ),
    Symptom(
        "refused-configuration",
        # How pydantic words what a class of vllm/config refuses: its own first line says only in which class.
        re.compile(r"(?:^|\) ) *Value error, "),
        "The server refuses what it is asked for. Correct the request; then run the playbook again.",
        retry=False,
    ),
    Symptom(
        "chat-template-missing",
        # load_chat_template in vllm/entrypoints or vllm/renderers/chat_utils.py.
        re.compile(r"The supplied chat template .*(?:path-like|looks like a file path), but"),
        "Put the template where the container sees it, beside the weights, or correct chat_template; then run the"
        " playbook again.",
        retry=False,
    ),
    Symptom(
        "port-taken",
        re.compile(r"\[Errno 98\]|[Aa]ddress already in use"),
        "Another process took the port. Stop it, or give the instance another port.",
        retry=True,
    ),
    Symptom(
        "weights-incomplete",
        re.compile(
            r"SafetensorError|MetadataIncompleteBuffer|InvalidHeaderDeserialization|HeaderTooLarge"
            r"|Cannot find any model weights|does not appear to have a file named"
            r"|No such file or directory: .*\.(?:safetensors|json|bin)"
        ),
        "The weights are incomplete or damaged. Fetch them again or verify their checksums.",
        retry=False,
    ),
    Symptom(
        "image-missing",
        re.compile(r"No such image|Unable to find image|pull access denied|manifest unknown"),
        "The serving image is not on this node. Run the playbook again, which pulls it.",
        retry=False,
    ),
    Symptom(
        "runtime-missing",
        re.compile(r"[Uu]nknown (?:or invalid )?runtime"),
        "The container engine does not know the runtime. Run the playbook again (role container_runtime).",
        retry=False,
    ),
    Symptom(
        "driver",
        re.compile(
            r"no habanalabs devices found|driver might not be loaded|requested device does not exist"
            r"|HABANA_RUNTIME_ERROR|Device not found|synStatus=8\b|failed to find matching Habana IB device"
        ),
        "The driver does not offer the cards. Look at hl-smi and at dmesg.",
        retry=True,
    ),
    Symptom(
        "cpu-binding",
        re.compile(r"^libnuma: Warning: (?:cpu|node) argument|^<[^>]*> is invalid$|^usage: numactl"),
        "The planned CPU binding does not fit this node's CPUs any more. Run the playbook again, which plans anew.",
        retry=False,
    ),
    Symptom(
        "shared-memory",
        re.compile(r"Insufficient space in /dev/shm|No space left on device"),
        "A file system is full: make room (df -h), /dev/shm included.",
        retry=True,
    ),
    Symptom(
        "mount",
        re.compile(r"invalid mount config|bind source path does not exist|Read-only file system"),
        "A directory the server needs is missing or not writable. Run the playbook again, which makes it.",
        retry=False,
    ),
)

# A line of uvicorn's access log, which holds whatever somebody without a key asked for. What a client sends stands
# behind its address; nothing that a server says of itself begins so. Format: AccessFormatter in uvicorn/logging.py.
ACCESS = re.compile(r"(?:\([^)]{0,60}\) *)?INFO: +\S{1,60}:\d{1,5} - \"[A-Za-z]{1,20} ")
# Characters of a line that are looked at; patterns take longer than linear time, and a line may have 64 KiB.
LOOKED_AT = 1000

# vLLM's server ends with status 0 when its engine dies. That is what follows from the cause, so it is looked for last.
# Texts: core_client.py, multiproc_executor.py, utils.py and exceptions.py in vllm/v1 of 0.32.0 and of earlier releases.
ENGINE_DIED = re.compile(
    r"[Ee]ngine core (?:proc(?:ess)? \S+ )?(?:died|exited) unexpectedly|Worker proc \S+ died unexpectedly"
    r"|EngineDeadError|Engine core initialization failed"
)

ERROR_LINE = re.compile(r"^(?:\S*(?:Error|Exception)\b|docker: |.*\berror: ).*")
ERROR_LEVEL = re.compile(r"^(?:\([^)]*\) *)?(?:ERROR|CRITICAL)\b")
# What the docker client says when the engine goes away below it.
ENGINE_LOST = re.compile(
    r"error waiting for container|unexpected EOF|Cannot connect to the Docker daemon|error during connect"
)
# docker run's own statuses: 125 the engine refused, 126 and 127 the command could not be run.
DOCKER_REFUSED = (125, 126, 127)


def diagnose(
    lines: list[str],
    status: int,
    was_ready: bool,
    kernel_oom: int,
    progress: Progress,
    command: Sequence[str] = (),
) -> Reason:
    """Say why a container ended, from its last lines and its exit status.

    ``kernel_oom`` is by how much the kernel's own count of out-of-memory kills rose meanwhile, ``progress`` how far the
    server had come, ``command`` what it was started with.
    """
    lines = [line[:LOOKED_AT] for line in lines if not ACCESS.match(line)]
    filling = "" if was_ready else progress.filling
    for symptom in SYMPTOMS:
        if not any(symptom.asked in word for word in (*command, "")):
            continue
        found = [PREFIX.sub("", line) for line in lines if symptom.pattern.search(line)]
        if found:
            retry = symptom.retry or was_ready
            advice = symptom.advice_while.get(filling, symptom.advice)
            # A traceback may show the code that says it before what it says.
            said = next((line for line in found if not CODE.match(line)), found[0])
            return Reason(symptom.kind, f"{quote(said)} {advice}", retry)
    died = next((line for line in lines if ENGINE_DIED.search(line)), None)
    if kernel_oom > 0 and (status != 0 or died):
        return Reason(
            "out-of-host-memory",
            f"The kernel killed {kernel_oom} process(es) for want of host memory and the server ended with"
            f" status {status}. dmesg names them. Free host memory, or lower vm.nr_hugepages.",
            retry=True,
        )
    if status in (128 + Signals.SIGKILL, 128 + Signals.SIGTERM):
        name = Signals(status - 128).name
        return Reason(
            "container-killed",
            f"The container was killed from outside ({name}): docker stop, docker kill or kill by somebody.",
            retry=True,
        )
    if status == 128 + Signals.SIGSEGV:
        return Reason("crashed", "The server crashed (SIGSEGV). Its last lines are in the journal.", retry=True)
    if died:
        own = next((line for line in reversed(lines[: lines.index(died)]) if is_error(line)), None)
        cause = (
            f"It said {quote(own)}"
            if own
            else "It said nothing; dmesg tells whether the kernel or the driver ended it."
        )
        return Reason(
            "engine-died",
            f"The server's engine process ended, and the server with it (status {status}). {cause}",
            retry=True,
        )
    last = next((line for line in reversed(lines) if is_error(line)), lines[-1] if lines else "")
    said = f" Its last words: {quote(last)}" if last else " It said nothing."
    if status in DOCKER_REFUSED:
        return Reason(
            "container-not-started", f"docker could not start the container (status {status}).{said}", retry=True
        )
    return Reason("server-ended", f"The server ended by itself with status {status}.{said}", retry=True)


def is_error(line: str) -> bool:
    """Tell whether a line names an error, with or without what the server's logging puts before it."""
    return bool(ERROR_LINE.match(PREFIX.sub("", line)) or ERROR_LEVEL.match(line))


def quote(line: str, limit: int = 300) -> str:
    """Put a line of somebody else's into a sentence of ours."""
    text = line.strip()
    return f'"{text if len(text) <= limit else text[: limit - 1] + "…"}".'


WARMUP = re.compile(r"\[Warmup\]\[(?P<phase>[\w/ -]{1,40})\]\[(?P<done>\d+)/(?P<total>\d+)\]")
# The plugin's progress: a bar for prompts and one for decoding, from every worker, on stderr, parted by carriage
# returns. A line a bucket comes beside it where VLLM_DEVELOPER_MODE is on, which nobody needs for this (warmup_graphs
# in vllm_gaudi/v1/worker/hpu_model_runner.py of 0.17.1 to 0.26.0).
BAR = re.compile(
    r"(?P<phase>Prompt|Decode) warmup processing:[^|]{0,20}\|[^|]{0,100}\| *(?P<done>\d{1,9})/(?P<total>\d{1,9})\b"
)
GENERATED = re.compile(r"(?P<total>\d+) (?P<phase>prompt|decode) buckets", re.IGNORECASE)
SHARDS = re.compile(r"checkpoint shards:[^/]{0,100}?\b(?P<done>\d{1,9})/(?P<total>\d{1,9})\b")
# 1.16 leaves "in total" out; it logs no line of MEMORY either, but BLOCKS as every release does.
WEIGHTS = re.compile(r"Loading model weights took (?:in total )?(?P<size>[\d.]+ \S+)(?: of device memory| \(|$)")
MEMORY = re.compile(r"(?P<text>Free device memory: .*reserved for (?:usable )?KV cache)")
BLOCKS = re.compile(r"# \w+ blocks: (?P<count>\d+), # CPU blocks: \d+|Usable num_blocks: (?P<usable>\d+),")
FINISHED = re.compile(r"Warmup finished in (?P<seconds>\d+(?:\.\d+)?) secs")
SKIPPED = re.compile(r"Skipping warmup")
# Kinds of passes of a warm-up that are kept. Releases have four; a line can be made to say anything.
PHASES = 16
# What the logging puts before a message: level, date, time, source line; the same message later is no news.
PREFIX = re.compile(r"^(?:\([^)]*\) ?)?(?:[A-Z]+ [\d-]+ [\d:.,]+ (?:\[[^\]]{1,80}\] ?|\S+\] ?)?)?")
# A line of a program in a traceback, behind that.
CODE = re.compile(r" {4}")


@dataclass
class Progress:
    """What the server's output says about its way to ready."""

    phase: str = "starting"
    shards: tuple[int, int] | None = None
    warm_up: dict[str, tuple[int, int]] = field(default_factory=dict)
    expected: dict[str, int] = field(default_factory=dict)
    warm_up_seconds: float | None = None
    memory: dict[str, str] = field(default_factory=dict)
    _heard: deque[str] = field(default_factory=lambda: deque(maxlen=256))

    def hear(self, line: str) -> bool:
        """Take one line in; True if it is a sign of life (the same sentence over and over is not)."""
        line = line[:LOOKED_AT]
        self._understand(line)
        message = PREFIX.sub("", line)
        if message in self._heard:
            return False
        self._heard.append(message)
        return True

    def _understand(self, line: str) -> None:
        if found := WARMUP.search(line):
            self._pass(found["phase"].lower(), int(found["done"]), int(found["total"]))
        elif found := BAR.search(line):
            self._advance(found["phase"].lower(), int(found["done"]), int(found["total"]))
        elif "Generated " in line:
            for found in GENERATED.finditer(line):
                self.expected[found["phase"].lower()] = int(found["total"])
        elif found := SHARDS.search(line):
            self.phase, self.shards = "loading", (int(found["done"]), int(found["total"]))
        elif self._understand_memory(line):
            return
        elif found := FINISHED.search(line):
            self.phase, self.warm_up_seconds = "warmed-up", float(found["seconds"])
        elif SKIPPED.search(line):
            self.phase, self.warm_up = "warmed-up", {}

    def _pass(self, phase: str, done: int, total: int) -> None:
        """One bucket of a kind of pass; what is announced comes in the same kind, as graph/prompt of 1.22."""
        self.phase = "warming-up"
        if len(self.warm_up) >= PHASES and phase not in self.warm_up:
            return
        self.warm_up[phase] = (done, total)
        kind = phase[: phase.find("/") + 1]
        for name, expected in self.expected.items():
            self.warm_up.setdefault(kind + name, (0, expected))

    def _advance(self, phase: str, done: int, total: int) -> None:
        """Workers run abreast, and each has its own bar: the furthest counts. Another total is another bar's."""
        before, of = self.warm_up.get(phase, (0, total))
        self.phase, self.warm_up[phase] = "warming-up", (max(before, done) if of == total else done, total)

    def _understand_memory(self, line: str) -> bool:
        """Whether a line says what the device's memory is used for."""
        if found := WEIGHTS.search(line):
            self.phase, self.memory["weights"] = "loading", found["size"]
        elif found := MEMORY.search(line):
            self.memory["device"] = found["text"]
        elif found := BLOCKS.search(line):
            self.memory["kv_cache_blocks"] = found["count"] or found["usable"]
        else:
            return False
        return True

    @property
    def filling(self) -> str:
        """What device memory is being filled with: ``weights``, ``profiling``, or ``cache`` (KV cache and graphs).

        A successor knows it as well: it takes ``memory`` and the warm-up over from the state.
        """
        known = "device" in self.memory or "kv_cache_blocks" in self.memory
        if known or self.warm_up or self.phase == "warmed-up" or self.warm_up_seconds is not None:
            return "cache"
        return "profiling" if "weights" in self.memory else "weights"

    def _took(self) -> str:
        if self.warm_up_seconds is None:
            return "skipped"
        # The server says whole seconds.
        return f"took {self.warm_up_seconds:g} s" if self.warm_up_seconds else "took less than a second"

    def text(self) -> str:
        """One line for systemctl status."""
        if self.phase == "warming-up":
            return "warm-up: " + ", ".join(f"{phase} {done}/{total}" for phase, (done, total) in self.warm_up.items())
        if self.phase == "warmed-up":
            return f"warm-up {self._took()}; waiting for the endpoint to answer"
        if self.phase == "loading":
            return f"loading weights: {self.shards[0]}/{self.shards[1]} shards" if self.shards else "weights loaded"
        return "starting the server"
