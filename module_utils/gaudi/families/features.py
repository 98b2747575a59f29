"""Features of vLLM that do not start as requested: its own checks end the server, some only after the warm-up."""

from __future__ import annotations

from collections.abc import Mapping

from ..base.checks import meant, shown
from ..base.refusal import Refusal
from ..catalogue.surface import normal
from ..request.resolved import ResolvedRequest
from ..rules.draft import Draft

TOKENS = "num_speculative_tokens"
# Speculation methods without a draft model, or with layers of the served model itself.
WITHOUT_A_MODEL = ("ngram", "ngram_gpu", "suffix", "extract_hidden_states", "dspark")
# Backends for structured outputs (vllm/config/structured_outputs.py).
BACKENDS = ("auto", "xgrammar", "guidance", "outlines", "lm-format-enforcer")


def check_features(draft: Draft, resolved: ResolvedRequest) -> None:
    """Refuse features that end the server, and warn of those that it ignores."""
    check_speculation(resolved)
    _check_structured_outputs(resolved)
    check_adapters(draft, resolved)
    _check_experts(draft, resolved)


def _check_keys(option: str, said: Mapping[str, object], resolved: ResolvedRequest) -> None:
    """Refuse unknown keys; they end the server before it loads anything."""
    typed = resolved.release.typed_arguments.get(f"--{option.replace('_', '-')}")
    known = typed.choices if typed is not None else ()
    for key in said:
        if known and key not in known:
            advice = meant(key, known, otherwise=f"It knows {', '.join(known)}.")
            raise Refusal(
                "unknown_key_of_option",
                f"{option} has {shown(key)}, which the server of release {resolved.release.name} does not know: it "
                f"would not start. {advice}",
            )


def check_speculation(resolved: ResolvedRequest) -> None:
    """Check speculative decoding: the buckets follow from the guessed tokens, and vLLM's own checks end the start."""
    said = resolved.request.speculative_config
    if said is None:
        return
    _check_keys("speculative_config", said, resolved)
    tokens, method, model = said.get(TOKENS), said.get("method"), said.get("model")
    if tokens is not None and (not isinstance(tokens, int) or isinstance(tokens, bool) or tokens < 1):
        raise Refusal(
            "wrong_speculation",
            f"speculative_config has {TOKENS} {shown(tokens)}; it must be a whole number of at least 1. Correct it.",
        )
    if method is None and model is None:
        raise Refusal(
            "incomplete_speculation",
            "speculative_config has neither a method nor a model: the server would not start. Add one, such as "
            "method: eagle3 with the model that guesses, or leave speculative_config out.",
        )
    methods = resolved.release.constants.get("speculative_methods", ())
    if method is not None and method not in methods:
        raise Refusal(
            "unknown_speculation",
            f"speculative_config has the method {shown(method)}, which release {resolved.release.name} does not know: "
            f"its server would not start. {meant(method, methods, otherwise='Use ngram, eagle or eagle3.')}",
        )
    if method is not None and model is None and method not in WITHOUT_A_MODEL and not str(method).endswith("mtp"):
        raise Refusal(
            "incomplete_speculation",
            f"speculative_config has the method {method} and no model that guesses: the server would not start. Add "
            f"model, a path on the node.",
        )
    if model is None and tokens is None and method != "suffix":
        raise Refusal(
            "incomplete_speculation",
            f"speculative_config has the method {method} and no {TOKENS}: the server would not start. Add it, such as "
            f"{TOKENS}: 3.",
        )


def _check_structured_outputs(resolved: ResolvedRequest) -> None:
    said = resolved.request.structured_outputs_config or {}
    _check_keys("structured_outputs_config", said, resolved)
    backend = said.get("backend", "auto")
    if backend not in BACKENDS:
        raise Refusal(
            "unknown_backend",
            f"structured_outputs_config has the backend {shown(backend)}, but vLLM has {', '.join(BACKENDS)}: the "
            f"server would not start. {meant(backend, BACKENDS, otherwise='Choose one of these.')}",
        )
    for key, backends in (
        ("disable_any_whitespace", ("xgrammar", "guidance")),
        ("disable_additional_properties", ("guidance",)),
    ):
        if said.get(key) is True and backend not in backends:
            raise Refusal(
                "needs_another_backend",
                f"structured_outputs_config has {key}, which only the backend {' or '.join(backends)} can do, and the "
                f"backend {backend}: the server would not start. Set backend, or leave {key} out.",
            )


def check_adapters(draft: Draft, resolved: ResolvedRequest) -> None:
    """Check adapters: they are loaded after the warm-up, so a server without LoRA support would end only then."""
    request = resolved.request
    if "--lora-modules" in map(normal, request.extra_args):
        raise Refusal(
            "adapters_as_arguments",
            "extra_args has --lora-modules, whose directories the server would not see. Use the option lora_modules.",
        )
    if request.lora_modules and request.enable_lora is False:
        raise Refusal(
            "adapters_without_lora",
            f"lora_modules names {', '.join(request.lora_modules)}, but enable_lora is false: the server would end "
            f"once it has warmed up (LoRA is not enabled). Leave enable_lora out, or lora_modules.",
        )
    for option in ("max_loras", "max_lora_rank"):
        if getattr(request, option) is not None and not request.enable_lora and not request.lora_modules:
            draft.warn(f"{option} is without effect: enable_lora is not set, so that the server serves no adapters.")


def _check_experts(draft: Draft, resolved: ResolvedRequest) -> None:
    """Refuse expert parallelism for a model without experts, as vLLM does (vllm/config/model.py)."""
    model = resolved.model
    if not resolved.request.enable_expert_parallel or model.shape.num_experts or not model.shape.num_hidden_layers:
        return
    if resolved.catalogue_name is not None and model.known_from == "catalogue":
        raise Refusal(
            "no_experts",
            f"enable_expert_parallel is on, but {model.name} has no experts: the server would not start. Leave "
            f"enable_expert_parallel out.",
        )
    draft.warn(
        f"enable_expert_parallel is on, but no number of experts was found for {model.name}: a server of a model "
        f"without experts does not start with it."
    )
