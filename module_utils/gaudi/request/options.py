"""A request: what somebody wants served. Every option has a type and a range; unknown options are refused."""

from __future__ import annotations

import difflib
import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from math import isfinite

from ..base.absent import absent
from ..base.checks import (
    HUB_ID,
    choice,
    integer,
    mapping,
    matching,
    number,
    only_known,
    question,
    sequence,
    shown,
    switch,
    text,
)
from ..base.places import check_place, normal
from ..base.refusal import Refusal
from ..base.values import BORROWER, INSTANCE

MODEL = re.compile(r"[a-z0-9][a-z0-9._-]{0,94}")
# A path that a bind mount can carry on a command line: absolute, no ":" or "," (they separate there).
PATH = re.compile(r"/[^:,\"\\]*")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:@+-]{0,254}")
HOST_NAME = re.compile(
    r"(?=.{1,253}$)(?=.*[A-Za-z])[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*"
)
# A registry's name with a port where it needs one, and a path where a mirror keeps others' images below one.
REGISTRY = re.compile(
    r"[a-z0-9]([a-z0-9.-]{0,252}[a-z0-9])?(:[0-9]{1,5})?(/[a-z0-9]([a-z0-9._-]{0,126}[a-z0-9])?){0,8}"
)
INTERFACE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@-]{0,14}")
METHOD = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")

DTYPES = ("auto", "bfloat16", "float16", "float32", "fp8", "awq", "gptq")
STRATEGIES = ("min_tokens", "max_bs")
# Whose shared memory a container has.
IPC = ("private", "host")
# How buckets are spaced, in the words of a request.
BUCKETINGS = ("exponential", "linear", "padding-aware", "file", "unified")
# What a prompt can bring beside text, and how many of one kind anybody allows.
MEDIA = ("audio", "image", "video")
MOST_MEDIA = 1024
KV_CACHE_DTYPES = ("auto", "fp8", "fp8_inc", "fp8_e4m3", "fp8_e5m2")

# Longest context anybody asks of these servers, and most sequences: a million tokens, 4096 requests at once.
# They bound the work of a plan, far above what the cards can hold.
LONGEST = 1 << 20
MOST_SEQUENCES = 4096

# Characters of a reason; less is no reason that anybody else understands.
SHORTEST_REASON = 10

# What ``modules: all`` becomes: the module ids are the node's to say.
ALL: tuple[int, ...] = ()


@dataclass(frozen=True)
class RecipeCache:
    """Where compiled recipes are kept; ``size_mib`` None means the release's own size.

    The directory is the container's, and the node's as well where it was asked for. Where ``keyed`` it is not: on the
    node they lie in a folder by what they are compiled for.
    """

    directory: str
    size_mib: int | None = None
    keyed: bool = False


@dataclass(frozen=True)
class PartialWarmup:
    """Warm up only the busy part: up to this many sequences, up to this many tokens."""

    max_num_seqs: int
    max_seq_len: int


