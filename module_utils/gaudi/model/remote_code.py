"""Code beside the weights: what config.json and the files beside it ask for.

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

from ..base.command_line import MODEL_KEYS
from ..base.refusal import Refusal

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


def config_in(content: bytes | str) -> Mapping[str, object]:
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
