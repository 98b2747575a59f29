"""What is served: the name clients ask for, the weights, their data type and the quantisation file."""

from __future__ import annotations

from ..base.absent import absent
from ..base.checks import shown
from ..base.command_line import LOAD_FORMAT, PICKLED, SAFETENSORS
from ..base.refusal import Refusal
from ..catalogue.entries import CardType, ModelEntry, ReleaseEntry
from ..catalogue.surface import ServerSurface
from ..model.facts import DTYPE_METHODS, ModelFacts
from ..model.headers import Weights
from ..request.options import InstanceRequest
from ..rules.draft import Draft, given, rule
from ..weights.pin_file import pickles_not_pinned
from .arguments import value_in


def check_model(request: InstanceRequest, entry: ModelEntry | None) -> None:
    """A request names a model of the catalogue, or weights; what it says of a model must not contradict its file."""
    if request.model is not None and entry is None:
        sentence = absent(request.model)
        if sentence is not None:
            raise Refusal("not_offered", f"model is {shown(request.model)}. {sentence}")
        raise Refusal(
            "not_in_catalogue",
            f"model is {shown(request.model)}, which has no file in catalog/models. Choose one, or give weights.",
        )
    if request.weights is not None:
        return
    if request.model_config is not None and (entry is None or entry.architecture is not None):
        raise Refusal(
            "model_config_beside_model",
            f"model_config describes weights, but the request names {shown(request.model)}, whose file in "
            f"catalog/models says what it is. Leave model_config out, or give weights.",
        )
    if entry is None:
        raise Refusal(
            "no_model_asked",
            "A request needs model (a name in catalog/models) or weights (a path on the node or a hub id).",
        )


def served_name(request: InstanceRequest, entry: ModelEntry | None) -> str | None:
    """The name clients ask for; None leaves it to the server, which then answers to the path."""
    return request.served_model_name or (entry.name if entry is not None else None)


def weights_path(
    request: InstanceRequest,
    entry: ModelEntry | None,
    card_type: CardType | None,
    root: str,
    *,
    scaled_while_loading: bool = False,
) -> str:
    """The directory (or hub id) that is served; a model's own is below ``root``. Raises Refusal for none.

    ``scaled_while_loading``: the release scales published FP8 for the card itself, so that nothing is converted.
    """
    check_model(request, entry)
    if request.weights is not None or entry is None:
        return str(request.weights)
    directory = entry.directory
    conversion = entry.conversion
    if (
        conversion is not None
        and card_type is not None
        and ((scaled_while_loading and conversion.published_in_fp8) or card_type.name not in conversion.card_types)
    ):
        # This card, or this release, takes the weights as they are published.
        directory = conversion.from_directory
    return f"{root}/{directory}"


def data_type(
    request: InstanceRequest,
    release: ReleaseEntry,
    model: ModelFacts,
    card_type: CardType | None,
    measurements: str | None = None,
) -> tuple[str, str | None]:
    """The data type and the quantisation file. A given file means FP8, as in the scripts of 1.22.

    The vendor's start scripts ask for the file of Gaudi2 on every card; calibrate_model.sh names what it writes after
    the card (g2, g3), so that they would not find what was measured on Gaudi3.

    ``measurements``: the directory on the node of those of the model's catalogue entry. A release whose checkouts have
    no configuration for them uses the one that the measurement wrote there.
    """
    if request.quantization_config is not None:
        if request.dtype not in (None, "fp8", "bfloat16"):
            raise Refusal(
                "dtype_contradicts_quantization",
                f"quantization_config means FP8, but dtype is {request.dtype}. Leave one of the two out.",
            )
        return "fp8", request.quantization_config
    dtype = request.dtype or _dtype_of_weights(model) or str(release.constants.get("dtype", "bfloat16"))
    if dtype != "fp8":
        return dtype, None
    template = release.constants.get("quantization_config")
    if not template:
        raise Refusal(
            "fp8_not_served",
            f"dtype is fp8, but release {release.name} serves no FP8. Use bfloat16, or use another release.",
        )
    beside = release.constants.get("measured_quantization_config")
    if measurements is not None and beside:
        return "fp8", f"{measurements}/{beside}"
    device = "g3" if card_type is not None and card_type.generation == "gaudi3" else "g2"
    return "fp8", str(template).format(name=model.name.lower(), fork=release.fork_directory, device=device)


def _dtype_of_weights(model: ModelFacts) -> str | None:
    """The data type of quantised weights where none is asked for; None where the release's own counts."""
    if model.stored_fp8:
        return "auto"
    return model.quant_method if model.quant_method in DTYPE_METHODS else None


@rule("only-safetensors", "gaudi-serving: the server would run what is in pickled tensors, and a hub may send these")
def only_safetensors() -> str:
    """The format with which a server never reads pickled tensors."""
    return SAFETENSORS


def require_safetensors(
    draft: Draft, request: InstanceRequest, entry: ModelEntry | None, weights: Weights | None, label: str
) -> None:
    """Have the server of a release that runs pickled tensors read only safetensors.

    Pickled tensors are left to it where checksums pin them, where a person put them on the node, and where the request
    names a format itself. ``weights``: the weights on the node, None before a model is fetched; then the pins decide.
    Raises Refusal: the weights were fetched in pickled tensors alone, and no checksum pins them.
    """
    own = entry is not None and request.weights is None
    sources = entry.repositories.values() if entry is not None and own else ()
    pinned = any(source.revision and name.endswith(PICKLED) for source in sources for name in source.files)
    if not (pinned if weights is None else weights.pickled):
        draft.option(LOAD_FORMAT, only_safetensors())
    elif weights is not None and weights.fetched and not pinned and value_in(request.extra_args, LOAD_FORMAT) is None:
        raise pickles_not_pinned(label, *([entry.name] if entry is not None and own else []))


def scale_once(
    draft: Draft,
    weights: Weights | None,
    entry: ModelEntry | None,
    served: str,
    card_type: CardType | None,
    surface: ServerSurface,
) -> None:
    """Weights that were converted beforehand are not scaled a second time while they are loaded.

    On Gaudi2 the server scales FP8 weights unless it is told not to (config.py of vllm-fork 17a7946f). ``weights``:
    what lies on the node, None before a model is fetched; then the path ``served`` tells whether it will be converted.
    """
    variable = "VLLM_HPU_CONVERT_TO_FP8UZ"
    if card_type is None or card_type.fp8_max != 240:
        return
    if weights is None:
        converted = entry is not None and entry.conversion is not None and served.endswith(f"/{entry.directory}")
        because = "the model's catalogue entry, by which they are converted"
    else:
        converted, because = weights.converted, ".gaudi-serving/fp8.json beside the weights"
    if weights is not None and not converted:
        if any(kind.startswith("F8") for kind in weights.parameters) and not surface.reads(variable):
            draft.warn(
                f"The weights are FP8 and not converted for {card_type.name}, and this release is not known to scale "
                f"them while it loads: answers may be wrong. Convert them with the role fp8_weights."
            )
        return
    if converted and surface.reads(variable):
        draft.variable(variable, given("converted-weights", because)(value="false"))
