"""Results of a benchmark: figures parsed from the client's output, runs as documents, and tables of one or two runs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ..base.documents import parse
from ..base.refusal import Refusal

# The name of a run: the first digits of its plan's digest, and when it began.
RUN = re.compile(r"[0-9a-f]{12}-[0-9]{8}T[0-9]{6}Z\Z")
# Each client's key for our figure: from 1.16 on all print the median and the 99th percentile.
FIGURES = {
    "seconds": "duration",
    "input_tokens": "total_input_tokens",
    "output_tokens": "total_output_tokens",
    "requests_per_second": "request_throughput",
    "tokens_per_second": "output_throughput",
    "ttft_p50_ms": "median_ttft_ms",
    "ttft_p99_ms": "p99_ttft_ms",
    "tpot_p50_ms": "median_tpot_ms",
    "tpot_p99_ms": "p99_tpot_ms",
}
FORM = {
    "run": str,
    "instance": str,
    "plan": str,
    "release": str,
    "model": str,
    "image": str,
    "started": str,
    "input_tokens": int,
    "output_tokens": int,
    "steps": [{"concurrency": int, "requests": int, "failed": int, **dict.fromkeys(FIGURES, (int, float))}],
}
"""The form of a run's document."""
# Of one run. A node may report any number of them, and the chart has to be drawn.
MOST_STEPS = 256
# A whole number may be too large for a float, and then cannot be shown as one.
_LARGEST = 1e300
# Heading of a column, its figure, and the digits after the decimal point.
_COLUMNS = (
    ("tokens/s", "tokens_per_second", 1),
    ("requests/s", "requests_per_second", 2),
    ("TTFT p50", "ttft_p50_ms", 1),
    ("TTFT p99", "ttft_p99_ms", 1),
    ("TPOT p50", "tpot_p50_ms", 2),
    ("TPOT p99", "tpot_p99_ms", 2),
)


def read(text: str) -> dict[str, Any]:
    """Read a run's document. Raises ValueError, with a clause that begins with "it"."""
    run = parse(text, FORM)
    # The id becomes a file name.
    if not RUN.match(run["run"]):
        raise ValueError("it has a name that no run has")
    if len(run["steps"]) > MOST_STEPS:
        raise ValueError(f"it has more than {MOST_STEPS} steps")
    if not all(_is_figure(step[name]) for step in run["steps"] for name in FIGURES):
        raise ValueError("it has figures that are none")
    return run


def step_of(raw: Mapping[str, Any], concurrency: int, requests: int) -> dict[str, Any]:
    """Return the figures of one concurrency from the client's result. Raises Refusal if they are not numbers."""
    found = {name: raw.get(called) for name, called in FIGURES.items()}
    wrong = [FIGURES[name] for name, value in found.items() if not _is_figure(value)]
    completed = raw.get("completed")
    if not isinstance(completed, int) or isinstance(completed, bool) or not 0 <= completed <= requests:
        wrong.append("completed")
    if wrong:
        raise Refusal(
            "not_a_result",
            f"The client wrote no {', '.join(wrong)} for {concurrency} at a time; its words are in the job's log.",
        )
    return {"concurrency": concurrency, "requests": requests, "failed": requests - int(completed or 0), **found}


def _is_figure(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= _LARGEST


def failed(run: Mapping[str, Any]) -> str:
    """Say which requests failed, in a sentence; "" if none did."""
    bad = [f"{s['failed']} of {s['requests']} with {s['concurrency']} at a time" for s in run["steps"] if s["failed"]]
    return f"Requests of {run['instance']} failed: {', '.join(bad)}." if bad else ""


def chosen(names: Sequence[str], wanted: str) -> str:
    """Return the one name of a run that contains this text. Raises Refusal for none, or for more than one."""
    found = [name for name in names if wanted in name]
    if len(found) == 1:
        return found[0]
    known = ", ".join(sorted(names)[-5:]) or "none"
    how_many = "Several runs have" if found else "No run on this node has"
    raise Refusal("no_such_run", f"{how_many} {wanted!r} in the name. The last ones are: {known}.")


def title(run: Mapping[str, Any]) -> str:
    """Return a run's title, one line."""
    return (
        f"{run['run']}: {run['instance']}, {run['model']}, release {run['release']}, {run['input_tokens']} tokens in, "
        f"{run['output_tokens']} out"
    )


def table(run: Mapping[str, Any], other: Mapping[str, Any] | None = None) -> list[str]:
    """Return a run as a table; with a second run also its figures, and the ratio of each."""
    rows = [["at a time", "requests", "failed", *(column for column, _figure, _digits in _COLUMNS)]]
    rows += [_row(step) for step in run["steps"]]
    lines = [title(run), *_aligned(rows), "TTFT and TPOT are milliseconds."]
    if other is None:
        return lines
    lines += ["", f"Compared with {title(other)}", *_aligned([rows[0], *map(_row, other["steps"])])]
    if (run["input_tokens"], run["output_tokens"]) != (other["input_tokens"], other["output_tokens"]):
        lines.append("The two had other lengths: their figures say little of each other.")
    before = {step["concurrency"]: step for step in other["steps"]}
    pairs = [(before[step["concurrency"]], step) for step in run["steps"] if step["concurrency"] in before]
    if not pairs:
        return [*lines, "They have no concurrency in common, so there is no ratio."]
    ratios = [["at a time", *(column for column, _figure, _digits in _COLUMNS)]]
    ratios += [[str(now["concurrency"]), *(_ratio(was[f], now[f]) for _c, f, _d in _COLUMNS)] for was, now in pairs]
    return [*lines, "", f"{run['run']} as a multiple of {other['run']}:", *_aligned(ratios)]


def _row(step: Mapping[str, Any]) -> list[str]:
    counts = [str(step["concurrency"]), str(step["requests"]), str(step["failed"])]
    return [*counts, *(f"{step[figure]:.{digits}f}" for _column, figure, digits in _COLUMNS)]


def _ratio(was: float, now: float) -> str:
    return f"{now / was:.2f}" if was else "-"


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    return ["  " + "  ".join(cell.rjust(width) for cell, width in zip(row, widths)) for row in rows]
