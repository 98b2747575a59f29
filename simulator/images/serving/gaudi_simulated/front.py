"""Take a Gaudi release's command line and environment, do what its server would show, then become the real vLLM.

``front.py api_server ARGS`` and ``front.py serve MODEL ARGS``. The process that checks, prints and acquires the cards
is the one that becomes the server: signals and exit status are the server's own.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn

from . import cards, fp8, memory, processes, recipes, surface, unprepared, v1, warmup, written
from . import faults as described

HERE = Path(__file__).resolve().parent
RELEASE_FILE = HERE.parent / "release"
SURFACES = HERE.parent / "surface"
# What vLLM found out about the tiny model's class when the image was built (inspect_model.py).
CACHE = HERE.parent / "cache"
# The real vLLM for CPUs, where it lies apart: in an image that was built from the stand-in fork, whose package is vllm.
CPU = HERE.parent / "cpu"
PYTHON = "/opt/venv/bin/python3"

# Options that mean the same to the real vLLM for CPUs; everything else is about the accelerator.
PASSED = (
    "--host", "--port", "--served-model-name", "--api-key", "--middleware", "--max-model-len", "--seed",
    "--tokenizer", "--chat-template", "--chat-template-content-format", "--response-role", "--root-path",
    "--ssl-keyfile", "--ssl-certfile", "--ssl-ca-certs", "--uvicorn-log-level", "--allowed-origins",
    "--allowed-methods", "--allowed-headers", "--allow-credentials", "--trust-remote-code", "--generation-config",
    "--disable-uvicorn-access-log", "--disable-fastapi-docs", "--enable-request-id-headers",
    "--enable-auto-tool-choice", "--tool-call-parser", "--reasoning-parser", "--max-logprobs",
    "--return-tokens-as-token-ids", "--enable-prompt-tokens-details", "--hf-overrides", "--enable-prefix-caching",
    "--structured-outputs-config", "--enable-log-requests", "--shutdown-timeout",
)  # fmt: skip
# Sequences at a time: the machine below is small.
MOST_SEQUENCES = 16
# Variables of vLLM's own that mean the same to the real vLLM for CPUs.
KEPT = ("VLLM_API_KEY", "VLLM_CACHE_ROOT", "VLLM_CONFIG_ROOT", "VLLM_LOGGING_LEVEL")
SECRETS = ("--api-key", "--hf-token", "VLLM_API_KEY")
DEVICE_GIB = 94.62
# A warm-up takes this long in all, unless the node description asks for a slow one.
QUICK_WARMUP = 2.0


def log(message: str, source: str = "hpu_model_runner.py", level: str = "INFO") -> None:
    """Print a line the way the release's logger does, marked; what vLLM puts before a process's lines stays first."""
    found = processes.SPEAKER.match(message)
    speaker = found[0] if found else ""
    when = datetime.now().strftime("%m-%d %H:%M:%S")
    print(f"{speaker}{level} {when} [simulated {source}] {message[len(speaker) :]}", flush=True)


def fail(message: str, status: int = 1) -> NoReturn:
    """End like the server: a message on stderr and a status."""
    sys.stdout.flush()
    print(message, file=sys.stderr, flush=True)
    sys.exit(status)


def record(release: str, arguments: list[str], environment: Mapping[str, str], modules: list[int]) -> str:
    """Return one line of JSON with what the server was given, without secrets."""
    shown = list(arguments)
    for position, word in enumerate(shown):
        name, has_value, _ = word.partition("=")
        if name in SECRETS and has_value:
            shown[position] = f"{name}=(hidden)"
        elif name in SECRETS and position + 1 < len(shown):
            shown[position + 1] = "(hidden)"
    families = {name: value for name, value in environment.items() if name.startswith(surface.FAMILIES)}
    given: dict[str, Any] = {
        "simulated": True,
        "release": release,
        "arguments": shown,
        "environment": {name: "(hidden)" if name in SECRETS else families[name] for name in sorted(families)},
        "modules": modules,
        "numactl": json.loads(environment.get("GAUDI_SIMULATED_NUMACTL", "null")),
        "user": os.getuid(),
    }
    return json.dumps(given)


def model_length(model: Path) -> int:
    """Return the length a model was made for; the real server, started later, says what is wrong with the model."""
    configuration = model / "config.json"
    if not configuration.is_file():
        return 2048
    return int(json.loads(configuration.read_text(encoding="utf-8")).get("max_position_embeddings", 2048))


def limits_of(command: surface.Command) -> warmup.Limits:
    """Return the server's limits, with vLLM's defaults; ValueError where the scheduler refuses them."""
    length = command.number("--max-model-len", model_length(Path(command.text("--model"))))
    tokens = command.number("--max-num-batched-tokens", max(length, 2048))
    sequences = command.number("--max-num-seqs", 128)
    if tokens < length:
        raise ValueError(
            f"max_num_batched_tokens ({tokens}) is smaller than max_model_len ({length}). This effectively limits the "
            "maximum sequence length to max_num_batched_tokens and makes vLLM reject longer sequences. Please "
            "increase max_num_batched_tokens or decrease max_model_len."
        )
    if tokens < sequences:
        raise ValueError(
            f"max_num_batched_tokens ({tokens}) must be greater than or equal to max_num_seqs ({sequences})."
        )
    return warmup.Limits(length, tokens, sequences, min(command.number("--max-num-prefill-seqs", sequences), sequences))


def translate(command: surface.Command, names: surface.Surface) -> list[str]:
    """Return the command line of the real vLLM for CPUs."""
    arguments = ["--model", command.text("--model")]
    for name in PASSED:
        values = command.values.get(name)
        if values is None or values == ["false"]:
            continue
        option = names.options[name]
        if option.is_flag:
            arguments.append(name)
        elif option.kind == "append":
            for value in values:
                arguments += [name, value]
        else:
            arguments += [name, *values]
    return [
        *arguments,
        "--max-num-seqs",
        str(min(command.number("--max-num-seqs", MOST_SEQUENCES), MOST_SEQUENCES)),
        *("--dtype", "bfloat16", "--enforce-eager", "--block-size", str(warmup.BLOCK)),
    ]


def real_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of the real vLLM: without the accelerator's variables, and off every network.

    Where it may write is said by whoever starts the container: nothing of that is made up here.
    """
    kept = {name: value for name, value in environment.items() if not name.startswith(surface.FAMILIES) or name in KEPT}
    if CPU.is_dir():
        kept["PYTHONPATH"] = os.pathsep.join(filter(None, [str(CPU), kept.get("PYTHONPATH")]))
    return kept | {
        "VLLM_CPU_KVCACHE_SPACE": "1",
        # numactl has bound the process; vLLM must not look for cores of its own.
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "VLLM_NO_USAGE_STATS": "1",
        # Even with --enforce-eager vLLM compiles small helpers for some requests (logprobs), and there is no compiler.
        "TORCHDYNAMO_DISABLE": "1",
        "HF_HUB_OFFLINE": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def warm_up(
    names: surface.Surface, command: surface.Command, environment: Mapping[str, str], faults: Mapping[str, Any]
) -> Iterable[Sequence[int]]:
    """Print the bucket configuration and the warm-up lines, at the described pace and with the described faults.

    Returns the prompts that are warmed up.
    """
    if not names.has_buckets:
        # Such a server warms nothing up.
        return []
    work = warmup.buckets(environment, limits_of(command), padding_limits=names.reads_padding_limits)
    for line in work.configuration:
        log(line, "bucketing.py")
    if environment.get("VLLM_SKIP_WARMUP", "false").lower() in ("1", "true"):
        log("Skipping warmup...")
        return []
    log(f"Generated {len(work.prompt)} prompt buckets, {len(work.decode)} decode buckets", "bucketing.py")
    begin = time.monotonic()
    lines = list(warmup.lines(names.warmup_lines, work, DEVICE_GIB - 40))
    pause = faults.get("slow_warmup", QUICK_WARMUP / max(len(lines), 100))
    cache = recipes.Cache(environment)
    for number, line in enumerate(lines, start=1):
        if number == faults.get("hang_at_warmup"):
            signal.pause()
        if number == faults.get("out_of_memory_at_warmup"):
            fail(memory.OUT_OF_MEMORY)
        log(line)
        cache.warm(recipes.graph_of(line), pause)
    log(f"Warmup finished in {time.monotonic() - begin:.0f} secs, allocated 8 GiB of device memory")
    return work.prompt


def check(names: surface.Surface, command: surface.Command) -> None:
    """Refuse what the server's own configuration refuses, with ValueError or StartError."""
    if not names.has_plugin:
        limits_of(command)
        return
    for warning in v1.check_environment(names, command, os.environ):
        log(warning, "envs.py", "WARNING")
    v1.engine_of(names, command, model_length(Path(command.text("--model"))))


def start_v1(
    names: surface.Surface, called: str, command: surface.Command, node: Mapping[str, Any], modules: Sequence[int]
) -> Iterable[Sequence[int]]:
    """Print how a server with the plugin divides its memory and warms up; returns the prompts that are warmed up."""
    model = Path(command.text("--model"))
    card = next(card for card in node["cards"] if card["module_id"] in modules)
    engine = v1.engine_of(names, command, model_length(model))
    divided = memory.memory_of(command, os.environ, engine, card, model)
    waiting = v1.Waiting(called, command, os.environ)
    config = memory.config_of(model)
    return v1.start(command, os.environ, engine, divided, config, node["faults"], QUICK_WARMUP, log, waiting)


def last_words(names: surface.Surface, command: surface.Command, error: Exception) -> str:
    """What a failed start leaves on stderr; with the plugin each of its processes says something of it."""
    worded = isinstance(error, (cards.AcquireError, warmup.BucketError, processes.StartError))
    said = str(error) if worded else f"{type(error).__name__}: {error}"
    if not names.has_plugin:
        return said
    if not isinstance(error, processes.StartError):
        kind = processes.WorkerNotMade if isinstance(error, cards.AcquireError) else processes.StartError
        error = kind(said).with_traceback(error.__traceback__)
    model = memory.config_of(Path(command.text("--model")))
    running = processes.started(command, names.vllm_version == "0.17.1", model)
    return processes.last_words(running, error, log)


def kill_later(seconds: float) -> None:
    """Leave a child behind that kills this process, whatever it has become by then."""
    if os.fork() == 0:
        time.sleep(seconds)
        os.kill(os.getppid(), signal.SIGKILL)
        os._exit(0)


def read_command(names: surface.Surface, release: str, called: str, given: list[str]) -> surface.Command:
    """Take the command line and the variables as the release's own parser does, or end as it ends."""
    program = "api_server.py" if called == "api_server" else "vllm serve"
    try:
        command = surface.parse(names, given)
        if not command.text("--model"):
            raise surface.UsageError("the following arguments are required: --model")
        # vLLM itself only warns, of the plugin's own variables as well (v1.check_environment).
        if not names.has_plugin and (unknown := surface.unknown_variables(names, os.environ)):
            raise surface.UsageError(f"release {release} knows no environment variable {', '.join(unknown)}")
    except surface.UsageError as error:
        fail(f"usage: {program} [options]\n{program}: error: {error}", 2)
    return command


def known() -> surface.Surface:
    """What the release of this image knows."""
    return surface.load(SURFACES, RELEASE_FILE.read_text(encoding="ascii").strip())


def main(arguments: list[str]) -> NoReturn:
    """Check, show, acquire, and become the server."""
    names = known()
    release = names.release
    called, given = arguments[0], arguments[1:]
    if called == "serve" and given and not given[0].startswith("-"):
        given = ["--model", *given]
    print(f"SIMULATED Gaudi release {release}: the real vLLM for CPUs answers, no accelerator is used.", flush=True)
    command = read_command(names, release, called, given)
    try:
        node = cards.load_node()
        faults = node["faults"]
        if "crash_after" in faults:
            kill_later(faults["crash_after"])
        if faults.get("crash_at_start"):
            raise processes.StartError(
                "RuntimeError: Engine core initialization failed. See root cause above. (simulated fault)"
            )
        # Limits first: a request the scheduler refuses never reaches a card.
        check(names, command)
        written.write_log(os.environ)
        modules = cards.acquire(node, os.environ, v1.devices(command))
        log(f"given {record(release, given, os.environ, modules)}", "front.py")
        if command.text("--trust-remote-code") == "true":
            written.write_modules(os.environ)
        written.write_caches(os.environ, CACHE)
        written.write_compiled(os.environ)
        if names.has_plugin:
            prompts = start_v1(names, called, command, node, modules)
        else:
            prompts = warm_up(names, command, os.environ, faults)
        scratch = tempfile.mkdtemp(prefix="gaudi-simulated-")
        model = fp8.readable(Path(command.text("--model")), Path(scratch, "model"))
    except (cards.AcquireError, warmup.BucketError, processes.StartError, ValueError, OSError) as error:
        fail(last_words(names, command, error))
    server = ["--model", str(model), *translate(command, names)[2:]]
    given_on = real_environment(os.environ) | unprepared.environment(names, prompts)
    if unprepared.PREPARED in given_on:
        server += ["--middleware", "gaudi_simulated.unprepared.Unprepared"]
    if faults.get("wrong_answer"):
        server += ["--middleware", "gaudi_simulated.faults.WrongAnswer"]
    if "garbage_from" in faults:
        given_on[described.GARBAGE_FROM] = str(faults["garbage_from"])
        server += ["--middleware", "gaudi_simulated.faults.LongPromptGarbage"]
    log(f"becoming the real vLLM for CPUs: {' '.join(word for word in server if word.startswith('--'))}", "front.py")
    sys.stdout.flush()
    os.execve(PYTHON, [PYTHON, "-m", "gaudi_simulated.forked", *server], given_on)


if __name__ == "__main__":
    main(sys.argv[1:])
