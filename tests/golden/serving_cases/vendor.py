"""The vendor's command lines in our terms, and our plans in theirs: what README.md in this folder says, as code."""

from __future__ import annotations

import functools
import json
import re
from pathlib import Path
from typing import Any

from ansible.module_utils.gaudi.cards.given import topology_from_case
from ansible.module_utils.gaudi.planning.many import Catalogue, plan_all
from ansible.module_utils.gaudi.planning.network import reached_by_others

from plugin_utils import releases
from tests.golden.canonical_plans import load

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent.parent
CATALOG = ROOT / "catalog"

MODELS = {path.stem for path in (CATALOG / "models").glob("*.yml")}

CASES: dict[str, Any] = json.loads((HERE / "cases.json").read_text(encoding="utf-8"))

RELEASES = {
    "1.21": "1.21",
    "1.21-aug": "1.21",
    "1.22-manual": "1.22",
    "1.22-head": "1.22-2025.11",
    "deepseek_r1-manual": "deepseek-r1",
    "deepseek_r1": "deepseek-r1-2025.11",
    "direct": "1.22",
}

# getopts strings of the scripts; a letter with a colon takes a value.
OPTIONS = {
    "1.21": "hw:n:m:u:p:d:i:o:t:l:b:e:c:r:sfza",
    "1.22": "hw:t:m:a:d:q:i:p:o:b:g:u:e:l:c:sf",
    "1.22-2025.11": "hw:t:m:a:d:q:x:i:o:p:b:g:u:e:l:c:sf",
    "deepseek-r1": "hw:u:p:l:b:c:sq",
    "deepseek-r1-2025.11": "hw:u:p:l:b:c:m:sq",
}


@functools.lru_cache
def content(kind: str, name: str) -> Any:
    """A catalogue file's content; a release with what it takes from those it extends."""
    if kind == "releases":
        return releases.read(name)
    path = CATALOG / (f"{kind}/{name}.yml" if kind else f"{name}.yml")
    return load(path)


@functools.lru_cache
def catalogue(release: str, model: str | None = None) -> Catalogue:
    """The part of the catalogue one call needs."""
    models = {model: content("models", model)} if model else {}
    return Catalogue.from_mappings(content("releases", release), models, content("", "cards"))


@functools.lru_cache
def topology(name: str) -> Any:
    """The topology document of a named topology of the cases."""
    return topology_from_case(CASES["topologies"][name])


def on_its_cards(model: str, topology: Any) -> Any:
    """The topology of Gaudi 2 cards, or the same of Gaudi 3 for a model that was validated on these alone."""
    validated = content("models", model).get("validated", {}).get("generations", ["gaudi2"])
    return topology if "gaudi2" in validated else json.loads(json.dumps(topology).replace("HL-225", "HL-325L"))


def pairs(release: str, arguments: list[str]) -> list[tuple[str, str]]:
    """(letter, value) of a getopts command line; a letter without a value has an empty one."""
    known, result, rest = OPTIONS[release], [], list(arguments)
    while rest:
        letter = rest.pop(0)[1:]
        place = known.find(letter)
        assert place >= 0, f"-{letter} is unknown to {release}"
        result.append((letter, rest.pop(0) if known[place + 1 : place + 2] == ":" else ""))
    return result


def _range(value: str) -> list[Any]:
    return [int(part) if part.isdigit() else part for part in value.split(",")]


def request_of(release: str, arguments: list[str], environment: dict[str, str]) -> dict[str, Any] | None:
    """A request from a vendor's command line; None where the vendor only prints its help."""
    request: dict[str, Any] = {}
    deepseek = release.startswith("deepseek")
    for letter, value in pairs(release, arguments):
        if letter == "h":
            return None
        if letter == "w":
            request["weights"] = value
        elif letter == "i":
            request["input_range"] = _range(value)
        elif letter == "o":
            request["output_range"] = _range(value)
        elif letter == "c":
            request["recipe_cache"] = {"directory": value} if value else False
        elif letter == "r":
            sizes = [int(part) for part in value.split(",")]
            request["partial_warmup"] = {"max_num_seqs": sizes[0], "max_seq_len": sizes[-1]}
        elif letter == "a" and release != "1.21":
            host, _, port = value.rpartition(":") if ":" in value else (value, "", value)
            request.update(host=host, port=port)
        elif letter == "e" and release != "1.21":
            option, _, rest = value.partition(" ")
            request["extra_args"] = [option, *([rest] if rest else [])]
        elif letter == "m" and not deepseek:
            request["modules"] = [int(part) for part in value.split(",")]
        else:
            request[_name(release, letter)] = _value(release, letter, value)
    if environment:
        request["extra_environment"] = dict(environment)
    return request


