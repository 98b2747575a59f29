"""The supervisor as systemd sees it: a real process, scripted docker and hl-smi, a real notification socket."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from gaudi.doctor import recorded
from gaudi.node.listening import listeners_at
from gaudi.node.programs import library_digest
from gaudi.serving.failure import Failure
from gaudi.serving.last_start import sized_by
from gaudi.serving.plan import LABEL_INSTANCE
from gaudi.serving.state import WAITS_FOR_LOCK
from gaudi_supervisor import clock, command_line
from gaudi_supervisor.cards import Cards
from gaudi_supervisor.engine import Docker

from tests.integration.vllm_service import record
from tests.integration.vllm_service.node import PATIENCE
from tests.integration.vllm_service.record import EngineRecord
from tests.unit.node.damages import FOR_PROGRAMS, damage
from tests.unit.node.test_turns import held
from tests.unit.vllm_service.test_guard import GUARD, application, ask

if TYPE_CHECKING:
    from tests.integration.vllm_service.node import SupervisedNode

ROOT = Path(__file__).resolve().parents[3]

KEY = b"a-key-of-sixteen"
WARM_UP = [
    "INFO 08-02 17:37:44 hpu_model_runner.py:499] Generated 3 prompt buckets: [(1, 128)]",
    "INFO 08-02 17:37:44 hpu_model_runner.py:509] Generated 2 decode buckets: [(1, 128)]",
    *[f"INFO 08-02 17:37:5{i} hpu.py:1066] [Warmup][Prompt][{i}/3] batch_size:4 seq_len:{i}28" for i in (1, 2, 3)],
    *[f"INFO 08-02 17:38:0{i} hpu.py:1066] [Warmup][Decode][{i}/2] batch_size:4 seq_len:{i}28" for i in (1, 2)],
    "INFO 08-02 17:38:43 hpu_model_runner.py:1206] Warmup finished in 49 secs, allocated 14.19 GiB of device memory",
]


def test_what_systemd_is_told_is_heard_whatever_a_test_waits_for(node: SupervisedNode) -> None:
    """The kernel keeps ten messages: a supervisor that could not send the next one would never end."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as supervisor:
        supervisor.settimeout(PATIENCE)
        for number in range(30):
            supervisor.sendto(f"STATUS={number}".encode(), str(node.root / "notify"))
    assert node.statuses == [str(number) for number in range(30)]


def test_ready_only_when_the_endpoint_answers(node: SupervisedNode) -> None:
    node.scenario(lines=["INFO: Application startup complete."], serve=False)
    process = node.start()
    node.wait_for((node.root / "container.log").exists, "the container's start")
    node.wait_for(lambda: "Application startup" in (node.root / "container.log").read_text(), "the log line")
    assert "READY=1" not in node.messages
    process.terminate()
    assert process.wait(PATIENCE) == 0


def test_serves_under_the_planned_name_and_stops_as_asked(node: SupervisedNode) -> None:
    process = node.start()
    node.wait_ready()
    assert node.state["phase"] == "serving"
    assert node.state["container_id"] == "c0" * 32
    assert node.statuses[-1] == f"serving tiny on http://127.0.0.1:{node.port}"
    # Whoever may not look at the server's processes knows its sockets by this.
    assert node.state["sockets"] == [each.inode for each in listeners_at("127.0.0.1", node.port)]
    process.terminate()
    output, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0
    assert "INFO hello" in output
    assert "drained" in output
    assert node.state["phase"] == "stopped"
    assert not node.container_exists()
    assert "STOPPING=1" in node.messages


def test_a_record_has_the_lines_of_a_start_alone(node: SupervisedNode) -> None:
    """The record knows a start by the supervisor's own lines, without which it would have none of it, or too much."""
    process = node.start()
    node.wait_ready()
    process.terminate()
    output, _ = process.communicate(timeout=PATIENCE)
    # As the journal has them: without priorities.
    lines = [re.sub(r"^<[2-7]>", "", line) for line in output.splitlines()]
    found = list(recorded.before_readiness(lines))
    assert found[:1] == ["gaudi-serving: Starting container vllm-tiny on modules 0, 1."]
    assert "INFO hello" in found
    assert (
        lines[lines.index(found[0]) + len(found)].lower()
        == f"gaudi-serving: serving tiny on http://127.0.0.1:{node.port}."
    )


def test_a_line_of_a_container_is_no_emergency_of_the_node(node: SupervisedNode) -> None:
    """journald reads a priority at the beginning of a line; each line passed on has ours."""
    node.scenario(lines=["<0>the node is on fire\x1b[2J\x1b]0;owned\x07", "\u202etxet"])
    process = node.start()
    node.wait_ready()
    process.terminate()
    output, _ = process.communicate(timeout=PATIENCE)
    assert "<6><0>the node is on fire\n" in output
    assert "<6>?txet\n" in output
    assert [line for line in output.splitlines() if not line.isprintable() or not re.match("<[2-7]>", line)] == []


def test_another_model_behind_the_port_is_not_ready(node: SupervisedNode) -> None:
    node.scenario(model="somebody-else")
    process = node.start()
    node.wait_for(lambda: len(node.requests) > 6, "some looks at the endpoint")
    assert "READY=1" not in node.messages
    assert {"/health", "/v1/models"} <= set(node.requests)
    process.terminate()
    assert process.wait(PATIENCE) == 0


def test_the_container_is_run_as_planned(node: SupervisedNode) -> None:
    process = node.start()
    node.wait_ready()
    process.terminate()
    process.wait(PATIENCE)
    run = next(call for call in node.calls if call[0] == "run")
    text = " ".join(run)
    weights = node.weights
    for words in (
        "run --sig-proxy=false --pull never --name vllm-tiny",
        "--runtime habana --network host --ipc private --shm-size 2048m --pids-limit 512",
        "--pids-limit 512 --cap-drop ALL --cap-add SYS_NICE",
        "--security-opt no-new-privileges --read-only --tmpfs /scratch:rw,exec,nosuid,nodev,size=64m,mode=1777",
        "--ulimit core=0:0 --ulimit nofile=1048576:1048576",
        f"--mount type=bind,source={weights},target={weights},readonly",
        "--label gaudi-serving.instance=tiny --label gaudi-serving.plan=",
        f"--env-file {node.instances / 'environment'} --env HF_HUB_OFFLINE=1 --env TRANSFORMERS_OFFLINE=1 "
        "--env HF_MODULES_CACHE=/dev/null/trust_remote_code_is_off --label",
        "--log-driver local --log-opt max-size=20m --log-opt max-file=2 --env HABANA_VISIBLE_DEVICES=3,5",
        # A ready-made image has an entry point of its own.
        "--entrypoint  registry/image:1 numactl",
        f"registry/image:1 numactl -C 0-7 -p 0 python3 -m vllm.entrypoints.openai.api_server --port {node.port}",
    ):
        assert words in text
    assert "--privileged" not in text
    assert node.state["cards"] == [
        {"module_id": 0, "serial": "AN0", "index": 5},
        {"module_id": 1, "serial": "AN1", "index": 3},
    ]


@pytest.mark.report("S03")
def test_a_slow_warm_up_is_shown_and_given_time(node: SupervisedNode) -> None:
    node.scenario(lines=WARM_UP, delay=0.75)
    process = node.start("--stall", "5")
    node.wait_ready()
    assert "warm-up: prompt 1/3, decode 0/2" in node.statuses
    assert "warm-up: prompt 2/3, decode 0/2; less than a minute left" in node.statuses
    assert "warm-up: prompt 3/3, decode 2/2; less than a minute left" in node.statuses
    assert "warm-up took 49 s; waiting for the endpoint to answer" in node.statuses
    extensions = [message for message in node.messages if message.startswith("EXTEND_TIMEOUT_USEC=")]
    assert len(extensions) >= len(WARM_UP)
    assert node.state["warm_up"] == {"prompt": [3, 3], "decode": [2, 2]}
    assert node.state["warm_up_seconds"] == 49
    # A later plan knows by it whether the KV blocks that were logged are still to be expected.
    assert node.state["sized_by"] == sized_by(json.loads((node.instances / "plan.json").read_text()))
    process.terminate()
    assert process.wait(PATIENCE) == 0


def test_a_start_is_remembered_and_foretells_the_next_one(node: SupervisedNode) -> None:
    node.scenario(lines=WARM_UP)
    for wait in (lambda: len(node.state["starts"]) == 1, lambda: len(node.state["starts"]) == 2):
        process = node.start()
        node.wait_ready()
        node.wait_for(wait, "the record")
        process.terminate()
        assert process.wait(PATIENCE) == 0
    first, second = reversed(node.state["starts"])
    assert first["plan"] == second["plan"] == node.state["plan"]
    assert (first["graphs"], first["warm_up_seconds"]) == (5, 49)
    # Before the second one has shown a graph, the first one tells how long it takes.
    assert "starting the server; the last start with this plan took less than a minute" in node.statuses
    assert "warm-up: prompt 1/3, decode 0/2; less than a minute left" in node.statuses


