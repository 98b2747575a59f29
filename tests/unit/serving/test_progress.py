"""How far a start is: recorded starts of the plugin, and starts whose workers drift."""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from ansible.module_utils.gaudi.serving.progress import Progress
from hypothesis import example, given
from hypothesis import strategies as st

from tests.unit.serving.ends import diagnose

RECORDED = Path(__file__).resolve().parent / "recorded"
LARGE = (RECORDED / "start__0.26.0_gaudi2_tp8__qwen3-235b.txt").read_bytes().decode()
COMPILED = (RECORDED / "start__0.26.0_gaudi2_tp1__qwen3.6-35b-a3b_compile_mode.txt").read_bytes().decode()
DESERTED = (RECORDED / "start__0.26.0_gaudi2_dp2tp4__qwen3-30b__api_servers_gave_up.txt").read_bytes().decode()

WHOLE = {"prompt": (120, 120), "decode": (85, 85), "validation/prompt": (10, 10), "validation/decode": (1, 1)}
SIGN = "Running validation warmup to trigger guard specializations..."


def lines_of(text: str) -> list[str]:
    """The lines as a supervisor reads them, which ends them at carriage returns as well."""
    return [line for line in re.split(r"[\r\n]", text) if line.strip()]


def heard(lines: Iterable[str]) -> Progress:
    progress = Progress()
    for line in lines:
        progress.hear(line)
    return progress


def steps(lines: Iterable[str]) -> Iterator[tuple[int, int, int]]:
    """Done, total and phase after each line, while nothing goes back."""
    progress, phases = Progress(), ["starting", "loading", "warming-up", "warmed-up"]
    before = (0, 0, 0)
    for line in lines:
        progress.hear(line)
        assert all(0 <= done <= total for done, total in progress.warm_up.values())
        after = (progress.done, progress.total, phases.index(progress.phase))
        assert after[0] >= before[0]
        assert after[2] >= before[2]
        yield after
        before = after


def test_a_line_of_a_container_names_no_time_that_nothing_can_be_calculated_with() -> None:
    """The time is remembered, and later starts of every plan are measured by it."""
    assert heard([f"Warmup finished in {'9' * 330} secs"]).warm_up_seconds is None
    assert heard(["Warmup finished in 656 secs"]).warm_up_seconds == 656


# -- a recorded start with eight workers


def test_recorded_start_has_both_warm_ups() -> None:
    progress = heard(lines_of(LARGE))
    assert progress.warm_up == WHOLE
    assert (progress.done, progress.total, progress.warm_up_seconds) == (216, 216, 656)
    assert progress.text() == "warm-up took 656 s; waiting for the endpoint to answer"
    assert progress.shards == (118, 118)
    assert progress.memory["weights"] == "55.0941 GB"
    assert progress.memory["kv_cache_blocks"] == "5268"


def test_recorded_start_has_its_whole_total_from_the_first_bar_on() -> None:
    totals = [total for _, total, _ in steps(lines_of(LARGE))]
    assert set(totals) == {0, 216}
    first = heard(lines_of(LARGE.partition("[... the rest of")[0]))
    assert first.text() == "warm-up: prompt 21/120, decode 0/85, validation/prompt 0/10, validation/decode 0/1"


def test_a_worker_that_ends_late_takes_nothing_back() -> None:
    """In the record a worker draws its last bars after another one has finished."""
    at = LARGE.index("Warmup finished in 655 secs")
    until = LARGE.index("Warmup finished in 656 secs")
    assert "Decode warmup processing: 100%" in LARGE[at:until]
    assert heard(lines_of(LARGE[:until])).text() == "warm-up took 655 s; waiting for the endpoint to answer"


def test_after_one_worker_has_finished_no_graph_is_left() -> None:
    """Also where the lines of that worker's second warm-up were lost."""
    lines = [*bar("Prompt", 9), *bar("Decode", 4), "Warmup finished in 20 secs, allocated 5 GiB of device memory"]
    late = [SIGN, "Validation warmup: 3 prompt buckets (seq_len=8192)", *bar("Prompt", 3)[:2]]
    progress = heard([*lines, *late])
    assert (progress.phase, progress.done, progress.total) == ("warmed-up", 17, 17)


