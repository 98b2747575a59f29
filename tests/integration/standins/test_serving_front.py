"""The front from outside: a process with a command line, an environment, a status."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, MutableMapping
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.gaudi.planning import writable
from ansible.module_utils.gaudi.serving.counts import shape_of
from ansible.module_utils.gaudi.serving.progress import Progress
from gaudi_simulated import faults, front, plugin_buckets, surface, unprepared, written

from plugin_utils import releases
from simulator import host
from simulator.standins import description
from tests.unit.serving.ends import diagnose

SOURCE = Path(front.__file__).parent
R122 = surface.load(SOURCE.parent / "surface", "1.22")
ARGUMENTS = ["--model", "/data/models/x", "--max-model-len", "1024", "--max-num-seqs", "2", "--api-key", "s3cret"]
BUCKETS = {"VLLM_PROMPT_SEQ_BUCKET_MAX": "256", "VLLM_DECODE_BLOCK_BUCKET_MAX": "128", "VLLM_DECODE_BS_BUCKET_MAX": "2"}
# Stands in for Python with vLLM: tells what it was given and which cards it holds.
SERVER = f"""#!{sys.executable}
import json, os, pathlib, sys
links = [entry.readlink() for entry in pathlib.Path("/proc/self/fd").iterdir() if entry.is_symlink()]
held = sorted(path.name for path in links if path.name.startswith("accel"))
print(json.dumps({{"server": sys.argv[1:], "environment": dict(os.environ), "held": held}}))
"""
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Run the front as in the image: its files laid out alike, and in the place of Python a program that tells."""
    root = tmp_path / "opt"
    shutil.copytree(SOURCE, root / "gaudi_simulated")
    shutil.copytree(SOURCE.parent / "surface", root / "surface")
    (root / "cache" / "modelinfos").mkdir(parents=True)
    node = tmp_path / "node.json"
    dev = tmp_path / "dev"
    dev.mkdir()
    for index in range(8):
        (dev / f"accel{index}").touch()
    server = tmp_path / "server"
    server.write_text(SERVER, encoding="utf-8")
    server.chmod(0o755)
    # The places in the image are constants of the front; here they lie elsewhere.
    start = (
        "import sys; from pathlib import Path; from gaudi_simulated import cards, front; "
        f"cards.load_node.__defaults__ = (Path({str(node)!r}),); cards.acquire.__defaults__ = (Path({str(dev)!r}),); "
        f"front.PYTHON = {str(server)!r}; front.main(sys.argv[1:])"
    )

    def call(
        *arguments: str, described: dict[str, Any] | None = None, release: str = "1.22", **environment: str
    ) -> subprocess.CompletedProcess[str]:
        (root / "release").write_text(f"{release}\n", encoding="ascii")
        # Without the pauses between the steps of a warm-up, unless the test asks for them.
        quick = {"faults": {"slow_warmup": 0.0}}
        document = {**description.load("gaudi2-oam8"), **quick, **(described or {})}
        node.write_text(description.render(document), encoding="utf-8")
        done = subprocess.run(
            [sys.executable, "-c", start, *arguments],
            env={
                "PATH": os.environ["PATH"],
                "PYTHONPATH": str(root),
                "TMPDIR": str(tmp_path),
                "HOME": str(tmp_path / "home"),
                "HABANA_LOGS": str(tmp_path / "logs"),
                **BUCKETS,
                **environment,
            },
            capture_output=True,
            timeout=300,
            check=False,
        )
        # As it is: carriage returns part the bars of a warm-up.
        return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())

    return call


V1 = ["--model", "/data/models/x", "--max-model-len", "1024", "--max-num-seqs", "2", "--max-num-batched-tokens", "512"]
RANK = re.compile(r"^\(Worker_TP(\d) pid=\d+\) ")


def lines_of(done: subprocess.CompletedProcess[str]) -> list[str]:
    """What the supervisor hears, one line after another."""
    return [line.rstrip() for line in re.split(r"[\r\n]", done.stdout + done.stderr) if line.strip()]


def test_the_plugin_shows_memory_buckets_and_bars(run: Run) -> None:
    done = run("api_server", *V1, release="1.24.1", HLS_MODULE_ID="0", VLLM_DEVELOPER_MODE="1")
    assert done.returncode == 0, done.stderr
    heard = Progress()
    for line in lines_of(done):
        heard.hear(line)
    # What the supervisor understands of it.
    blocks = int(heard.memory["kv_cache_blocks"])
    assert blocks == (98304 - 768) * 1024**2 * 0.92 * 0.9 // 2**20 - 1
    engine = plugin_buckets.Engine("0.26.0", 2, 1024, 512, 128, blocks)
    work = plugin_buckets.shapes(engine, BUCKETS)
    assert heard.expected == {"prompt": len(work.prompt), "decode": len(work.decode)}
    assert heard.warm_up == {name: (count, count) for name, count in heard.expected.items()}
    assert heard.warm_up_seconds is not None
    # Who speaks stands before the first drawing of a bar only; a shape is shown by its place, as it ends.
    bar = re.compile(r"\(EngineCore pid=\d+\) \r(?:Prompt|Decode) warmup processing:   0%\|          \| 0/\d+ \[.*")
    assert [bool(bar.match(line)) for line in done.stderr.split("\n")] == [True, True, False]
    assert done.stderr.count("(EngineCore ") == 2
    for total in heard.expected.values():
        for place in range(total):
            assert re.search(
                rf"\r\w+ warmup processing: +\d+%\|.{{10}}\| {place}/{total} \[.*?, {place}/{total}\]", done.stderr
            )
        assert re.search(rf"100%\|█{{10}}\| {total}/{total} \[\S+, +\S+, {total - 1}/{total}\]\n", done.stderr)
    # Without what the logging puts before a message.
    begin = re.compile(r"\(EngineCore pid=\d+\) \[Warmup\]\[")
    assert sum(bool(begin.match(said)) for said in done.stdout.splitlines()) == sum(heard.expected.values())
    # vLLM knows none of the plugin's variables, and says so.
    assert "Unknown vLLM environment variable detected: VLLM_DEVELOPER_MODE" in done.stdout
    server = json.loads(done.stdout.splitlines()[-1])
    assert server["server"][2:4] == ["--model", "/data/models/x"]