def test_a_recorded_start_of_eight_workers_is_followed_and_remembered(node: SupervisedNode) -> None:
    """Bars of all workers in lines parted by carriage returns, with other processes' text behind them."""
    recorded = Path(__file__).parents[2] / "unit/serving/recorded/start__0.26.0_gaudi2_tp8__qwen3-235b.txt"
    node.scenario(lines=recorded.read_bytes().decode().split("\n"))
    process = node.start()
    node.wait_ready()
    node.wait_for(lambda: len(node.state["starts"]) == 1, "the record")
    process.terminate()
    assert process.wait(PATIENCE) == 0
    whole = {"prompt": 120, "decode": 85, "validation/prompt": 10, "validation/decode": 1}
    assert node.state["warm_up"] == {name: [count, count] for name, count in whole.items()}
    (start,) = node.state["starts"]
    assert (start["graphs"], start["warm_up_seconds"]) == (216, 656)


def test_a_start_that_another_supervisor_began_is_not_timed(node: SupervisedNode) -> None:
    node.scenario(lines=WARM_UP, until="warm")
    process = node.start()
    node.wait_for(lambda: "warm-up: prompt 1/3, decode 0/2" in node.statuses, "the warm-up")
    process.kill()
    process.wait(PATIENCE)
    process = node.start()
    node.wait_for(lambda: "attached to the running container" in node.statuses, "the second supervisor")
    (node.root / "warm").touch()
    node.wait_ready()
    assert node.state["starts"] == []
    process.terminate()
    assert process.wait(PATIENCE) == 0


def test_a_start_that_gets_on_for_too_long_is_ended(node: SupervisedNode) -> None:
    lines = [f"[Warmup][Prompt][{place}/500] batch_size:1 seq_len:{place}" for place in range(1, 400)]
    node.scenario(lines=lines, delay=0.1)
    code, output = node.run("--longest-start", "1")
    assert code == 75
    assert "The start is not done after less than a minute (vllm_service_longest_start): warm-up: prompt" in output
    assert node.state["reason"]["kind"] == "start-timeout"
    assert not node.container_exists()


def test_thousands_of_bars_displace_no_cause(node: SupervisedNode) -> None:
    bars = "\r".join(f"Prompt warmup processing:   5%|▍         | {done}/999 [00:34<06:50]" for done in range(999))
    cause = "(EngineCore_DP0 pid=7) ERROR 09-10 18:54:38 [core.py:1385] ValueError: nobody knows why"
    node.scenario(lines=[bars + cause, bars], exit=1)
    code, _ = node.run()
    assert code == 75
    assert 'Its last words: "ValueError: nobody knows why".' in node.state["reason"]["message"]


def test_large_weights_may_load_for_long_without_a_word(node: SupervisedNode) -> None:
    os.truncate(node.weights / "model.safetensors", 20 * 10**9)
    loaded = "INFO 07-02 17:37:52 x.py:191] Loading model weights took 14.97 GiB (14.97 GiB/94.62 GiB used)"
    node.scenario(lines=["INFO hello", "INFO still there", loaded], delay=3, serve=False)
    code, output = node.run("--stall", "1")
    # The time is that of the weights alone.
    assert code == 75
    assert "The weights have 20.0 GB" in output
    assert "No sign of progress for 1 s while weights loaded" in output
    extensions = [int(message.partition("=")[2]) / 1e6 for message in node.messages if "EXTEND_TIMEOUT" in message]
    assert max(extensions) > 200
    assert extensions[-1] < 100
    assert node.state["loading"]["bytes"] == 20 * 10**9


def test_servers_that_gave_up_waiting_end_a_start_whose_engines_go_on(node: SupervisedNode) -> None:
    """Data-parallel servers wait 600 s in processes of their own; the engines would draw bars for hours."""
    bars = [f"Prompt warmup processing:   5%|▍         | {done}/400 [00:34<06:50]" for done in range(400)]
    gave_up = (
        "(ApiServer_0 pid=9) TimeoutError: Timed out waiting for engine core processes to start. This is often caused"
        " by slow weight loading for large models. Waited 600s (configured by VLLM_ENGINE_READY_TIMEOUT_S)."
    )
    node.scenario(lines=[*bars[:3], gave_up, *bars[3:]], delay=0.1)
    code, output = node.run()
    assert code == 78
    assert "The API servers gave up waiting after 600 s, while the engines went on (warm-up: prompt " in output
    assert node.state["reason"]["kind"] == "engine-ready-timeout"
    assert not node.container_exists()


def taken_over_busy(node: SupervisedNode) -> subprocess.Popen[str]:
    """The supervisor that follows one that was killed, once it reads the lines of a server that does not answer."""
    first = node.start()
    node.wait_ready()
    (node.root / "unwell").touch()
    first.kill()
    first.communicate()
    second = node.start()

    def is_heard() -> bool:
        if not (node.root / "say").exists():
            node.say("[Warmup][Prompt][1/2] batch_size:1 seq_len:1")
        return bool(node.state.get("attached") and node.state.get("warm_up"))

    node.wait_for(is_heard, "a line that the second supervisor reads")
    node.wait_for(lambda: not (node.root / "say").exists(), "the last line")
    return second


def test_text_of_a_client_gives_up_no_server_that_a_new_supervisor_finds_busy(node: SupervisedNode) -> None:
    """Releases before 1.22 print each prompt."""
    prompt = "TimeoutError: Timed out waiting for engine core processes to start. Waited 600s"
    second = taken_over_busy(node)
    node.say(f"INFO 08-02 17:37:52 [logger.py:41] Received request cmpl-1: prompt: '{prompt}'")
    node.wait_for(lambda: not (node.root / "say").exists(), "the line")
    looks = node.requests.count("/health")
    node.wait_for(lambda: second.poll() is not None or node.requests.count("/health") > looks + 3, "some looks")
    (node.root / "unwell").unlink()
    node.wait_for(lambda: second.poll() is not None or node.state["phase"] == "serving", "service")
    assert second.poll() is None
    second.terminate()
    assert second.wait(PATIENCE) == 0


@pytest.mark.parametrize(
    "said", ["ValueError: nobody foresaw this prompt", "ValueError: No available memory for the cache"]
)
def test_no_text_of_a_client_counts_in_an_end_that_a_new_supervisor_sees(node: SupervisedNode, said: str) -> None:
    """Two ends with the same exception, and some causes, keep a server that never served from another attempt."""
    second = taken_over_busy(node)
    node.crash(said)
    assert second.wait(PATIENCE) == 75
    assert node.state["reason"]["retry"] is True
    assert "exception" not in node.state["reason"]


def test_the_same_line_again_and_again_is_no_progress(node: SupervisedNode) -> None:
    lines = [f"INFO 08-02 17:37:{i} x.py:1] waiting for a peer" for i in range(10, 60)]
    node.scenario(lines=lines, delay=0.1, serve=False)
    code, output = node.run("--stall", "1")
    assert code == 75
    assert "No sign of progress for 1 s while starting the server" in output
    assert node.state["reason"]["kind"] == "stalled"
    assert not node.container_exists()


ENDS = [
    ("RuntimeError: synStatus=20 [Device already acquired] Device acquire failed.", 1, "card-busy", 75),
    ("RuntimeError: [Rank:0] FATAL ERROR :: MODULE:PT_DEVMEM Allocation failed", 1, "out-of-device-memory", 78),
    ("ValueError: No available memory for the cache blocks. Try increasing", 1, "kv-cache-too-small", 78),
    ("api_server.py: error: unrecognized arguments: --nonsense 1", 2, "unknown-argument", 78),
    ("OSError: [Errno 98] error while attempting to bind: address already in use", 1, "port-taken", 75),
    ("safetensors_rust.SafetensorError: Error while deserializing header", 1, "weights-incomplete", 78),
    ("no habanalabs devices found. driver might not be loaded", 1, "cards-not-offered", 75),
    ("ValueError: something nobody foresaw", 1, "server-ended", 75),
    ("INFO all was well", 137, "container-killed", 75),
]


@pytest.mark.parametrize(("line", "status", "kind", "code"), ENDS, ids=[end[2] for end in ENDS])
def test_an_end_has_a_reason(node: SupervisedNode, line: str, status: int, kind: str, code: int) -> None:
    node.scenario(lines=["INFO starting", line], exit=status)
    got, output = node.run()
    assert got == code
    reason = node.state["reason"]
    assert reason["kind"] == kind
    assert reason["message"] in output
    assert node.statuses[-1] == f"{reason['message']} [{kind}]"
    assert node.state["phase"] == "failed"


def test_the_advice_knows_how_far_the_server_was(node: SupervisedNode) -> None:
    lines = ["RuntimeError: [Rank:0] FATAL ERROR :: MODULE:PT_DEVMEM Allocation failed for size::9 (8)MB"]
    node.scenario(lines=lines, exit=1)
    node.run()
    assert "The weights do not fit" in node.state["reason"]["message"]
    node.scenario(lines=[*WARM_UP[:3], *lines], exit=1)
    node.run()
    assert "Lower gpu_memory_utilization" in node.state["reason"]["message"]


REFUSALS: list[tuple[dict[str, Any], str, int]] = [
    (
        {"text": "docker: Error response from daemon: unknown or invalid runtime name: habana.", "status": 125},
        "runtime-missing",
        78,
    ),
    ({"text": "docker: Error response from daemon: something new.", "status": 125}, "container-not-started", 75),
]


@pytest.mark.parametrize(("refusal", "kind", "code"), REFUSALS, ids=[refusal[1] for refusal in REFUSALS])
def test_docker_refuses(node: SupervisedNode, refusal: dict[str, Any], kind: str, code: int) -> None:
    node.scenario(refuse=refusal)
    got, _ = node.run()
    assert (got, node.state["reason"]["kind"]) == (code, kind)