_NAMES = {
    "1.21": {
        "n": "tensor_parallel_size",
        "u": "host",
        "p": "port",
        "d": "dtype",
        "t": "max_num_batched_tokens",
        "l": "max_model_len",
        "b": "max_num_seqs",
        "e": "scheduler_steps",
        "s": "skip_warmup",
        "f": "profile",
        "z": "zero_padding",
        "a": "fused_sdpa",
    },
    "1.22": {
        "t": "tensor_parallel_size",
        "d": "dtype",
        "q": "quantization_config",
        "x": "max_model_len",
        "p": "max_num_prefill_seqs",
        "b": "max_num_seqs",
        "g": "max_seq_len_to_capture",
        "u": "gpu_memory_utilization",
        "l": "padding_limit",
        "s": "skip_warmup",
        "f": "profile",
    },
    "deepseek": {
        "u": "host",
        "p": "port",
        "l": "max_model_len",
        "b": "max_num_seqs",
        "m": "max_num_prefill_seqs",
        "s": "skip_warmup",
        "q": "dtype",
    },
}
_SWITCHES = {"skip_warmup": True, "profile": True, "zero_padding": False, "fused_sdpa": False}


def _family(release: str) -> str:
    return release if release == "1.21" else "deepseek" if release.startswith("deepseek") else "1.22"


def _name(release: str, letter: str) -> str:
    return _NAMES[_family(release)][letter]


def _value(release: str, letter: str, value: str) -> Any:
    name = _name(release, letter)
    if name in _SWITCHES:
        return _SWITCHES[name]
    if name == "dtype" and _family(release) == "deepseek":
        return "fp8"
    if name == "max_num_prefill_seqs" and value == "":
        return "auto"
    return value


def release_of(case: dict[str, Any]) -> str:
    """The release a case is planned for; a manual's own command where 1.22 refuses its model, the model's best."""
    release = RELEASES[case["release"]]
    entry = content("models", model_of(case)) if case["release"] == "direct" else {}
    return str(entry["releases"][0]) if release in entry.get("unsupported", {}) else release


def plan_case(case: dict[str, Any]) -> dict[str, Any]:
    """Our plan, or refusal, for a case."""
    release = release_of(case)
    if case["release"] == "direct":
        model = model_of(case)
        request: dict[str, Any] | None = {"model": model}
        found = catalogue(release, model)
    else:
        request = request_of(release, case["vendor_arguments"], case["given_environment"])
        found = catalogue(release)
    if "0.0.0.0" in case["vendor_result"]["arguments"]:
        # The script of deepseek-r1, and a manual, listen everywhere without being asked to; here somebody has to ask.
        request = {"host": "0.0.0.0", **(request or {})}
    answers: list[dict[str, Any]] = plan_all(
        [said_openly(request or {})], found, topology(case["topology"]), weights_root="/data/models"
    )
    return answers[0]


def plan_request(
    release: str,
    request: dict[str, Any],
    where: str = "oam8",
    image: dict[str, Any] | None = None,
    *,
    host_nics: bool = False,
) -> dict[str, Any]:
    """The plan, or refusal, of one request on a topology of the cases.

    ``image`` is what the site says of its own, ``host_nics`` whether those of the node were verified.
    """
    model = request.get("model")
    known = isinstance(model, str) and model in MODELS
    found = catalogue(release, model if known else None)
    cards = on_its_cards(str(model), topology(where)) if known else topology(where)
    answers: list[dict[str, Any]] = plan_all(
        [said_openly(request)], found, cards, weights_root="/data/models", image=image, host_nics=host_nics
    )
    return answers[0]


def said_openly(request: dict[str, Any]) -> dict[str, Any]:
    """The request, with a reason where others reach the server and nobody said why they may."""
    host = request.get("host")
    if not isinstance(host, str) or not reached_by_others(host) or {"guarded", "open_without_keys"} & set(request):
        return request
    return {**request, "open_without_keys": "as the vendor has it"}


def model_of(case: dict[str, Any]) -> str:
    """The catalogue name of the model a manual's command serves."""
    served: str = case["vendor_result"]["arguments"][2]
    return served.rsplit("/", 1)[-1].lower()


def options(arguments: list[str]) -> dict[str, str | None]:
    """A command line as {option: value}, with vLLM's own view of underscores."""
    start = next((place for place, word in enumerate(arguments) if word.startswith("--")), len(arguments))
    result: dict[str, str | None] = {}
    name = ""
    for word in arguments[start:]:
        if word.startswith("--"):
            name = word.replace("_", "-")
            result[name] = None
        else:
            result[name] = word if result[name] is None else f"{result[name]} {word}"
    return result


def structured(value: str) -> Any:
    """``k=v,k=v`` or JSON as one mapping."""
    if value.startswith("{"):
        return json.loads(value)
    return {key: int(number) for key, _, number in (part.partition("=") for part in value.split(","))}


def normal_environment(environment: dict[str, str]) -> dict[str, str]:
    """Values that cannot be equal made comparable: the checkout's place, and the time in a profile's name."""
    result = {name: value.replace("@FORK@", "/opt/vllm-fork") for name, value in environment.items()}
    if "VLLM_PROFILE_FILE" in result:
        result["VLLM_PROFILE_FILE"] = re.sub(r"_\d{4}(-\d\d){5}(?=_)", "", result["VLLM_PROFILE_FILE"])
    result.pop("VLLM_SERVER_DEV_MODE", None)
    return result