# What stands for what differs in a line of a release file.
STANDS_FOR = {
    "<count>": r"\d+", "<number>": r"[\d.]+", "<size>": r"-?[\d.]+ (?:B|[KMGT]iB)", "<range>": r"[\d, ]+",
    "<phase>": "(?:prompt|decode)", "<Phase>": "(?:Prompt|Decode)", "<shapes>": r".+", "<done>": r"\d+",
    "<total>": r"\d+", "<percent>": r" *\d+", "<drawn>": r".{10}", "<pace>": r".+",
}  # fmt: skip
# Said later, or in other cases than those below.
LATER = {"ready", "not_warmed_up", "skipped", "unified"}


@pytest.mark.parametrize("release", ["1.23", "1.24", "1.24.1"])
def test_it_prints_the_lines_that_the_release_file_has(run: Run, release: str) -> None:
    strategies = ["VLLM_EXPONENTIAL_BUCKETING=true", "VLLM_EXPONENTIAL_BUCKETING=false"]
    strategies += [] if release == "1.23" else ["VLLM_BUCKETING_STRATEGY=pad"]
    printed = ""
    for chosen in strategies:
        done = run("api_server", *V1, release=release, VLLM_DEVELOPER_MODE="1", **dict([chosen.split("=")]))
        assert done.returncode == 0, done.stderr
        printed += done.stdout + done.stderr
    formats = releases.read(release)["log_formats"]
    for name in formats.keys() - LATER:
        pattern = re.escape(formats[name])
        for word, meaning in STANDS_FOR.items():
            pattern = pattern.replace(re.escape(word), meaning)
        assert re.search(pattern, printed), name


def test_every_worker_of_the_plugin_prints_all_of_it(run: Run) -> None:
    done = run("api_server", *V1, "-tp", "2", release="1.23", HABANA_VISIBLE_MODULES="0,1")
    finished = [line for line in done.stdout.splitlines() if "Warmup finished" in line]
    ranks = [match[1] for line in finished if (match := RANK.match(line))]
    assert ranks == ["0", "1"]
    form = re.compile(
        r"\(Worker_TP\d pid=\d+\) INFO \d\d-\d\d \S+ \[simulated hpu_model_runner.py\] Warmup finished in"
    )
    assert all(form.match(line) for line in finished)
    assert json.loads(done.stdout.splitlines()[-1])["held"] == ["accel2", "accel3"]


@pytest.mark.parametrize(
    ("release", "arguments", "experts", "engines", "workers"),
    [
        ("1.23", [], 0, ["EngineCore_DP0"], ["EngineCore_DP0"]),
        ("1.24.1", [], 0, ["EngineCore"], ["EngineCore"]),
        ("1.23", ["-tp", "2"], 0, ["EngineCore_DP0"], ["Worker_TP0", "Worker_TP1"]),
        ("1.24.1", ["-dp", "2"], 0, ["EngineCore_DP0", "EngineCore_DP1"], ["Worker", "Worker"]),
        ("1.24.1", ["-tp", "2", "--enable-expert-parallel"], 8, ["EngineCore"], ["Worker_TP0_EP0", "Worker_TP1_EP1"]),
        (
            "1.24",
            ["-dp", "2", "--enable-expert-parallel"],
            8,
            ["EngineCore_DP0", "EngineCore_DP1"],
            ["Worker_DP0_EP0", "Worker_DP1_EP1"],
        ),
    ],
)
def test_each_process_says_its_own(
    run: Run,
    tmp_path: Path,
    release: str,
    arguments: list[str],
    experts: int,
    engines: list[str],
    workers: list[str],
) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"num_experts": experts}), encoding="utf-8")
    model = ["--model", str(tmp_path), *V1[2:]]
    done = run("api_server", *model, *arguments, release=release, HABANA_VISIBLE_MODULES="0,1,2,3")
    assert done.returncode == 0, done.stderr

    def speakers(words: str) -> list[str]:
        return [line.strip("(").partition(" ")[0] for line in done.stdout.splitlines() if words in line]

    assert speakers("GPU KV cache size: ") == speakers("Maximum concurrency for ") == engines
    assert speakers("Usable num_blocks: ") == speakers("Warmup finished in ") == workers
    bars = [line.strip("(").partition(" ")[0] for line in done.stderr.split("\n") if line]
    assert len(bars) >= 2
    assert set("".join(done.stderr.split("\r")).split("(")[1].split()[0:1]) == {workers[0]}


