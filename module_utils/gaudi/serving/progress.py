"""Follow a server's start by its output: weights, device memory, and the graphs of its warm-up.

Several processes print at once, so lines come in any order and text of one stands within a line of another. What is
counted is that of the process that is farthest, and no count goes back.
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass, field

from ..base.line_prefix import LOOKED_AT, PREFIX
from ..base.server_log import LISTENS, pieces
from ..faults.words import fault

# Warm-up phases that are kept. Releases have four; a malicious log could name any number.
PHASES = 16
VALIDATION = "validation/"
"""Begins the name of a phase of the plugin's second warm-up."""
VALIDATED = {
    "0.21": ("llama4",),
    "0.24": ("llama4",),
    "0.26": ("llama4", "qwen3_moe", "qwen3_5_moe", "qwen3_next", "gemma4"),
}
"""Model types that each version of the plugin warms up twice, since their layers differ.

apply_model_specific_patches in vllm_gaudi/v1/worker/hpu_model_runner.py of v0.21.0, v0.24.0 and v0.26.0; 0.17.1 and
0.19.0 have none. Versions by their first two numbers, which are vLLM's as well.
"""
LONGEST_AGAIN = ("0.26",)
"""Versions whose second warm-up takes all prompts of the longest query; earlier ones take the first and the last shape.

warmup_model, as above. A start of 0.26.0 with Qwen3-235B was recorded: 120 + 85 graphs, then 10 + 1.
"""

# Phases of a start, in their order.
ORDER = ("starting", "loading", "warming-up", "warmed-up")

# Forks of vLLM, and the plugin with VLLM_DEVELOPER_MODE: a line for each bucket.
WARMUP = re.compile(r"\[Warmup\]\[(?P<phase>[\w/() -]{1,40})\]\[(?P<done>\d{1,9})/(?P<total>\d{1,9})\]")
NAMES = {"unified attention": "unified", "unified cfg": "unified"}
GENERATED = re.compile(r"(?P<total>\d{1,9}) (?P<phase>prompt|decode|unified) buckets", re.IGNORECASE)
SHAPE = re.compile(r"\(\d{1,9}, (?P<query>\d{1,9}), \d{1,9}\)")
CAPTURED = re.compile(r"Graph/(?P<phase>Prompt|Decode) captured:(?P<total>\d{1,9}) used_mem")
AGAIN = re.compile(r"Running validation warmup|Validation warmup: (?P<total>\d{1,9}) prompt buckets")
AGAIN_DONE = re.compile(r"Validation warmup complete")
VERSION = re.compile(r"Initializing a V1 LLM engine \(v(?P<version>\d{1,3}\.\d{1,3})\b")
TYPE = re.compile(r"runtime\.py(?::\d{1,6})?\] +model_type: (?P<type>\w{1,60})")
SHARDS = re.compile(r"checkpoint shards:[^/]{0,100}?\b(?P<done>\d{1,9})/(?P<total>\d{1,9})\b")
# 1.16 omits "in total"; it also has no line that matches MEMORY, but a BLOCKS line like every release.
WEIGHTS = re.compile(r"Loading model weights took (?:in total )?(?P<size>[\d.]+ \S+)(?: of device memory| \(|$)")
MEMORY = re.compile(r"(?P<text>Free device memory: .*reserved for (?:usable )?KV cache)")
BLOCKS = re.compile(r"# \w+ blocks: (?P<count>\d{1,9}), # CPU blocks: \d{1,9}|Usable num_blocks: (?P<usable>\d{1,9}),")
FINISHED = re.compile(r"Warmup finished in (?P<seconds>\d{1,9}(?:\.\d{1,9})?) secs")
SKIPPED = re.compile(r"Skipping warmup")
# One engine of several (data parallelism), and that it is done (vllm/v1/engine/core.py).
ENGINE = re.compile(r"\((?:EngineCore|Worker)_DP(?P<engine>\d{1,3})(?!\d)")
ENGINE_DONE = re.compile(r"init engine \(profile, create kv cache, warmup model\) took")
# Processes of their own, which answer requests, wait for the engines only so long; the engines do not notice
# (vllm/v1/engine/core_client.py of 0.26.0, and in other words until 0.13). A start of two engines was recorded in which
# they went on drawing bars.
GAVE_UP = re.compile(rf"TimeoutError: (?:{fault('engine-ready-timeout').signs})(?:.{{0,200}}Waited (\d{{1,9}})s)?")


