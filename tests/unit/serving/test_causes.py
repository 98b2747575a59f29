"""Why a server ended: the first exception that explains it, in a log of several processes, and what facts decide."""

from __future__ import annotations

import random
from typing import Any

import pytest
from ansible.module_utils.gaudi.base.server_log import LEFT_OUT
from ansible.module_utils.gaudi.faults.causes import Cause, explain
from ansible.module_utils.gaudi.faults.facts import Facts
from ansible.module_utils.gaudi.faults.tracebacks import EXCEPTIONS, STREAMS, TRACEBACKS, ServerLog
from hypothesis import given
from hypothesis import strategies as st

ROOT_CAUSE = "NotImplementedError: a layer of this model is missing"
# One of each family: the V0 fork, V1 with several workers, an engine that ran.
WRAPPERS = (
    "RuntimeError: Engine process failed to start. See stack trace for the root cause.",
    "vllm.engine.multiprocessing.MQEngineDeadError: Engine loop is not running. Inspect the stacktrace to find the"
    " original error: RuntimeError().",
    "vllm.engine.async_llm_engine.AsyncEngineDeadError: Background loop has errored already.",
    "Exception: WorkerProc initialization failed due to an exception in a background process. See stack trace for root"
    " cause.",
    "RuntimeError: Worker failed with error 'x', please check the stack trace above for the root cause",
    "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {'EngineCore_0': 1}",
    "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. See stack trace (above) for the root"
    " cause.",
)
DIRECT = "The above exception was the direct cause of the following exception:"
DURING = "During handling of the above exception, another exception occurred:"


def traceback(*chain: tuple[str, str]) -> list[str]:
    """The lines of a chain: pairs of how an exception follows, and its line."""
    lines: list[str] = []
    for follows, text in chain:
        lines += ["", follows, ""] if follows else []
        lines += [
            "Traceback (most recent call last):",
            '  File "/x/model.py", line 7, in forward',
            "    return layer()",
        ]
        lines += [text]
    return lines


def printed(process: str, lines: list[str]) -> list[str]:
    return [f"({process} pid=7) ERROR 11-26 10:00:00 [core.py:844] {line}" for line in lines]


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_explain_wrapper_above_a_cause_is_skipped(wrapper: str) -> None:
    lines = [*printed("Worker_TP1", traceback(("", ROOT_CAUSE))), *printed("EngineCore", traceback(("", wrapper)))]
    cause = explain([*lines, *traceback(("", wrapper))], Facts(status=1))
    assert (cause.id, cause.lines) == (
        "",
        ('File "/x/model.py", line 7, in forward', "return layer()", ROOT_CAUSE),
    )
    assert ROOT_CAUSE in cause.cause


@pytest.mark.parametrize(
    ("chain", "explains"),
    [
        ((("", ROOT_CAUSE), (DIRECT, "ValueError: b"), (DIRECT, "RuntimeError: c")), ROOT_CAUSE),
        ((("", "KeyError: 'a'"), (DURING, ROOT_CAUSE)), ROOT_CAUSE),
        ((("", ROOT_CAUSE), (DURING, WRAPPERS[0])), ROOT_CAUSE),
        ((("", "KeyError: 'a'"), (DURING, ROOT_CAUSE), (DIRECT, "ValueError: c")), ROOT_CAUSE),
        ((("", ROOT_CAUSE), (DIRECT, "ValueError: c"), (DURING, WRAPPERS[5])), ROOT_CAUSE),
    ],
)
def test_explain_chain_is_followed_to_what_explains_it(chain: tuple[tuple[str, str], ...], explains: str) -> None:
    assert explain(traceback(*chain), Facts(status=1)).lines[-1] == explains


def test_explain_a_known_warning_is_no_cause_where_an_unknown_error_follows() -> None:
    known = "WARNING 11-26 10:00:00 [x.py:1] OSError: [Errno 98] error while attempting to bind: address already in use"
    unknown = "ERROR 11-26 10:00:01 [y.py:2] the quantization of this layer is unknown"
    assert explain([known], Facts(status=1)).id == "port-taken"
    cause = explain([known, unknown], Facts(status=1))
    assert (cause.id, cause.lines) == ("", ("the quantization of this layer is unknown",))
    assert explain([unknown, known], Facts(status=1)).id == "port-taken"
    for wrapper in ("EngineCore failed to start.", "Traceback (most recent call last):"):
        assert explain([known, f"ERROR 11-26 10:00:01 [core.py:708] {wrapper}"], Facts(status=1)).id == "port-taken"