@pytest.mark.parametrize(("release", "arguments"), [("1.22", ARGUMENTS), ("1.21", ARGUMENTS), ("1.24", V1)])
def test_a_second_start_finds_the_recipes_of_the_first(
    run: Run, tmp_path: Path, release: str, arguments: list[str]
) -> None:
    folder = tmp_path / "recipes"
    described = {"faults": {"slow_warmup": 0.02}}
    seen = []
    for _ in range(2):
        done = run(
            "api_server",
            *arguments,
            release=release,
            described=described,
            PT_HPU_RECIPE_CACHE_CONFIG=f"{folder},false,40960",
        )
        assert done.returncode == 0, done.stderr
        seen.append(sorted((path.name, path.stat().st_mtime_ns) for path in folder.glob("*.recipe")))
    assert seen[0] == seen[1] != []
    assert len(list(folder.glob("*.metadata"))) == len(seen[0])


def test_the_plugins_warm_up_can_be_left_out(run: Run, tmp_path: Path) -> None:
    done = run("api_server", *V1, release="1.24", VLLM_SKIP_WARMUP="true")
    assert "Skipping warmup..." in done.stdout
    # It is left out after the shapes are made.
    assert "Generated " in done.stdout
    off = run("api_server", *V1, release="1.24", VLLM_ENABLE_BUCKETING="0")
    assert "Bucketing is OFF." in off.stdout
    assert not re.search("Skipping|Generated|Warmup", off.stdout)
    for ended in (done, off):
        assert ended.returncode == 0
        assert "warmup processing" not in ended.stderr
    bad = tmp_path / "buckets"
    bad.write_text("(1, 128\n", encoding="utf-8")
    done = run("api_server", *V1, release="1.24", VLLM_SKIP_WARMUP="true", VLLM_BUCKETING_FROM_FILE=str(bad))
    assert done.returncode == 1
    assert "_lru_cache_wrapper' object has no attribute" in done.stdout


def test_without_graphs_the_plugin_warms_nothing_up(run: Run) -> None:
    described = {"faults": {"out_of_memory_at_warmup": 1, "slow_warmup": 9}}
    done = run("api_server", *V1, "--enforce-eager", release="1.24.1", described=described)
    assert done.returncode == 0, done.stderr
    assert "Generated " in done.stdout
    assert "Warmup finished in 0 secs, allocated 0 B of device memory" in done.stdout
    assert not re.search("Graph/|sampler", done.stdout)
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("release", "kind", "longest"),
    [("1.23", "llama4", None), ("1.24", "llama4", 2), ("1.24", "gemma4", None), ("1.24.1", "gemma4", 5)],
)
def test_a_model_of_unlike_layers_warms_up_some_shapes_again(
    run: Run, tmp_path: Path, release: str, kind: str, longest: int | None
) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": kind}), encoding="utf-8")
    done = run("api_server", "--model", str(tmp_path), *V1[2:], release=release)
    bars = [
        re.findall(r"\r(\w+) warmup processing: .{3}[^|]*\|[^|]*\| \d+/(\d+) ", line)[-1]
        for line in done.stderr.split("\n")[:-1]
    ]
    assert [name for name, _ in bars] == ["Prompt", "Decode"] * (1 if longest is None else 2)
    assert ("Validation warmup complete." in done.stdout) == (longest is not None)
    if longest is not None:
        assert [int(total) for _, total in bars[2:]] == [longest, 1]


def test_workers_drift_and_are_counted_once(run: Run, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "qwen3_moe"}), encoding="utf-8")
    arguments = ["--model", str(tmp_path), *V1[2:], "-tp", "4"]
    done = run("api_server", *arguments, release="1.24.1", HABANA_VISIBLE_MODULES="0,1,2,3")
    assert done.returncode == 0, done.stderr
    again = done.stderr.index("Prompt", done.stderr.index("Decode warmup"))
    # A worker still draws the bar of prompts while another one decodes; their second warm-up comes after that.
    assert re.match(r"Prompt warmup processing: .{3}[^|]*\|[^|]*\| \d+/20 ", done.stderr[again:])
    heard = Progress()
    totals = set()
    for line in lines_of(done):
        heard.hear(line)
        totals.add(heard.total)
    whole = {"prompt": 20, "decode": 10, "validation/prompt": 5, "validation/decode": 1}
    assert heard.warm_up == {name: (count, count) for name, count in whole.items()}
    assert totals == {0, sum(whole.values())}


@pytest.mark.parametrize(("release", "status"), [("1.23", 1), ("1.24", 0), ("1.24.1", 0)])
def test_unified_attention_is_read_by_the_first_plugin_only(run: Run, release: str, status: int) -> None:
    done = run("api_server", *V1, release=release, VLLM_UNIFIED_ATTN="1")
    assert done.returncode == status, done.stderr
    assert ("the warm-up of unified attention is not there" in done.stdout) == (status == 1)


WORKED, NOT_MADE = "WorkerProc hit an exception.", "WorkerProc failed to start."


