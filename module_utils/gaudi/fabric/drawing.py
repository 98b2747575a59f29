"""Draw a group of cards as inline SVG: a ring of cards, a line for each link, the figure in the middle.

Good and bad differ by a sign and by line style as well as by colour. Lengths are the SVG's own units, which are CSS
pixels if the page is wide enough.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from .markup import Html, element

GOOD, BAD, DOUBT, UNKNOWN = "good", "bad", "doubt", "unknown"
FAULT = "fault"
SIGNS = {GOOD: "✓", BAD: "✗", DOUBT: "!", UNKNOWN: "-"}
_WORDS = {GOOD: "good", BAD: "at fault", DOUBT: "not told apart", UNKNOWN: "not measured"}
_SIDE, _RADIUS, _CARD_WIDTH, _CARD_HEIGHT = 360.0, 142.0, 58.0, 46.0


@dataclass(frozen=True)
class GroupDrawing:
    """The content of one drawing: states of cards by module id, faulty links, and the words in the middle.

    joined: the group was measured, so its links are drawn. state: that of the group; words: its class.
    """

    cards: Mapping[int, str]
    bad_links: Sequence[tuple[int, int]]
    joined: bool
    state: str
    figure: str
    test: str
    words: str


def draw(group: GroupDrawing) -> Html:
    """Return the SVG of a group."""
    places = _places(sorted(group.cards))
    links = [(pair, _link_state(pair, group)) for pair in combinations(sorted(group.cards), 2) if group.joined]
    said = _label(group)
    return element(
        "svg",
        {"viewBox": f"0 0 {_SIDE:g} {_SIDE:g}", "role": "img", "aria-label": said, "class": "ring"},
        element("title", None, said),
        # Faulty links are drawn last, on top of the others.
        *(_line(places, pair, state) for pair, state in sorted(links, key=lambda link: link[1] == FAULT)),
        _middle(group),
        *(_card(module, places[module], state) for module, state in sorted(group.cards.items())),
    )


def _places(modules: Sequence[int]) -> dict[int, tuple[float, float]]:
    """Return the position of each card: on a ring, the first at the top, then clockwise."""
    middle = _SIDE / 2
    angles = {module: 2 * math.pi * place / len(modules) for place, module in enumerate(modules)}
    return {
        module: (middle + _RADIUS * math.sin(angle), middle - _RADIUS * math.cos(angle))
        for module, angle in angles.items()
    }


def _link_state(pair: tuple[int, int], group: GroupDrawing) -> str:
    """Return a link's state: "fault" if named; in a bad group "bad" at a bad card, else "unknown"."""
    named = {frozenset(link) for link in group.bad_links}
    cards = {module for module, state in group.cards.items() if state == BAD}
    if frozenset(pair) in named:
        return FAULT
    if group.state != BAD or not (named or cards):
        return group.state
    return BAD if cards & set(pair) else UNKNOWN


def _line(places: Mapping[int, tuple[float, float]], pair: tuple[int, int], state: str) -> Html:
    (x1, y1), (x2, y2) = (places[module] for module in pair)
    ends = {"x1": f"{x1:.1f}", "y1": f"{y1:.1f}", "x2": f"{x2:.1f}", "y2": f"{y2:.1f}"}
    between = f"modules {pair[0]} and {pair[1]}"
    title = element("title", None, f"Link of {between}: at fault" if state == FAULT else f"Links of {between}")
    return element("line", {**ends, "class": f"link {state}"}, title)


def _middle(group: GroupDrawing) -> Html:
    """Return the figure and its words, on a plate that keeps lines away from them."""
    middle = _SIDE / 2
    return element(
        "g",
        {"class": f"middle {group.state}", "text-anchor": "middle"},
        element("rect", {"x": middle - 76, "y": middle - 44, "width": 152, "height": 88, "rx": 12, "class": "plate"}),
        element("text", {"x": middle, "y": middle - 8, "class": "figure"}, group.figure),
        element("text", {"x": middle, "y": middle + 14, "class": "word"}, group.test),
        element("text", {"x": middle, "y": middle + 34, "class": "word"}, f"{SIGNS[group.state]} {group.words}"),
    )