@dataclass(frozen=True)
class InstanceRequest:
    """The typed options of a request. None means: not said, the model's or the release's default applies."""

    instance: str | None = None
    model: str | None = None
    weights: str | None = None
    model_config: Mapping[str, object] | None = None
    served_model_name: str | None = None
    share_card_with: tuple[str, ...] = ()
    tensor_parallel_size: int | None = None
    modules: tuple[int, ...] | None = None
    dtype: str | None = None
    quantization_config: str | None = None
    kv_cache_dtype: str | None = None
    max_model_len: int | None = None
    input_range: tuple[int, int] | None = None
    output_range: tuple[int, int] | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    # 0 stands for the word auto: as many as the preferred token budget holds.
    max_num_prefill_seqs: int | None = None
    max_seq_len_to_capture: int | None = None
    gpu_memory_utilization: float | None = None
    padding_limit: float | None = None
    scheduler_steps: int | None = None
    partial_warmup: PartialWarmup | None = None
    skip_warmup: bool | None = None
    profile: bool | None = None
    zero_padding: bool | None = None
    fused_sdpa: bool | None = None
    fp32_softmax: bool | None = None
    enforce_eager: bool | None = None
    lazy_mode: bool | None = None
    block_size: int | None = None
    graph_reserved_mem: float | None = None
    graph_prompt_ratio: float | None = None
    graph_prompt_strategy: str | None = None
    graph_decode_strategy: str | None = None
    exponential_bucketing: bool | None = None
    log_step_graph_compilation: bool | None = None
    log_step_graph_compilation_all: bool | None = None
    log_step_cpu_fallbacks: bool | None = None
    log_step_cpu_fallbacks_all: bool | None = None
    metrics_gc_details: bool | None = None
    # How many pictures, films and sounds a prompt may have, and what their processor is told.
    limit_mm_per_prompt: Mapping[str, int] | None = None
    mm_processor_kwargs: Mapping[str, object] | None = None
    # Of servers that are vLLM itself with the plugin, in vLLM's own terms (PLUGIN_OPTIONS).
    data_parallel_size: int | None = None
    num_gpu_blocks_override: int | None = None
    quantization: str | None = None
    enable_expert_parallel: bool | None = None
    enable_prefix_caching: bool | None = None
    enable_chunked_prefill: bool | None = None
    enable_lora: bool | None = None
    max_loras: int | None = None
    max_lora_rank: int | None = None
    # Adapters by the name clients ask for, each a directory of the node.
    lora_modules: Mapping[str, str] = field(default_factory=dict)
    speculative_config: Mapping[str, object] | None = None
    structured_outputs_config: Mapping[str, object] | None = None
    async_scheduling: bool | None = None
    reasoning_parser: str | None = None
    tool_call_parser: str | None = None
    bucketing_strategy: str | None = None
    bucketing_file: str | None = None
    contiguous_pa: bool | None = None
    # None: not said; False: no cache.
    recipe_cache: RecipeCache | bool | None = None
    trust_remote_code: bool | None = None
    extra_args: tuple[str, ...] = ()
    extra_environment: Mapping[str, str] = field(default_factory=dict)
    host: str | None = None
    port: int | None = None
    ipc: str | None = None
    # Whether every request must bring an API key, and why others may reach it where none must.
    guarded: bool | None = None
    open_without_keys: str | None = None
    node_address: str | None = None
    network_interface: str | None = None

    @classmethod
    def from_mapping(cls, value: object) -> InstanceRequest:
        """Check a mapping of options; raises Refusal that names the option, the value and the limit."""
        given = check_options(value)
        where = _where(given)
        options = {
            name: READERS[name](option, f"{where}: {name}") for name, option in given.items() if option is not None
        }
        return cls(**options)


def check_options(value: object) -> Mapping[str, object]:
    """A request as a mapping of options that are all known; one nobody reads is refused by name."""
    given = mapping(value, "A request")
    for name in sorted(set(given) - set(OPTIONS)):
        sentence = absent(name, given[name])
        if sentence is not None:
            raise Refusal("not_offered", f"{_where(given)} does not know {shown(name)}. {sentence}")
        near = difflib.get_close_matches(name[:64], OPTIONS, 1, cutoff=0.8)
        if near:
            raise Refusal(
                "unknown_key",
                f"{_where(given)} does not know {shown(name)}.{question(near)} Correct it, or leave it out.",
            )
    only_known(given, _where(given), OPTIONS)
    return given


def name_of(request: object) -> str | None:
    """What a request goes by in a sentence: its instance, its model, or the last part of its weights' path."""
    if not isinstance(request, Mapping):
        return None
    names = [request.get(key) for key in ("instance", "model", "weights")]
    name = next((name for name in names if isinstance(name, str) and NAME.fullmatch(name.lstrip("/"))), None)
    return None if name is None else name.rstrip("/").rsplit("/", 1)[-1]


def _where(given: Mapping[str, object]) -> str:
    label = given.get("instance") or given.get("model") or given.get("weights")
    return f"Request {shown(label, 48)}" if isinstance(label, str) else "A request"


def _integer(lowest: int, highest: int):  # type: ignore[no-untyped-def]
    return lambda value, what: integer(value, what, lowest, highest)


def _number(lowest: float, highest: float):  # type: ignore[no-untyped-def]
    return lambda value, what: number(value, what, lowest, highest)


def _choice(allowed: tuple[str, ...]):  # type: ignore[no-untyped-def]
    return lambda value, what: choice(value, what, allowed)


