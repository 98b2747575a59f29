"""What a benchmark runs: the benchmark client of the release, in a container of its image, without a card.

Which client a release has and which options it takes is data (``benchmark`` in catalog/releases). Newer clients keep a
given number of requests in flight; the oldest cannot, and send one burst for each concurrency.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..base.refusal import Refusal
from ..serving.plan import OFFLINE, OWN_DIRECTORIES, Plan
from .figures import MOST_STEPS

SCHEMA = 1
# Where the container finds its configuration, and the token for a guarded instance.
DIRECTORY = "/run/gaudi-serving/bench"
RESULTS = "/tmp/gaudi-bench"  # noqa: S108 - a tmpfs of the container's own
PROMPTS = f"{RESULTS}/prompts.json"
# Requests for each one in flight, if the site does not set a number.
ROUNDS = 4
MOST_CONCURRENT, MOST_REQUESTS, MOST_TOKENS = 4096, 100_000, 1_000_000
# Default lengths in tokens, limited by the model length.
INPUT_TOKENS, OUTPUT_TOKENS = 1024, 128
# Limits for the oldest client, which skips prompts of more than 1024 tokens and conversations of more than 2048
# (benchmark_serving.py of 1.16). One of our words is one token, or a little more.
LONGEST_WORDS, LONGEST_CONVERSATION = 900, 2000
# The instance is asked directly, whatever proxies Docker's client gives to containers (~/.docker/config.json).
_DIRECT = {"no_proxy": "*", "NO_PROXY": "*"}
# Tasks that produce tokens to count.
WRITING = ("generate", "complete")


@dataclass(frozen=True)
class BenchmarkClient:
    """The benchmark client of a release: a command, or a script below the checkout, and the options that it takes."""

    program: str
    takes: frozenset[str]

    @classmethod
    def of_release(cls, release: Mapping[str, Any]) -> BenchmarkClient | None:
        """Read a release file's ``benchmark``; None where it names none."""
        said = release.get("benchmark")
        if not said:
            return None
        script = said.get("script")
        program = f"{release['fork_directory']}/{script}" if script else "vllm"
        return cls(program, frozenset(said.get("takes", ())))


@dataclass(frozen=True)
class BenchmarkLoad:
    """The load that a benchmark puts on an instance; 0 means: choose a fitting number."""

    concurrency: tuple[int, ...]
    input_tokens: int = 0
    output_tokens: int = 0
    requests: int = 0

    def check(self) -> None:
        """Raise Refusal for numbers that are out of range or repeated."""
        if not 0 < len(self.concurrency) <= MOST_STEPS or len(set(self.concurrency)) != len(self.concurrency):
            raise Refusal(
                "not_a_concurrency",
                f"bench_concurrency names no number, more than {MOST_STEPS}, or one twice; 1,4,16 are three.",
            )
        limits = {
            "bench_concurrency": (self.concurrency, 1, MOST_CONCURRENT),
            "bench_input_tokens": ((self.input_tokens,), 0, MOST_TOKENS),
            "bench_output_tokens": ((self.output_tokens,), 0, MOST_TOKENS),
            "bench_requests": ((self.requests,), 0, MOST_REQUESTS),
        }
        for name, (values, least, most) in limits.items():
            for value in values:
                if not least <= value <= most:
                    raise Refusal("out_of_range", f"{name} has {value}; {least} to {most} are possible.")


def concurrencies(words: Sequence[str]) -> tuple[int, ...]:
    """Parse the option bench_concurrency: requests in flight. Raises Refusal for anything but whole numbers."""
    wrong = [word for word in words if not word.strip().isdecimal()]
    if wrong:
        raise Refusal(
            "not_a_concurrency", f"bench_concurrency has {wrong[0]!r}; whole numbers such as 1,4,16 are possible."
        )
    return tuple(map(int, words))


def describe(
    plan: Mapping[str, Any], digest: str, client: BenchmarkClient | None, load: BenchmarkLoad
) -> dict[str, Any]:
    """Return the configuration of bench.py. Raises Refusal if the instance cannot be measured like this.

    plan: plan.json of the instance; digest: that of the plan its server runs with.
    """
    load.check()
    name, release = plan["instance"], plan["release"]
    if plan["task"] not in WRITING:
        raise Refusal(
            "no_tokens_to_measure",
            f"{name} answers with numbers ({plan['task']}), and what is measured here is tokens. Only instances that "
            "write text can be measured.",
        )
    if client is None:
        raise Refusal("no_benchmark", f"The file of release {release} names no benchmark client, so {name} has none.")
    read = Plan.from_document(dict(plan))
    lengths = _lengths(plan, load)
    _check_old_client(client, load, lengths, release)
    return {
        "schema": SCHEMA,
        "instance": name,
        "plan": digest,
        "release": release,
        "model": plan["served_model_name"],
        "image": read.image,
        "url": read.endpoint,
        "guarded": bool(plan["guarded"]),
        "input_tokens": lengths[0],
        "output_tokens": lengths[1],
        "program": client.program,
        "own_prompts": "--random-input-len" not in client.takes,
        "steps": [_step(plan, read, client, number, load, lengths) for number in sorted(load.concurrency)],
        "container": _container(read),
    }