@dataclass
class Progress:
    """The progress of a server's start, from its output."""

    phase: str = "starting"
    shards: tuple[int, int] | None = None
    warm_up: dict[str, tuple[int, int]] = field(default_factory=dict)
    expected: dict[str, int] = field(default_factory=dict)
    warm_up_seconds: float | None = None
    memory: dict[str, str] = field(default_factory=dict)
    # What the processes that answer requests said when they gave up waiting for the engines; None while they wait.
    gave_up: str | None = None
    # Whether the server listens, or has before this process followed it.
    listens: bool = False
    _heard: deque[str] = field(default_factory=lambda: deque(maxlen=256))
    # Totals that the server announced, by phase: engines of one server may differ.
    _announced: dict[str, set[int]] = field(default_factory=dict)
    _version: str = ""
    _type: str = ""
    # Prompts of the longest query in the list of shapes; 0 if unknown.
    _longest: int = 0
    # Whether bars were drawn, and whether the second warm-up was announced.
    _bars: bool = False
    _again: bool = False
    _engines: set[str] = field(default_factory=set)
    _engines_done: set[str] = field(default_factory=set)

    def hear(self, line: str) -> bool:
        """Process one line; return True if it is a sign of life (a repeated sentence is not)."""
        alive = False
        for text, bar in pieces(line):
            if bar is not None:
                self._draw(bar)
            else:
                self._understand(text)
            message = PREFIX.sub("", text)
            if message in self._heard or not (message.strip() or text == line):
                continue
            self._heard.append(message)
            alive = True
        return alive

    @property
    def done(self) -> int:
        """Graphs that are captured."""
        return sum(done for done, _ in self.warm_up.values())

    @property
    def total(self) -> int:
        """Graphs of the warm-up as far as the server has said; 0 before it said any."""
        return sum(total for _, total in self.warm_up.values())

    @property
    def total_known(self) -> bool:
        """Whether the server has said how many graphs there are, and what tells whether it warms up twice."""
        return bool(self.expected and self.warm_up) and (self._again or bool(self._version and self._type))

    # -- lines

    def _understand(self, text: str) -> None:
        line = text[:LOOKED_AT]
        if found := WARMUP.search(line):
            self._pass(found["phase"].lower(), int(found["done"]), int(found["total"]))
        elif found := CAPTURED.search(line):
            self._captured(found["phase"].lower(), int(found["total"]))
        elif "Generated " in line:
            self._generated(line, text)
        elif found := SHARDS.search(line):
            self._load(int(found["done"]), int(found["total"]))
        elif not self._understand_memory(line):
            self._understand_engine(line)
            self._understand_end(line)

    def _understand_end(self, line: str) -> None:
        """Learn that one of the warm-ups ends, or that there is none."""
        if found := AGAIN.search(line):
            self._begin_again(int(found["total"] or 0))
        elif AGAIN_DONE.search(line):
            if f"{VALIDATION}prompt" not in self.warm_up:
                # The first warm-up's whole count: its bars do not show which warm-up they belong to.
                self._expect_again(self._prompts_again() or min(self.warm_up.get("prompt", (0, 0))[1], 2))
            self._complete(again=True)
        elif found := FINISHED.search(line):
            self._finish(float(found["seconds"]))
        elif SKIPPED.search(line):
            self._reach("warmed-up")
            self.warm_up = {}

    def _understand_engine(self, line: str) -> None:
        """Learn of the engines: version, type of model, how many are done, and that nobody waits for them."""
        if found := ENGINE.search(line):
            self._engines.add(found["engine"])
            if ENGINE_DONE.search(line):
                self._engines_done.add(found["engine"])
        if found := VERSION.search(line):
            self._version = found["version"]
        elif found := TYPE.search(line):
            self._type = found["type"]
        elif LISTENS.search(line):
            self.listens = True
        elif not self.listens and (found := GAVE_UP.search(line)):
            waited = f" after {found[1]} s" if found[1] else ""
            self.gave_up = f"the API servers gave up waiting{waited}"

    def _understand_memory(self, line: str) -> bool:
        """Whether a line reports the use of device memory."""
        if found := WEIGHTS.search(line):
            self._reach("loading")
            self.memory["weights"] = found["size"]
        elif found := MEMORY.search(line):
            self.memory["device"] = found["text"]
        elif found := BLOCKS.search(line):
            self.memory["kv_cache_blocks"] = found["count"] or found["usable"]
        else:
            return False
        return True

    def _reach(self, phase: str) -> None:
        """Enter a phase; a process that lags behind takes nothing back."""
        self.phase = max(self.phase, phase, key=ORDER.index)

    def _load(self, done: int, total: int) -> None:
        """Count shards: of several engines the largest count; a draft model's few are not shown."""
        self._reach("loading")
        before, of = self.shards or (0, 0)
        if total >= of and done <= total:
            self.shards = (max(before, done) if total == of else done, total)

    def _generated(self, line: str, text: str) -> None:
        for found in GENERATED.finditer(line):
            phase, total = found["phase"].lower(), int(found["total"])
            self._announced.setdefault(phase, set()).add(total)
            self.expected[phase] = max(total, self.expected.get(phase, 0))
            if phase == "prompt" and (queries := [int(shape["query"]) for shape in SHAPE.finditer(text)]):
                self._longest = max(self._longest, queries.count(max(queries)))

    # -- the warm-up

    def _count(self, phase: str, done: int, total: int) -> None:
        """Keep the largest count of a phase."""
        if len(self.warm_up) >= PHASES and phase not in self.warm_up:
            return
        before, of = self.warm_up.get(phase, (0, 0))
        most = max(of, total)
        # What a worker draws after another one has finished adds nothing.
        over = self._bars and self.warm_up_seconds is not None
        self.warm_up[phase] = (most if over else min(max(before, done), most), most)

    def _pass(self, phase: str, done: int, total: int) -> None:
        """Record one bucket of a phase; announced totals have the same phases, such as graph/prompt of 1.22."""
        phase = NAMES.get(phase, phase)
        self._reach("warming-up")
        if self._bars:
            phase = self._stage(phase, total)
        self._count(phase, done, total)
        kind, name = phase[: phase.find("/") + 1], phase[phase.find("/") + 1 :]
        if name in self.expected and kind != VALIDATION:
            self._foresee(kind)

    def _draw(self, bar: re.Match[str]) -> None:
        """Count a bar of any worker."""
        phase = NAMES.get(bar["phase"].lower(), bar["phase"].lower())
        total = int(bar["total"])
        self._reach("warming-up")
        self._bars = True
        stage = self._stage(phase, total)
        self._count(stage, int(bar["done"]), total)
        self._foresee("")
        if stage == f"{VALIDATION}prompt":
            self._expect_again(total)

    def _foresee(self, kind: str) -> None:
        """Add phases that are announced and have not begun; the first one begins."""
        for name, expected in self.expected.items():
            self.warm_up.setdefault(kind + name, (0, expected))
        if not kind and self.warm_up_seconds is None and self._type in VALIDATED.get(self._version, ()):
            self._expect_again(self._prompts_again())

    def _prompts_again(self) -> int:
        """Prompts of the second warm-up as they follow from the version and the shapes; 0 where one is unknown."""
        if self._version in LONGEST_AGAIN:
            return self._longest
        return min(self.expected.get("prompt", 0), 2) if self._version in VALIDATED else 0

    def _expect_again(self, prompts: int) -> None:
        """Add the second warm-up once its prompts are known: of decoding it has one graph."""
        if not prompts:
            return
        self._count(f"{VALIDATION}prompt", 0, prompts)
        if self.expected.get("decode") or "decode" in self.warm_up:
            self._count(f"{VALIDATION}decode", 0, 1)

    def _stage(self, phase: str, total: int) -> str:
        """Return the phase of a bar: it has no name of its warm-up, so its total tells which one it is of.

        Where both warm-ups have the same total, the second begins with its announced total, or is counted at its end:
        until then a worker may still be in the first.
        """
        first = max(self.expected.get(phase, 0), self.warm_up.get(phase, (0, 0))[1])
        again = self.warm_up.get(VALIDATION + phase, (0, 0))[1]
        if self._again and not again and phase == "prompt" and total <= 2 and total < first:
            # Releases that announce no number capture at most two prompts again.
            return VALIDATION + phase
        if total in (first, *self._announced.get(phase, ())) and not (self._again and total == again):
            return phase
        # Of decoding one graph is captured again; engines of one server may differ in theirs.
        smaller = total < first and (phase != "decode" or total == 1)
        return VALIDATION + phase if smaller or (self._again and total == again) else phase

    def _captured(self, phase: str, total: int) -> None:
        """Complete a phase that a worker has ended; its bar may end before its total, as some shapes are left out."""
        if self._bars and self.warm_up.get(phase, (0, 0))[1] == total:
            self._count(phase, total, total)

    def _begin_again(self, prompts: int) -> None:
        """Begin the second warm-up: the first is over."""
        self._reach("warming-up")
        self._again = True
        self._complete(again=False)
        if prompts and (known := self.warm_up.get(f"{VALIDATION}prompt")) is not None:
            # The count never decreases, even if another engine announces a smaller number.
            self.warm_up[f"{VALIDATION}prompt"] = (known[0], max(known[0], prompts))
        self._expect_again(prompts or self._prompts_again())

    def _complete(self, *, again: bool) -> None:
        """Complete the phases of one of the two warm-ups."""
        for phase, total in {**self.expected, **{name: total for name, (_, total) in self.warm_up.items()}}.items():
            if phase.startswith(VALIDATION) == again:
                self._count(phase, total, total)

    def _finish(self, seconds: float) -> None:
        """End the warm-up of one worker; the last one took longest."""
        self._reach("warmed-up")
        self.warm_up_seconds = max(seconds, self.warm_up_seconds or 0.0)
        if not self._bars:
            return
        again = [name for name in self.warm_up if name.startswith(VALIDATION)]
        if not self._again and not any(self.warm_up[name][0] for name in again):
            for name in again:
                del self.warm_up[name]
        for phase, (_, total) in self.warm_up.items():
            self.warm_up[phase] = (total, total)

    # -- words

    @property
    def filling(self) -> str:
        """What is filling the device memory: ``weights``, ``profiling``, or ``cache`` (KV cache and graphs).

        After a hand-over the new supervisor restores it from ``memory`` and the warm-up in state.json.
        """
        known = "device" in self.memory or "kv_cache_blocks" in self.memory
        if known or self.warm_up or self.phase == "warmed-up" or self.warm_up_seconds is not None:
            return "cache"
        return "profiling" if "weights" in self.memory else "weights"

    @property
    def loading(self) -> bool:
        """Whether the weights are still on their way; some models print nothing meanwhile."""
        return self.filling == "weights"

    def _took(self) -> str:
        if self.warm_up_seconds is None:
            return "skipped"
        # The server reports whole seconds.
        return f"took {self.warm_up_seconds:g} s" if self.warm_up_seconds else "took less than a second"

    def text(self) -> str:
        """One line for systemctl status."""
        return f"{self.doing()}; {self.gave_up}" if self.gave_up else self.doing()

    def doing(self) -> str:
        """What the engines do."""
        if self.phase == "warming-up":
            return "warm-up: " + ", ".join(f"{phase} {done}/{total}" for phase, (done, total) in self.warm_up.items())
        if self.phase == "warmed-up":
            left = len(self._engines - self._engines_done)
            waits = f"{left} of {len(self._engines)} engines are not done yet" if self._engines_done and left else ""
            return f"warm-up {self._took()}; {waits or 'waiting for the endpoint to answer'}"
        if self.phase == "loading":
            return f"loading weights: {self.shards[0]}/{self.shards[1]} shards" if self.shards else "weights loaded"
        return "starting the server"