def _card(module: int, place: tuple[float, float], state: str) -> Html:
    x, y = place
    box = {"x": f"{x - _CARD_WIDTH / 2:.1f}", "y": f"{y - _CARD_HEIGHT / 2:.1f}"}
    return element(
        "g",
        {"class": f"card {state}", "text-anchor": "middle"},
        element("title", None, f"Module {module}: {_WORDS[state]}"),
        element("rect", {**box, "width": f"{_CARD_WIDTH:g}", "height": f"{_CARD_HEIGHT:g}", "rx": 8}),
        element("text", {"x": f"{x:.1f}", "y": f"{y + 7:.1f}"}, f"{module} {SIGNS[state]}"),
    )


def _label(group: GroupDrawing) -> str:
    """Describe the drawing in words, for readers who cannot see it."""
    by_state = {
        state: ", ".join(str(module) for module, other in sorted(group.cards.items()) if other == state)
        for state in SIGNS
    }
    cards = "; ".join(f"modules {modules} {_WORDS[state]}" for state, modules in by_state.items() if modules)
    links = "".join(f"; link {one}-{other} at fault" for one, other in group.bad_links)
    return f"{group.test}: {group.figure}, {group.words}; {cards}{links}"


def trend(values: Sequence[float | None], floor: float | None) -> Html:
    """Return a small curve of one figure over time, oldest first; None is a run that failed. floor is a dashed line."""
    width, height, edge = 320.0, 96.0, 24.0
    known = [value for value in values if value is not None]
    top = max([*known, floor or 0.0, 1e-9])

    def y(value: float) -> float:
        return height - edge - (height - 2 * edge) * value / top

    step = (width - 2 * edge) / max(1, len(values) - 1)
    points = [(edge + place * step, value) for place, value in enumerate(values)]
    line = " ".join(f"{x:.1f},{y(value):.1f}" for x, value in points if value is not None)
    said = (
        f"{len(values)} measurements, {min(known):.1f} to {max(known):.1f} GB/s"
        if known
        else "no measurement ended well"
    )
    parts = [element("title", None, said)]
    if floor is not None:
        across = {"x1": edge, "x2": width - edge, "y1": f"{y(floor):.1f}", "y2": f"{y(floor):.1f}"}
        parts.append(element("line", {**across, "class": "floor"}))
    parts.append(element("polyline", {"points": line, "class": "curve"}))
    for x, value in points:
        state = GOOD if value is not None and value >= (floor or 0.0) else BAD
        dot = {"cx": f"{x:.1f}", "cy": f"{y(value or 0.0):.1f}", "r": 4, "class": f"dot {state}"}
        parts.append(element("circle", dot))
    # The last value is written above the curve and the lowest below it, so that they do not overlap; if they are the
    # same value, it is written once.
    x, last = points[-1]
    lowest = min(known, default=None)
    end = {"x": f"{x + edge - 4:.1f}", "text-anchor": "end"}
    words = "failed" if last is None else f"{last:.1f} GB/s"
    if lowest is not None and last == lowest:
        parts.append(element("text", {**end, "y": f"{y(lowest) + 18:.1f}"}, words))
    else:
        if lowest is not None:
            place = next(place for place, value in points if value == lowest)
            below = {"x": f"{place:.1f}", "y": f"{y(lowest) + 18:.1f}", "text-anchor": "middle"}
            parts.append(element("text", below, f"{lowest:.1f}"))
        parts.append(element("text", {**end, "y": f"{y(last or 0.0) - 9:.1f}"}, words))
    box = {"viewBox": f"0 0 {width:g} {height:g}", "role": "img", "aria-label": said, "class": "trend"}
    return element("svg", box, *parts)