@pytest.mark.parametrize(
    ("release", "arguments", "environment", "workers_say", "words", "kind"),
    [
        (
            "1.24.1",
            ["--max-num-seqs", "600"],
            {},
            "",
            "Value error, max_num_batched_tokens (512)",
            "refused-configuration",
        ),
        ("1.24.1", ["--quantization", "awq"], {}, "", "Value error, awq quantization", "quantization-not-for-card"),
        ("1.24", [], {"VLLM_PLUGINS": "lora"}, "", "RuntimeError: Failed to infer device type", "no-plugin"),
        (
            "1.24.1",
            [],
            {"HABANA_VISIBLE_MODULES": "0,99"},
            NOT_MADE,
            "synStatus=8 [Device not found]",
            "card-not-acquired",
        ),
        (
            "1.24.1",
            [],
            {"VLLM_BUCKETING_STRATEGY": "foo"},
            NOT_MADE,
            "RuntimeError: bucketing_strategy: foo is not in allowed options: [exp, lin, pad]!",
            "wrong-buckets",
        ),
        (
            "1.23",
            ["--speculative-config", '{"method": "medusa", "model": "m"}'],
            {},
            NOT_MADE,
            "NotImplementedError: Medusa speculative decoding is not supported on HPU.",
            "no-drafter",
        ),
        (
            "1.24",
            ["--speculative-config", '{"method": "suffix"}'],
            {},
            NOT_MADE,
            "ValueError: Unknown speculative decoding method: suffix",
            "no-drafter",
        ),
        (
            "1.24.1",
            ["--speculative-config", '{"method": "ngram"}'],
            {},
            WORKED,
            "IndexError: index 2 is out of bounds",
            "speculation",
        ),
        (
            "1.24.1",
            [],
            {"VLLM_PROFILE_PROMPT": "1,128,0"},
            WORKED,
            "AssertionError: Finished profiling",
            "profiled",
        ),
        (
            "1.24",
            [],
            {"VLLM_BUCKETING_FROM_FILE": "/nowhere"},
            WORKED,
            "No such file or directory: '/nowhere'",
            "engine-died",
        ),
        (
            "1.24.1",
            ["--num-gpu-blocks-override", "7"],
            {},
            "",
            "ValueError: To serve at least one request with the model's max seq len (1024), (0.01 GiB KV",
            "kv-cache-too-small",
        ),
        (
            "1.23",
            ["--gpu-memory-utilization", "0.00005"],
            {},
            "",
            "Based on the available memory, the estimated maximum model length is 384. ",
            "kv-cache-too-small",
        ),
        (
            "1.23",
            ["--gpu-memory-utilization", "0.00001"],
            {},
            "",
            "ValueError: No available memory for the cache blocks.",
            "kv-cache-too-small",
        ),
        (
            "1.24.1",
            ["--num-gpu-blocks-override", "97536"],
            {},
            WORKED,
            "RuntimeError: [Rank:0] FATAL ERROR :: MODULE:PT_DEVMEM Allocation failed",
            "out-of-device-memory",
        ),
    ],
)
@pytest.mark.parametrize("cards", [1, 2])
def test_each_process_says_why_a_start_of_the_plugin_failed(
    run: Run,
    cards: int,
    release: str,
    arguments: list[str],
    environment: dict[str, str],
    workers_say: str,
    words: str,
    kind: str,
) -> None:
    given = ["api_server", *V1, "-tp", str(cards), *arguments]
    done = run(*given, release=release, **{"HABANA_VISIBLE_MODULES": "0,1", **environment})
    # The model of this test has no weights and no configuration; a card too many is not there.
    if cards == 1 and "HABANA_VISIBLE_MODULES" in environment:
        return
    assert done.returncode == 1
    engine = "EngineCore_DP0" if release == "1.23" else "EngineCore"
    begins = {
        "worker": r"\(Worker_TP\d pid=\d+\) ERROR \S+ \S+ \[simulated multiproc_executor.py\] ",
        "engine": rf"\({engine} pid=\d+\) ERROR \S+ \S+ \[simulated core.py\] ",
        "died": rf"\({engine} pid=\d+\) (?!ERROR|INFO|WARNING|\[|$)",
        "server": r"\(APIServer pid=\d+\) ",
    }
    lines = lines_of(done)
    said = {
        who: [line[found.end() :] for line in lines if (found := re.match(begin, line))]
        for who, begin in begins.items()
    }
    in_engine = "Value error" not in words and kind != "no-plugin"
    assert bool(said["worker"]) == (bool(workers_say) and cards > 1)
    if said["worker"]:
        # Of each worker as many lines as in recorded starts.
        assert len(said["worker"]) >= 2 * 50
        assert said["worker"][:2] == [workers_say, "Traceback (most recent call last):"]
        assert words in said["worker"][-1]
        what = "Worker failed with error '" if workers_say == WORKED else "WorkerProc initialization failed due to"
        assert what in said["engine"][-1]
    elif in_engine:
        assert words in said["engine"][-1]
    assert bool(said["engine"]) == in_engine
    if in_engine:
        assert said["engine"][:2] == ["EngineCore failed to start.", "Traceback (most recent call last):"]
        assert said["died"][:2] == [f"Process {engine}:", "Traceback (most recent call last):"]
        assert said["died"][-1] == said["engine"][-1]
        wrapper = "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): "
        assert said["server"][-1] == f"{wrapper}{{'{engine}': 1}}"
        assert lines[-1].endswith(said["server"][-1])
    else:
        assert words in "\n".join(said["server"])
    assert said["server"][0] == "Traceback (most recent call last):"
    # What a person is told.
    heard = Progress()
    for line in lines:
        heard.hear(line)
    reason = diagnose(lines, done.returncode, False, 0, heard, given)
    assert reason.kind == kind
    assert reason.retry == (kind in ("card-not-acquired", "engine-died"))
    assert words[:60].partition("(0.01")[0].rstrip() in reason.message


def test_the_old_plugin_takes_any_number_of_blocks_that_the_memory_has(run: Run) -> None:
    done = run("api_server", *V1, "--num-gpu-blocks-override", "7", release="1.23")
    assert done.returncode == 0, done.stderr
    assert re.search(r"Overriding num_gpu_blocks=\d+ with num_gpu_blocks_override=7\b", done.stdout)
    assert "Usable num_blocks: 7, " in done.stdout


