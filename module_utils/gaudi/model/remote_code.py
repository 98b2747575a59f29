"""Code beside the weights: what config.json asks for, and whether the release's server works without it.

Source: get_config of vllm/transformers_utils/config.py and the registry of vllm/model_executor/models in the fork of
each release; AutoConfig.from_pretrained of transformers, which prefers a class of its own to code that it may not run.
get_class_from_dynamic_module of transformers/dynamic_module_utils.py splits a reference at ``--``, and fetches the part
before it from the hub, at the newest commit. maybe_override_with_speculators of vllm/transformers_utils/config.py (1.23
and later) serves the model that speculators_config names, with the same permission to run code.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ..base.checks import shown
from ..base.command_line import MODEL_KEYS
from ..base.refusal import Refusal
from ..catalogue.entries import ModelEntry, ReleaseEntry
from ..request.options import Request
from ..rules.draft import Draft
from .architectures import check_architectures, some

# Largest config.json that is read, in bytes.
CONFIG_LIMIT = 1 << 20
# Files beside config.json whose auto_map transformers reads: for tokenizers, processors of pictures, sounds and films,
# and generation. Tokenizers have up to some two million bytes.
CONFIGS_BESIDE = (
    *("tokenizer_config.json", "processor_config.json", "preprocessor_config.json", "image_processor_config.json"),
    *("video_preprocessor_config.json", "feature_extractor_config.json", "generation_config.json"),
    *("adapter_config.json", "configuration.json"),
)
BESIDE_LIMIT = 16 << 20


@dataclass(frozen=True)
class Code:
    """The code in a config.json: files it would run (none without ``auto_map``), model type and architectures."""

    files: tuple[str, ...]
    model_type: str | None
    architectures: tuple[str, ...]


def code_of(config: Mapping[str, object]) -> Code:
    """Return the code that a config.json asks for.

    An entry of auto_map is ``file.Class``, or ``repository--file.Class`` for code of another repository.
    """
    named = config.get("auto_map")
    places = [place for place in named.values() if isinstance(place, str)] if isinstance(named, Mapping) else []
    model_type, architectures = config.get("model_type"), config.get("architectures")
    return Code(
        files=tuple(sorted({f"{place.rpartition('.')[0] or place}.py" for place in places})),
        model_type=model_type if isinstance(model_type, str) else None,
        architectures=tuple(name for name in architectures if isinstance(name, str))
        if isinstance(architectures, (list, tuple))
        else (),
    )


def config_in(content: bytes) -> Mapping[str, object]:
    """A config.json from the file's content. Raises Refusal for one that is none."""
    try:
        config = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise Refusal(
            "config_unreadable", f"config.json cannot be read ({type(error).__name__}). Fetch it again."
        ) from error
    if not isinstance(config, dict):
        raise Refusal("config_unreadable", "config.json cannot be read (it is no mapping). Fetch it again.")
    return config


# What a person does with weights that name another model.
ALONE = "Serve the model that they name, with a speculator in the option speculative_config"


@dataclass(frozen=True)
class ForeignCode:
    """Code of other repositories that the files beside the weights name, and the files that cannot be read.

    ``references``: ``file: repository--file.Class``. ``models``: ``file: key: repository`` for models that the server
    would fetch.
    """

    references: tuple[str, ...] = ()
    unreadable: tuple[str, ...] = ()
    models: tuple[str, ...] = ()


def foreign_code(files: Mapping[str, bytes]) -> ForeignCode:
    """Return the code of other repositories that configuration files (content by name) ask for."""
    references, unreadable, models = [], [], []
    for name, content in files.items():
        try:
            config = json.loads(content)
        except (ValueError, RecursionError):
            unreadable.append(name)
        else:
            references += [f"{name}: {reference}" for reference in foreign_references(config)]
            models += [f"{name}: {model}" for model in foreign_models(config)]
    return ForeignCode(tuple(sorted(references)), tuple(sorted(unreadable)), tuple(sorted(models)))


def foreign_references(config: object) -> Iterator[str]:
    """Yield the references to other repositories below each auto_map of a file, wherever it is nested.

    A tokenizer has two in a list, one for each of its classes.
    """
    waiting: list[tuple[object, bool]] = [(config, False)]
    while waiting:
        value, mapped = waiting.pop()
        if isinstance(value, Mapping):
            waiting += [(inner, mapped or key == "auto_map") for key, inner in value.items()]
        elif isinstance(value, (list, tuple)):
            waiting += [(inner, mapped) for inner in value]
        elif mapped and isinstance(value, str) and "--" in value:
            yield value


