"""The acceptance report: one self-contained HTML page, made from verdicts.

Pure: documents in, text out. All text is escaped (see markup.py), and the page's own policy forbids scripts and loading
anything.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ..catalogue.fabric import size_text
from . import compute
from .classes import PASSING, modules_text
from .drawing import BAD, DOUBT, GOOD, SIGNS, UNKNOWN, GroupDrawing, draw, trend
from .markup import Html, element, joined
from .nics import DIRECT
from .runs import over, same_path
from .verdict import ACCEPTED, FAILED, NOT_MEASURED, rows

_STATES = {
    ACCEPTED: (GOOD, "accepted"),
    FAILED: (BAD, "failed"),
    NOT_MEASURED: (UNKNOWN, "not measured"),
}
_CLASSES = {
    "good": (GOOD, "good"),
    "slow": (BAD, "slow"),
    "broken": (BAD, "broken"),
    "unpublished": (GOOD, "no published figure"),
}
_TIME = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2})T([0-9]{2}:[0-9]{2})[0-9:.]*(?:Z|\+00:00)")
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
_STYLE = """
:root { color-scheme: light dark; --paper: #fff; --ink: #1a1d21; --soft: #59626c; --rule: #d5dae0; --plate: #f5f7f9;
  --good: #176b3a; --good-soft: #dff3e6; --bad: #a8161f; --bad-soft: #fde4e4; --doubt: #7a4f00; --doubt-soft: #fdf0d0;
  --unknown: #59626c; --unknown-soft: #e9edf1; }
@media (prefers-color-scheme: dark) { :root { --paper: #14171a; --ink: #e8ebee; --soft: #a5afb9; --rule: #363d45;
  --plate: #1e2328; --good: #6fd394; --good-soft: #153523; --bad: #ff8d8d; --bad-soft: #471a1d; --doubt: #f0c066;
  --doubt-soft: #3d2e0c; --unknown: #a5afb9; --unknown-soft: #272d33; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.5rem 1rem 4rem; max-width: 72rem; background: var(--paper); color: var(--ink);
  font: 1rem/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.6rem; margin: 0 0 .25rem; } h2 { font-size: 1.25rem; margin: 0; }
h3 { font-size: 1rem; margin: 1.5rem 0 .5rem; }
p { margin: .25rem 0; } a { color: inherit; } .soft { color: var(--soft); }
section { border: 1px solid var(--rule); border-radius: .75rem; padding: 1rem 1.25rem; margin-top: 1.5rem; }
.head { display: flex; flex-wrap: wrap; gap: .5rem 1rem; align-items: center; }
.badge { display: inline-block; padding: .05rem .6rem; border-radius: 1rem; font-weight: 600; white-space: nowrap; }
.badge.good { background: var(--good-soft); color: var(--good); }
.badge.bad { background: var(--bad-soft); color: var(--bad); }
.badge.doubt { background: var(--doubt-soft); color: var(--doubt); }
.badge.unknown { background: var(--unknown-soft); color: var(--unknown); }
.note { border-left: .3rem solid var(--rule); padding: .25rem .75rem; margin: .5rem 0; background: var(--plate); }
.note.bad { border-color: var(--bad); } .note.doubt { border-color: var(--doubt); }
.rings { display: flex; flex-wrap: wrap; gap: 1rem; justify-content: center; margin: 1rem 0; }
.ring { width: 100%; max-width: 24rem; height: auto; } .trend { width: 100%; height: auto; display: block; }
svg text { fill: var(--ink); font: 600 17px system-ui, sans-serif; }
svg .figure { font-size: 22px; } svg .word { font-size: 13px; font-weight: 400; }
svg.trend text { font-size: 12px; font-weight: 400; }
.plate { fill: var(--paper); stroke: var(--rule); } .middle.bad .plate { stroke: var(--bad); stroke-width: 2; }
.link { stroke-width: 1.5; stroke: var(--rule); } .link.good { stroke: var(--good); opacity: .55; }
.ring .link.bad { stroke: var(--bad); opacity: .5; stroke-dasharray: 3 4; }
.card rect { fill: var(--unknown-soft); stroke: var(--unknown); stroke-width: 1.5; }
.card.good rect { fill: var(--good-soft); stroke: var(--good); } .card.good text { fill: var(--good); }
.card.bad rect { fill: var(--bad-soft); stroke: var(--bad); stroke-width: 3; } .card.bad text { fill: var(--bad); }
.card.doubt rect { fill: var(--doubt-soft); stroke: var(--doubt); stroke-dasharray: 4 3; }
.card.doubt text { fill: var(--doubt); }
.ring .link.fault { stroke: var(--bad); stroke-width: 5; opacity: 1; stroke-dasharray: none; }
.floor { stroke: var(--soft); stroke-dasharray: 4 4; } .curve { fill: none; stroke: var(--soft); stroke-width: 2; }
.dot.good { fill: var(--good); } .dot.bad { fill: var(--bad); }
table { border-collapse: collapse; width: 100%; } caption { text-align: left; color: var(--soft); }
th, td { text-align: left; vertical-align: top; padding: .4rem .6rem; border-bottom: 1px solid var(--rule); }
th { color: var(--soft); font-weight: 600; font-size: .875rem; white-space: nowrap; }
td.number { font-variant-numeric: tabular-nums; white-space: nowrap; }
.curves { display: flex; flex-wrap: wrap; gap: 0 2rem; } figure { margin: .5rem 0 0; flex: 0 1 20rem; }
figcaption { font-size: .875rem; }
details { margin-top: 1rem; } summary { cursor: pointer; font-weight: 600; }
@media (min-width: 40rem) { td:first-child { min-width: 13rem; } }
@media (max-width: 40rem) { section { padding: .75rem; }
  thead { display: none; } tr { display: block; border-bottom: 1px solid var(--rule); padding: .5rem 0; }
  td:empty { display: none; } td { display: flex; gap: .75rem; border: 0; padding: .15rem 0; }
  td::before { content: attr(data-label); flex: 0 0 6.5rem; color: var(--soft); font-size: .875rem; } }
"""


def report(verdicts: Sequence[Mapping[str, Any]], pairs: Mapping[str, Any] | None, made: str) -> str:
    """Return the page of all nodes, worst first; pairs: the results of meetings.outcome(), or None.

    made: the time of the report (ISO 8601).
    """
    ordered = sorted(
        verdicts, key=lambda verdict: ((FAILED, NOT_MEASURED, ACCEPTED).index(verdict["state"]), verdict["node"])
    )
    title = "Cards and links" if len(ordered) != 1 else f"Cards and links of {ordered[0]['node']}"
    page = element(
        "html",
        {"lang": "en"},
        element(
            "head",
            None,
            element("meta", {"charset": "utf-8"}),
            element("meta", {"name": "viewport", "content": "width=device-width, initial-scale=1"}),
            element("meta", {"http-equiv": "Content-Security-Policy", "content": _POLICY}),
            element("title", None, title),
            # The style sheet contains no text from outside.
            element("style", None, Html(_STYLE)),
        ),
        element(
            "body",
            None,
            element("h1", None, title),
            element(
                "p",
                {"class": "soft"},
                f"Made {_time(made)}. {_counts(ordered) if ordered or not pairs else ''}".strip(),
            ),
            _overview(ordered) if len(ordered) > 1 else "",
            _pairs(pairs) if pairs else "",
            *(_node(verdict, place) for place, verdict in enumerate(ordered)),
        ),
    )
    return f"<!doctype html>\n{page}\n"


def _time(text: str) -> str:
    """Return a time for people; text that is not a time stays unchanged."""
    found = _TIME.fullmatch(text)
    return f"{found[1]} {found[2]} UTC" if found else text


def _counts(verdicts: Sequence[Mapping[str, Any]]) -> str:
    counts = [(sum(verdict["state"] == state for verdict in verdicts), word) for state, (_, word) in _STATES.items()]
    said = ", ".join(f"{count} {word}" for count, word in counts if count)
    return f"{len(verdicts)} node{'' if len(verdicts) == 1 else 's'}: {said}." if said else "No node was looked at."


def _badge(state: str, words: str) -> Html:
    return element("span", {"class": f"badge {state}"}, f"{SIGNS[state]} {words}")


def _note(text: str, state: str = "") -> Html:
    return element("p", {"class": f"note {state}".strip()}, text)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Html:
    """Return a table whose cells repeat their heading, for narrow screens; cells under NW and needed are numbers."""
    return element(
        "table",
        None,
        element("thead", None, element("tr", None, *(element("th", {"scope": "col"}, each) for each in head))),
        element(
            "tbody",
            None,
            *(
                element(
                    "tr",
                    None,
                    *(
                        element("td", {"data-label": name, **({"class": "number"} if "GB/s" in name else {})}, cell)
                        for name, cell in zip(head, row)
                    ),
                )
                for row in rows
            ),
        ),
    )


def _overview(verdicts: Sequence[Mapping[str, Any]]) -> Html:
    rows = []
    for place, verdict in enumerate(verdicts):
        measured = verdict["measurements"]
        rows.append(
            (
                element("a", {"href": f"#node-{place}"}, verdict["node"]),
                _badge(*_STATES[verdict["state"]]),
                ", ".join(_gb_s(each["nw_gb_s"]) for each in measured) or "-",
                _time(verdict["time"]),
            )
        )
    return element(
        "section",
        {"id": "overview"},
        element("h2", None, "Nodes"),
        _table(("node", "verdict", "NW GB/s", "measured"), rows),
    )


def _gb_s(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def _node(verdict: Mapping[str, Any], place: int) -> Html:
    """Return the section of one node."""
    state, words = _STATES[verdict["state"]]
    override = verdict["override"]
    return element(
        "section",
        {"id": f"node-{place}", "class": "node"},
        element("div", {"class": "head"}, element("h2", None, verdict["node"]), _badge(state, words)),
        element("p", {"class": "soft"}, f"Looked at {_time(verdict['time'])}."),
        _note(f"Let through all the same: {override}", "doubt") if override else "",
        *(_note(fault["sentence"], BAD if fault["fatal"] else DOUBT) for fault in verdict["faults"]),
        *(_note(each["sentence"], BAD) for each in verdict["located"]),
        _note(verdict["not_measured"], DOUBT) if verdict["not_measured"] else "",
        element("div", {"class": "rings"}, *(draw(group) for group in _groups(verdict))),
        _measurements(verdict["measurements"]),
        _numbers(verdict.get("compute_check")),
        _host_nics(verdict["host_nics"]),
        _burn_in(verdict["burn_in"]),
        _history(verdict),
        _made_of(verdict["made_of"]),
    )


def _groups(verdict: Mapping[str, Any]) -> list[GroupDrawing]:
    """Return the drawings: each group measured over its own links, then the cards outside such groups."""
    modules = {int(module) for module in verdict["made_of"]["serials"] if module.isdecimal()}
    groups: dict[tuple[int, ...], Mapping[str, Any]] = {}
    for each in verdict["measurements"]:
        key = tuple(each["modules"])
        # Of several measurements of a group, one that did not pass is drawn.
        if not over(each) and (key not in groups or each["class"] not in PASSING):
            groups[key] = each
    drawn = [_group(verdict, sorted(key), each) for key, each in groups.items()]
    rest = sorted(modules - {module for key in groups for module in key})
    return drawn + ([_group(verdict, rest, None)] if rest else [])


def _group(verdict: Mapping[str, Any], modules: Sequence[int], measured: Mapping[str, Any] | None) -> GroupDrawing:
    state = UNKNOWN if measured is None else GOOD if measured["class"] in PASSING else BAD
    located = [each for each in verdict["located"] if set(each["modules"]) <= set(modules)]
    bad = {module for each in located if each["kind"] == "card" for module in each["modules"]}
    bad |= {module for fault in verdict["faults"] if fault["fatal"] for module in fault["modules"]}
    wrong = [row for row in rows(verdict) if row["outcome"] == compute.FAILED and len(row["modules"]) == 1]
    bad |= {module for row in wrong for module in row["modules"] if module in modules}
    links = [(each["modules"][0], each["modules"][1]) for each in located if each["kind"] == "link"]
    # In a bad group with a named fault the other cards are good; without one their state is not known.
    other = (GOOD if bad or links else DOUBT) if state == BAD else state
    cards = {module: BAD if module in bad else other for module in modules}
    if measured is None:
        return GroupDrawing(cards, links, False, state, "no figure", f"modules {modules_text(modules)}", "not measured")
    nw, words = measured["nw_gb_s"], _CLASSES[measured["class"]][1]
    test = f"{measured['collective']} {size_text(measured['size'])}"
    return GroupDrawing(cards, links, True, state, "failed" if nw is None else f"{nw:.1f} GB/s", test, words)


def _measurements(measured: Sequence[Mapping[str, Any]]) -> Html:
    if not measured:
        return Html("")
    rows = [
        (
            f"{each['collective']} of {size_text(each['size'])}, {each['loop']} loops",
            f"{modules_text(each['modules'])} {over(each)}".rstrip(),
            _gb_s(each["nw_gb_s"]),
            _gb_s(each["algo_gb_s"]),
            _gb_s(each["floor_gb_s"]),
            _badge(*_CLASSES[each["class"]]),
        )
        for each in measured
    ]
    head = ("test", "modules", "NW GB/s", "Algo GB/s", "needed GB/s", "class")
    return joined(
        (
            element("h3", None, "Measurements"),
            _table(head, rows),
            *(element("p", {"class": "soft"}, each["sentence"]) for each in measured),
        )
    )


_OUTCOMES = {
    compute.PASSED: (GOOD, "proved"),
    compute.FAILED: (BAD, "wrong"),
    compute.DIFFERS: (DOUBT, "differs"),
    compute.UNKNOWN: (UNKNOWN, "not checked"),
    compute.SKIPPED: (UNKNOWN, "not added up"),
}


def _numbers(part: Mapping[str, Any] | None) -> Html:
    """Return what the compute check found: a row for each card and group, and one for each wrong result."""
    if part is None:
        return Html("")
    rows = [
        (
            modules_text(row["modules"]),
            "copies, gathers, products" if len(row["modules"]) == 1 else "sum over all of them",
            row["form"],
            _time(row["time"]),
            _badge(*_OUTCOMES[row["outcome"]]),
        )
        for row in part["rows"]
    ]
    wrong = [
        (
            f"module {each['module']}",
            each["check"],
            each["expected"],
            each["got"],
            f"{each['wrong']} of {each['of']}" if each["exact"] else "beyond the tolerance",
        )
        for row in part["rows"]
        for each in row["findings"]
    ]
    said = [row for row in part["rows"] if row["sentence"]]
    return joined(
        (
            element("h3", None, "Numbers"),
            _table(("modules", "checks", "form", "when", "result"), rows) if rows else "",
            _table(("card", "check", "expected", "got", "how many"), wrong) if wrong else "",
            *(_note(row["sentence"], _OUTCOMES[row["outcome"]][0]) for row in said),
            _note(part["not_checked"], DOUBT) if part["not_checked"] else "",
        )
    )


def _host_nics(nics: Mapping[str, Any] | None) -> Html:
    if nics is None:
        return Html("")
    rows = [(nics["libfabric"] or "-", nics["provider"] or "-", nics["wrapper"] or "-", DIRECT[nics["gaudi_direct"]])]
    return joined(
        (
            element("h3", None, "Host NICs"),
            _table(("libfabric", "provider", "wrapper", "Gaudi Direct"), rows),
            *(_note(fault["sentence"], BAD if fault["fatal"] else DOUBT) for fault in nics["faults"]),
        )
    )


def _burn_in(burnt: Mapping[str, Any] | None) -> Html:
    if burnt is None:
        return Html("")
    state = {True: "", False: BAD, None: DOUBT}[burnt["passed"]]
    return joined((element("h3", None, "Burn-in"), _note(burnt["sentence"], state)))


def _history(verdict: Mapping[str, Any]) -> Html:
    """Return earlier verdicts: a curve for each measurement of this verdict, and a table."""
    history = verdict["history"]
    if not history:
        return Html("")
    curves = list(filter(None, (_curve(verdict, each) for each in verdict["measurements"])))
    rows = [
        (
            _time(entry["time"]),
            _badge(*_STATES[entry["state"]]),
            ", ".join(
                f"{each['collective']} {modules_text(each['modules'])}: {_gb_s(each['nw_gb_s'])}"
                for each in entry["measurements"]
            )
            or "-",
        )
        for entry in history
    ]
    said = "NW Bandwidth of earlier verdicts and of this one, oldest first; dashed is what is needed now."
    return joined(
        (
            element("h3", None, "History"),
            element("p", {"class": "soft"}, said) if curves else "",
            element("div", {"class": "curves"}, *curves),
            _folded(f"{len(rows)} earlier", _table(("time", "verdict", "NW GB/s"), rows)),
        )
    )


def _curve(verdict: Mapping[str, Any], measured: Mapping[str, Any]) -> Html:
    """Return a measurement's figures over time; nothing if it was made only once."""
    keys = ("modules", "collective", "size")
    values = [
        each["nw_gb_s"]
        for entry in (*reversed(verdict["history"]), verdict)
        for each in entry["measurements"]
        if all(each[key] == measured[key] for key in keys) and same_path(each, measured)
    ]
    if len(values) == 1:
        return Html("")
    path = over(measured)
    name = f"{measured['collective']} of {size_text(measured['size'])} over modules {modules_text(measured['modules'])}"
    return element(
        "figure",
        None,
        element("figcaption", None, f"{name}{path and ', '}{path}"),
        trend(values, measured["floor_gb_s"]),
    )


def _folded(summary: str, *children: str) -> Html:
    """Return content that is shown after a click."""
    return element("details", None, element("summary", None, summary), *children)


def _made_of(made_of: Mapping[str, Any]) -> Html:
    """Return what the verdict is about; a change in any of these makes it stale."""
    rows = [(name.replace("_", " "), made_of[name] or "-") for name in made_of if name != "serials"]
    rows += [(f"module {module}", serial) for module, serial in made_of["serials"].items()]
    return _folded("What it is about", _table(("what", "value"), rows))


def _pairs(pairs: Mapping[str, Any]) -> Html:
    """Return the runs over pairs of nodes: the sentences, the bad pairs, and the good ones folded."""
    good = not pairs["bad_nodes"] and not pairs["bad_links"] and not pairs["suspects"]
    state = GOOD if good and not pairs["left"] else BAD if pairs["bad_nodes"] or pairs["bad_links"] else DOUBT
    words = {GOOD: "all pairs good", BAD: "a node or link is at fault", DOUBT: "not finished"}[state]
    bad_pairs = [each for each in pairs["pairs"] if each["class"] != "good"]
    good_pairs = [each for each in pairs["pairs"] if each["class"] == "good"]
    return element(
        "section",
        {"id": "pairs"},
        element("div", {"class": "head"}, element("h2", None, "Pairs of nodes"), _badge(state, words)),
        *(_note(sentence, "" if good else BAD) for sentence in pairs["sentences"]),
        *(_note(f"{node} is left out: {why}", DOUBT) for node, why in pairs["left_out"].items()),
        _table_of_pairs(bad_pairs) if bad_pairs else "",
        _folded(f"{len(good_pairs)} good pairs", _table_of_pairs(good_pairs)) if good_pairs else "",
    )


def _table_of_pairs(pairs: Sequence[Mapping[str, Any]]) -> Html:
    said = any(each["sentence"] for each in pairs)
    rows = [
        (
            f"{each['node']} and {each['other']}",
            _gb_s(each["nw_gb_s"]),
            _badge(GOOD if each["class"] == "good" else BAD, each["class"]),
            str(each["round"]),
            *([each["sentence"]] if said else []),
        )
        for each in pairs
    ]
    return _table(("pair", "NW GB/s", "class", "round", *(["what was said"] if said else [])), rows)