def test_weights_too_large_for_a_card_end_a_start_as_they_are_loaded(run: Run, tmp_path: Path) -> None:
    with (tmp_path / "model.safetensors").open("wb") as file:
        file.truncate(100 * 1024**3)
    done = run("api_server", "--model", str(tmp_path), *V1[2:], release="1.24.1")
    assert done.returncode == 1
    assert "Loading model weights took" not in done.stdout
    reason = diagnose(lines_of(done), 1, False, 0, Progress(), V1)
    assert reason.kind == "out-of-device-memory"
    assert "The weights do not fit on the cards." in reason.message


@pytest.mark.parametrize(
    ("called", "arguments", "seconds", "status"),
    [
        ("serve", ["-dp", "2"], "1", 1),
        ("serve", ["--api-server-count", "2"], "0", 1),
        ("serve", ["-dp", "2"], "600", 0),
        # One process that waits for its engines in another way.
        ("serve", ["-tp", "2"], "0", 0),
        ("api_server", ["-dp", "2"], "0", 0),
    ],
)
def test_processes_of_their_own_wait_so_long_for_the_engines(
    run: Run, called: str, arguments: list[str], seconds: str, status: int
) -> None:
    # Longer than a front waits that ends with an error, and longer than no time at all.
    described = {"faults": {"slow_warmup": 0.1 if status else 0.01}}
    done = run(
        called, *V1, *arguments, described=described, release="1.24.1", HABANA_VISIBLE_MODULES="0,1",
        VLLM_ENGINE_READY_TIMEOUT_S=seconds,
    )  # fmt: skip
    assert done.returncode == status, done.stderr
    if status:
        assert f"Waited {seconds}s (configured by VLLM_ENGINE_READY_TIMEOUT_S)" in done.stderr
        assert "Warmup finished" not in done.stdout
        assert re.search(
            r"\nRuntimeError: Process ApiServer_0 \(PID: \d+\) died with exit code 1$", done.stderr.strip()
        )
        assert diagnose(lines_of(done), 1, False, 0, Progress(), V1).kind == "engine-ready-timeout"
        # Each of them says it, and the engines go on drawing their bars.
        gave_up = [found.end() for found in re.finditer(r"\(ApiServer_[01] pid=\d+\) TimeoutError: ", done.stderr)]
        assert len(gave_up) == 2
        assert "warmup processing: 100%" in done.stderr[gave_up[-1] :]


@pytest.mark.parametrize(
    ("arguments", "environment", "status", "message"),
    [
        (["--swap-space", "1"], {}, 2, "unrecognized arguments: --swap-space"),
        (["--max-num-seqs", "many"], {}, 2, "argument --max-num-seqs: invalid int value: 'many'"),
        (["--convert", "some"], {}, 2, "argument --convert: invalid choice: 'some'"),
        (["--no-enable-chunked-prefill"], {}, 1, "smaller than max_model_len (1024)"),
        (["--max-num-seqs", "600"], {}, 1, "max_num_seqs (600)"),
        (["--quantization", "awq"], {}, 1, "awq quantization is currently not supported in hpu."),
        (["--kv-cache-dtype", "fp8"], {}, 1, "kv_cache_dtype fp8 is not supported"),
        (["--fail-on-environ-validation"], {}, 1, "Unknown vLLM environment variable detected: VLLM_"),
        (["--num-gpu-blocks-override", "0"], {}, 1, "No available memory for the cache blocks"),
        ([], {"VLLM_NO_SUCH_THING": "1"}, 0, ""),
        ([], {"VLLM_BUCKETING_STRATEGY": "foo"}, 1, "bucketing_strategy: foo is not in allowed options"),
        (
            [],
            {"VLLM_BUCKETING_STRATEGY": "lin", "VLLM_DECODE_BS_BUCKET_MIN": "9"},
            1,
            "Min. batch size cannot be greater than max. batch size",
        ),
        ([], {"VLLM_PROMPT_BS_BUCKET_MAX": "some"}, 1, "invalid literal for int()"),
        ([], {"HLS_MODULE_ID": "99"}, 1, "synStatus=8 [Device not found]"),
        ([], {"VLLM_BUCKETING_FROM_FILE": "/nowhere"}, 1, "FileNotFoundError"),
    ],
)
def test_what_a_server_with_the_plugin_ends_with(
    run: Run, arguments: list[str], environment: dict[str, str], status: int, message: str
) -> None:
    done = run("api_server", *V1, *arguments, release="1.24.1", **environment)
    assert done.returncode == status, done.stderr
    assert message in done.stderr


def test_described_faults_of_the_plugins_warm_up(run: Run) -> None:
    done = run("api_server", *V1, release="1.24.1", described={"faults": {"out_of_memory_at_warmup": 3}})
    assert done.returncode == 1
    assert "MODULE:PT_DEVMEM Allocation failed" in done.stderr
    assert "Warmup finished" not in done.stdout