def drawn(phase: str, done: int, total: int, item: str) -> str:
    return (
        f"{phase} warmup processing: {100 * done // total:3}%|{'█' * (10 * done // total):10}| {done}/{total} [{item}]"
    )


def bar(phase: str, total: int, first: str = "") -> list[str]:
    """All drawings of a bar, as tqdm makes them: the position of the shape first, then the new count."""
    lines = [first + drawn(phase, 0, total, "00:00<?, ?item/s")]
    for done in range(total):
        lines.append(drawn(phase, done, total, f"00:31<04:14,  2.27s/item, {done}/{total}"))
        lines.append(drawn(phase, done + 1, total, f"00:31<04:02,  2.18s/item, {done}/{total}"))
    return [*lines, drawn(phase, total, total, f"06:31<00:00,  3.18s/item, {total - 1}/{total}")]


MIDDLE = [*bar("Prompt", 120)[42:], *bar("Decode", 85)]
BEGIN, END = (re.split(r"\[\.\.\. the rest[^\n]*\n", LARGE)[place] for place in (0, 1))
FILLED = [*lines_of(BEGIN), *MIDDLE, *lines_of(END)]


MUTATIONS = {
    "as recorded": FILLED,
    "no announcement": [line for line in FILLED if "alidation warmup" not in line],
    "no version and type": [line for line in FILLED if "V1 LLM engine" not in line and "model_type" not in line],
    "announced": [
        *lines_of(BEGIN),
        *MIDDLE,
        SIGN,
        "Validation warmup: 10 prompt buckets (seq_len=8192)",
        *lines_of(END),
    ],
    "every line twice": [line for line in FILLED for _ in range(2)],
    "no carriage returns": [*BEGIN.replace("\r", "").split("\n"), "".join(MIDDLE), *END.replace("\r", "").split("\n")],
    "carriage returns within lines": [*BEGIN.split("\n"), "\r".join(MIDDLE), *END.split("\n")],
    "foreign text in each bar": [
        line + f"[rank{place % 8}]:[W910 18:01:42.96{place:07}] Warning: index_select. (function Warn)"
        if "warmup processing" in line
        else line
        for place, line in enumerate(FILLED)
    ],
    "half of the bars lost": [
        line for place, line in enumerate(FILLED) if "Prompt warmup processing" not in line or place % 2
    ],
}


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_mutations_of_the_recorded_start_count_the_same(mutation: str) -> None:
    done, total, phase = list(steps(MUTATIONS[mutation]))[-1]
    progress = heard(MUTATIONS[mutation])
    assert progress.warm_up == WHOLE
    assert (done, total, phase, progress.warm_up_seconds) == (216, 216, 3, 656)


# -- other forms of starts


def test_single_worker_in_compile_mode() -> None:
    progress = heard(lines_of(COMPILED))
    assert progress.shards == (26, 26)
    assert progress.expected == {"prompt": 48, "decode": 34}
    assert progress.text() == "warm-up: prompt 22/48, decode 0/34"
    again = heard(
        [
            *lines_of(COMPILED),
            *bar("Decode", 34),
            f"(EngineCore pid=33021) INFO 09-10 15:28:44 [hpu_model_runner.py:6198] {SIGN}",
            "(EngineCore pid=33021) INFO 09-10 15:28:44 [hpu_model_runner.py:6215] Validation warmup: 6 prompt buckets"
            " (seq_len=2048)",
            *bar("Prompt", 6)[:5],
        ]
    )
    assert again.text() == "warm-up: prompt 48/48, decode 34/34, validation/prompt 2/6, validation/decode 0/1"


def test_text_behind_a_bar_is_understood_as_well() -> None:
    progress = heard(
        [
            f"{drawn('Prompt', 5, 5, '00:31<00:00')}(Worker_TP0 pid=9) INFO 09-10 18:11:57 [hpu_model_runner.py:6233]"
            " Warmup finished in 31 secs, allocated 5 GiB of device memory"
        ]
    )
    assert (progress.warm_up, progress.warm_up_seconds) == ({"prompt": (5, 5)}, 31)


