"""What a server's lines mean: warm-up as the manual prints it, and why it ended."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from ansible.module_utils.gaudi.base.line_prefix import LOOKED_AT
from ansible.module_utils.gaudi.faults.causes import quote
from ansible.module_utils.gaudi.faults.facts import Facts
from ansible.module_utils.gaudi.faults.tracebacks import LOG_FAULTS
from ansible.module_utils.gaudi.faults.words import say
from ansible.module_utils.gaudi.serving.failure import Reason
from ansible.module_utils.gaudi.serving.progress import PHASES, Progress

from plugin_utils import releases
from tests.unit.serving.ends import diagnose

# From the manual 002_a38cadde4a77df37.txt, shortened.
MANUAL = (Path(__file__).resolve().parent / "recorded/warm_up__1.18_manual_002.txt").read_text()

# What the workers and kv_cache_utils.py of vllm-fork 4cd8c0613 raise, filled in.
NO_BLOCKS = (
    "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing"
    " the engine."
)
TOO_FEW_BLOCKS = (
    "ValueError: The model's max seq len (32768) is larger than the maximum number of tokens that can be stored in KV"
    " cache (1536). Try increasing `gpu_memory_utilization` or decreasing `max_model_len` when initializing the engine."
)
TOO_FEW_BLOCKS_V1 = (
    "ValueError: To serve at least one request with the models's max seq len (40960), (10.00 GiB KV cache is needed,"
    " which is larger than the available KV cache memory (1.25 GiB).  Try increasing"
    " `gpu_memory_utilization` or decreasing `max_model_len` when initializing the engine."
)
# docs/features/quantization/calibration.md of vllm-gaudi shows it.
NO_DEVICE_MEMORY = "[Rank:0] FATAL ERROR :: MODULE:PT_DEVMEM Allocation failed for size::939524096 (896)MB"

SHARDS = "Loading safetensors checkpoint shards:  12% Completed | 1/8 [00:02<00:14,  2.10s/it]"
LOADED = next(line for line in MANUAL.splitlines() if "Loading model weights took" in line)
# habana_model_runner.py and habana_executor.py of vllm-fork 14f489ea6 (release 1.16), filled in.
LOADED_1_16 = (
    "INFO 07-02 17:37:52 habana_model_runner.py:191] Loading model weights took 14.97 GiB (14.97 GiB/94.62 GiB used)"
)
DIVIDED_1_16 = "INFO 07-02 17:37:54 habana_executor.py:78] # HPU blocks: 1519, # CPU blocks: 0"
DIVIDED = next(line for line in MANUAL.splitlines() if "Free device memory" in line)
WARMING = next(line for line in MANUAL.splitlines() if "[Warmup][Graph/Prompt]" in line)

TEXTS = [
    "starting the server",
    "starting the server",
    "weights loaded",
    "weights loaded",
    "warm-up: prompt 1/24, decode 0/48",
    "warm-up: prompt 1/24, decode 48/48",
    "warm-up: prompt 1/24, decode 48/48, graph/prompt 11/24, graph/decode 0/48",
    "warm-up: prompt 1/24, decode 48/48, graph/prompt 11/24, graph/decode 1/48",
    "warm-up took 49 s; waiting for the endpoint to answer",
]


def test_the_manuals_warm_up() -> None:
    progress = Progress()
    texts = []
    for line in MANUAL.splitlines():
        assert progress.hear(line)
        texts.append(progress.text())
    assert texts == TEXTS
    assert progress.memory["weights"] == "14.97 GiB"
    assert progress.memory["device"].endswith("23.75 GiB reserved for KV cache")


def test_a_warm_up_of_nothing_is_not_said_to_take_0_s() -> None:
    progress = Progress()
    progress.hear("Warmup finished in 0 secs, allocated 0 B of device memory")
    assert progress.text() == "warm-up took less than a second; waiting for the endpoint to answer"


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (
            "Loading safetensors checkpoint shards:  12% Completed | 1/8 [00:02<00:14,  2.10s/it]",
            "loading weights: 1/8 shards",
        ),
        ("(VllmWorker rank=0 pid=9) [Warmup][Decode][3/9] batch_size:1 num_blocks:128", "warm-up: decode 3/9"),
        ("INFO x] [Warmup][Prompt][1/6] batch_size:1 query_len:128 num_blocks:0 free_mem:9 GiB", "warm-up: prompt 1/6"),
        ("INFO x] [Warmup][Multimodal][2/4] num_patches:1", "warm-up: multimodal 2/4"),
        ("INFO bucketing.py] Generated 4 prompt buckets, 6 decode buckets", "starting the server"),
        ("INFO 08-02 17:38:43 x.py:1] Skipping warmup...", "warm-up skipped; waiting for the endpoint to answer"),
    ],
)
def test_other_releases(line: str, text: str) -> None:
    progress = Progress()
    progress.hear(line)
    assert progress.text() == text


def test_two_totals_in_one_line() -> None:
    progress = Progress()
    progress.hear("INFO bucketing.py] Generated 4 prompt buckets, 6 decode buckets")
    progress.hear("INFO x] [Warmup][Graph/Prompt][1/4] batch_size:1 query_len:128 num_blocks:0 free_mem:9 GiB")
    assert progress.text() == "warm-up: graph/prompt 1/4, graph/decode 0/6"


@pytest.mark.parametrize(
    ("first", "again"),
    [
        (
            "INFO 08-02 17:38:43 shm.py:44] No block in 60 seconds",
            "INFO 08-02 17:39:43 shm.py:44] No block in 60 seconds",
        ),
        ("WARNING 12-01 01:00:00 [core.py:5] waiting", "WARNING 12-01 01:00:01 [core.py:5] waiting"),
        (
            "(EngineCore pid=7) INFO 12-01 01:00:00 a.py:5] waiting",
            "(EngineCore pid=7) INFO 12-01 01:00:09 a.py:5] waiting",
        ),
    ],
)
def test_the_same_message_later_is_no_news(first: str, again: str) -> None:
    progress = Progress()
    assert progress.hear(first)
    assert not progress.hear(again)


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("RuntimeError: synStatus=20 [Device already acquired] Device acquire failed.", "card-busy"),
        ("RuntimeError: synStatus=8 [Device not found] Device acquire failed.", "card-not-acquired"),
        ("HABANA_RUNTIME_ERROR: no habanalabs devices found", "cards-not-offered"),
        ("torch.OutOfMemoryError: HPU out of memory", "out-of-device-memory"),
        (NO_BLOCKS, "kv-cache-too-small"),
        (TOO_FEW_BLOCKS, "kv-cache-too-small"),
        (TOO_FEW_BLOCKS_V1, "kv-cache-too-small"),
        ("api_server.py: error: argument --dtype: invalid choice: 'fp7'", "unknown-argument"),
        ("api_server.py: error: release 1.22 knows no environment variable VLLM_NEW", "unknown-argument"),
        ("FileNotFoundError: [Errno 2] No such file or directory: '/data/m/model-2.safetensors'", "weights-incomplete"),
        ("docker: Error response from daemon: No such image: x:1.", "image-missing"),
        ("docker: Error response from daemon: Unknown runtime specified habana.", "runtime-missing"),
        ("libnuma: Warning: cpu argument 56-69 is out of range", "cpu-binding"),
        ("<0-7,8-15> is invalid", "cpu-binding"),
        ("RuntimeError: Insufficient space in /dev/shm", "shared-memory-full"),
        ("OSError: [Errno 30] Read-only file system: '/root/.cache'", "mount"),
        (
            'docker: Error response from daemon: invalid mount config for type "bind": bind source path does not exist',
            "mount",
        ),
    ],
)
def test_a_line_has_a_meaning(line: str, kind: str) -> None:
    reason = diagnose(["INFO before", line, "INFO after"], 1, False, 0, Progress())
    assert reason.kind == kind
    assert quote(line) in reason.message


def test_the_cause_comes_before_what_followed_from_it() -> None:
    lines = ["MODULE:PT_DEVMEM Allocation failed for size::9", "RuntimeError: Engine process failed to start"]
    assert diagnose(lines, 1, False, 0, Progress()).kind == "out-of-device-memory"


def advice(heard: list[str], line: str = NO_DEVICE_MEMORY, *, was_ready: bool = False) -> str:
    progress = Progress()
    for said in heard:
        progress.hear(said)
    return diagnose([*heard, line], 1, was_ready, 0, progress).message.removeprefix(quote(line))


@pytest.mark.parametrize("line", [NO_BLOCKS, TOO_FEW_BLOCKS, TOO_FEW_BLOCKS_V1])
def test_a_kv_cache_that_is_too_small_is_made_larger(line: str) -> None:
    """vLLM's own sentence says the same: the advice beside it must not say the opposite."""
    said = advice([SHARDS, LOADED, DIVIDED], line)
    assert "Raise gpu_memory_utilization" in said
    assert "ower gpu_memory_utilization" not in said
    assert "lower max_model_len" in said
    assert "tensor_parallel_size" in said
    assert not diagnose([line], 1, False, 0, Progress()).retry


