"""The command line and environment of a server, as a plan has them: its options, and what it fetches from a hub."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from .places import normal

TRUST_REMOTE_CODE = "--trust-remote-code"
# Options and variables that name models, tokenizers and adapters (vllm/engine/arg_utils.py, vllm/envs.py). A value that
# is no absolute path is fetched: from a hub, or from another storage that its address names.
_NAMED = (
    *("--model", "--models", "--tokenizer", "--hf-config-path", "--generation-config"),
    *("--speculative-model", "--spec-model", "--qlora-adapter-name-or-path"),
)
# Options that name files of Python, which the server imports (import_from_path of vLLM), and keys that do.
PLUGINS = ("--tool-parser-plugin", "--reasoning-parser-plugin")
PLUGINS_IN_JSON = {"--structured-outputs-config": ("reasoning_parser_plugin",)}
_NAMED_IN_PAIRS = ("--lora-modules", "--prompt-adapters", "--default-mm-loras")
# Releases whose plans from before the key "unpickles" are of servers that run what is in pickled tensors.
_UNPICKLING = ("1.16", "1.18")
PICKLED = (".bin", ".pt", ".pth")
LOAD_FORMAT = "--load-format"
# The format with which vLLM opens weights with the library safetensors alone (loader.py of these pins).
SAFETENSORS = "safetensors"
# Keys of config.json in which an Ultravox model names two more models, whose weights its server fetches at their newest
# commit (vllm/model_executor/models/ultravox.py).
MODEL_KEYS = ("text_model_id", "audio_model_id")
# Options with JSON, and its keys that name models.
_NAMED_IN_JSON = {"--speculative-config": ("model", "tokenizer"), "--hf-overrides": MODEL_KEYS}
_NAMED_IN_ENVIRONMENT = ("VLLM_LORA_RESOLVER_HF_REPO_LIST",)
# Values of these options that name no model: vllm/config/speculative.py and vllm/config/model.py.
_NO_MODEL = ("", "auto", "vllm", "ngram", "[ngram]", "ngram_gpu", "suffix")
_SHORT = re.compile(r"-[A-Za-z][A-Za-z-]*")
# Short names of options (vllm/engine/arg_utils.py, vllm/entrypoints/openai/cli_args.py). -O sets the level of
# --compilation-config in older releases, and --optimization-level in later ones.
_LONG = {
    "-O": "--compilation-config",
    "-ac": "--attention-config",
    "-asc": "--api-server-count",
    "-cc": "--compilation-config",
    "-dc": "--diffusion-config",
    "-dcp": "--decode-context-parallel-size",
    "-dp": "--data-parallel-size",
    "-dpa": "--data-parallel-address",
    "-dpb": "--data-parallel-backend",
    "-dpe": "--data-parallel-external-lb",
    "-dph": "--data-parallel-hybrid-lb",
    "-dpl": "--data-parallel-size-local",
    "-dpm": "--data-parallel-multi-port-external-lb",
    "-dpn": "--data-parallel-rank",
    "-dpp": "--data-parallel-rpc-port",
    "-dpr": "--data-parallel-start-rank",
    "-ep": "--enable-expert-parallel",
    "-n": "--nnodes",
    "-pcp": "--prefill-context-parallel-size",
    "-pp": "--pipeline-parallel-size",
    "-q": "--quantization",
    "-r": "--node-rank",
    "-sc": "--speculative-config",
    "-spec-draft-tp": "--speculative-draft-tensor-parallel-size",
    "-tp": "--tensor-parallel-size",
}
# A short name of one letter with its value behind it, such as -O3.
_JOINED = re.compile(r"(-[Onqr])([^A-Za-z=.-].*)", re.DOTALL)


def words_of(arguments: object) -> list[str]:
    """Return the words of a command line; a value that is no list counts as one without words."""
    return [str(word) for word in arguments] if isinstance(arguments, (list, tuple)) else []


def options(arguments: object) -> dict[str, list[str]]:
    """Return the values of each option of a command line in their order, by its name; "" has the words before them.

    vLLM reads _ as - in a name, and a dot before a part of a JSON value: the part stays with the value. An option that
    has a short name is found under its long one.
    """
    found: dict[str, list[str]] = {"": []}
    name = ""
    for word in words_of(arguments):
        joined = _JOINED.fullmatch(word)
        if joined:
            name = _LONG[joined[1]]
            found.setdefault(name, []).append(joined[2])
        elif word.startswith("--") or _SHORT.fullmatch(re.split("[=.]", word)[0]):
            full, equals, value = word.partition("=")
            spelled, dot, part = full.partition(".")
            name = spelled.replace("_", "-") if spelled.startswith("--") else _LONG.get(spelled, spelled)
            values = found.setdefault(name, [])
            values += [dot + part] if dot else []
            values += [value] if equals else []
        else:
            found[name].append(word)
    return found


def number(plan: Mapping[str, Any], name: str) -> int | None:
    """Return the whole number that an option such as --max-num-seqs has in a plan; None without one."""
    word = (options(plan.get("arguments")).get(name) or [""])[-1]
    return int(word) if word.isascii() and word.isdigit() else None


def trusts_code(plan: Mapping[str, Any]) -> bool:
    """Return whether the server of a plan may run the code that its weights name themselves."""
    return TRUST_REMOTE_CODE in options(plan.get("arguments"))


def runs_code(plan: Mapping[str, Any]) -> bool:
    """Return whether the server of a plan may run code of its weights: what they name, or a plugin beside them."""
    requires = plan.get("requires") or {}
    weights = {requires.get("weights_path"), *(requires.get("weights_beside") or [])}
    return trusts_code(plan) or not weights.isdisjoint(plugins_in(plan))


def plugins_in(plan: Mapping[str, Any]) -> list[str]:
    """Return the directories on the node of the files of Python that a server imports as plugins.

    A plugin that an image brings is in none.
    """
    given = options(plan.get("arguments"))
    files = [value for name in PLUGINS for value in given.get(name, [])]
    for name, keys in PLUGINS_IN_JSON.items():
        files += _in_json_or_dotted(given.get(name, []), keys)
    return _mounted(plan, files)


def unpickles(plan: Mapping[str, Any]) -> bool:
    """Return whether the release of a plan runs what is in pickled tensors."""
    return bool(plan.get("unpickles")) or plan.get("release") in _UNPICKLING


def reads_pickles(plan: Mapping[str, Any]) -> bool:
    """Return whether the server of a plan may read pickled tensors, and run what is in them.

    Of adapters it reads adapter_model.bin in any format of the weights.
    """
    given = options(plan.get("arguments"))
    adapters = not given.keys().isdisjoint((*_NAMED_IN_PAIRS, "--qlora-adapter-name-or-path"))
    return unpickles(plan) and (adapters or given.get(LOAD_FORMAT, [])[-1:] != [SAFETENSORS])


def needs_pins(plan: Mapping[str, Any]) -> bool:
    """Return whether the server of a plan may run what is in its weights: their code, or pickled tensors."""
    return runs_code(plan) or reads_pickles(plan)


def measured_in(plan: Mapping[str, Any]) -> list[str]:
    """Return the directories on the node of the calibration that a server reads: their arrays are unpickled.

    neural-compressor, torch/algorithms/fp8_quant/_core/common.py, loads them with allow_pickle. A calibration that an
    image brings is in none.
    """
    box = plan.get("container") or {}
    variables = {**(box.get("environment") or {}), **(plan.get("environment") or {})}
    return _mounted(plan, [str(variables["QUANT_CONFIG"])] if "QUANT_CONFIG" in variables else [])


def _mounted(plan: Mapping[str, Any], files: Iterable[str]) -> list[str]:
    """Return the directories on the node, sorted, of those files of a container that come from the node."""
    box = plan.get("container") or {}
    start = str(box.get("working_directory") or "/")
    whole = [normal(file if file.startswith("/") else f"{start}/{file}") for file in files]
    above = {folder for file in whole for folder in PurePosixPath(file).parents}
    mounts = [mount for mount in box.get("mounts") or [] if PurePosixPath(mount.get("target", "")) in above]
    return sorted({str(mount["source"]) for mount in mounts})


def hub_ids(plan: Mapping[str, Any]) -> list[str]:
    """Return what the server of a plan fetches by itself, sorted: models, tokenizers and adapters that are no paths."""
    given = options(plan.get("arguments"))
    environment = plan.get("environment")
    variables = environment if isinstance(environment, Mapping) else {}
    found = {value for name in _NAMED for value in given.get(name, [])}
    found.update(given[""][2:3] if given[""][:2] == ["vllm", "serve"] else [])
    for name in _NAMED_IN_PAIRS:
        for value in given.get(name, []):
            found.update(_in_json(value, ("path", "local_path", None)) or [value.rpartition("=")[2]])
    for name, keys in _NAMED_IN_JSON.items():
        found.update(_in_json_or_dotted(given.get(name, []), keys))
    for name in _NAMED_IN_ENVIRONMENT:
        found.update(str(variables.get(name, "")).split(","))
    return sorted(name for name in found if not name.startswith("/") and name.strip() not in _NO_MODEL)


def _in_json_or_dotted(values: Sequence[str], keys: tuple[str, ...]) -> list[str]:
    """Return the texts below these keys of an option's JSON objects, or of its values that name a key by a dot."""
    dotted = tuple(f".{key}" for key in keys)
    found = [after for part, after in zip(values, values[1:]) if part in dotted]
    return [*found, *(text for value in values for text in _in_json(value, keys))]


def _in_json(value: str, keys: tuple[object, ...]) -> list[str]:
    """Return the texts below these keys of a JSON object, with None as a key all of them; [] for what is none."""
    try:
        read = json.loads(value)
    except (ValueError, RecursionError):
        return []
    if not isinstance(read, Mapping):
        return []
    wanted = {key: text for key, text in read.items() if isinstance(text, str)}
    chosen = [text for key, text in wanted.items() if key in keys]
    return chosen or ([*wanted.values()] if None in keys else [])