@given(
    workers=st.integers(1, 8),
    failing=st.integers(0, 7),
    wrappers=st.lists(st.sampled_from(WRAPPERS), min_size=1, max_size=4),
    links=st.lists(st.sampled_from([DIRECT, DURING]), max_size=3),
    seed=st.integers(0, 2**32),
)
def test_explain_processes_in_any_order_names_the_one_that_failed(
    workers: int, failing: int, wrappers: list[str], links: list[str], seed: int
) -> None:
    """Each process prints its lines in order; lines of others come between them."""
    chain = [("", ROOT_CAUSE), *((link, wrapper) for link, wrapper in zip(links, wrappers * 3, strict=False))]
    streams = [printed(f"Worker_TP{failing % workers}", traceback(*chain))]
    streams += [
        printed(f"Worker_TP{worker}", traceback(("", "ConnectionResetError: [Errno 104] Connection reset by peer")))
        for worker in range(workers)
        if worker != failing % workers
    ]
    streams += [printed(f"EngineCore_DP{number}", traceback(("", text))) for number, text in enumerate(wrappers)]
    streams += [traceback(("", wrappers[0]))]
    choose = random.Random(seed)
    lines = []
    while streams := [stream for stream in streams if stream]:
        lines.append(choose.choice(streams).pop(0))
    assert explain(lines, Facts(status=1)).lines[-1] == ROOT_CAUSE


@given(st.lists(st.sampled_from(["a b", "Traceback (most recent call last):", "  File x", "E: y", "", DIRECT, DURING])))
def test_explain_any_lines_gives_at_most_three(lines: list[str]) -> None:
    assert len(explain(lines, Facts(status=1)).lines) <= 3


def test_explain_long_log_keeps_the_first_traceback_of_each_process_in_bounded_memory() -> None:
    log = ServerLog()
    for line in printed("Worker_TP1", traceback(("", ROOT_CAUSE))):
        log.add(line)
    for number in range(300):
        for line in printed(f"Worker_TP{number % 150}", traceback(*[("", f"OSError: {number} {'x' * 9000}")] * 3)):
            log.add(line)
    chains = log.chains()
    assert len(chains) <= (STREAMS + 1) * TRACEBACKS
    assert max(len(chain.raised) for chain in chains) <= EXCEPTIONS
    assert chains[0].raised[0].text == ROOT_CAUSE


ACQUIRE = "RuntimeError: synStatus=8 [Device not found] Device acquire failed."
CONDITION = (
    "hcl_device_control_factory.cpp:84(initDevice): The condition [ g_ibv.init(deviceConfig) == hcclSuccess ] failed. "
    "ibv initialization failed"
)
GRAPH = "RuntimeError: Graph compile failed. synStatus=synStatus 26 [Generic failure]."
LOADED = frozenset(("habanalabs", "habanalabs_ib"))


@pytest.mark.parametrize("line", [ACQUIRE, "RuntimeError: synStatus=26 [Generic failure] Device acquire failed."])
@pytest.mark.parametrize(
    ("facts", "identifier", "names"),
    [
        (Facts(), "card-not-acquired", "in this order: 1. "),
        (Facts(holders=("python3 (pid 42) has module 3",)), "card-busy", "python3 (pid 42) has module 3"),
        (Facts(holders=(), driver="1.24.1-482", image="1.23.0"), "other-release", "1.23.0"),
        (Facts(holders=(), driver="1.24.1", image="1.24.1", cards=(0, 1), visible=(0,)), "cards-not-offered", "hl-smi"),
    ],
)
def test_explain_card_not_acquired_is_decided_by_facts(line: str, facts: Facts, identifier: str, names: str) -> None:
    cause = explain([line], facts)
    assert cause.id == identifier
    assert names in f"{cause.cause} {cause.remedy}"


def test_explain_card_that_was_held_keeps_its_one_meaning_when_nobody_has_it_any_more() -> None:
    cause = explain([ACQUIRE.replace("8 [Device not found", "20 [Device already acquired")], Facts(holders=()))
    assert (cause.id, cause.retry) == ("card-busy", True)
    assert "no process has it open" in cause.cause