def _matching(pattern: re.Pattern[str], form: str):  # type: ignore[no-untyped-def]
    return lambda value, what: matching(value, what, pattern, form)


def path(value: object, what: str) -> str:
    """An absolute path in its shortest form, as a bind mount can carry it."""
    return normal(matching(value, what, PATH, 'an absolute path without ":", ",", quotes and backslashes'))


def directory(value: object, what: str) -> str:
    """A directory that can be mounted at the very same place in the container."""
    result = path(value, what)
    check_place(result, what)
    return result


def registry(value: object, what: str) -> str:
    """The name of an image registry."""
    return matching(value, what, REGISTRY, "the name of a registry such as vault.habana.ai or mirror.example:5000")


def _file(value: object, what: str) -> str:
    """A file whose directory can be mounted, or one that is in the image and not mounted at all."""
    result = path(value, what)
    check_place(result.rpartition("/")[0] or "/", f"{what} (its directory)")
    return result


def _weights(value: object, what: str) -> str:
    result = text(value, what)
    if result.startswith("/"):
        return directory(result, what)
    form = "an absolute path on the node or a hub id such as Qwen/Qwen3-8B"
    return matching(result, what, HUB_ID, form)


def _pair(value: object, what: str) -> tuple[int, int]:
    if isinstance(value, str):
        value = value.split(",")
    items = sequence(value, what) if not isinstance(value, int) else [value]
    if len(items) != 2:
        raise Refusal(
            "not_a_pair",
            f"{what} needs two numbers, lowest and highest, not {shown(list(items))}. "
            f"For one fixed length write it twice, which also turns zero padding off.",
        )
    low, high = (integer(item, what, 1, LONGEST) for item in items)
    if low > high:
        raise Refusal(
            "range_backwards",
            f"{what} is {low} to {high}, the wrong way round: the first number is the lowest. Swap them.",
        )
    return low, high


def _modules(value: object, what: str) -> tuple[int, ...] | None:
    if value == "auto":
        return None
    if value == "all":
        return ALL
    if isinstance(value, int) and not isinstance(value, bool):
        value = [value]
    form = f"{what} (auto, all or a list of module ids)"
    if isinstance(value, str):
        value = value.split(",")
    items = sequence(value, form, longest=64)
    if not items:
        raise Refusal("empty", f"{what} is an empty list. Name module ids or write auto.")
    return tuple(integer(item, form, 0, 255) for item in items)


def _models(value: object, what: str) -> tuple[str, ...]:
    items = sequence(value, f"{what} (a list of models of the catalogue)", longest=16)
    return tuple(matching(item, what, MODEL, "names of files in catalog/models") for item in items)


def _prefill(value: object, what: str) -> int:
    return 0 if value in ("auto", "") else integer(value, f"{what} (auto or a number)", 1, MOST_SEQUENCES)


def _partial_warmup(value: object, what: str) -> PartialWarmup:
    given = mapping(value, what)
    only_known(given, what, ("max_num_seqs", "max_seq_len"))
    for name in ("max_num_seqs", "max_seq_len"):
        if name not in given:
            raise Refusal("missing_key", f"{what} needs max_num_seqs and max_seq_len; {name} is missing.")
    return PartialWarmup(
        integer(given["max_num_seqs"], f"{what}.max_num_seqs", 1, MOST_SEQUENCES),
        integer(given["max_seq_len"], f"{what}.max_seq_len", 1, LONGEST),
    )


def _recipe_cache(value: object, what: str) -> RecipeCache | bool:
    if value is False or value == "":
        return False
    if isinstance(value, Mapping) and value.get("directory") == "":
        return False
    if isinstance(value, str):
        return RecipeCache(directory(value, what))
    given = mapping(value, f"{what} (a directory, or directory and size in MiB, or false)")
    only_known(given, what, ("directory", "size"))
    if "directory" not in given:
        raise Refusal("missing_key", f"{what} needs a directory.")
    size = given.get("size")
    return RecipeCache(
        directory(given["directory"], f"{what}.directory"),
        None if size is None else integer(size, f"{what}.size", 1, 1 << 24),
    )