@pytest.mark.parametrize(
    "heard",
    [[SHARDS, LOADED, DIVIDED], [SHARDS, LOADED, DIVIDED, WARMING], [SHARDS, LOADED_1_16, DIVIDED_1_16], [WARMING]],
    ids=["kv-cache", "graphs", "1.16", "graphs-after-a-hand-over"],
)
def test_what_lacks_beside_the_kv_cache_is_taken_from_it(heard: list[str]) -> None:
    said = advice(heard)
    assert "Lower gpu_memory_utilization" in said
    assert "raise graph_reserved_mem" in said
    assert "aise gpu_memory_utilization" not in said
    assert advice([], was_ready=True) == said
    assert diagnose([NO_DEVICE_MEMORY], 1, True, 0, Progress()).retry


def test_a_large_picture_is_named_where_pictures_are_served() -> None:
    """Manual v1.22, 3.4.4: a large picture needs more device memory; 0.6 to 0.7 of it for the KV cache helps."""
    pictures = ("vllm", "serve", "--limit-mm-per-prompt", '{"image": 5}')

    def reason(*, was_ready: bool, command: tuple[str, ...]) -> Reason:
        return diagnose([NO_DEVICE_MEMORY, *KILLED_ENGINE], 0, was_ready, 0, Progress(), command)

    served = reason(was_ready=True, command=pictures)
    assert (served.kind, served.retry) == ("picture-too-large", True)
    assert "Lower gpu_memory_utilization (0.6 to 0.7 was seen to help)" in served.message
    assert reason(was_ready=False, command=pictures).kind == "out-of-device-memory"
    assert reason(was_ready=True, command=("vllm", "serve")).kind == "out-of-device-memory"