def value_of(arguments: Sequence[str], option: str) -> str | None:
    """The value of an option on a server's command line, by either spelling; None where it is not there."""
    named = [word.replace("_", "-") if word.startswith("--") else word for word in arguments]
    for place, word in enumerate(named):
        if word == option and place + 1 < len(arguments):
            return arguments[place + 1]
        if word.startswith(f"{option}="):
            return arguments[place].partition("=")[2]
    return None


def _lengths(plan: Mapping[str, Any], load: BenchmarkLoad) -> tuple[int, int]:
    """Return the tokens of a prompt and of an answer. Raises Refusal if they exceed the model length."""
    said = value_of(plan["arguments"], "--max-model-len")
    room = int(said) if said and said.isdigit() else INPUT_TOKENS + OUTPUT_TOKENS
    written = load.output_tokens or min(OUTPUT_TOKENS, max(1, room // 4))
    # A random prompt may gain some tokens when it becomes text, so the default is at most half of what the answer
    # leaves.
    asked = load.input_tokens or min(INPUT_TOKENS, max(1, (room - written) // 2))
    if said and asked + written > room:
        raise Refusal(
            "longer_than_model",
            f"{asked} tokens of input and {written} of output are more than the {room} that {plan['instance']} has "
            "(max_model_len). Ask for less with bench_input_tokens and bench_output_tokens.",
        )
    return asked, written


def _check_old_client(client: BenchmarkClient, load: BenchmarkLoad, lengths: tuple[int, int], release: str) -> None:
    """Refuse settings that the oldest clients do not support."""
    if load.requests and "--max-concurrency" not in client.takes:
        raise Refusal(
            "one_burst",
            f"The benchmark of release {release} sends all requests at once: each concurrency is one burst of as many. "
            "Leave bench_requests out.",
        )
    if load.requests and load.requests < max(load.concurrency):
        raise Refusal(
            "too_few_requests",
            f"{load.requests} requests are never {max(load.concurrency)} at a time. Ask for more with bench_requests.",
        )
    if "--random-input-len" not in client.takes and (lengths[0] > LONGEST_WORDS or sum(lengths) > LONGEST_CONVERSATION):
        raise Refusal(
            "prompts_left_out",
            f"The benchmark of release {release} leaves out prompts of more than 1024 tokens, and those that are more "
            f"than 2048 with their answer. Ask for at most {LONGEST_WORDS} with bench_input_tokens, and at most "
            f"{LONGEST_CONVERSATION} in all.",
        )


def _step(
    plan: Mapping[str, Any],
    read: Plan,
    client: BenchmarkClient,
    number: int,
    load: BenchmarkLoad,
    lengths: tuple[int, int],
) -> dict[str, Any]:
    """Return one concurrency with the arguments of its client call. The node draws a new seed for each run."""
    several = "--max-concurrency" in client.takes
    requests = (load.requests or number * ROUNDS) if several else number
    arguments = plan["arguments"]
    words = [] if client.program != "vllm" else ["bench", "serve"]
    words += ["--base-url", read.endpoint, "--endpoint", "/v1/completions", "--model", read.served_model_name]
    # Weights of a hub are named as the server's command line names them, and lie in the hub's cache.
    named = plan["requires"]["weights_path"] or value_of(arguments, "--model")
    words += ["--tokenizer", value_of(arguments, "--tokenizer") or str(named)]
    words += ["--trust-remote-code"] if "--trust-remote-code" in arguments else []
    words += ["--num-prompts", str(requests), "--save-result", "--result-dir", f"{RESULTS}/{number}"]
    words += ["--max-concurrency", str(number)] if several else []
    words += ["--ignore-eos"] if "--ignore-eos" in client.takes else []
    if "--random-input-len" in client.takes:
        words += ["--dataset-name", "random", "--random-input-len", str(lengths[0])]
        words += ["--random-output-len", str(lengths[1])]
    else:
        words += ["--dataset-name", "sharegpt", "--dataset-path", PROMPTS, "--sharegpt-output-len", str(lengths[1])]
    return {"concurrency": number, "requests": requests, "results": f"{RESULTS}/{number}", "arguments": words}


def _container(read: Plan) -> dict[str, Any]:
    """The server's own isolation, without cards and without what only a server needs."""
    box = read.container
    cache = box.get("environment", {}).get("HF_HOME")
    kept = [
        item
        for item in box["mounts"]
        if (item.get("read_only") and item["target"] not in OWN_DIRECTORIES) or item["target"] == cache
    ]
    return {
        "name": f"bench-{read.instance}",
        "network": box["network"],
        "shm_mib": box.get("shm_mib"),
        "pids": box.get("pids"),
        "tmpfs": box["tmpfs"],
        "mounts": kept,
        "environment": {**box.get("environment", {}), **dict.fromkeys(OFFLINE, "1"), **read.no_code, **_DIRECT},
        "working_directory": "/tmp",  # noqa: S108 - a tmpfs of the container's own
    }


def said(document: Mapping[str, Any]) -> str:
    """Say in one sentence what the benchmark would send."""
    steps = ", ".join(f"{step['requests']} with {step['concurrency']} at a time" for step in document["steps"])
    return (
        f"{document['instance']} ({document['model']}, release {document['release']}) is asked at {document['url']}: "
        f"{steps}; {document['input_tokens']} tokens of input and {document['output_tokens']} of output each."
    )