def _host(value: object, what: str) -> str:
    result = text(value, what, longest=253)
    try:
        return str(ipaddress.ip_address(result))
    except ValueError:
        return matching(
            result, what, HOST_NAME, "an address such as 127.0.0.1 (or a host name); the port is an option of its own"
        )


def _reason(value: object, what: str) -> str:
    """Words for people, who read them in a line of status."""
    result = text(value, what, longest=200).strip()
    if len(result) < SHORTEST_REASON:
        raise Refusal(
            "no_reason",
            f"{what} is {shown(value)}, but must be the reason in words, such as 'the gateway asks for keys'.",
        )
    return result


def _address(value: object, what: str) -> str:
    result = text(value, what, longest=64)
    try:
        address = ipaddress.ip_address(result)
    except ValueError:
        raise Refusal(
            "not_an_address", f"{what} must be an address of this node such as 10.20.0.11, not {shown(result)}."
        ) from None
    if address.is_unspecified:
        raise Refusal(
            "unspecified_address",
            f"{what} is {result}, which no other node can connect to. Name one address of this node.",
        )
    return str(address)


def _arguments(value: object, what: str) -> tuple[str, ...]:
    # YAML reads a number where an argument was meant; true and false are no arguments of any option.
    items = [item if isinstance(item, bool) else _plain(item) for item in sequence(value, what)]
    return tuple(text(item, what, empty=True) for item in items)


def _environment(value: object, what: str) -> dict[str, str]:
    given = mapping(value, what)
    if len(given) > 256:
        raise Refusal("too_many_entries", f"{what} has {len(given)} variables, the limit is 256.")
    result = {}
    for name, content in given.items():
        matching(name, f"{what}: the name", VARIABLE, "letters, digits and underscores")
        result[str(name)] = text(_plain(content), f"{what}.{name}", empty=True)
    return result


def _adapters(value: object, what: str) -> dict[str, str]:
    given = mapping(value, f"{what} (adapters by name)")
    if len(given) > 64:
        raise Refusal("too_many_entries", f"{what} has {len(given)} adapters, the limit is 64.")
    return {
        matching(name, f"{what}: the name", NAME, "a name of letters, digits and ._/:@+-"): directory(
            place, f"{what}.{name}"
        )
        for name, place in given.items()
    }


def speculation(value: object, what: str) -> Mapping[str, object]:
    """Its keys are the release's; a model that guesses is mounted, if it is a directory of the node."""
    given = mapping(value, what)
    model = given.get("model")
    if isinstance(model, str) and model.startswith("/"):
        directory(model, f"{what}.model")
    elif model is not None:
        text(model, f"{what}.model")
    return given


def media_limits(value: object, what: str) -> dict[str, int]:
    """Numbers by kind of media, none below zero."""
    given = mapping(value, f"{what} (numbers by kind, such as image: 5)")
    only_known(given, what, MEDIA)
    if not given:
        raise Refusal("empty", f"{what} is empty. Name {', '.join(MEDIA[:-1])} or {MEDIA[-1]}, or leave it out.")
    return {kind: integer(count, f"{what}.{kind}", 0, MOST_MEDIA) for kind, count in given.items()}


def _keyword_arguments(value: object, what: str) -> dict[str, object]:
    """Arguments of a function by name; their values are plain data."""
    given = mapping(value, f"{what} (values by name, such as max_pixels: 1003520)")
    if len(given) > 64:
        raise Refusal("too_many_entries", f"{what} has {len(given)} names, the limit is 64.")
    return {
        matching(name, f"{what}: the name", VARIABLE, "letters, digits and underscores"): _data(content, what)
        for name, content in given.items()
    }


def _data(content: object, what: str, depth: int = 0) -> object:
    """Data as JSON has it, of a few levels."""
    if isinstance(content, str):
        return text(content, what, empty=True)
    if isinstance(content, (list, tuple)) and depth < 4:
        return [_data(each, what, depth + 1) for each in sequence(content, what)]
    if isinstance(content, Mapping) and depth < 4:
        return {text(name, what): _data(each, what, depth + 1) for name, each in content.items()}
    if content is None or isinstance(content, (bool, int)) or (isinstance(content, float) and isfinite(content)):
        return content
    raise Refusal("not_data", f"{what} has {shown(content)}, which JSON does not have, or which lies too deep.")