def test_the_kernels_oom_killer_is_named(node: SupervisedNode) -> None:
    node.scenario(lines=["INFO loading"], until="killed", exit=137)
    process = node.start()
    node.wait_for(node.container_runs, "the container's start")
    (node.root / "proc/vmstat").write_text("oom_kill 2\n")
    (node.root / "killed").touch()
    process.communicate(timeout=PATIENCE)
    assert node.state["reason"]["kind"] == "out-of-host-memory"


def missing_plan(node: SupervisedNode) -> None:
    (node.instances / "plan.json").unlink()


def broken_plan(node: SupervisedNode) -> None:
    (node.instances / "plan.json").write_text("{}")


def nobody_reserved(node: SupervisedNode) -> None:
    (node.root / "state/cards.lock").unlink()


def reserved_other_cards(node: SupervisedNode) -> None:
    node.reserve([{"module_id": 7, "serial": "AN7"}])


def other_serial(node: SupervisedNode) -> None:
    (node.root / "hl-smi.csv").write_text("3, 1, AN1\n5, 0, AN9\n")


def card_gone(node: SupervisedNode) -> None:
    (node.root / "hl-smi.csv").write_text("3, 1, AN1\n")


def no_driver(node: SupervisedNode) -> None:
    (node.root / "hl-smi.csv").unlink()


def no_weights(node: SupervisedNode) -> None:
    (node.weights / "config.json").unlink()


def shard_missing(node: SupervisedNode) -> None:
    index = {"weight_map": {"a": "model.safetensors", "b": "model-00002-of-00002.safetensors"}}
    (node.weights / "model.safetensors.index.json").write_text(json.dumps(index))


def fetched_shard_cut_short(node: SupervisedNode) -> None:
    entry = {"name": "model.safetensors", "size": 5, "sha256": "0"}
    record = {"source": "hub", "repository": "owner/weights", "revision": "c0", "fetched": "2026", "files": [entry]}
    (node.weights / ".gaudi-serving").mkdir()
    (node.weights / ".gaudi-serving/manifest.json").write_text(json.dumps({"schema": 1, **record}))


def converted_shard_cut_short(node: SupervisedNode) -> None:
    record = {"source": "/data/in", "tool": "fp8_dynamic", "shards": {"model.safetensors": {"bytes": 5}}}
    (node.weights / ".gaudi-serving").mkdir()
    (node.weights / ".gaudi-serving/fp8.json").write_text(json.dumps(record))


def no_image(node: SupervisedNode) -> None:
    (node.root / "no_image").touch()


def foreign_container(node: SupervisedNode) -> None:
    record.write(node.root, EngineRecord("vllm-tiny", os.getpid(), {}))


def other_environment(node: SupervisedNode) -> None:
    (node.instances / "environment").write_text("PT_HPU_LAZY_MODE=0\n")


def of_1_24(node: SupervisedNode) -> None:
    node.plan["release"] = "1.24.1"
    node.write_plan()


def one_card_translated(node: SupervisedNode) -> None:
    of_1_24(node)
    node.card("0000:33:00.0", 0, "identity")
    node.card("0000:34:00.0", 1, "DMA-FQ")
    # Another instance's.
    node.card("0000:35:00.0", 2, "DMA")


def newer_driver_translated(node: SupervisedNode) -> None:
    (node.root / "driver").write_text("1.24.1-b336d5e\n")
    node.card("0000:34:00.0", 1, "DMA")


def translated_all_the_same(node: SupervisedNode) -> None:
    one_card_translated(node)
    (node.root / "proc/cmdline").write_text("ro intel_iommu=on iommu=pt\n")


def allowed_in_a_damaged_file(node: SupervisedNode) -> None:
    one_card_translated(node)
    (node.instances / "let_through.json").write_text('{"allowed": ["iom')


TRANSLATES = "iommu-translates"
CHECKS = [
    (one_card_translated, TRANSLATES, 78, "(iommu_group/type DMA-FQ of 0000:34:00.0 (module 1), identity is required)"),
    (one_card_translated, TRANSLATES, 78, "Run playbooks/tune_host.yml with host_tuning_reboot=if_needed"),
    (newer_driver_translated, TRANSLATES, 78, "DMA of 0000:34:00.0 (module 1)"),
    (translated_all_the_same, TRANSLATES, 78, "started with iommu=pt, but the IOMMU still translates"),
    (allowed_in_a_damaged_file, TRANSLATES, 78, "let_through.json is damaged"),
    (other_environment, "plan", 78, "environment is not the environment of"),
    (missing_plan, "plan", 78, "plan.json is not there"),
    (broken_plan, "plan", 78, "schema is None"),
    (nobody_reserved, "reservation", 78, "cards.lock is not there"),
    (
        reserved_other_cards,
        "reservation",
        78,
        "The plan needs the cards 0 (AN0), 1 (AN1), reserved for tiny are 7 (AN7)",
    ),
    (other_serial, "card-replaced", 78, "module 0 has serial AN9, the plan was made for AN0"),
    (card_gone, "card-missing", 75, "The card of module 0 (serial AN0) is not there: hl-smi lists the modules 1."),
    (no_driver, "cards-not-offered", 75, "The driver does not offer the cards."),
    (no_weights, "weights-incomplete", 78, "has no config.json"),
    (shard_missing, "weights-incomplete", 78, "1 of 2 shards named in model.safetensors.index.json are missing"),
    (fetched_shard_cut_short, "weights-incomplete", 78, "fetch_weights.yml -e repository=owner/weights -e revision=c0"),
    (converted_shard_cut_short, "weights-incomplete", 78, "weights -e tool=fp8_dynamic"),
    (converted_shard_cut_short, "weights-incomplete", 78, "model.safetensors has 4 bytes: it is"),
    (no_image, "image-missing", 78, "registry/image:1 is not on this node"),
    (foreign_container, "container-name-taken", 78, "A container named vllm-tiny is there that is not ours"),
]


@pytest.mark.parametrize(("prepare", "kind", "code", "words"), CHECKS, ids=[check[0].__name__ for check in CHECKS])
def test_refused_before_a_container_starts(
    node: SupervisedNode, prepare: Any, kind: str, code: int, words: str
) -> None:
    prepare(node)
    got, output = node.run()
    record.path(node.root).unlink(missing_ok=True)
    assert (got, node.state["reason"]["kind"]) == (code, kind)
    assert words in output
    assert words in node.state["reason"]["message"]
    assert not [call for call in node.calls if call[0] == "run"] if (node.root / "calls").exists() else True


def served_by_others(node: SupervisedNode) -> None:
    of_1_24(node)
    for module, kind in ((0, "identity"), (1, "identity"), (2, "DMA")):
        node.card(f"0000:3{module}:00.0", module, kind)


def without_an_iommu(node: SupervisedNode) -> None:
    of_1_24(node)
    (node.root / "sys/bus/pci/devices/0000:33:00.0").mkdir(parents=True)
    (node.root / "sys/bus/pci/devices/0000:33:00.0/vendor").write_text("0x1da3\n")


def of_an_earlier_release(node: SupervisedNode) -> None:
    one_card_translated(node)
    node.plan["release"] = "1.23"
    node.write_plan()


def allowed_by_the_site(node: SupervisedNode) -> None:
    one_card_translated(node)
    (node.instances / "let_through.json").write_text('{"let_through": [], "allowed": ["driver", "iommu"]}')


@pytest.mark.parametrize("prepare", [served_by_others, without_an_iommu, of_an_earlier_release, allowed_by_the_site])
def test_cards_that_the_iommu_lets_through_start(
    node: SupervisedNode, prepare: Callable[[SupervisedNode], None]
) -> None:
    prepare(node)
    process = node.start()
    node.wait_ready()
    process.terminate()
    assert process.wait(PATIENCE) == 0


def test_what_runs_is_not_stopped_because_an_iommu_translates(node: SupervisedNode) -> None:
    """It shows that at its next start; so does a run, and the doctor."""
    of_1_24(node)
    first = node.start()
    node.wait_ready()
    first.kill()
    first.wait(PATIENCE)
    node.card("0000:34:00.0", 1, "DMA")
    second = node.start()
    node.wait_for(lambda: node.state.get("attached"), "the second supervisor")
    node.wait_for(lambda: node.state["phase"] == "serving", "service")
    second.terminate()
    assert second.wait(PATIENCE) == 0
    got, _output = node.run()
    assert (got, node.state["reason"]["kind"], node.state["reason"]["retry"]) == (78, TRANSLATES, False)


def test_a_taken_port_is_named_with_its_holder(node: SupervisedNode) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", node.port))
        holder.listen()
        code, _ = node.run()
    assert (code, node.state["reason"]["kind"]) == (75, "port-taken")
    assert f"(pid {os.getpid()}, uid {os.getuid()})" in node.state["reason"]["message"]


def test_a_taken_port_is_named_with_the_instance_that_has_it(node: SupervisedNode) -> None:
    other = EngineRecord("vllm-other", os.getpid(), {LABEL_INSTANCE: "other"})
    with socket.create_server(("127.0.0.1", node.port)):
        record.write(node.root, other)
        try:
            code, _ = node.run()
        finally:
            record.path(node.root).unlink()
    assert (code, node.state["reason"]["kind"]) == (75, "port-taken")
    assert "is taken by the instance other: " in node.state["reason"]["message"]
    assert "Stop it (systemctl stop vllm-other), or give one of the two" in node.state["reason"]["message"]