@pytest.mark.parametrize("heard", [[], [SHARDS]], ids=["starting", "loading"])
def test_weights_that_do_not_fit_need_more_cards(heard: list[str]) -> None:
    said = advice(heard)
    assert "The weights do not fit" in said
    assert "tensor_parallel_size" in said
    assert "FP8" in said
    assert "gpu_memory_utilization" not in said


@pytest.mark.parametrize("loaded", [LOADED, LOADED_1_16], ids=["1.18", "1.16"])
def test_a_profiling_run_does_not_know_the_utilisation(loaded: str) -> None:
    said = advice([SHARDS, loaded])
    assert "max_num_batched_tokens" in said
    assert "tensor_parallel_size" in said
    assert "gpu_memory_utilization" not in said


def test_an_image_that_is_missing_is_pulled_and_not_built() -> None:
    said = advice([], "docker: Error response from daemon: No such image: x:1.")
    assert "Pull it" in said
    assert said.endswith("run the playbook again, which pulls it.")


def test_every_advice_is_a_sentence() -> None:
    for symptom in LOG_FAULTS:
        for case in ("", *symptom.remedies):
            said = say(symptom.id, case, other="one", checks="1. A check", it="X", advice="Do it.", **Facts().words())
            assert said[0].isupper()
            assert said.endswith(".")