def foreign_models(config: object) -> Iterator[str]:
    """Yield ``key: repository`` for each model that a file names and that the server would fetch, however nested."""
    waiting = [config]
    while waiting:
        value = waiting.pop()
        if isinstance(value, (list, tuple)):
            waiting += value
        elif isinstance(value, Mapping):
            waiting += value.values()
            named = {key: value.get(key) for key in MODEL_KEYS}
            verifier = value.get("verifier")
            if isinstance(verifier, Mapping):
                named["verifier.name_or_path"] = verifier.get("name_or_path")
            for key, name in named.items():
                if isinstance(name, str) and name.strip() and not name.startswith("/"):
                    yield f"{key}: {name}"


def lacking(code: Code, release: ReleaseEntry) -> str | None:
    """Return what the release's server has no class of its own for; None if it has all classes."""
    missing = []
    if code.model_type not in release.model_types:
        missing.append(f"model_type {shown(code.model_type)}")
    if not release.architectures.intersection(code.architectures):
        missing.append(f"the architecture {some(code.architectures) or '(none is named)'}")
    return " and ".join(missing) or None


def may_run_code(request: Request, entry: ModelEntry | None) -> bool:
    """Return whether the server may run code that comes with its weights: as the request says, else the entry."""
    trusted = request.trust_remote_code
    return trusted if trusted is not None else entry is not None and entry.trust_remote_code


def check_foreign(foreign: ForeignCode, label: str) -> None:
    """Check that a server that may run code runs only code beside its weights, which pins cover. Raises Refusal."""
    if foreign.references:
        raise Refusal(
            "remote_code_foreign",
            f"{label}: auto_map of the weights names code of another repository ({some(foreign.references)}), which "
            f"the server would fetch and run. No pin of these weights covers it. Code beside the weights is required. "
            f"Read that code, put it beside the weights in a repository of your own, name it there without the other "
            f"repository, and pin it (playbooks/pin.yml); or set trust_remote_code to false, or serve other weights.",
        )
    if foreign.models:
        raise Refusal(
            "foreign_models",
            f"{label}: the weights name another model ({some(foreign.models)}), which the server would fetch and whose "
            f"code it would run. No pin of these weights covers it. Weights that name no model of a hub are required. "
            f"{ALONE}, set trust_remote_code to false, or serve other weights.",
        )
    if foreign.unreadable:
        raise Refusal(
            "config_beside_unreadable",
            f"{label}: {some(foreign.unreadable)} of the weights cannot be read, so it is not known which code the "
            f"server would run. JSON of at most {BESIDE_LIMIT >> 20} MiB is required. Fetch the weights again.",
        )


def check_code(
    request: Request, entry: ModelEntry | None, code: Code | None, release: ReleaseEntry, label: str, draft: Draft
) -> None:
    """Check that the server has a class for the weights, and permission to run their code where it needs that.

    Raises Refusal: no class that works, or a permission that is missing or denied, with the option's name.
    """
    if code is None:
        return
    has_code = bool(code.files)
    check_architectures(
        code.architectures,
        code.model_type,
        release,
        label,
        draft,
        has_code=has_code,
        runs_code=has_code and may_run_code(request, entry),
    )
    if not code.files:
        return
    missing = lacking(code, release)
    if missing is None:
        return
    seen = (
        f"config.json of the weights has auto_map ({some(code.files)}), and release {release.name} "
        f"has no class of its own for {missing}"
    )
    if request.trust_remote_code is False:
        raise Refusal(
            "remote_code_forbidden",
            f"{label}: {seen}, but trust_remote_code is false: the server would not start. Read the code, which runs "
            f"with the server's rights, then set trust_remote_code to true; or serve other weights, or use a release "
            f"that knows the model.",
        )
    if request.trust_remote_code is None and not (entry is not None and entry.trust_remote_code):
        raise Refusal(
            "remote_code_undecided",
            f"{label}: {seen}. The server starts only with that code, which runs with its rights. Read it, then set "
            f"trust_remote_code to true; or serve other weights, or use a release that knows the model.",
        )