def test_explain_open_causes_are_checked_in_order_without_those_that_facts_exclude() -> None:
    unknown = explain([ACQUIRE], Facts()).remedy
    assert unknown.index("docker ps") < unknown.index("two releases") < unknown.index("lacks a card")
    known = explain([ACQUIRE], Facts(holders=(), visible=(0,), cards=(0,))).remedy
    assert "docker ps" not in known
    assert "two releases" in known


@pytest.mark.parametrize(
    ("facts", "identifier"),
    [
        (Facts(), "no-verbs"),
        (Facts(modules=frozenset(("habanalabs",))), "no-verbs"),
        (Facts(modules=LOADED, infiniband=False), "verbs-not-passed"),
        (Facts(modules=LOADED, infiniband=True), "verbs-failed"),
    ],
)
@pytest.mark.parametrize(
    "lines",
    [
        [ACQUIRE.replace("8", "26"), CONDITION],
        [ACQUIRE, *CONDITION.replace(": The", ":\n  The").replace("failed. ", "failed.\n  ").split("\n")],
    ],
)
def test_explain_hcls_own_line_comes_before_any_code(lines: list[str], facts: Facts, identifier: str) -> None:
    assert explain(lines, facts).id == identifier


def test_explain_graph_compile_failed_asks_first_for_one_release() -> None:
    unknown = explain([GRAPH], Facts())
    assert unknown.id == "graph-compiler"
    assert unknown.remedy.startswith("Check first that driver and image are of one release")
    assert explain([GRAPH], Facts(driver="1.18.0", image="1.19.0")).id == "other-release"
    assert explain([GRAPH], Facts(driver="1.18.0-12", image="1.18.0")).id == "graph-compiler"


@pytest.mark.parametrize(
    ("line", "word", "facts"),
    [
        (GRAPH, "gated delta", Facts(release="1.24.1", model="qwen3-next-80b")),
        ("RuntimeError: view size is not compatible with input tensor's size", "gpt-oss", Facts(model="gpt-oss-120b")),
    ],
)
def test_explain_names_model_and_release_only_where_the_plan_has_them(line: str, word: str, facts: Facts) -> None:
    assert word in explain([line], facts).remedy
    for other in (Facts(), Facts(release="1.22", model="llama")):
        cause = explain([line], other)
        assert word not in f"{cause.cause} {cause.remedy}"


@pytest.mark.parametrize(
    ("line", "identifier"),
    [
        ("KeyError: <PlatformEnum.HPU: 4>", "quantization-not-for-card"),
        ("NotImplementedError: Sparse Attention is not supported on HPU.", "model-not-for-card"),
    ],
)
def test_explain_what_a_release_cannot_do_is_not_tried_again(line: str, identifier: str) -> None:
    cause = explain(printed("Worker_TP0", traceback(("", line))), Facts(status=1))
    assert (cause.id, cause.retry) == (identifier, False)


# As vllm/logging_utils/dump_input.py prints when an engine fails, with the prompt in it.
DUMP = (
    "(EngineCore pid=7) ERROR 11-26 10:00:00 [dump_input.py:76] Dumping scheduler output for model execution: "
    "SchedulerOutput(scheduled_new_reqs=[NewRequestData(req_id=a,prompt_token_ids=[1, 2],mm_kwargs=[])])"
)


@pytest.mark.parametrize(
    "line",
    [
        DUMP,
        "(EngineCore pid=7) ERROR 11-26 10:00:00 [dump_input.py:69] Dumping input data for the engine: my secret",
        "(EngineCore pid=7) ERROR 11-26 10:00:00 [x.py:7] ValueError: prompt: 'my secret'",
        "ValueError: token_ids [1, 2, 3] my secret",
        "INFO 11-26 10:00:00 [logger.py:39] Received request chatcmpl-1: prompt: 'my secret Error: x'",
        "KeyError: {'messages': ['my secret']}",
    ],
)
def test_explain_after_readiness_nothing_of_a_request_is_quoted(line: str) -> None:
    ready = "(APIServer pid=1) INFO:     Application startup complete."
    own = explain([ready, "ItsOwnError: x", line], Facts(status=1))
    assert own.lines == (f"ItsOwnError: {LEFT_OUT}",)
    alone = texts(explain([ready, line], Facts(status=1, served=True)))
    assert "secret" not in alone
    assert "SchedulerOutput" not in alone