@pytest.mark.parametrize(
    ("lines", "status", "oom", "kind"),
    [
        ([], 1, 0, "server-ended"),
        ([], 137, 0, "container-killed"),
        ([], 137, 1, "out-of-host-memory"),
        ([], 139, 0, "crashed"),
        ([], 0, 0, "server-ended"),
        (["numactl (simulated): asked -C 0-9; of this the machine has: 0,1", "RuntimeError: x"], 1, 0, "server-ended"),
        (["docker: something"], 125, 0, "container-not-started"),
    ],
)
def test_an_end_without_a_word(lines: list[str], status: int, oom: int, kind: str) -> None:
    assert diagnose(lines, status, True, oom, Progress()).kind == kind


def test_other_peoples_text_is_cut() -> None:
    assert quote("x" * 1000).startswith('"xxx')
    assert len(quote("x" * 1000)) < 310


# How vLLM 0.32.0 ends when its engine process is killed: the shutdown of the server comes last, and the status is 0.
KILLED_ENGINE = [
    "(APIServer pid=1) WARNING 11-23 01:00:00 [core_client.py:817] [shutdown] MPClient: engine core exited"
    " unexpectedly; starting cleanup",
    "(APIServer pid=1) ERROR 11-23 01:00:00 [serve.py:80] AsyncLLM output_handler failed.",
    "(APIServer pid=1) ERROR 11-23 01:00:00 [serve.py:80] vllm.v1.engine.exceptions.EngineDeadError: EngineCore"
    " encountered an issue. See stack trace (above) for the root cause.",
    "(APIServer pid=1) INFO:     Shutting down",
    "(APIServer pid=1) INFO:     Finished server process [1]",
]
FAILED_ENGINE = [
    "(EngineCore_DP0 pid=7) ERROR 11-23 01:00:00 [core.py:9] EngineCore encountered a fatal error.",
    "(EngineCore_DP0 pid=7) ERROR 11-23 01:00:00 [core.py:9] RuntimeError: a kernel of ours failed",
    *KILLED_ENGINE,
]


def test_a_killed_engine_is_the_reason_and_not_the_last_line() -> None:
    reason = diagnose(KILLED_ENGINE, 0, True, 0, Progress())
    assert (reason.kind, reason.retry) == ("engine-died", True)
    assert reason.message == (
        "The server's engine process ended, and the server with it (status 0). It said nothing; dmesg tells whether the"
        " kernel or the driver ended it."
    )


def test_an_error_behind_a_bar_is_quoted_without_it() -> None:
    """Processes print at once: a line of one follows the drawing of another's bar."""
    bar = "Prompt warmup processing:   2%|▏         | 1/48 [00:05<04:14,  5.43s/item, 0/48]"
    own = "(EngineCore pid=2446) ERROR 09-10 18:54:38 [core.py:1385] ValueError: nobody knows why"
    reason = diagnose([bar + own, bar], 1, False, 0, Progress())
    assert reason.message.endswith('Its last words: "ValueError: nobody knows why".')
    known = diagnose([f"{bar}[rank0]: RuntimeError: Failed to create context -12"], 1, False, 0, Progress())
    assert known.message.startswith('"RuntimeError: Failed to create context -12".')


