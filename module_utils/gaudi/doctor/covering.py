"""What has a shape warmed up that a server computed without warm-up, by the plan of its instance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..base.command_line import number
from ..base.refusal import Refusal
from ..rules import buckets
from ..serving.counts import DECODE, PROMPT, UNIFIED, ComputedShape, Counts


@dataclass(frozen=True)
class Cover:
    """What has a shape warmed up.

    case: which remedy of the fault ``not-warmed-up``. option: the option with its value. more: graphs that the warm-up
    takes in addition. total: all of its graphs then. at_least: whether ``more`` is the fewest. why: of the remedy.
    """

    case: str
    option: str = ""
    more: int = 0
    total: int = 0
    at_least: bool = False
    why: str = ""

    @property
    def facts(self) -> dict[str, object]:
        """What the remedy's text is filled with."""
        least = "at least " if self.at_least else ""
        graphs = f"{least}{self.more} {'graph' if self.more == 1 else 'graphs'}"
        return {"option": self.option, "more": graphs, "total": f"{least}{self.total}", "why": self.why}


def cover_of(state: Mapping[str, Any], plan: Mapping[str, Any] | None) -> Cover | None:
    """Return what has the commonest shape warmed up that a supervisor counted; None without such a shape.

    state: its state.json, of state.FORM. plan: its plan.json; None if there is none, or it is damaged.
    """
    counts = Counts.from_document(state["counts"]) if state.get("counts") else None
    if counts is None or counts.commonest is None:
        return None
    return covering(plan or {}, counts.commonest, list(counts.shapes))


def covering(plan: Mapping[str, Any], shape: ComputedShape, seen: Sequence[str] = ()) -> Cover:
    """Return what has a shape warmed up; ``seen``: the names of all shapes that were computed without it.

    A plan says its buckets dimension by dimension (forks of vLLM) or shape by shape (the plugin).
    """
    part = plan.get("buckets") or {}
    if "graphs" not in part and not any(phase in part for phase in (PROMPT, DECODE, UNIFIED)):
        return Cover("unknown", why="the plan does not have the shapes of its warm-up")
    if str(part.get("warmup", "")).startswith("skipped"):
        return _of_skipped(plan, part)
    if PROMPT in part and DECODE in part:
        return _of_plugin(plan, part, shape, seen)
    return _of_fork(plan, part, shape)


def _of_skipped(plan: Mapping[str, Any], part: Mapping[str, Any]) -> Cover:
    reason = str(part["warmup"]).partition("(")[2].rstrip(")")
    if reason not in ("enforce_eager", "skip_warmup"):
        return Cover("unknown", why=f"the plan has no warm-up ({reason})")
    shapes = [len(part[phase]) for phase in (PROMPT, DECODE) if isinstance(part.get(phase), list)]
    total = sum(shapes) if shapes else sum(_graphs(plan, _lists(part))) if _lists(part) else 0
    return Cover("skipped", reason, total, total)


# Dimensions of the forks' plans, in the order of ComputedShape.
DIMENSIONS = {PROMPT: ("PROMPT_BS", "PROMPT_SEQ"), DECODE: ("DECODE_BS", "DECODE_BLOCK")}
# What the exponential strategy of the forks makes a dimension of (planning/buckets.py).
_EXPONENTIAL = {"PROMPT_BS": "max_num_prefill_seqs", "PROMPT_SEQ": "max_model_len", "DECODE_BS": "max_num_seqs"}


def _lists(part: Mapping[str, Any]) -> dict[str, list[int]]:
    names = [f"{phase}_{dimension}" for phase, dimension in buckets.DIMENSIONS]
    return {name: list(part[name.lower()]) for name in names if part.get(name.lower())}


def _graphs(plan: Mapping[str, Any], lists: Mapping[str, Sequence[int]], budget: int | None = None) -> tuple[int, int]:
    """Return the graphs of prompts and of decoding."""
    most = budget or number(plan, "--max-num-batched-tokens")
    prompts = buckets.prompt_graphs(lists["PROMPT_BS"], lists["PROMPT_SEQ"], most)
    return prompts, buckets.decode_graphs(lists["DECODE_BS"], lists["DECODE_BLOCK"])