def test_a_start_shows_its_warm_up_and_becomes_the_server(run: Run) -> None:
    done = run("api_server", *ARGUMENTS, HLS_MODULE_ID="0", HABANA_VISIBLE_DEVICES="3")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("SIMULATED Gaudi release 1.22")
    assert sum("[Warmup][" in line for line in lines) == 2 * 2 + 2
    server = json.loads(lines[-1])
    assert server["held"] == ["accel3"]
    assert server["environment"]["HF_HUB_OFFLINE"] == "1"
    # Without a C++ compiler, the first request that wants a compiled helper would end the server.
    assert server["environment"]["TORCHDYNAMO_DISABLE"] == "1"
    assert not [name for name in server["environment"] if name.startswith(("HABANA", "HLS", "PT_HPU"))]
    assert "VLLM_PROMPT_SEQ_BUCKET_MAX" not in server["environment"]
    assert server["server"][:4] == ["-m", "gaudi_simulated.forked", "--model", "/data/models/x"]
    shown = "\n".join(lines[:-1])
    assert "s3cret" not in shown + done.stderr
    record = json.loads(next(line for line in lines if "given {" in line).partition("given ")[2])
    assert record["modules"] == [0]
    assert record["environment"]["HLS_MODULE_ID"] == "0"
    assert record["arguments"][-2:] == ["--api-key", "(hidden)"]


def test_the_real_server_has_its_arguments_and_forks_where_it_would_spawn(tmp_path: Path) -> None:
    package = tmp_path / "vllm" / "entrypoints" / "openai"
    package.mkdir(parents=True)
    (package / "api_server.py").write_text(
        "import multiprocessing, sys\n"
        "ways = [multiprocessing.get_context(way).get_start_method() for way in ('spawn', 'forkserver', 'fork')]\n"
        "print(__name__, sys.argv[1:], ways)\n"
    )
    path = os.pathsep.join([str(tmp_path), str(SOURCE.parent)])
    done = subprocess.run(
        [sys.executable, "-m", "gaudi_simulated.forked", "--model", "x"],
        env={"PYTHONPATH": path},
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout == "__main__ ['--model', 'x'] ['fork', 'forkserver', 'fork']\n"


def test_a_real_server_that_lies_apart_is_found_before_the_stand_in(run: Run, tmp_path: Path) -> None:
    (tmp_path / "opt" / "cpu").mkdir()
    done = run("api_server", *ARGUMENTS)
    assert done.returncode == 0, done.stderr
    path = json.loads(done.stdout.splitlines()[-1])["environment"]["PYTHONPATH"]
    assert path == f"{tmp_path}/opt/cpu:{tmp_path}/opt"


def test_it_writes_where_its_environment_says(run: Run, tmp_path: Path) -> None:
    made = {name: str(tmp_path / name) for name in COMPILED}
    done = run("api_server", *ARGUMENTS, "--trust-remote-code", HF_HOME=str(tmp_path / "hub"), **made)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "home/.cache/vllm/modelinfos").is_dir()
    assert (tmp_path / "hub/modules/__init__.py").is_file()
    assert len(list((tmp_path / "logs").glob("*.log"))) == 1
    assert all((place / "simulated").is_file() for place in written.compiled(made))
    given = json.loads(done.stdout.splitlines()[-1])["environment"]
    assert {name: given.get(name) for name in ("HOME", "XDG_CACHE_HOME", "VLLM_CACHE_ROOT")} == {
        "HOME": str(tmp_path / "home"),
        "XDG_CACHE_HOME": None,
        "VLLM_CACHE_ROOT": None,
    }


@pytest.fixture
def read_only(tmp_path: Path) -> Iterator[Path]:
    """A file system that nobody can write to, as a container's root is; mounting takes root."""
    folder = tmp_path / "root"
    folder.mkdir()
    host.run(host.as_root(["mount", "-t", "tmpfs", "-o", "ro", "none", str(folder)]))
    yield folder
    host.run(host.as_root(["umount", str(folder)]))


COMPILED = ("NUMBA_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")


@pytest.mark.parametrize(
    "name", ["HABANA_LOGS", "HOME", "XDG_CACHE_HOME", "VLLM_CACHE_ROOT", "HF_HOME", "HF_MODULES_CACHE", *COMPILED]
)
def test_it_ends_where_it_cannot_write(run: Run, read_only: Path, name: str) -> None:
    done = run("api_server", *ARGUMENTS, "--trust-remote-code", **{name: str(read_only / "x")})
    assert done.returncode == 1
    assert "OSError: [Errno 30] Read-only file system: " in done.stderr
    assert str(read_only) in done.stderr
    assert "[Warmup][" not in done.stdout


def test_without_remote_code_nothing_is_written_below_hf_home(run: Run, read_only: Path) -> None:
    assert run("api_server", *ARGUMENTS, HF_HOME=str(read_only)).returncode == 0


@pytest.mark.parametrize(
    ("environment", "places"),
    [
        ({}, ["/root/.cache/vllm", "/root/.cache/huggingface/modules"]),
        ({"HOME": "/h"}, ["/h/.cache/vllm", "/h/.cache/huggingface/modules"]),
        ({"HOME": "/h", "XDG_CACHE_HOME": "/c"}, ["/c/vllm", "/c/huggingface/modules"]),
        ({"VLLM_CACHE_ROOT": "/v", "HF_HOME": "/f"}, ["/v", "/f/modules"]),
        ({"HF_HOME": "/f", "HF_MODULES_CACHE": "/m"}, ["/root/.cache/vllm", "/m"]),
    ],
)
def test_places_without_variables_are_the_images(environment: dict[str, str], places: list[str]) -> None:
    assert [str(written.vllm_cache(environment)), str(written.hub_modules(environment))] == places
    assert written.LOGS == "/var/log/habana_logs"


# As torch has it.
INDUCTOR = f"/tmp/torchinductor_{os.getuid()}"  # noqa: S108