# What an API server prints of one request that fails, by where: modules of vllm/entrypoints that log an exception with
# a client's text, and uvicorn. The prefix stands before each line.
PREPARED = (
    "Error in preprocessing prompt inputs",
    "Traceback (most recent call last):",
    '  File "/vllm/x.py", line 7, in f',
)
OF_ONE_REQUEST = (
    ("(APIServer pid=1) ERROR 11-26 10:00:00 [serving.py:7] ", *PREPARED, "ValueError: my secret"),
    ("(ApiServer_0 pid=1) ", "ERROR:    Exception in ASGI application", *PREPARED[1:], "KeyError: 'my secret'"),
    ("ERROR 11-26 10:00:00 [serving_chat.py:201] ", *PREPARED, "RuntimeError: synStatus=20 [my secret]"),
    ("ERROR 11-26 10:00:00 serving_completion.py:126] ", *PREPARED, "jinja2.exceptions.TemplateError: my secret"),
    ("ERROR 11-26 10:00:00 [hermes_tool_parser.py:7] ", "Error in extracting tool call from response my secret"),
    (
        "",
        "ERROR:    Exception in ASGI application",
        *PREPARED[1:],
        "KeyError: 'my secret'",
        *PREPARED[1:],
        "E: my secret",
    ),
)


@pytest.mark.parametrize("printed", OF_ONE_REQUEST, ids=lambda printed: printed[0] + printed[1])
def test_explain_an_error_of_one_request_ended_no_server(printed: tuple[str, ...]) -> None:
    prefix, *lines = printed
    ready = "INFO:     Application startup complete."
    alone = explain([ready, *(prefix + line for line in lines)], Facts(status=137, served=True, kernel_oom=0))
    assert alone.id == "container-killed"
    assert "secret" not in " ".join((alone.cause, alone.exception, *alone.lines))
    engine = "(EngineCore pid=7) ERROR 11-26 10:00:00 [core.py:7] ItsOwnError: x"
    both = explain([ready, *(prefix + line for line in lines), engine], Facts(status=1, served=True))
    assert both.lines == (f"ItsOwnError: {LEFT_OUT}",)
    # Before it serves, there are no requests.
    assert "secret" in " ".join(explain([prefix + line for line in lines], Facts(status=1)).lines)


def texts(cause: Cause) -> str:
    return " ".join((cause.cause, cause.remedy, cause.exception, *cause.lines))


# What an engine that serves raises with the words of a request: of a guided decoding, of a chat template, and of a
# client who asks about a traceback of its own.
OF_THE_ENGINE: tuple[tuple[str, ...], ...] = (
    ("ValueError: Cannot compile grammar for 'root ::= my secret'",),
    ("jinja2.exceptions.TemplateError: my secret",),
    ("ValueError: no such schema: {", '"title": "my secret",', '"a": 1', "}"),
    ("RuntimeError: bad input: 'first line", "ValueError: my secret", "Out of memory: my secret", "last'"),
    ("KeyError: 'my secret says out of memory and [Errno 98]'",),
    (
        *("ValueError: bad input:", "Traceback (most recent call last):"),
        *('  File "/home/secret/a.py", line 3, in secret', "    secret = 1", "KeyError: secret"),
    ),
)
INSTALLED = 'File "/usr/lib/python3.12/site-packages/vllm/v1/engine/core.py", line 7, in step'


@pytest.mark.parametrize("prefix", ["", "(EngineCore_DP0 pid=7) ERROR 11-26 10:00:00 [core.py:700] "])
@pytest.mark.parametrize(
    "ready",
    [
        ["INFO:     Application startup complete."],
        ["INFO:     Uvicorn running on http://0.0.0.0:8000 (Press CTRL+C to quit)"],
        ["(APIServer pid=1) INFO 11-26 10:00:00 [api_server.py:7] Starting vLLM API server 0 on http://0.0.0.0:8000"],
        ['INFO:     10.0.0.9:4242 - "POST /v1/chat/completions HTTP/1.1" 200 OK'],
    ],
    ids=["started", "uvicorn", "vllm", "asked"],
)
@pytest.mark.parametrize("raised", OF_THE_ENGINE, ids=lambda raised: raised[0])
def test_explain_after_readiness_an_exception_is_its_type_and_place(
    ready: list[str], prefix: str, raised: tuple[str, ...]
) -> None:
    lines = ["Traceback (most recent call last):", f"  {INSTALLED}", "    secret()", "    ^^^^^^^^", *raised]
    cause = explain([*ready, *(prefix + line for line in lines)], Facts(status=1))
    assert cause.id == ""
    assert cause.lines == (INSTALLED, f"{raised[0].partition(':')[0]}: {LEFT_OUT}")
    assert "secret" not in texts(cause)
    # The supervisor knows that it serves, whatever the log has.
    assert "secret" not in texts(explain([prefix + line for line in lines], Facts(status=1, served=True)))


