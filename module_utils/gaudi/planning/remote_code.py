"""Whether the release's server works with weights without their code, and whether it may run that code."""

from __future__ import annotations

from ..base.checks import shown
from ..base.refusal import Refusal
from ..catalogue.entries import ModelEntry, ReleaseEntry
from ..model.architectures import check_architectures, some
from ..model.remote_code import BESIDE_LIMIT, Code, ForeignCode
from ..request.options import InstanceRequest
from ..rules.draft import Draft

# Remedy for weights that name another model.
ALONE = "Serve the model that they name, with a speculator in the option speculative_config"


def needing(code: Code, release: ReleaseEntry) -> str | None:
    """Return why the release's server needs the code of the weights, as a clause; None if it does without."""
    running = sorted(release.code_architectures.intersection(code.architectures))
    if running:
        return f"release {release.name} runs code that comes with the weights for the architecture {some(running)}"
    if not code.files:
        return None
    missing = []
    if code.model_type not in release.model_types:
        missing.append(f"model_type {shown(code.model_type)}")
    if not release.architectures.intersection(code.architectures):
        missing.append(f"the architecture {some(code.architectures) or '(none is named)'}")
    if not missing:
        return None
    return (
        f"config.json of the weights has auto_map ({some(code.files)}), and release {release.name} has no class of its "
        f"own for {' and '.join(missing)}"
    )


def may_run_code(request: InstanceRequest, entry: ModelEntry | None) -> bool:
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
    request: InstanceRequest,
    entry: ModelEntry | None,
    code: Code | None,
    release: ReleaseEntry,
    label: str,
    draft: Draft,
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
    seen = needing(code, release)
    if seen is None:
        return
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