@pytest.mark.parametrize(
    ("environment", "places"),
    [
        ({}, ["/root/.cache/numba", INDUCTOR, "/root/.triton/cache"]),
        ({"HOME": "/h", "TMPDIR": "/t"}, ["/h/.cache/numba", f"/t/{Path(INDUCTOR).name}", "/h/.triton/cache"]),
        ({"XDG_CACHE_HOME": "/c", "TRITON_HOME": "/o"}, ["/c/numba", INDUCTOR, "/o/.triton/cache"]),
        (dict(zip(COMPILED, "abc", strict=True)), ["a", "b", "c"]),
    ],
)
def test_places_of_what_is_compiled(environment: dict[str, str], places: list[str]) -> None:
    assert [str(place) for place in written.compiled(environment)] == places


def test_a_plan_names_every_place_of_what_is_compiled() -> None:
    """With no variable of a plan, some of them are where the root of a container is read only."""
    named = {str(place) for place in written.compiled(writable.VARIABLES)}
    assert named == {writable.VARIABLES[name] for name in COMPILED}


def test_serve_takes_the_model_as_its_first_word(run: Run) -> None:
    done = run("serve", "/data/models/y", "--max-model-len", "1024", HLS_MODULE_ID="0")
    assert json.loads(done.stdout.splitlines()[-1])["server"][3] == "/data/models/y"


@pytest.mark.parametrize(
    ("arguments", "environment", "status", "message"),
    [
        (["--bogus"], {}, 2, "api_server.py: error: unrecognized arguments: --bogus"),
        (["--port", "1"], {}, 2, "the following arguments are required: --model"),
        (ARGUMENTS, {"VLLM_NO_SUCH_THING": "1"}, 2, "knows no environment variable VLLM_NO_SUCH_THING"),
        (ARGUMENTS, {"HABANA_VISIBLE_MODULES": "0,99", "X": ""}, 0, ""),
        ([*ARGUMENTS, "-tp", "2"], {"HABANA_VISIBLE_MODULES": "0,99"}, 1, "synStatus=8 [Device not found]"),
        ([*ARGUMENTS, "--max-num-batched-tokens", "512"], {}, 1, "smaller than max_model_len (1024)"),
        ([*ARGUMENTS, "--max-num-batched-tokens", "1024", "--max-num-seqs", "2000"], {}, 1, "max_num_seqs (2000)"),
        (ARGUMENTS, {"VLLM_PROMPT_SEQ_BUCKET_MIN": "512"}, 1, "AssertionError"),
    ],
)
def test_status_and_words(
    run: Run, arguments: list[str], environment: dict[str, str], status: int, message: str
) -> None:
    done = run("api_server", *arguments, **environment)
    assert done.returncode == status, done.stderr
    assert message in done.stderr


@pytest.mark.parametrize(
    ("fault", "status", "message", "warmed"),
    [
        ({"crash_at_start": True}, 1, "(simulated fault)", 0),
        ({"out_of_memory_at_warmup": 3}, 1, "MODULE:PT_DEVMEM Allocation failed", 2),
        ({"crash_after": 0.3, "hang_at_warmup": 2}, -9, "", 1),
    ],
)
def test_described_faults(run: Run, fault: dict[str, Any], status: int, message: str, warmed: int) -> None:
    done = run("api_server", *ARGUMENTS, described={"faults": fault})
    assert done.returncode == status
    assert message in done.stderr
    assert done.stdout.count("[Warmup][") == warmed


def test_a_fault_of_the_second_worker_of_four_is_the_cause_that_is_named(run: Run) -> None:
    words = "RuntimeError: Scaling method X is not supported for runtime scale patching"
    fault = {"worker_fails": {"worker": 1, "words": words}}
    arguments = ("api_server", *V1, "--tensor-parallel-size", "4")
    done = run(*arguments, release="1.24.1", described={"faults": fault}, HABANA_VISIBLE_MODULES="0,1,2,3")
    assert done.returncode == 1
    lines = lines_of(done)
    assert {RANK.match(line)[1] for line in lines if "Traceback" in line and RANK.match(line)} == {"1"}  # type: ignore[index]
    reason = diagnose(lines, 1, False, 0, Progress())
    assert (reason.kind, reason.retry) == ("scale-patching", False)
    assert words in reason.message
    # The last error of the log is a wrapper, as with the real server.
    assert "Engine core initialization failed" in lines[-1]


def test_a_skipped_warm_up_and_a_wrong_answer(run: Run) -> None:
    done = run("api_server", *ARGUMENTS, described={"faults": {"wrong_answer": True}}, VLLM_SKIP_WARMUP="true")
    assert "Skipping warmup..." in done.stdout
    assert "[Warmup][" not in done.stdout
    assert json.loads(done.stdout.splitlines()[-1])["server"][-2:] == [
        "--middleware",
        "gaudi_simulated.faults.WrongAnswer",
    ]