def test_an_engine_that_said_why_is_quoted_until_it_serves() -> None:
    assert '"RuntimeError: a kernel of ours failed".' in (diagnose(FAILED_ENGINE, 0, False, 0, Progress()).message)
    served = diagnose(FAILED_ENGINE, 0, True, 0, Progress()).message
    assert '"RuntimeError: (' in served
    assert "a kernel of ours failed" not in served


def test_an_engine_killed_for_want_of_memory_is_told_as_that() -> None:
    assert diagnose(KILLED_ENGINE, 0, True, 1, Progress()).kind == "out-of-host-memory"


def test_a_cause_that_is_known_comes_before_the_engines_end() -> None:
    assert diagnose([NO_DEVICE_MEMORY, *KILLED_ENGINE], 0, True, 0, Progress()).kind == "out-of-device-memory"


def test_an_error_behind_the_loggings_prefix_is_quoted() -> None:
    lines = [
        "(APIServer pid=1) ERROR 11-23 01:00:00 [x.py:5] ValueError: nobody knows why",
        "(APIServer pid=1) INFO:     Finished server process [1]",
    ]
    assert "ValueError: nobody knows why" in diagnose(lines, 1, False, 0, Progress()).message


@pytest.mark.parametrize(
    "line",
    [
        "ValueError: The supplied chat template (/x.jinja) looks like a file path, but it failed to be opened.",
        "(APIServer pid=1) vllm.exceptions.VLLMValidationError: The supplied chat template string (/x.jinja) appears"
        " path-like, but doesn't exist! Tried: /x.jinja and /y/x.jinja (parameter=chat_template)",
    ],
)
def test_a_missing_chat_template_is_tried_once(line: str) -> None:
    reason = diagnose([line, *KILLED_ENGINE[-2:]], 1, False, 0, Progress())
    assert (reason.kind, reason.retry) == ("chat-template-missing", False)


# What uvicorn logs of requests that nobody answered: their text is whatever somebody without a key sent.
ASKED = [
    'INFO:     127.0.0.1:36794 - "GET /?SafetensorError HTTP/1.1" 401 Unauthorized',
    '(APIServer pid=1) INFO:     10.0.0.7:1 - "GET /?error: unrecognized arguments: HTTP/1.1" 401 Unauthorized',
    'INFO:     ::1:36794 - "POST /x"SafetensorError HTTP/1.1" 404 Not Found',
    'INFO:     127.0.0.1:5 - "GET /?EngineDeadError HTTP/1.1" 401 Unauthorized',
    'INFO:     127.0.0.1:5 - "WebSocket /?No%20such%20image" 403',
]


@pytest.mark.parametrize("line", ASKED)
@pytest.mark.parametrize("was_ready", [False, True])
def test_what_a_client_asked_for_is_no_symptom(line: str, was_ready: bool) -> None:
    reason = diagnose([line, "FaultOfItsOwnError: x"], 1, was_ready, 0, Progress())
    assert (reason.kind, reason.retry) == ("server-ended", True)
    assert "FaultOfItsOwnError" in reason.message
    assert diagnose([line], 1, was_ready, 0, Progress()).message.endswith("It said nothing.")


@pytest.mark.parametrize(
    "line", ["safetensors_rust.SafetensorError: x", "api_server.py: error: unrecognized arguments: x"]
)
def test_what_had_served_is_tried_again_whatever_it_said_last(line: str) -> None:
    """A client may have it say anything; how often in a row it is tried is bounded."""
    assert diagnose([line], 1, True, 0, Progress()).retry
    assert not diagnose([line], 1, False, 0, Progress()).retry


def test_of_a_line_only_its_beginning_is_looked_at() -> None:
    """A pattern may take the square of a line's length, and a line may have 64 KiB."""
    far = " " * LOOKED_AT
    assert diagnose([f"x{far}SafetensorError", "ValueError: y"], 1, False, 0, Progress()).kind == "server-ended"
    progress = Progress()
    progress.hear(f"x{far}{SHARDS}")
    progress.hear(f"checkpoint shards:{' ' * 200}1/8")
    assert progress.shards is None
    progress.hear(SHARDS)
    assert progress.shards == (1, 8)