@pytest.mark.parametrize("length", range(40, 86))
def test_a_drawing_that_is_cut_counts_nothing_wrong(length: int) -> None:
    """Another process writes into the middle of it."""
    cut = drawn("Prompt", 112, 120, "00:46<09:24,  5.18s/item, 112/120")[:length]
    progress = heard([drawn("Prompt", 7, 120, "00:31<04:14"), f"{cut}\r", f"{cut}(EngineCore pid=7) INFO hello"])
    assert progress.warm_up in ({"prompt": (7, 120)}, {"prompt": (112, 120)})


def test_a_message_that_repeats_behind_a_bar_is_no_further_sign_of_life() -> None:
    message = "(EngineCore pid=7) INFO 09-10 18:02:01 [shm_broadcast.py:705] No available block in 60 seconds"
    progress = Progress()
    assert progress.hear(drawn("Prompt", 5, 9, "00:31<00:00") + message)
    assert not progress.hear(message.replace("18:02:01", "18:03:01"))


def test_llama_4_of_0_21_has_two_prompts_again() -> None:
    progress = heard(
        [
            "(EngineCore pid=7) INFO 09-10 17:58:13 [core.py:116] Initializing a V1 LLM engine (v0.21.0) with config:",
            "(EngineCore pid=7) INFO 09-10 17:58:27 [runtime.py:32]     model_type: llama4",
            "Generated 30 prompt buckets [bs, query, num_blocks]: [(1, 128, 0)]",
            "Generated 20 decode buckets [bs, query, num_blocks]: [(1, 1, 1)]",
            *bar("Prompt", 30)[:3],
        ]
    )
    assert progress.text() == "warm-up: prompt 1/30, decode 0/20, validation/prompt 0/2, validation/decode 0/1"


def test_a_second_warm_up_that_does_not_come_is_not_counted() -> None:
    """Without the mode that only compiles there is none."""
    lines = [
        "Initializing a V1 LLM engine (v0.26.0) with config:",
        "INFO 09-10 17:58:27 [runtime.py:32]     model_type: qwen3_moe",
        "Generated 2 prompt buckets [bs, query, num_blocks]: [(1, 128, 0), (1, 256, 0)]",
        "Generated 3 decode buckets [bs, query, num_blocks]: [(1, 1, 1)]",
        *bar("Prompt", 2),
        *bar("Decode", 3),
        "Warmup finished in 20 secs, allocated 5 GiB of device memory",
    ]
    assert heard(lines[:-1]).total == 7
    assert heard(lines).warm_up == {"prompt": (2, 2), "decode": (3, 3)}


def test_unified_attention_of_0_17() -> None:
    lines = ["Generated 60 unified buckets [query, shared_blocks, unique_blocks]: [(1, 1, 1)]"]
    lines += ["Unified Attention warmup:   5%|▌         | 3/60 [00:31<04:14,  2.27s/item, 2/60]"]
    assert heard(lines).text() == "warm-up: unified 3/60"
    lines += ["[Warmup][Unified CFG][5/60] query_len:1 shared_blocks:1 unique_blocks:1 (causal) free_mem:9 GiB"]
    assert heard(lines).text() == "warm-up: unified 5/60"


def test_pictures_are_a_phase_of_their_own() -> None:
    lines = ["Generated 4 prompt buckets [bs, query, num_blocks]: [(1, 128, 0)]"]
    lines += ["[Warmup][Graph/Multimodal(image)][2/4] batch_size:1 seq_len:0 resolution:896X896 free_mem:9 GiB"]
    assert heard(lines).text() == "warm-up: graph/multimodal(image) 2/4"


@pytest.mark.parametrize("phase", ["Prompt", "Graph/Decode"])
def test_workers_of_the_forks_that_lag_behind_take_nothing_back(phase: str) -> None:
    lines = [f"(VllmWorker rank={rank} pid=9) [Warmup][{phase}][{done}/9] x" for rank, done in ((0, 5), (1, 4))]
    assert heard(lines).warm_up == {phase.lower(): (5, 9)}


def test_engines_that_load_late_take_nothing_back() -> None:
    shards = "(Worker_DP{}_TP0 pid=9) Loading safetensors checkpoint shards:  99% Completed | {}/118 [02:24<00:01]"
    progress = heard([shards.format(0, 117), shards.format(1, 3)])
    assert progress.text() == "loading weights: 117/118 shards"
    progress.hear(drawn("Prompt", 5, 9, "00:31<00:00"))
    progress.hear(shards.format(1, 4))
    assert progress.text() == "warm-up: prompt 5/9"