def test_translation_keeps_what_is_the_servers_and_drops_the_accelerators() -> None:
    command = surface.parse(
        R122,
        [
            *(
                "--model",
                "/m",
                "--served-model-name",
                "a",
                "b",
                "--middleware",
                "x.Y",
                "--middleware",
                "z.W",
                "--port",
                "1",
            ),
            *("-tp", "8", "--use-padding-aware-scheduling", "--max-num-seqs", "128", "--trust-remote-code"),
            *("--weights-load-device", "cpu", "--kv-cache-dtype", "fp8_inc", "--no-enable-prefix-caching"),
        ],
    )
    words = front.translate(command, R122)
    assert words[:2] == ["--model", "/m"]
    for kept in (["--served-model-name", "a", "b"], ["--middleware", "x.Y", "--middleware", "z.W"], ["--port", "1"]):
        assert " ".join(kept) in " ".join(words)
    assert "--trust-remote-code" in words
    assert words[words.index("--max-num-seqs") + 1] == "16"
    dropped = {
        "-tp",
        "--tensor-parallel-size",
        "--use-padding-aware-scheduling",
        "--weights-load-device",
        "--kv-cache-dtype",
    }
    assert not dropped & set(words)
    assert "--enable-prefix-caching" not in words


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"choices": [{"message": {"content": "Paris"}}]}', faults.NONSENSE),
        (b'{"choices": [{"text": "Paris"}]}', faults.NONSENSE),
        (b'{"data": []}', '{"data": []}'),
        (b"[1]", "[1]"),
        (b"not json", "not json"),
    ],
)
def test_only_completions_are_distorted(body: bytes, expected: str) -> None:
    assert expected in faults.distort(body).decode()
    assert b"Paris" not in faults.distort(body)


def test_a_distorted_response_says_how_long_it_is() -> None:
    sent: list[MutableMapping[str, Any]] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"5"), (b"x", b"y")]})
        await send({"type": "http.response.body", "body": b'{"choices": [{"te', "more_body": True})
        await send({"type": "http.response.body", "body": b'xt": "Paris"}]}'})

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    async def receive() -> MutableMapping[str, Any]:
        return {}

    asyncio.run(faults.WrongAnswer(app)({"type": "http"}, receive, send))
    assert json.loads(sent[1]["body"])["choices"][0]["text"] == faults.NONSENSE
    assert sent[0]["headers"] == [(b"x", b"y"), (b"content-length", str(len(sent[1]["body"])).encode())]


def answered_to(app: Any, *parts: bytes) -> list[MutableMapping[str, Any]]:
    """What an application sends for a request that comes in parts."""
    sent: list[MutableMapping[str, Any]] = []
    coming = [
        {"type": "http.request", "body": part, "more_body": number < len(parts)} for number, part in enumerate(parts, 1)
    ]

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    async def receive() -> MutableMapping[str, Any]:
        return coming.pop(0)

    asyncio.run(app({"type": "http"}, receive, send))
    return sent


def test_long_requests_alone_are_answered_with_garbage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(faults.GARBAGE_FROM, "8")
    read: list[bytes] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        more = True
        while more:
            message = await receive()
            read.append(message["body"])
            more = message["more_body"]
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b'{"choices": [{"text": "Paris"}]}'})

    whole = [
        answered_to(faults.LongPromptGarbage(app), *parts)[-1]["body"] for parts in ([b"1234", b"567"], [b"1" * 9])
    ]
    assert b"Paris" in whole[0]
    assert json.loads(whole[1])["choices"][0]["text"] == faults.GARBAGE
    assert answered_to(faults.LongPromptGarbage(app), b"1234", b"5678", b"9")[-1]["body"] == whole[1]
    assert read == [b"1234", b"567", b"1" * 9, b"1234", b"5678", b"9"]


@pytest.mark.parametrize("release", ["1.18", "1.21", "1.22", "deepseek-r1", "1.23", "1.24.1"])
def test_prompt_beyond_what_was_warmed_up_is_printed_once_as_the_release_does(
    release: str, capfd: pytest.CaptureFixture[str]
) -> None:
    names = surface.load(SOURCE.parent / "surface", release)
    server = unprepared.Unprepared(None, unprepared.environment(names, [(1, 128, 2), (2, 256, 0)]))  # type: ignore[arg-type]
    for tokens in (5, 384, 385, 400, 3100):
        server.look(tokens)
    found = [shape_of(line) for line in capfd.readouterr().out.splitlines()]
    assert [shape.key for shape in found if shape] == ["prompt 1 512 0", "prompt 1 3200 0"]


def test_reply_is_passed_on_while_its_usage_is_read(capfd: pytest.CaptureFixture[str]) -> None:
    parts = [b'{"choices": [], "usage": {"prompt_to', b'kens": 300, "completion_tokens": 4}}']

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for part in parts:
            await send({"type": "http.response.body", "body": part, "more_body": part == parts[0]})

    given = unprepared.environment(R122, [(1, 256)])
    sent = answered_to(unprepared.Unprepared(app, given))
    assert [message.get("body") for message in sent] == [None, *parts]
    assert capfd.readouterr().out.count("Configuration: ('prompt', 1, 384) was not warmed-up!") == 1


def test_server_is_told_what_was_warmed_up(run: Run) -> None:
    described = {"faults": {"slow_warmup": 0.0, "garbage_from": 4000}}
    told = json.loads(run("api_server", *ARGUMENTS, described=described).stdout.splitlines()[-1])
    assert json.loads(told["environment"][unprepared.PREPARED]) == {"longest": 256, "form": "('prompt', 1, {size})"}
    assert told["environment"][faults.GARBAGE_FROM] == "4000"
    assert "gaudi_simulated.unprepared.Unprepared" in told["server"]
    assert told["server"][-1] == "gaudi_simulated.faults.LongPromptGarbage"
    told = json.loads(run("api_server", *V1, release="1.24.1", HLS_MODULE_ID="0").stdout.splitlines()[-1])
    prepared = json.loads(told["environment"][unprepared.PREPARED])
    assert prepared["form"] == "('prompt', 1, {size}, 0)"
    assert prepared["longest"] >= 512