def _of_fork(plan: Mapping[str, Any], part: Mapping[str, Any], shape: ComputedShape) -> Cover:
    lists, before = _lists(part), int(part.get("graphs") or 0)
    if len(lists) < len(buckets.DIMENSIONS) or shape.phase not in DIMENSIONS:
        return Cover("unknown", why="the release's server prepares no such shapes")
    if shape.phase == PROMPT and shape.blocks:
        return Cover("unknown", why="the plan's shapes have no prompt after a context")
    names = DIMENSIONS[shape.phase]
    sizes = dict(zip(names, (shape.batch, shape.query if shape.phase == PROMPT else shape.blocks)))
    beyond = {name: size for name, size in sizes.items() if size > lists[name][-1]}
    budget = number(plan, "--max-num-batched-tokens")
    if not beyond and shape.phase == PROMPT and budget and shape.batch * shape.query > budget:
        wanted = shape.batch * shape.query
        # Batch sizes may follow from it, too.
        more = _graphs(plan, lists, wanted)[0] - _graphs(plan, lists)[0]
        return Cover("option", f"max_num_batched_tokens: {wanted}", more, before + more, at_least=True)
    if not beyond:
        return Cover("unknown", why="it is within the plan's shapes, so that the warm-up left it out or ended early")
    if part.get("strategy") == "exponential":
        named = [f"{_EXPONENTIAL[name]}: {size}" for name, size in beyond.items() if name in _EXPONENTIAL]
        if len(named) < len(beyond):
            return Cover("unknown", why="the exponential strategy goes up to the KV blocks, and this shape beyond")
        wider = {name: [*values, *([beyond[name]] if name in beyond else [])] for name, values in lists.items()}
        return _more("option", " and ".join(named), before, _added(plan, lists, wider), at_least=True)
    wider, exact = _widened(plan, lists, beyond)
    option = " and ".join(f"VLLM_{name}_BUCKET_MAX={size}" for name, size in beyond.items())
    return _more("variable", option, before, _added(plan, lists, wider), at_least=not (exact and budget))


def _added(plan: Mapping[str, Any], lists: Mapping[str, list[int]], wider: Mapping[str, list[int]]) -> int:
    """Return the graphs that wider lists add; without a budget of tokens in the plan, one for each further length."""
    prompts, decodes = (after - before for after, before in zip(_graphs(plan, wider), _graphs(plan, lists)))
    if number(plan, "--max-num-batched-tokens") is None:
        prompts = sum(len(wider[name]) - len(lists[name]) for name in DIMENSIONS[PROMPT])
    return prompts + decodes


def _more(case: str, option: str, before: int, more: int, at_least: bool) -> Cover:
    # The shape itself is one.
    return Cover(case, option, max(more, 1), before + max(more, 1), at_least)


def _widened(
    plan: Mapping[str, Any], lists: Mapping[str, list[int]], beyond: Mapping[str, int]
) -> tuple[dict[str, list[int]], bool]:
    """Return the lists up to larger sizes, and whether they are exact: the variables may not be in the plan."""
    environment = plan.get("environment") or {}
    limits = any(name.endswith("_BUCKET_LIMIT") for name in environment)
    try:
        ranges = buckets.from_environment(environment, limits=limits)
    except Refusal:
        return {name: [*found, *([beyond[name]] if name in beyond else [])] for name, found in lists.items()}, False
    wider = {
        name: replace(found, maximum=beyond[name]).values(honour_limit=limits) if name in beyond else lists[name]
        for name, found in ranges.items()
    }
    return wider, True


def _of_plugin(plan: Mapping[str, Any], part: Mapping[str, Any], shape: ComputedShape, seen: Sequence[str]) -> Cover:
    """A bucket file may have any shape that the server can meet; others are left out (plugin_buckets/shapes.py)."""
    before = int(part.get("graphs") or 0)
    most, budget = number(plan, "--max-num-seqs"), number(plan, "--max-num-batched-tokens")
    if shape.phase == UNIFIED:
        return Cover("unknown", why="unified attention reads no bucket file")
    if [shape.batch, shape.query, shape.blocks] in [list(each) for each in part[shape.phase]]:
        return Cover("unknown", why="it is among the plan's shapes, so that the warm-up left it out or ended early")
    if shape.phase == DECODE and most and shape.batch > most:
        why = f"no warm-up fills a decode batch above max_num_seqs {most}; speculative decoding computes such batches"
        return Cover("unknown", why=why)
    if shape.phase == PROMPT and budget and shape.batch * shape.query > budget:
        why = f"{shape.batch} x {shape.query} tokens are above max_num_batched_tokens {budget}, and are left out"
        return Cover("unknown", why=why)
    more = max(1, len(seen))
    return Cover("file", "bucketing_strategy: file with a bucketing_file", more, before + more)