@pytest.mark.parametrize("line", ["checkpoint shards:" * 3640, "checkpoint shards: " + "0" * 65500, "0 prompt " * 7281])
def test_a_line_of_64_kib_takes_no_time(line: str) -> None:
    """What a server prints, and a client may have it print, held its supervisor for seconds, line by line."""
    before = time.process_time()
    Progress().hear(line)
    diagnose([line], 1, False, 0, Progress())
    assert time.process_time() - before < 0.5


def test_a_log_full_of_phases_stays_small() -> None:
    progress = Progress()
    for number in range(1000):
        progress.hear(f"[Warmup][PHASE{number}][1/2] batch_size:4")
    assert len(progress.warm_up) == PHASES


# Of vllm-gaudi 0.17.1 to 0.26.0: bars from every worker (warmup_graphs), then what its worker says of the memory
# (determine_available_memory). Put together from its code; recorded starts are in
# test_progress.py.
BARS = [
    "(Worker_TP0 pid=7) Prompt warmup processing:   0%|          | 0/72 [00:00<?, ?item/s]",
    "(Worker_TP1 pid=8) Prompt warmup processing:  10%|█         | 7/72 [00:41<06:20,  5.86s/item, 6/72]",
    "(Worker_TP0 pid=7) Prompt warmup processing:   8%|▊         | 6/72 [00:36<06:20,  5.86s/item, 5/72]",
    "(Worker_TP0 pid=7) Decode warmup processing:  50%|█████     | 3/6 [00:03<00:03,  1.00s/item, 2/6]",
]


def test_the_plugins_bars_are_progress() -> None:
    progress = Progress()
    texts = []
    for line in BARS:
        assert progress.hear(line)
        texts.append(progress.text())
    # A worker that lags behind takes nothing back.
    assert texts == ["warm-up: prompt 0/72", "warm-up: prompt 7/72", "warm-up: prompt 7/72", texts[-1]]
    assert texts[-1] == "warm-up: prompt 7/72, decode 3/6"
    assert not progress.hear(BARS[-1])


def test_a_second_pair_of_bars_is_a_second_warm_up() -> None:
    """Of 0.21.0 and later: the validation warm-up of Llama 4 and Gemma 4 comes after the first, and is smaller."""
    progress = Progress()
    progress.hear("Prompt warmup processing: 100%|##########| 72/72 [06:00<00:00,  5.00s/item, 71/72]")
    progress.hear("Prompt warmup processing:  20%|##        | 1/5 [00:05<00:20,  5.00s/item, 0/5]")
    assert progress.text() == "warm-up: prompt 72/72, validation/prompt 1/5"


def test_what_the_plugin_says_of_the_memory() -> None:
    progress = Progress()
    progress.hear("(Worker pid=7) INFO 11-22 10:00:00 [hpu_model_runner.py:4800] Loading model weights took 15.2720 GB")
    assert progress.memory == {"weights": "15.2720 GB"}
    assert progress.filling == "profiling"
    progress.hear(
        "INFO 11-22 10:00:09 [hpu_worker.py:280] Free device memory: 78.3 GiB, 72.04 GiB usable"
        " (gpu_memory_utilization=0.92), 7.204 GiB reserved for HPUGraphs (VLLM_GRAPH_RESERVED_MEM=0.1), 18 MiB"
        " reserved for KV cache dummy block 64.81 GiB reserved for usable KV cache"
    )
    assert progress.memory["device"].endswith("64.81 GiB reserved for usable KV cache")
    progress.hear("INFO x] Usable num_blocks: 3686, actual allocated num_blocks (max across layers): 3687 (_PAD_BLOCK")
    assert progress.memory["kv_cache_blocks"] == "3686"