def _plain(content: object) -> object:
    """YAML reads true and 1 where a variable's text was meant."""
    if isinstance(content, bool):
        return "true" if content else "false"
    return str(content) if isinstance(content, (int, float)) else content


def _model_config(value: object, what: str) -> Mapping[str, object]:
    return mapping(value, what)


READERS = {
    "instance": _matching(
        re.compile(f"(?!{BORROWER}$){INSTANCE.pattern}"),
        "lower case letters, digits and hyphens, at most 48, no hyphen at either end, "
        f"and not {BORROWER}, a name that checks of cards use",
    ),
    "model": _matching(MODEL, "the name of a file in catalog/models"),
    "weights": _weights,
    "model_config": _model_config,
    "share_card_with": _models,
    "served_model_name": _matching(NAME, "a name of letters, digits and ._/:@+-"),
    "tensor_parallel_size": _integer(1, 16),
    "modules": _modules,
    "dtype": _choice(DTYPES),
    "quantization_config": _file,
    "kv_cache_dtype": _choice(KV_CACHE_DTYPES),
    "max_model_len": _integer(1, LONGEST),
    "input_range": _pair,
    "output_range": _pair,
    "max_num_seqs": _integer(1, MOST_SEQUENCES),
    "max_num_batched_tokens": _integer(1, LONGEST * 4),
    "max_num_prefill_seqs": _prefill,
    "max_seq_len_to_capture": _integer(2048, LONGEST),
    "gpu_memory_utilization": _number(0.05, 1.0),
    "padding_limit": _number(0.0, 0.5),
    "scheduler_steps": _integer(1, 64),
    "partial_warmup": _partial_warmup,
    "skip_warmup": switch,
    "profile": switch,
    "zero_padding": switch,
    "fused_sdpa": switch,
    "fp32_softmax": switch,
    "enforce_eager": switch,
    "lazy_mode": switch,
    "block_size": _integer(1, 1024),
    "graph_reserved_mem": _number(0.0, 1.0),
    "graph_prompt_ratio": _number(0.0, 1.0),
    "graph_prompt_strategy": _choice(STRATEGIES),
    "graph_decode_strategy": _choice(STRATEGIES),
    "exponential_bucketing": switch,
    "log_step_graph_compilation": switch,
    "log_step_graph_compilation_all": switch,
    "log_step_cpu_fallbacks": switch,
    "log_step_cpu_fallbacks_all": switch,
    "metrics_gc_details": switch,
    "limit_mm_per_prompt": media_limits,
    "mm_processor_kwargs": _keyword_arguments,
    "data_parallel_size": _integer(1, 16),
    "num_gpu_blocks_override": _integer(1, 1 << 24),
    "quantization": _matching(METHOD, "a quantisation method of vLLM such as fp8 or inc"),
    "enable_expert_parallel": switch,
    "enable_prefix_caching": switch,
    "enable_chunked_prefill": switch,
    "enable_lora": switch,
    "max_loras": _integer(1, 1024),
    "max_lora_rank": _integer(1, 1024),
    "lora_modules": _adapters,
    "speculative_config": speculation,
    "structured_outputs_config": mapping,
    "async_scheduling": switch,
    "reasoning_parser": _matching(METHOD, "the name of a parser such as deepseek_r1"),
    "tool_call_parser": _matching(METHOD, "the name of a parser such as hermes"),
    "bucketing_strategy": _choice(BUCKETINGS),
    "bucketing_file": _file,
    "contiguous_pa": switch,
    "recipe_cache": _recipe_cache,
    "trust_remote_code": switch,
    "extra_args": _arguments,
    "extra_environment": _environment,
    "host": _host,
    "port": _integer(1, 65535),
    "ipc": _choice(IPC),
    "guarded": switch,
    "open_without_keys": _reason,
    "node_address": _address,
    "network_interface": _matching(INTERFACE, "the name of a network interface such as eth0"),
}
OPTIONS = tuple(option.name for option in fields(InstanceRequest))
# In vLLM's own words. Servers of the plugin have them all, those of the forks some (families).
PLUGIN_OPTIONS = OPTIONS[OPTIONS.index("data_parallel_size") : OPTIONS.index("recipe_cache")]