@pytest.mark.parametrize(
    ("line", "identifier"),
    [
        (
            "RuntimeError: [Rank:0] FATAL ERROR :: MODULE:PT_DEVMEM Allocation failed for size::4",
            "out-of-device-memory",
        ),
        (
            "RuntimeError: [Rank:0] FATAL ERROR :: MODULE:PT_BRIDGE Exception in Launch thread...\n"
            "[Rank:0] FATAL ERROR :: MODULE:PT_DEVMEM Allocation failed for size::4 (0)MB",
            "out-of-device-memory",
        ),
        ("Synapse detected a device critical error that requires a restart.", "card-fatal-error"),
        ("TimeoutError: RPC call to execute_model timed out. my secret", "worker-timeout"),
        ("ValueError: nodes are available: 2 Insufficient secret/gpu", "kubernetes-short"),
        ("Internal Error: Received signal - Segmentation fault my secret", "crashed"),
    ],
)
def test_explain_after_readiness_a_known_cause_is_recognised(line: str, identifier: str) -> None:
    cause = explain(["INFO:     Application startup complete.", *line.split("\n")], Facts(status=1))
    assert cause.id == identifier
    assert "secret" not in texts(cause)
    assert all(quoted in line or quoted.endswith(LEFT_OUT) for quoted in cause.lines)


@pytest.mark.parametrize(
    "prefix",
    ["(APIServer pid=1) ERROR 11-26 10:00:00 [serving_chat.py:7] ", "ERROR 11-26 10:00:00 serving_chat.py:7] ", ""],
)
@pytest.mark.parametrize(
    "message",
    [
        GRAPH,
        "RuntimeError: [Rank:0] FATAL ERROR :: MODULE:PT_BRIDGE Exception in Launch thread...\n"
        "Check $HABANA_LOGS/ for detailsGraph compile failed. synStatus=synStatus 26 [Generic failure].",
    ],
)
def test_explain_a_graph_that_fails_at_a_first_request_is_the_cause(prefix: str, message: str) -> None:
    """vllm-gaudi 1734: an engine within the API server prints it where it prints what failed for a client."""
    begins = ["ERROR:    Exception in ASGI application", *PREPARED[1:]]
    lines = ["INFO:     Application startup complete.", *(prefix + line for line in begins)]
    assert explain([*lines, *(prefix + line for line in message.split("\n"))], Facts(status=1)).id == "graph-compiler"


def test_explain_what_a_scheduler_had_is_not_quoted_from_a_part_of_a_log() -> None:
    """Nothing in it shows that the server listens."""
    assert "SchedulerOutput" not in texts(explain([DUMP], Facts(status=1)))


def test_explain_further_lines_of_a_prompt_are_no_last_words() -> None:
    ready = "INFO:     Application startup complete."
    assert "secret" not in texts(explain([ready, "my secret"], Facts(status=1)))
    asked = ["INFO 11-26 10:00:00 [logger.py:39] Received request a: prompt: 'first", "my secret", "last', params"]
    assert "secret" not in texts(explain([ready, *asked], Facts(status=1)))
    # Of a log that nobody knows to be a server's, too.
    assert "secret" not in texts(explain(asked, Facts(status=1)))


def test_explain_place_is_above_its_marks() -> None:
    """Python marks the part of a line of code that failed, from 3.11 on."""
    lines = ["Traceback (most recent call last):", f"  {INSTALLED}", "    a(b)", "      ~^~", "ValueError: x"]
    assert explain(lines, Facts(status=1)).lines == (INSTALLED, "a(b)", "ValueError: x")


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ("RuntimeError: at 0x7f00 of pid 17", "RuntimeError: at 0x7e01 of pid 99", True),
        ("RuntimeError: a", "RuntimeError: b", False),
        ("RuntimeError: a", "ValueError: a", False),
    ],
)
def test_explain_exception_is_compared_without_what_differs_between_starts(first: str, second: str, same: bool) -> None:
    found: list[Any] = [explain([line], Facts(status=1)).exception for line in (first, second)]
    assert all(found)
    assert (found[0] == found[1]) is same
    # A cause that passes is never compared.
    assert explain([ACQUIRE], Facts()).exception == ""