@pytest.mark.parametrize(
    ("line", "kind", "advice"),
    [
        (
            "TimeoutError: Timed out waiting for engine core processes to start.",
            "engine-ready-timeout",
            "READY_TIMEOUT_S",
        ),
        ("RuntimeError: synStatus=26 [Generic failure] Device acquire failed.", "card-not-acquired", "in this order"),
        ("WARNING No platform detected, vLLM is running on UnspecifiedPlatform", "no-plugin", "serving_image_build"),
        (
            "AssertionError: Current PyTorch version 2.12.1+cu130 is detected as neither HPU fork nor CPU upstream.",
            "no-plugin",
            "none of the vendor's PyTorch",
        ),
        ("ModuleNotFoundError: No module named 'habana_frameworks.torch'", "no-plugin", "vllm-gaudi"),
        ("RuntimeError: Failed to create context -12", "context-not-created", "compact_memory"),
        ("[ g_ibv.init(deviceConfig) == hcclSuccess ] failed. ibv initialization failed", "no-verbs", "habanalabs_ib"),
        (
            "AttributeError: 'functools._lru_cache_wrapper' object has no attribute 'warning'",
            "wrong-buckets",
            "malformed",
        ),
        ("RuntimeError: Generated 0 prompt buckets. Please increase", "wrong-buckets", "bucket variables"),
        (
            "[Rank:0] FATAL ERROR :: MODULE:PT_LAZY Error, ValidateSyncInputTensors tensor_data is empty",
            "lazy-mode",
            "",
        ),
        ("RuntimeError: Neither storage attached to input tensor, not its view", "lazy-mode", "lazy_mode"),
        (
            'AssertionError: Scaling method "MAXABS_ARBITRARY" is not supported for runtime scale patching',
            "scale-patching",
            "RUNTIME_SCALE_PATCHING to 0",
        ),
        ("RuntimeError: Graph compile failed. synStatus=synStatus 26 [Generic failure]", "graph-compiler", "eager"),
        (
            "RuntimeError: view size is not compatible with input tensor size and stride",
            "model-not-for-card",
            "cannot run this model",
        ),
        (NO_DEVICE_MEMORY, "out-of-device-memory", "weights do not fit"),
        ("AssertionError: req_id: cmpl-8f0a-0", "too-many-at-once", "Lower max_num_seqs"),
        ("AssertionError: Finished profiling", "profiled", "VLLM_PROFILE_PROMPT"),
        (
            "RuntimeError: bucketing_strategy: foo is not in allowed options: [exp, lin, pad]!",
            "wrong-buckets",
            "bucket variables",
        ),
    ],
)
def test_a_failure_of_the_plugin_has_an_advice(line: str, kind: str, advice: str) -> None:
    wrapper = (
        "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {'EngineCore': 1}"
    )
    reason = diagnose(
        [f"(Worker_TP3 pid=9) ERROR 11-22 10:00:00 [core.py:700] {line}", wrapper], 1, False, 0, Progress()
    )
    assert reason.kind == kind
    assert advice in reason.message


def test_the_recorded_end_of_a_server_without_habanalabs_ib_names_what_is_missing() -> None:
    """The kernel had no ib_uverbs, so that the module was not loaded; the message goes over three lines."""
    file = Path(__file__).parent / "recorded/server_ibv_init_1.24.0.txt"
    reason = diagnose(file.read_text(encoding="utf-8").splitlines(), 1, False, 0, Progress())
    assert reason.kind == "no-verbs"
    assert "linux-modules-extra" in reason.message


