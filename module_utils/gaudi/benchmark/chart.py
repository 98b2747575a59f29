"""Draw one or two benchmark runs as a self-contained SVG: tokens a second and latencies over the concurrency.

Runs differ by line style and marker as well as by colour. Lengths are the SVG's own units, which are CSS pixels if the
window is wide enough.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..fabric.markup import Html, element
from .figures import title

_WIDTH, _LEFT, _RIGHT, _TOP, _HIGH, _GAP = 480.0, 62.0, 14.0, 78.0, 150.0, 72.0
# The charts: a heading, and for each line its label and figure.
_PANELS = (
    ("Tokens a second", (("", "tokens_per_second"),)),
    ("Time to the first token, ms", (("median", "ttft_p50_ms"), ("p99", "ttft_p99_ms"))),
    ("Time for each further token, ms", (("median", "tpot_p50_ms"), ("p99", "tpot_p99_ms"))),
)
# The shortest axis: a smaller figure, which no server has, would leave no power of ten to count in.
_LEAST = 1e-9
_STYLE = """
svg{max-width:720px;width:100%;height:auto;font-family:system-ui,sans-serif;background:#fff}
text{fill:#1b1f24;font-size:12px}.head{font-size:14px;font-weight:600}.small{font-size:11px}
.grid{stroke:#d0d7de;stroke-width:1}.axis{stroke:#57606a;stroke-width:1}
.line{fill:none;stroke-width:2}.r0{stroke:#0b57a4}.r1{stroke:#a33c00}.p99{stroke-dasharray:5 4}
.mark{stroke-width:2}.mark.r0{fill:#0b57a4}.mark.r1{fill:#fff}
@media (prefers-color-scheme:dark){svg{background:#0d1117}text{fill:#e6edf3}.grid{stroke:#30363d}.axis{stroke:#8b949e}
.r0{stroke:#79b8ff}.r1{stroke:#ffab70}.mark.r0{fill:#79b8ff}.mark.r1{fill:#0d1117}}
"""


@dataclass(frozen=True)
class _Scale:
    """The scale of a chart: concurrencies at equal distances on the x axis, values from 0 to ``top`` on the y axis."""

    places: tuple[int, ...]
    top: float
    base: float

    def x(self, concurrency: int) -> float:
        step = (_WIDTH - _LEFT - _RIGHT - 40) / max(1, len(self.places) - 1)
        return _LEFT + 20 + self.places.index(concurrency) * step

    def y(self, value: float) -> float:
        return self.base - _HIGH * value / self.top


def draw(runs: Sequence[Mapping[str, Any]]) -> Html:
    """Return the SVG of one run, or of two."""
    places = tuple(sorted({step["concurrency"] for run in runs for step in run["steps"]}))
    high = _TOP + len(_PANELS) * (_HIGH + _GAP)
    said = "; ".join(_words(run) for run in runs)
    return element(
        "svg",
        {
            "xmlns": "http://www.w3.org/2000/svg",
            "viewBox": f"0 0 {_WIDTH:g} {high:g}",
            "role": "img",
            "aria-label": said,
        },
        element("title", None, said),
        element("style", None, Html(_STYLE)),
        *(_legend(number, run) for number, run in enumerate(runs)),
        *(part for place, panel in enumerate(_PANELS) for part in _panel(place, panel, runs, places)),
    )


def _words(run: Mapping[str, Any]) -> str:
    """Describe the runs in words, for readers who cannot see the drawing."""
    figures = ", ".join(f"{step['tokens_per_second']:.1f} at {step['concurrency']}" for step in run["steps"])
    return f"{title(run)}: tokens a second {figures}"


def _legend(number: int, run: Mapping[str, Any]) -> Html:
    y = 16 + 34 * number
    return element(
        "g",
        None,
        element("line", {"x1": 8, "x2": 36, "y1": y, "y2": y, "class": f"line r{number}"}),
        _mark(22, y, number),
        element("text", {"x": 44, "y": y + 4}, f"{run['run']}: {_short(run['instance'])}"),
        element(
            "text",
            {"x": 44, "y": y + 18, "class": "small"},
            f"{_short(run['model'])}, release {run['release']}, {run['input_tokens']} tokens in, "
            f"{run['output_tokens']} out",
        ),
    )


def _short(name: str) -> str:
    return name if len(name) <= 30 else f"{name[:29]}…"


def _panel(place: int, panel: Any, runs: Sequence[Mapping[str, Any]], places: tuple[int, ...]) -> list[Html]:
    heading, lines = panel
    base = _TOP + place * (_HIGH + _GAP) + _HIGH + 24
    top = _nice(max([step[figure] for run in runs for step in run["steps"] for _word, figure in lines] + [0.0]))
    scale = _Scale(places, top, base)
    note = " (dashed: 99th percentile)" if len(lines) > 1 else ""
    parts = [
        element("text", {"x": 8, "y": f"{base - _HIGH - 12:.1f}", "class": "head"}, heading + note),
        *_grid(scale),
        *(_tick(scale, number) for number in places),
        element(
            "text",
            {"x": _WIDTH - _RIGHT, "y": f"{base + 30:.1f}", "text-anchor": "end", "class": "small"},
            "requests at a time",
        ),
    ]
    for number, run in enumerate(runs):
        for word, figure in lines:
            parts += _curve(scale, number, word, [(step["concurrency"], step[figure]) for step in run["steps"]])
    return parts


def _nice(value: float) -> float:
    """Return the end of an axis: the smallest 1, 2, 2.5 or 5 times a power of ten that is at least the value."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(max(value, _LEAST)))
    return next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= value)


def _grid(scale: _Scale) -> list[Html]:
    found = []
    for part in range(6):
        value = scale.top * part / 5
        y = f"{scale.y(value):.1f}"
        kind = "grid" if part else "axis"
        found.append(element("line", {"x1": _LEFT, "x2": _WIDTH - _RIGHT, "y1": y, "y2": y, "class": kind}))
        found.append(
            element("text", {"x": _LEFT - 6, "y": f"{scale.y(value) + 4:.1f}", "text-anchor": "end"}, f"{value:g}")
        )
    return found


def _tick(scale: _Scale, concurrency: int) -> Html:
    place = {"x": f"{scale.x(concurrency):.1f}", "y": f"{scale.base + 16:.1f}", "text-anchor": "middle"}
    return element("text", place, str(concurrency))


def _curve(scale: _Scale, number: int, word: str, points: Sequence[tuple[int, float]]) -> list[Html]:
    at = [(scale.x(concurrency), scale.y(value)) for concurrency, value in points]
    line = {"points": " ".join(f"{x:.1f},{y:.1f}" for x, y in at), "class": f"line r{number} {word}".strip()}
    return [element("polyline", line), *(_mark(x, y, number) for x, y in at)]


def _mark(x: float, y: float, number: int) -> Html:
    """A disc for the first run, an empty square for the second."""
    if number == 0:
        return element("circle", {"cx": f"{x:.1f}", "cy": f"{y:.1f}", "r": 4, "class": "mark r0"})
    box = {"x": f"{x - 4:.1f}", "y": f"{y - 4:.1f}", "width": 8, "height": 8, "class": "mark r1"}
    return element("rect", box)