def test_engines_with_different_counts_are_one_warm_up() -> None:
    made = "(EngineCore_DP{} pid=9) INFO 09-10 18:01:01 [common.py:245] Generated {} decode buckets [bs]: [(1, 1, 1)]"
    lines = [made.format(0, 85), made.format(1, 86), *bar("Decode", 86)[:90], *bar("Decode", 85)]
    assert heard(lines).warm_up == {"decode": (85, 86)}


def test_engines_that_are_not_done_yet_are_counted() -> None:
    lines = [
        "(EngineCore_DP0 pid=7) INFO 09-10 18:01:01 [kv_cache_utils.py:2177] GPU KV cache size: 674,304 tokens",
        "(Worker_DP1_TP0 pid=8) INFO 09-10 18:01:01 [hpu_model_runner.py:1522] Bucketing is ON.",
        *bar("Prompt", 5),
        "(Worker_DP0 pid=9) INFO 09-10 18:11:57 [hpu_model_runner.py:6233] Warmup finished in 40 secs, allocated 5 GiB",
        "(EngineCore_DP0 pid=7) INFO 09-10 18:11:57 [core.py:347] init engine (profile, create kv cache, warmup model)"
        " took 42.05 s",
    ]
    assert heard(lines).text() == "warm-up took 40 s; 1 of 2 engines are not done yet"
    lines += [line.replace("DP0", "DP1").replace(" 40 secs", " 300 secs") for line in lines[-2:]]
    assert heard(lines).text() == "warm-up took 300 s; waiting for the endpoint to answer"


def test_servers_that_give_up_while_engines_go_on_are_named() -> None:
    before, after = DESERTED.split("(ApiServer_0 pid=509983) Process ApiServer_0:")
    assert heard(lines_of(before)).gave_up is None
    progress = heard(lines_of(before + after))
    assert progress.text() == "warm-up: prompt 168/168, decode 32/90; the API servers gave up waiting after 600 s"


@pytest.mark.parametrize(
    "said",
    [
        "engine core processes to start. This is often caused by slow weight loading for large models.",
        "engines to send initial message on input socket.",
        "engines to sendinitial message on input socket.",
    ],
)
def test_servers_of_any_version_give_up_in_their_own_words(said: str) -> None:
    """Those of earlier versions do not say how long they waited."""
    progress = heard([f"(ApiServer_0 pid=25528) TimeoutError: Timed out waiting for {said}"])
    assert progress.text() == "starting the server; the API servers gave up waiting"
    assert (
        diagnose([f"TimeoutError: Timed out waiting for {said}"], 1, False, 0, progress).kind == "engine-ready-timeout"
    )


# -- drifting workers


def worker(number: int, prompts: list[int], decodes: int, version: str, kind: str) -> list[str]:
    """What a worker prints, in its order. prompts: the query length of each bucket."""
    begin = f"(Worker_TP{number} pid={69024 + number}) "
    said = f"{begin}INFO 09-10 18:01:01 [x.py:1] "
    again = {"0.26": prompts.count(max(prompts)), "0.21": min(len(prompts), 2), "0.17": 0}[version]
    shapes = ", ".join(f"(1, {query}, {place})" for place, query in enumerate(prompts))
    lines = [
        f"(EngineCore pid=1) INFO 09-10 17:58:13 [core.py:116] Initializing a V1 LLM engine (v{version}.0) with",
        f"{begin}INFO 09-10 17:58:27 [runtime.py:32]     model_type: {kind}",
        f"{said}Generated {len(prompts)} prompt buckets [bs, query, num_blocks]: [{shapes}]",
        f"{said}Generated {decodes} decode buckets [bs, query, num_blocks]: [(1, 1, 1)]",
        *bar("Prompt", len(prompts), begin),
        f"{said}Graph/Prompt captured:{len(prompts)} used_mem:1 GiB",
        *bar("Decode", decodes, begin),
        f"{said}Graph/Decode captured:{decodes} used_mem:1 GiB",
    ]
    if again:
        longest = [f"{said}Validation warmup: {again} prompt buckets (seq_len={max(prompts)})"]
        lines += [said + SIGN, *(longest if version == "0.26" else ())]
        lines += [*bar("Prompt", again, begin), *bar("Decode", 1, begin), f"{said}Validation warmup complete."]
    return [*lines, f"{said}Warmup finished in {100 + number} secs, allocated 5 GiB of device memory"]