def test_speculation_is_blamed_only_where_it_was_asked_for() -> None:
    lines = [
        "ERROR 11-22 10:00:00 [core.py:700] IndexError: index 256 is out of bounds for dimension 0 with size 256",
        "RuntimeError: Engine core initialization failed. See root cause above.",
    ]
    ngram = ("vllm", "serve", "--speculative-config", '{"method":"ngram","num_speculative_tokens":3}')
    reason = diagnose(lines, 1, False, 0, Progress(), ngram)
    assert reason.kind == "speculation"
    assert "Leave speculative_config out" in reason.message
    other = diagnose(lines, 1, False, 0, Progress(), ("vllm", "serve", "--max-num-seqs", "256"))
    assert other.kind == "engine-died"
    assert "IndexError: index 256" in other.message
    assert "specul" not in other.message


def test_the_wrapper_of_a_failure_points_above() -> None:
    own = "ERROR 11-22 10:00:00 [core.py:700] ValueError: something else"
    reason = diagnose(
        [own, "RuntimeError: Engine core initialization failed. See root cause above."], 1, False, 0, Progress()
    )
    assert reason.kind == "engine-died"
    assert "something else" in reason.message


def test_the_lines_that_release_files_have_are_understood() -> None:
    example = {"<count>": "7", "<number>": "0.5", "<size>": "1.5 GiB", "<shapes>": "1, 2", "<phase>": "prompt"}
    example |= {"<Phase>": "Prompt", "<done>": "3", "<total>": "9", "<percent>": " 33", "<drawn>": "███", "<pace>": "?"}

    def heard(name: str) -> Progress:
        line = releases.read("1.24.1")["log_formats"][name]
        for word, text in example.items():
            line = line.replace(word, text)
        progress = Progress()
        progress.hear(f"(Worker_TP0 pid=9) INFO 11-22 10:00:00 [hpu_model_runner.py:6233] {line}")
        return progress

    assert heard("weights").memory == {"weights": "0.5 GB"}
    assert heard("memory").memory["device"].startswith("Free device memory: 1.5 GiB")
    assert heard("kv_cache_blocks").memory == {"kv_cache_blocks": "7"}
    assert heard("generated").expected == {"prompt": 7}
    assert heard("bar").warm_up == heard("line").warm_up == {"prompt": (3, 9)}
    assert heard("finished").warm_up_seconds == 7
    assert heard("skipped").phase == "warmed-up"


WORKER = "(Worker_TP0 pid=9) ERROR 11-22 10:00:00 [multiproc_executor.py:962]"
SERVER = "(APIServer pid=1)"


@pytest.mark.parametrize(
    ("lines", "kind", "begin"),
    [
        (
            [
                f"{WORKER} WorkerProc failed to start.",
                f"{WORKER} Traceback (most recent call last):",
                f'{WORKER}   File "/workspace/hpu_model_runner.py", line 1188, in __init__',
                f'{WORKER}     raise NotImplementedError("Medusa speculative decoding is not supported on HPU.")',
                f"{WORKER} NotImplementedError: Medusa speculative decoding is not supported on HPU.",
            ],
            "no-drafter",
            '"NotImplementedError: Medusa speculative decoding is not supported on HPU."',
        ),
        (
            [
                f"{SERVER} Traceback (most recent call last):",
                f"{SERVER} pydantic_core._pydantic_core.ValidationError: 1 validation error for SchedulerConfig",
                f"{SERVER}   Value error, max_num_batched_tokens (64) must be greater than or equal to 128.",
                f"{SERVER}     For further information visit https://errors.pydantic.dev/2.12/v/value_error",
            ],
            "refused-configuration",
            '"Value error, max_num_batched_tokens (64) must be',
        ),
        # Only the code is there: better than nothing.
        (
            [f'{WORKER}     raise AssertionError("AssertionError: Finished profiling")'],
            "profiled",
            '"raise AssertionError(',
        ),
    ],
)
def test_what_is_quoted_of_a_traceback_are_its_words(lines: list[str], kind: str, begin: str) -> None:
    reason = diagnose(lines, 1, False, 0, Progress())
    assert (reason.kind, reason.retry) == (kind, False)
    assert reason.message.startswith(begin)