def test_a_killed_supervisor_is_followed_by_one_that_attaches(node: SupervisedNode) -> None:
    node.scenario(lines=WARM_UP)
    first = node.start()
    node.wait_ready()
    assert node.state["warm_up_seconds"] == 49
    pid = node.container_pid()
    first.kill()
    first.communicate()
    node.messages.clear()
    second = node.start()
    node.wait_ready()
    assert node.container_pid() == pid
    assert len([call for call in node.calls if call[0] == "run"]) == 1
    assert node.state["attached"] is True
    assert node.state["container_id"] == "c0" * 32
    assert node.state["warm_up_seconds"] == 49
    second.terminate()
    assert second.wait(PATIENCE) == 0
    assert not node.container_exists()


def test_what_the_log_says_after_the_endpoint_answered_is_in_the_state_before_the_next_look(
    node: SupervisedNode,
) -> None:
    process = node.start(FAKE_POLL_SERVING="3600")
    node.wait_ready()
    assert node.state["warm_up_seconds"] is None
    node.say("INFO 01-01 00:00:00 hpu_model_runner.py:1] Warmup finished in 49 secs, allocated 1 GiB")
    node.wait_for(lambda: node.state["warm_up_seconds"] == 49, "the late line in the state")
    assert node.state["phase"] == "serving"
    process.terminate()
    assert process.wait(PATIENCE) == 0


def killed_before_another_plan(node: SupervisedNode) -> int:
    """Have a container serve whose supervisor was killed and whose plan is another one by now; returns its process."""
    first = node.start()
    node.wait_ready()
    pid = node.container_pid()
    first.kill()
    first.communicate()
    node.plan["environment"]["VLLM_SKIP_WARMUP"] = "true"
    node.write_plan()
    node.messages.clear()
    return pid


def test_a_container_of_an_older_plan_is_drained_while_the_watchdog_is_fed(node: SupervisedNode) -> None:
    killed_before_another_plan(node)
    with ThreadPoolExecutor() as pool:
        answer = ask_slowly(node, pool)
        second = node.start(WATCHDOG_USEC="200000")
        node.wait_for(lambda: node.messages.count("WATCHDOG=1") > 2, "WATCHDOG=1 while it drains")
        assert not [call for call in node.calls if call[0] == "stop"]
        (node.root / "slow-may-end").touch()
        assert answer.result() == 200
    node.wait_ready()
    second.terminate()
    output, _ = second.communicate(timeout=PATIENCE)
    assert "No request runs any more: stopping the server. Removed the container vllm-tiny." in output


def test_a_container_of_an_older_plan_that_served_nobody_is_not_waited_for(node: SupervisedNode) -> None:
    """Nor does an address end anything that no state of ours has."""
    killed_before_another_plan(node)
    node.state_file.write_text(json.dumps({**node.state, "endpoint": "nowhere"}))
    second = node.start()
    node.wait_ready()
    second.terminate()
    output, _ = second.communicate(timeout=PATIENCE)
    assert "<6>gaudi-serving: Removed the container vllm-tiny." in output


def test_a_container_of_an_older_plan_is_replaced(node: SupervisedNode) -> None:
    pid = killed_before_another_plan(node)
    second = node.start()
    node.wait_ready()
    assert node.container_pid() != pid
    second.terminate()
    assert second.wait(PATIENCE) == 0


def test_hands_over_to_the_program_on_disk(node: SupervisedNode) -> None:
    process = node.start()
    node.wait_ready()
    pid = node.container_pid()
    node.messages.clear()
    process.send_signal(signal.SIGHUP)
    node.wait_ready()
    assert process.poll() is None
    assert node.container_pid() == pid
    assert node.state["pid"] == process.pid
    assert node.state["failures"] == 0
    process.terminate()
    output, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0
    assert "Handing over to the supervisor on disk" in output
    assert not node.container_exists()


def test_a_stop_right_after_a_reload_is_not_lost(node: SupervisedNode) -> None:
    process = node.start()
    node.wait_ready()
    process.send_signal(signal.SIGHUP)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=PATIENCE)
    assert process.returncode == 0
    assert node.state["phase"] == "stopped"
    assert not node.container_exists()


def install_library(node: SupervisedNode, name: str) -> None:
    """Make a library current in one rename, as the module node_files does."""
    programs = node.root / "programs"
    shutil.copytree(ROOT / "module_utils/gaudi", programs / name / "gaudi")
    (programs / "link").symlink_to(f"{name}/gaudi")
    (programs / "link").replace(programs / "gaudi")


def test_a_new_library_is_read_by_the_supervisor_alone(node: SupervisedNode) -> None:
    (node.root / "programs").mkdir()
    install_library(node, "library-one")
    module = node.root / "programs/library-one/gaudi/serving/answers.py"
    whole = module.read_text()
    # Somebody's hand; what the role puts right has the same name as before.
    module.write_text(f"{whole}# by hand\n")
    process = node.start()
    node.wait_ready()
    pid, started, edited = node.container_pid(), node.state["started"], node.state["library"]
    module.write_text(whole)
    assert library_digest(node.root / "programs/gaudi") != edited
    node.messages.clear()
    process.send_signal(signal.SIGHUP)
    node.wait_ready()
    assert node.state["library"] == library_digest(node.root / "programs/gaudi")
    assert (node.state["pid"], node.container_pid(), node.state["started"]) == (process.pid, pid, started)
    process.terminate()
    assert process.wait(PATIENCE) == 0


def test_a_program_that_was_replaced_while_it_was_read_is_no_current_one(node: SupervisedNode) -> None:
    programs = node.root / "programs"
    shutil.copytree(ROOT / "roles/vllm_service/files", programs)
    # A run of the playbook replaces a file that was read already, while a later one is read.
    read_last = programs / "gaudi_supervisor/run.py"
    read_last.write_text(
        f"{read_last.read_text()}\nwith open({str(programs / 'gaudi_supervisor/clock.py')!r}, 'a') as out:\n"
        "    out.write('# newer\\n')\n"
    )
    process = node.start()
    node.wait_ready()
    assert node.state["program"] == ""
    assert node.state["library"] == library_digest(ROOT / "module_utils/gaudi")
    process.terminate()
    assert process.wait(PATIENCE) == 0