def merged(streams: list[list[str]], choose: random.Random) -> list[str]:
    """The lines of all workers in one order that keeps each worker's own."""
    places = [place for place, stream in enumerate(streams) for _ in stream]
    choose.shuffle(places)
    left = [iter(stream) for stream in streams]
    return [next(left[place]) for place in places]


TYPES = {"0.26": "qwen3_moe", "0.21": "llama4", "0.17": "llama"}


@given(
    prompts=st.lists(st.sampled_from([128, 256, 512]), min_size=1, max_size=9),
    decodes=st.integers(1, 6),
    workers=st.integers(1, 4),
    version=st.sampled_from(sorted(TYPES)),
    known=st.booleans(),
    choose=st.randoms(use_true_random=False),
)
def test_drifting_workers_are_counted_once_in_any_order(
    prompts: list[int], decodes: int, workers: int, version: str, known: bool, choose: random.Random
) -> None:
    kind = TYPES[version] if known else "of-another-name"
    lines = merged([worker(number, prompts, decodes, version, kind) for number in range(workers)], choose)
    seen = list(steps(lines))
    progress = heard(lines)
    again = {"0.26": prompts.count(max(prompts)), "0.21": min(len(prompts), 2), "0.17": 0}[version]
    second = {"validation/prompt": (again, again), "validation/decode": (1, 1)} if again else {}
    first = {"prompt": (len(prompts), len(prompts)), "decode": (decodes, decodes)}
    assert progress.warm_up == {**first, **second}
    assert progress.warm_up_seconds == 99 + workers
    totals = [total for _, total, _ in seen]
    assert totals == sorted(totals)
    if known:
        assert set(totals) <= {0, progress.total}


@given(
    prompts=st.lists(st.sampled_from([128, 256, 512]), min_size=1, max_size=9),
    decodes=st.integers(1, 6),
    workers=st.integers(1, 4),
    version=st.sampled_from(["0.21", "0.26"]),
    choose=st.randoms(use_true_random=False),
)
# One worker announces its second warm-up while the other draws the first, whose total a second one may have as well.
@example(prompts=[128, 256], decodes=1, workers=2, version="0.26", choose=random.Random(22))
def test_drifting_workers_are_counted_by_their_bars_alone(
    prompts: list[int], decodes: int, workers: int, version: str, choose: random.Random
) -> None:
    """As by a supervisor that came when the warm-up had begun: neither version nor shapes were announced to it."""
    streams = [worker(number, prompts, decodes, version, TYPES[version])[4:] for number in range(workers)]
    lines = [drawn("Prompt", 0, len(prompts), "00:00<?"), *merged(streams, choose)]
    list(steps(lines))
    again = {"0.26": prompts.count(max(prompts)), "0.21": min(len(prompts), 2)}[version]
    assert heard(lines).warm_up == {
        "prompt": (len(prompts), len(prompts)),
        "decode": (decodes, decodes),
        "validation/prompt": (again, again),
        "validation/decode": (1, 1),
    }


def test_engines_that_announce_other_numbers_take_no_count_back() -> None:
    said = "Validation warmup: {} prompt buckets (seq_len=512)"
    lines = [*bar("Prompt", 20), *bar("Decode", 6), said.format(10), *bar("Prompt", 10), said.format(8)]
    assert [done for done, _, _ in steps(lines)][-1] == 36


@given(choose=st.randoms(use_true_random=False), lost=st.floats(0, 0.9))
def test_lost_drawings_change_no_result(choose: random.Random, lost: float) -> None:
    streams = [worker(number, [128] * 9 + [256] * 4, 6, "0.26", "qwen3_moe") for number in range(3)]
    kept = [
        [line for line in stream if "warmup processing" not in line or choose.random() >= lost] for stream in streams
    ]
    lines = merged(kept, choose)
    assert [done for done, _, _ in steps(lines)][-1] in (0, 24)
    assert heard(lines).done in (0, 24)