def test_without_the_library_the_supervisor_says_so() -> None:
    program = ROOT / "roles/vllm_service/files/vllm_supervisor.py"
    ran = subprocess.run(
        [sys.executable, "-s", "-E", str(program), "run", "tiny"], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 1
    assert ran.stderr == (
        f"No module named 'gaudi': what lies beside {program} is missing or damaged. Run the playbook, which "
        "installs it.\n"
    )


def ask_slowly(node: SupervisedNode, pool: ThreadPoolExecutor) -> Future[int]:
    """Ask the server something that runs until the file slow-may-end is there."""
    url = f"http://127.0.0.1:{node.port}/slow"
    answer = pool.submit(lambda: int(urllib.request.urlopen(url, timeout=PATIENCE).status))
    requests = node.root / "requests"
    node.wait_for(lambda: requests.exists() and "/slow" in requests.read_text(), "the request")
    return answer


def test_requests_in_flight_finish_before_the_container_is_stopped(node: SupervisedNode) -> None:
    process = node.start()
    node.wait_ready()
    with ThreadPoolExecutor() as pool:
        answer = ask_slowly(node, pool)
        process.terminate()
        node.wait_for(lambda: any("draining: 1 in flight" in said for said in node.statuses), "draining")
        assert not [call for call in node.calls if call[0] == "stop"]
        (node.root / "slow-may-end").touch()
        assert answer.result() == 200
    output, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0
    assert "No request runs any more: stopping the server." in output
    assert not node.container_exists()


def test_what_still_runs_after_the_grace_period_is_cut_and_that_is_said(node: SupervisedNode) -> None:
    process = node.start("--stop-grace", "3")
    node.wait_ready()
    with ThreadPoolExecutor() as pool:
        answer = ask_slowly(node, pool)
        process.terminate()
        output, _ = process.communicate(timeout=PATIENCE)
        assert answer.exception() is not None
    assert process.returncode == 0
    assert "After 3 s requests are cut that still run: 1." in output


@pytest.mark.parametrize("told", [False, "x", "inf", "NaN", "-1e999"])
def test_a_server_that_does_not_count_its_requests_is_stopped_and_that_is_said(
    node: SupervisedNode, told: object
) -> None:
    node.scenario(metrics=told)
    process = node.start()
    node.wait_ready()
    process.terminate()
    output, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0
    assert "so streams in flight are cut." in output


def test_a_server_that_finishes_requests_itself_is_given_the_time(node: SupervisedNode) -> None:
    node.scenario(metrics=False)
    node.plan["arguments"] += ["--shutdown-timeout", "60"]
    node.write_plan()
    process = node.start()
    node.wait_ready()
    with ThreadPoolExecutor() as pool:
        answer = ask_slowly(node, pool)
        process.terminate()
        node.wait_for(lambda: [call for call in node.calls if call[:3] == ["stop", "-t", "70"]], "a stop with time")
        (node.root / "slow-may-end").touch()
        assert answer.result() == 200
    output, _ = process.communicate(timeout=PATIENCE)
    assert "it has 60 s to finish them." in output


def test_a_guarded_server_lets_nobody_in_while_it_drains(node: SupervisedNode) -> None:
    node.guard(KEY.decode())
    process = node.start()
    node.wait_ready()
    closed = node.state_file.parent / "door/closed"
    assert not closed.exists()
    assert [call for call in node.calls if call[0] == "run" and f"source={closed.parent}" in " ".join(call)]
    with ThreadPoolExecutor() as pool:
        answer = ask_slowly(node, pool)
        process.terminate()
        node.wait_for(closed.exists, "the closed door")
        assert through_the_guard(node)["status"] == 503
        (node.root / "slow-may-end").touch()
        assert answer.result() == 200
    assert process.wait(PATIENCE) == 0
    node.messages.clear()
    node.start()
    node.wait_ready()
    assert not closed.exists()
    assert through_the_guard(node)["type"] == "through"


def through_the_guard(node: SupervisedNode) -> dict[str, Any]:
    """How the guard of the container answers a new request with the right key."""
    (run,) = [call for call in node.calls if call[0] == "run"][-1:]
    seen = {target: source for source, target in re.findall(r"source=([^,]+),target=([^,]+),readonly", " ".join(run))}
    keys, door = Path(seen[str(GUARD.KEYS.parent)], GUARD.KEYS.name), Path(seen[str(GUARD.DOOR)])
    (answered, *_) = ask(GUARD.ApiKeyGuard(application, keys, door), (b"authorization", b"Bearer " + KEY))
    return answered


def test_a_state_that_cannot_be_written_ends_nothing(node: SupervisedNode) -> None:
    process = node.start()
    node.wait_ready()
    # Even root cannot write a file below what is none.
    folder = node.state_file.parent
    with node.stopped(process):
        aside = folder.rename(folder.with_name("aside"))
        folder.touch()
    (node.root / "unwell").touch()
    node.wait_for(lambda: any("not answering" in said for said in node.statuses), "the server being unwell")
    # systemd is told first; who asks again has tried to write.
    asked = len(node.requests)
    node.wait_for(lambda: len(node.requests) > asked, "the next look")
    with node.stopped(process):
        folder.unlink()
        aside.rename(folder)
    (node.root / "unwell").unlink()
    node.messages.clear()
    node.wait_for(lambda: any("serving" in said for said in node.statuses), "the server being well")
    node.wait_for(lambda: node.state["status"].startswith("serving"), "the state")
    assert process.poll() is None
    process.terminate()
    output, _ = process.communicate(timeout=PATIENCE)
    assert output.count("state.json cannot be written") == 1
    assert output.count("state.json can be written again") == 1


@pytest.mark.parametrize("kind", FOR_PROGRAMS)
def test_a_damaged_state_ends_nothing(kind: str, node: SupervisedNode) -> None:
    process = node.start()
    node.wait_ready()
    process.kill()
    process.communicate(timeout=PATIENCE)
    damage(node.state_file, kind)
    node.messages.clear()
    successor = node.start()
    node.wait_ready()
    assert node.state["phase"] == "serving"
    successor.terminate()
    output, _ = successor.communicate(timeout=PATIENCE)
    assert "Attached to the running container" in output
    assert f"{node.state_file} is damaged: it " in output


@pytest.mark.parametrize("kind", FOR_PROGRAMS)
@pytest.mark.parametrize("file", ["plan.json", "environment"])
def test_a_damaged_file_is_named(file: str, kind: str, node: SupervisedNode) -> None:
    path = node.instances / file
    damage(path, kind)
    code, output = node.run()
    assert code == 78
    assert path.name in output
    assert "Run site.yml, which writes it." in output
    assert "Traceback" not in output


@pytest.mark.parametrize("kind", ["empty", "other types", "a directory", "a dangling link"])
def test_damaged_reservations_are_made_up_for(kind: str, node: SupervisedNode) -> None:
    damage(node.root / "state/cards.lock", kind)
    process = node.start()
    node.wait_ready()
    process.terminate()
    output, _ = process.communicate(timeout=PATIENCE)
    assert "cards.lock is damaged: it " in output
    assert "taken from the plans of tiny" in output


def test_an_attached_instance_lets_requests_in_again(node: SupervisedNode) -> None:
    """Its predecessor was killed while it drained."""
    node.guard("a-key-of-sixteen")
    process = node.start()
    node.wait_ready()
    closed = node.state_file.parent / "door/closed"
    with ThreadPoolExecutor() as pool:
        answer = ask_slowly(node, pool)
        process.terminate()
        node.wait_for(closed.exists, "the closed door")
        process.kill()
        process.communicate(timeout=PATIENCE)
        node.messages.clear()
        successor = node.start()
        node.wait_ready()
        assert not closed.exists()
        (node.root / "slow-may-end").touch()
        assert answer.result() == 200
    successor.terminate()
    assert successor.wait(PATIENCE) == 0


def test_a_server_that_is_slow_to_count_is_asked_again(node: SupervisedNode) -> None:
    process = node.start()
    node.wait_ready()
    (node.root / "no-metrics").touch()
    process.terminate()
    node.wait_for(lambda: node.state["phase"] == "draining", "draining")
    node.wait_for(lambda: "/metrics" in (node.root / "requests").read_text(), "a question")
    assert not [call for call in node.calls if call[0] == "stop"]
    (node.root / "no-metrics").unlink()
    output, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0
    assert "No request runs any more" in output


def test_nothing_is_handed_over_while_another_plan_lies_on_the_disk(node: SupervisedNode) -> None:
    process = node.start()
    node.wait_ready()
    pid = node.container_pid()
    node.plan["served_model_name"] = "another"
    node.write_plan()
    asked = len(node.calls)
    process.send_signal(signal.SIGHUP)
    node.wait_for(lambda: len(node.calls) > asked, "the question which container runs")
    (node.root / "unwell").touch()
    node.wait_for(lambda: node.state["phase"] == "not-answering", "the next look")
    assert (process.poll(), node.container_pid()) == (None, pid)
    process.kill()
    output, _ = process.communicate(timeout=PATIENCE)
    assert "Not handing over: the plan on the disk is another one" in output


# What labels said of a guard: that there is one, or which; the one on the disk may be newer.
GUARDED = (b"guarded", b"guarded by " + hashlib.sha256(b"another guard").hexdigest().encode())


def container_of_an_earlier_release(node: SupervisedNode, guarded: bytes = GUARDED[0]) -> None:
    """Have a guarded container run whose plan does not name the guard."""
    process = node.start()
    node.wait_ready()
    process.kill()
    process.communicate()
    node.guard_of_an_earlier_release("a-key-of-sixteen")
    container = node.container
    parts = ((node.instances / "plan.json").read_bytes(), (node.instances / "environment").read_bytes(), guarded)
    container.labels["gaudi-serving.plan"] = hashlib.sha256(b"\0".join(parts)).hexdigest()
    record.write(node.root, container)
    node.messages.clear()


@pytest.mark.parametrize("guarded", GUARDED)
def test_a_container_of_an_earlier_release_is_taken_over(node: SupervisedNode, guarded: bytes) -> None:
    container_of_an_earlier_release(node, guarded)
    pid = node.container_pid()
    process = node.start()
    node.wait_ready()
    # Its guard knows no token, only the keys as 0.1 kept them.
    assert node.tokens[-1] == "a-key-of-sixteen"
    node.messages.clear()
    process.send_signal(signal.SIGHUP)
    node.wait_ready()
    assert (process.poll(), node.container_pid()) == (None, pid)
    process.terminate()
    assert process.wait(PATIENCE) == 0


def test_a_guarded_container_of_an_earlier_release_that_ended_is_not_replaced_by_an_open_one(
    node: SupervisedNode,
) -> None:
    container_of_an_earlier_release(node)
    assert node.run(action="clean")[0] == 0
    (node.root / "calls").unlink()
    code, output = node.run()
    assert (code, node.state["reason"]["kind"]) == (78, "keys")
    assert "Run site.yml, which writes it." in output
    assert not [call for call in node.calls if call[0] == "run"]


class Thief(ThreadingHTTPServer):
    """Somebody on the node who answers as the server would, and keeps what he gets."""

    def __init__(self, port: int) -> None:
        super().__init__(("127.0.0.1", port), ThiefHandler)
        self.got: list[str] = []
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()


class ThiefHandler(BaseHTTPRequestHandler):
    """One request."""

    server: Thief

    def do_GET(self) -> None:
        self.server.got.append(f"{self.path} {self.headers.get('Authorization')}")
        body = json.dumps({"data": [{"id": "tiny"}]}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_arguments: Any) -> None:
        """Say nothing."""


@pytest.mark.parametrize("guarded", [False, True])
def test_who_takes_the_port_first_gets_nothing_and_is_not_ready(node: SupervisedNode, guarded: bool) -> None:
    if guarded:
        node.guard("a-key-of-sixteen")
    node.scenario(lines=["INFO loading"], serve=False)
    process = node.start()
    node.wait_for(node.container_runs, "the container's start")
    thief = Thief(node.port)
    process.communicate(timeout=PATIENCE)
    thief.shutdown()
    thief.server_close()
    assert (process.returncode, thief.got) == (75, [])
    assert "READY=1" not in node.messages
    assert node.state["reason"]["kind"] == "port-taken"
    assert (
        f"(pid {os.getpid()}, uid {os.getuid()}), which is not of the container vllm-tiny"
        in (node.state["reason"]["message"])
    )
    assert not node.container_exists()


def test_who_takes_the_port_of_a_server_that_has_lost_it_gets_nothing(node: SupervisedNode) -> None:
    node.guard("a-key-of-sixteen")
    process = node.start("--unhealthy", "1")
    node.wait_ready()
    os.kill(node.container_pid(), signal.SIGUSR1)
    node.wait_for(lambda: node.statuses[-1].startswith("not answering"), "the closed port")
    thief = Thief(node.port)
    process.communicate(timeout=PATIENCE)
    thief.shutdown()
    thief.server_close()
    assert (process.returncode, thief.got) == (75, [])
    assert node.state["reason"]["kind"] == "not-answering"


def no_key_file(node: SupervisedNode) -> None:
    (node.instances / "guard/keys.json").unlink()


def empty_key_file(node: SupervisedNode) -> None:
    (node.instances / "guard/keys.json").write_text("")


def keys_themselves(node: SupervisedNode) -> None:
    (node.instances / "guard/keys.json").write_text("a-key-of-sixteen\n")


def another_form(node: SupervisedNode) -> None:
    (node.instances / "guard/keys.json").write_text('{"schema": 1, "keys": [{"name": "x"}]}')


def no_guard(node: SupervisedNode) -> None:
    (node.root / "programs/guard/gaudi_guard.py").unlink()


def no_middleware(node: SupervisedNode) -> None:
    node.plan["arguments"] = node.plan["arguments"][:-2]
    node.write_plan()


def no_mount(node: SupervisedNode) -> None:
    node.plan["container"]["mounts"] = node.plan["container"]["mounts"][:-1]
    node.write_plan()


@pytest.mark.parametrize(
    ("damage_it", "kind"),
    [
        (no_key_file, "keys"),
        (empty_key_file, "keys"),
        (keys_themselves, "keys"),
        (another_form, "keys"),
        (no_guard, "guard-missing"),
        (no_middleware, "plan"),
        (no_mount, "plan"),
    ],
)
def test_what_is_guarded_never_starts_without_its_guard(node: SupervisedNode, damage_it: Any, kind: str) -> None:
    node.guard("a-key-of-sixteen")
    damage_it(node)
    code, output = node.run()
    assert (code, node.state["reason"]["kind"]) == (78, kind)
    assert "Run site.yml, which writes it." in output
    assert not (node.root / "calls").exists() or not [call for call in node.calls if call[0] == "run"]


def test_a_supervisor_without_anything_to_ask_with_says_so_and_tries_again(node: SupervisedNode) -> None:
    node.guard("a-key-of-sixteen")
    # Where its own token's digest goes for the guard.
    door = node.state_file.parent / "door"
    door.parent.mkdir(parents=True, exist_ok=True)
    door.write_text("")
    code, output = node.run()
    assert (code, node.state["reason"]["kind"]) == (75, "probe")
    assert "The supervisor has nothing to ask its server with" in output
    assert not node.container_exists()


def test_a_node_without_the_docker_command_is_told_which_role_brings_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(Failure, match="The docker command is not installed") as found:
        Docker().answers()
    assert (found.value.reason.kind, found.value.reason.retry) == ("engine-missing", False)


def test_a_guarded_instance_without_any_key_starts_and_lets_nobody_in(node: SupervisedNode) -> None:
    """Its keys are made later, with playbooks/keys.yml."""
    node.guard()
    process = node.start()
    node.wait_ready()
    process.terminate()
    assert process.wait(PATIENCE) == 0


def test_the_supervisor_asks_with_a_token_of_its_own_for_each_start(node: SupervisedNode) -> None:
    node.guard("a-key-of-sixteen")
    token_file = node.state_file.parent / "probe"
    seen = []
    for _ in range(2):
        node.messages.clear()
        process = node.start()
        node.wait_ready()
        seen.append(token_file.read_text().strip())
        assert set(node.tokens) <= set(seen), "never a client's key"
        process.terminate()
        assert process.wait(PATIENCE) == 0
    assert len(set(seen)) == 2
    assert oct(token_file.stat().st_mode & 0o777) == "0o600"
    # In no argument, and in nothing that the container sees.
    assert not [call for call in node.calls if set(seen) & set(" ".join(call).split())]
    assert seen[-1] not in (token_file.parent / "door/probe").read_text()


def test_a_successor_asks_with_the_token_of_the_server_that_runs(node: SupervisedNode) -> None:
    node.guard("a-key-of-sixteen")
    process = node.start()
    node.wait_ready()
    token = (node.state_file.parent / "probe").read_text()
    process.kill()
    process.communicate()
    for lost in (False, True):
        if lost:
            (node.state_file.parent / "probe").unlink()
        node.messages.clear()
        successor = node.start()
        node.wait_ready()
        assert ((node.state_file.parent / "probe").read_text() == token) is not lost
        successor.kill()
        successor.communicate()


def test_what_clients_ask_for_does_not_push_the_reason_out(node: SupervisedNode) -> None:
    asked = [f'INFO:     127.0.0.1:{number} - "GET /?x HTTP/1.1" 401 Unauthorized' for number in range(1, 500)]
    node.scenario(lines=["api_server.py: error: unrecognized arguments: --nonsense", *asked], exit=2)
    code, _ = node.run()
    assert (code, node.state["reason"]["kind"]) == (78, "unknown-argument")


def test_who_may_ask_without_a_key_is_shown_with_its_reason(node: SupervisedNode) -> None:
    node.plan["listen"]["open_without_keys"] = "the gateway asks for keys"
    node.write_plan()
    process = node.start()
    node.wait_ready()
    assert node.state["status"].endswith("open to others without keys: the gateway asks for keys")
    process.terminate()
    assert process.wait(PATIENCE) == 0


def test_a_changed_unit_has_systemd_start_the_supervisor_anew(node: SupervisedNode) -> None:
    unit = node.root / "vllm-tiny.service"
    unit.write_text("[Service]\n")
    driver = Path(__file__).resolve().parent / "driver.py"
    words = [sys.executable, str(driver), "run", "tiny", "--first-pause", "0.1"]
    (node.root / "systemctl").write_text(
        f"FragmentPath={unit}\nDropInPaths=\nNeedDaemonReload=no\nExecStart={{ argv[]={' '.join(words)} ; pid=0 }}\n"
    )
    process = node.start()
    node.wait_ready()
    pid, first = node.container_pid(), node.state["unit"]
    assert first
    unit.write_text("[Service]\nNice=5\n")
    process.send_signal(signal.SIGHUP)
    output, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 75, "systemd starts it again"
    assert "the unit has changed" in output
    node.messages.clear()
    successor = node.start()
    node.wait_ready()
    assert (node.container_pid(), node.state["failures"]) == (pid, 0)
    assert node.state["unit"] not in ("", first)
    successor.terminate()
    assert successor.wait(PATIENCE) == 0


def test_a_server_that_hangs_is_not_said_to_serve(node: SupervisedNode) -> None:
    process = node.start("--unhealthy", "1")
    node.wait_ready()
    (node.root / "unwell").touch()
    process.communicate(timeout=PATIENCE)
    assert process.returncode == 75
    assert any(status.startswith("not answering") for status in node.statuses)
    assert [call for call in node.calls if call[:3] == ["stop", "-t", "10"]], "the deaf are not waited for"


def test_a_firewall_before_a_server_that_serves_is_named(node: SupervisedNode) -> None:
    process = node.start("--unhealthy", "2", FAKE_HTTP_TIMEOUT="1")
    node.wait_ready()
    (node.root / "shut").touch()
    process.communicate(timeout=PATIENCE)
    assert any("it listens, and no connection to port" in status for status in node.statuses)
    assert (process.returncode, node.state["reason"]["kind"]) == (75, "port-blocked")


def test_a_deaf_server_is_killed_after_the_grace_period(node: SupervisedNode) -> None:
    node.scenario(deaf=True)
    process = node.start("--stop-grace", "1")
    node.wait_ready()
    process.terminate()
    assert process.wait(PATIENCE) == 0
    assert not node.container_exists()


def test_a_stop_before_the_container_exists_is_not_lost(node: SupervisedNode) -> None:
    node.scenario(create_delay=1.0)
    process = node.start()
    node.wait_for(lambda: node.state_file.exists() and node.state["phase"] == "starting", "docker run")
    process.terminate()
    assert process.wait(PATIENCE) == 0
    assert not node.container_exists()


def test_the_engine_comes_back_with_the_container(node: SupervisedNode) -> None:
    process = node.start()
    node.wait_ready()
    pid = node.container_pid()
    (node.root / "engine_down").touch()
    node.wait_for(lambda: any("engine is gone" in text for text in node.statuses), "the notice")
    assert node.state["phase"] == "serving"
    assert node.statuses[-1].endswith("waiting for it to return, while the server answers without it")
    (node.root / "unwell").touch()
    node.wait_for(lambda: node.state["phase"] == "waiting", "a server that does not answer")
    (node.root / "unwell").unlink()
    (node.root / "engine_down").unlink()
    node.wait_for(lambda: node.statuses[-1].startswith("serving tiny"), "serving again")
    assert node.container_pid() == pid
    process.terminate()
    assert process.wait(PATIENCE) == 0


def test_the_engine_comes_back_without_the_container(node: SupervisedNode) -> None:
    process = node.start()
    node.wait_ready()
    (node.root / "engine_down").touch()
    node.wait_for(lambda: any("engine is gone" in text for text in node.statuses), "the notice")
    node.kill()
    (node.root / "engine_down").unlink()
    assert process.wait(PATIENCE) == 75
    assert node.state["reason"]["kind"] == "engine-restarted"
    assert "live-restore" in node.state["reason"]["message"]


def test_the_engine_stays_away(node: SupervisedNode) -> None:
    process = node.start("--engine-wait", "1")
    node.wait_ready()
    (node.root / "engine_down").touch()
    assert process.wait(PATIENCE) == 75
    assert node.state["reason"]["kind"] == "engine-unreachable"


def test_a_stop_without_an_engine_says_what_may_be_left(node: SupervisedNode) -> None:
    process = node.start()
    node.wait_ready()
    (node.root / "engine_down").touch()
    node.wait_for(lambda: any("engine is gone" in text for text in node.statuses), "the notice")
    process.terminate()
    assert process.wait(PATIENCE) == 75
    assert "may still be running" in node.state["reason"]["message"]


def test_a_stop_while_the_engine_is_awaited_says_what_may_be_left(node: SupervisedNode) -> None:
    first = node.start()
    node.wait_ready()
    first.kill()
    first.communicate()
    (node.root / "engine_down").touch()
    second = node.start()
    node.wait_for(lambda: "the container engine does not answer yet" in node.statuses, "the notice")
    second.terminate()
    output, _ = second.communicate(timeout=PATIENCE)
    assert second.returncode == 75
    assert "Stopped as asked" not in output
    assert "vllm-tiny may still be running" in node.state["reason"]["message"]
    assert node.container_runs()


def test_no_engine_at_the_start(node: SupervisedNode) -> None:
    (node.root / "engine_down").touch()
    code, output = node.run("--engine-wait", "0.5")
    assert code == 75
    assert "did not answer for 0.5 s" in output


def test_a_crash_loop_slows_down_and_ends(node: SupervisedNode) -> None:
    node.scenario(lines=["OSError: [Errno 98] address already in use"], exit=1)
    codes = []
    for _ in range(3):
        codes.append(node.run("--attempts", "3")[0])
    assert codes == [75, 75, 69]
    assert any(text.startswith("waiting 0.1 s before attempt 2 of 3") for text in node.statuses)
    assert any(text.startswith("waiting 0.2 s before attempt 3 of 3") for text in node.statuses)
    assert "Gave up after 3 attempts" in node.statuses[-1]
    # Somebody starts it again: the count begins again.
    assert node.run("--attempts", "3")[0] == 75
    assert node.state["failures"] == 1


def test_a_crash_after_long_service_is_a_first_failure(node: SupervisedNode) -> None:
    node.scenario(lines=["ValueError: boom"], exit=1)
    node.run()
    node.scenario()
    process = node.start(FAKE_STABLE="0.2")
    node.wait_ready()
    node.wait_for(lambda: node.state["failures"] == 0, "forgetting the failure")
    node.crash("[Rank:0] MODULE:PT_DEVMEM Allocation failed")
    process.communicate(timeout=PATIENCE)
    assert process.returncode == 75, "out of memory after having served is worth another try"
    assert node.state["failures"] == 1


def test_what_ended_an_earlier_start_is_no_reason_after_a_success(node: SupervisedNode) -> None:
    node.scenario(lines=["ValueError: boom"], exit=1)
    node.run()
    node.scenario()
    process = node.start()
    node.wait_ready()
    assert node.state["failures"] == 1, "it has not served for long"
    assert "boom" in node.state["last_reason"]["message"], "why it was started again"
    process.kill()
    process.communicate()
    node.kill()
    node.messages.clear()
    node.start()
    node.wait_ready()
    assert any(text.endswith("; last: killed") for text in node.statuses)
    assert not any("boom" in text for text in node.statuses)


def test_a_new_boot_forgets_failures(node: SupervisedNode) -> None:
    node.scenario(lines=["ValueError: boom"], exit=1)
    node.run()
    (node.root / "proc/sys/kernel/random/boot_id").write_text("boot-2\n")
    node.run()
    assert node.state["failures"] == 1


def driven(node: SupervisedNode, *modules: int, disabled: int | None = None) -> None:
    """Have the driver show these cards in /sys, one of them perhaps as disabled, and hl-smi list them."""
    accel = node.root / "sys/class/accel"
    shutil.rmtree(accel, ignore_errors=True)
    for module in modules:
        (accel / f"accel{module}/device").mkdir(parents=True)
        (accel / f"accel{module}/device/module_id").write_text(f"{module}\n")
        state = "Disabled" if module == disabled else "Operational"
        (accel / f"accel{module}/device/status").write_text(f"{state}\n")
    (node.root / "hl-smi.csv").write_text("".join(f"{module}, {module}, AN{module}\n" for module in modules))


@pytest.mark.parametrize("how", ["gone", "disabled"])
def test_a_card_that_is_lost_while_serving_is_noticed_and_waited_for(node: SupervisedNode, how: str) -> None:
    # It is to be noticed within 30 s, and is looked for twice.
    assert clock.POLL_SERVING <= 10
    driven(node, 0, 1)
    process = node.start()
    node.wait_ready()
    if how == "gone":
        driven(node, 1)
    else:
        (node.root / "sys/class/accel/accel0/device/status").write_text("disabled\n")
        (node.root / "hl-smi.csv").write_text("1, 1, AN1\n")
    output, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 75
    assert node.state["reason"]["kind"] == "lost-while-serving"
    assert "The card of module 0 was lost while it served" in output
    assert not node.container_exists()
    # systemd starts it again; it waits instead of spending its tries, and no container is made.
    node.messages.clear()
    runs = len([call for call in node.calls if call[0] == "run"])
    again = node.start()
    node.wait_for(lambda: node.state["phase"] == "waiting", "the wait for the card")
    assert "waiting for its cards: The card of module 0 (serial AN0) is not there" in node.state["status"]
    assert len([call for call in node.calls if call[0] == "run"]) == runs
    # Listed again is not enough where the driver has given the card up.
    driven(node, 0, 1, disabled=0)
    node.wait_for(lambda: "calls its state disabled" in node.state["status"], "the word of the driver")
    driven(node, 0, 1)
    node.wait_ready()
    assert node.state["phase"] == "serving"
    again.terminate()
    assert again.wait(PATIENCE) == 0


def test_a_server_that_ends_because_its_card_is_lost_waits_for_it_as_well(node: SupervisedNode) -> None:
    driven(node, 0, 1)
    process = node.start(FAKE_POLL_SERVING="60")
    node.wait_ready()
    driven(node, 1)
    node.crash("RuntimeError: the device is gone")
    output, _ = process.communicate(timeout=PATIENCE)
    assert (process.returncode, node.state["reason"]["kind"]) == (75, "lost-while-serving")
    assert "The card of module 0 was lost while it served" in output


def test_a_card_that_is_not_there_for_one_look_is_not_lost(node: SupervisedNode) -> None:
    driven(node, 0, 1)
    watched = Cards(node.root / "sys", [0, 1])
    driven(node, 1)
    assert watched.lost() is None
    driven(node, 0, 1)
    assert watched.lost() is None
    driven(node, 1)
    assert (watched.lost(), watched.lost()) == (None, 0)
    # What /sys never showed is not missed.
    assert Cards(node.root / "nothing", [0, 1]).lost() is None


def test_who_waits_for_a_card_can_be_stopped(node: SupervisedNode) -> None:
    driven(node, 0, 1)
    process = node.start()
    node.wait_ready()
    driven(node, 1)
    process.communicate(timeout=PATIENCE)
    again = node.start()
    node.wait_for(lambda: node.state["phase"] == "waiting", "the wait for the card")
    again.terminate()
    assert again.wait(PATIENCE) == 0
    assert node.state["phase"] == "stopped"


def test_a_server_that_stops_answering_is_ended(node: SupervisedNode) -> None:
    process = node.start("--unhealthy", "0.5")
    node.wait_ready()
    (node.root / "unwell").touch()
    assert process.wait(PATIENCE) == 75
    assert node.state["reason"]["kind"] == "not-answering"
    assert "GET /health answers 503" in node.state["reason"]["message"]
    assert not node.container_exists()


def test_who_paused_the_container_is_told_what_ends_that(node: SupervisedNode) -> None:
    process = node.start("--unhealthy", "0.5")
    node.wait_ready()
    (node.root / "paused").touch()
    (node.root / "unwell").touch()
    assert process.wait(PATIENCE) == 75
    said = "its container is paused; docker unpause vllm-tiny resumes it"
    assert any(text.startswith(f"not answering ({said})") for text in node.statuses)
    assert said in node.state["reason"]["message"]


def test_a_short_illness_is_survived(node: SupervisedNode) -> None:
    process = node.start("--unhealthy", "30")
    node.wait_ready()
    (node.root / "unwell").touch()
    node.wait_for(lambda: node.statuses[-1].startswith("not answering"), "the notice")
    (node.root / "unwell").unlink()
    node.wait_for(lambda: node.statuses[-1].startswith("serving tiny"), "serving again")
    assert process.poll() is None


def test_two_supervisors_of_one_instance_are_impossible(node: SupervisedNode) -> None:
    first = node.start()
    node.wait_ready()
    code, output = node.run("--engine-wait", "0.5")
    assert code == 75
    assert "Another supervisor runs tiny already" in output
    assert f"{node.state_file.parent} is locked by process {first.pid} (" in output
    assert f"{node.state_file.parent} is locked by process {first.pid} (" in node.statuses[-1]
    code, output = node.run(action="clean")
    assert code == 78
    assert node.container_runs()


def test_a_lock_that_is_another_file_by_now_keeps_a_second_supervisor_out(node: SupervisedNode) -> None:
    node.start()
    node.wait_ready()
    node.state_file.with_name("lock").unlink()
    code, output = node.run("--engine-wait", "0.5")
    assert (code, "Another supervisor runs tiny already" in output) == (75, True)
    assert node.container_runs()


def test_a_state_that_a_mount_hides_keeps_a_second_supervisor_out(node: SupervisedNode) -> None:
    """What is mounted over it brings a directory of its own, where nobody has locked anything."""
    process = node.start()
    node.wait_ready()
    with node.stopped(process):
        node.state_file.parent.rename(node.root / "hidden")
        node.state_file.parent.mkdir()
    code, output = node.run("--engine-wait", "0.5")
    assert (code, f"{node.instances} is locked by process {node.processes[0].pid} (" in output) == (75, True), output
    code, output = node.run(action="clean")
    assert (code, "Another supervisor runs tiny already" in output) == (78, True), output
    assert node.container_runs()


def test_without_the_directory_of_its_plan_there_is_nothing_to_run_and_clean_ends_the_container(
    node: SupervisedNode,
) -> None:
    first = node.start()
    node.wait_ready()
    first.kill()
    first.communicate()
    shutil.rmtree(node.instances)
    code, output = node.run()
    assert (code, "plan.json is not there" in output, "cannot be locked" in output) == (78, True, False), output
    assert node.container_runs()
    code, output = node.run(action="clean")
    assert (code, node.container_exists()) == (0, False), output


def test_a_lock_that_somebody_holds_for_a_while_is_waited_for(node: SupervisedNode) -> None:
    lock = node.state_file.with_name("lock")
    lock.parent.mkdir(parents=True, exist_ok=True)
    with held(lock) as holder:
        process = node.start()
        who = f"Another supervisor runs tiny already, or somebody keeps it from running: {lock} is locked by "
        said = f"{WAITS_FOR_LOCK}: {who}"
        node.wait_for(lambda: any(text.startswith(said) for text in node.statuses), "the wait for the lock")
        assert f"process {holder} (" in node.statuses[-1]
        long = "which somebody keeps: Another supervisor"
        node.wait_for(lambda: any(long in text for text in node.statuses), "that it has taken long")
        assert f"process {holder} (" in node.statuses[-1]
        assert process.poll() is None
    node.wait_ready()


def test_who_waits_for_the_lock_can_be_stopped(node: SupervisedNode) -> None:
    lock = node.state_file.with_name("lock")
    lock.parent.mkdir(parents=True, exist_ok=True)
    with held(lock):
        process = node.start()
        node.wait_for(lambda: any("is locked" in text for text in node.statuses), "the wait for the lock")
        process.terminate()
        output, _ = process.communicate(timeout=PATIENCE)
    assert (process.returncode, "Asked to stop without the lock" in output) == (75, True)


LOCKS: dict[str, Callable[[Path], object]] = {
    "a directory": Path.mkdir,
    "a socket": lambda path: socket.socket(socket.AF_UNIX).bind(str(path)),
    "a link that leads nowhere": lambda path: path.symlink_to("/proc/nowhere/lock"),
}


@pytest.mark.parametrize("kind", LOCKS)
def test_whatever_lies_in_the_place_of_the_lock_ends_nothing(kind: str, node: SupervisedNode) -> None:
    lock = node.state_file.with_name("lock")
    first = node.start()
    node.wait_ready()
    first.kill()
    first.communicate()
    lock.unlink()
    LOCKS[kind](lock)
    node.messages.clear()
    second = node.start()
    node.wait_ready()
    assert node.run("--engine-wait", "0.5")[0] == 75, "nobody serves twice"
    second.kill()
    output, _ = second.communicate()
    assert "Attached to the running container" in output
    assert f"{lock} was a directory" in output if kind == "a directory" else f"{lock} cannot be locked" in output
    assert lock.with_name("lock.was-a-directory").is_dir() == (kind == "a directory")
    code, output = node.run(action="clean")
    assert (code, node.container_exists()) == (0, False), output


def test_a_state_without_a_place_is_said_and_waited_for_and_clean_ends_the_container(node: SupervisedNode) -> None:
    first = node.start()
    node.wait_ready()
    first.kill()
    first.communicate()
    folder = node.state_file.parent
    aside = folder.rename(folder.with_name("aside"))
    # Even root cannot make a directory where a file is.
    folder.touch()
    code, output = node.run("--engine-wait", "0.5")
    said = f"{folder}: File exists, so nobody can tell whether this runs twice"
    assert (code, said in output, node.statuses[-1]) == (75, True, said)
    second = node.start()
    node.wait_for(lambda: node.statuses[-1] == said, "the cause")
    node.messages.clear()
    with node.stopped(second):
        folder.unlink()
        aside.rename(folder)
    node.wait_ready()
    second.kill()
    second.communicate()
    folder.rename(aside)
    folder.touch()
    code, output = node.run(action="clean")
    assert (code, node.container_exists()) == (0, False), output
    assert "Traceback" not in output


def test_clean_without_an_engine_says_what_may_still_run(node: SupervisedNode) -> None:
    (node.root / "engine_down").touch()
    code, output = node.run(action="clean")
    assert code == 1
    assert output.startswith("The container engine does not answer (Cannot connect")
    assert "so the container vllm-tiny may still be running. Start the engine (systemctl start docker), then" in output


def test_clean_removes_a_stray_container(node: SupervisedNode) -> None:
    process = node.start()
    node.wait_ready()
    process.kill()
    process.communicate()
    assert node.container_runs()
    said = "No request runs any more: stopping the server. Removed the container vllm-tiny.\n"
    assert node.run(action="clean") == (0, said)
    assert node.state["phase"] == "serving", "what the supervisor said last is its own"
    assert not node.container_exists()
    assert node.run(action="clean") == (0, "There is no container of tiny.\n")


def test_a_container_with_another_name_is_stopped_as_asked(node: SupervisedNode) -> None:
    process = node.start()
    node.wait_ready()
    node.rename("oops")
    process.terminate()
    assert process.wait(PATIENCE) == 0
    assert not node.container_exists()


def test_a_container_with_another_name_is_taken_over_and_gets_its_name_back(node: SupervisedNode) -> None:
    first = node.start()
    node.wait_ready()
    pid = node.container_pid()
    first.kill()
    first.communicate()
    node.rename("oops")
    node.messages.clear()
    second = node.start()
    node.wait_ready()
    assert node.container_pid() == pid
    assert node.container.name == "vllm-tiny"
    second.kill()
    output, _ = second.communicate()
    assert "The container of tiny was called oops. It is vllm-tiny again." in output
    node.rename("oops")
    code, output = node.run(action="clean")
    assert (code, "Removed the container oops." in output, node.container_exists()) == (0, True, False)


def test_a_container_that_somebody_started_anew_has_the_patience_of_a_start(node: SupervisedNode) -> None:
    node.scenario(lines=WARM_UP)
    process = node.start("--unhealthy", "1")
    node.wait_ready()
    node.scenario(lines=WARM_UP, delay=4 / len(WARM_UP))
    node.messages.clear()
    # However long a new process takes, the supervisor finds the end of the first one, and the container runs.
    with node.stopped(process):
        client = node.client_of(process)
        node.restart()
        node.wait_for(lambda: " Z " in client.read_text(), "the end of the docker client")
    node.wait_ready()
    assert any(text.startswith("warm-up: ") for text in node.statuses)
    assert not any(text.startswith("not answering") for text in node.statuses[-1:])
    assert (node.state["phase"], node.state["container_started"]) == ("serving", "2026-02-02T00:00:00Z")
    process.terminate()
    output, _ = process.communicate(timeout=PATIENCE)
    assert "Somebody has started the container again: waiting for the server as after any start." in output
    assert (process.returncode, node.container_exists()) == (0, False)


def test_a_successor_knows_that_somebody_started_the_container_anew(node: SupervisedNode) -> None:
    node.scenario(lines=WARM_UP)
    first = node.start()
    node.wait_ready()
    first.kill()
    first.communicate()
    node.scenario()
    node.restart()
    node.messages.clear()
    node.start()
    node.wait_ready()
    assert node.state["warm_up_seconds"] is None


def test_the_watchdog_is_fed_before_what_a_start_leaves_is_put_away(node: SupervisedNode) -> None:
    node.scenario(lines=["INFO hello"], exit=1)
    node.run(WATCHDOG_USEC="600000000")
    # Once at the start, and not again for five minutes but for the end.
    assert node.messages.count("WATCHDOG=1") == 2


def test_the_watchdog_is_fed(node: SupervisedNode) -> None:
    node.start(WATCHDOG_USEC="400000")
    node.wait_ready()
    node.wait_for(lambda: node.messages.count("WATCHDOG=1") > 2, "WATCHDOG=1")


def test_state_is_for_root_only(node: SupervisedNode) -> None:
    node.start()
    node.wait_ready()
    assert oct(node.state_file.stat().st_mode & 0o777) == "0o600"
    assert oct(Path(node.state_file.parent).stat().st_mode & 0o777) == "0o700"


@pytest.mark.parametrize("name", ["../tiny", "tiny\n", "Tiny", "-tiny", "x" * 49, ""])
def test_an_instance_name_is_a_name(name: str) -> None:
    with pytest.raises(SystemExit) as ended:
        command_line.main(["run", name])
    assert ended.value.code == 2
