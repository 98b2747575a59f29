"""The tables of docs/faults.md, made from the list; run as a module it writes them into the document."""

from __future__ import annotations

from pathlib import Path

from plugin_utils import brain

ROOT = Path(__file__).resolve().parents[3]
DOCUMENT = ROOT / "docs" / "faults.md"
BEGIN, END = "<!-- faults: begin -->", "<!-- faults: end -->"
BAR = "\\|"
HEAD = ("| id | what is said | what to do | recognised by | source |", "| --- | --- | --- | --- | --- |")


def tables() -> list[str]:
    """The lines of the tables, one for each part of a node."""
    brain.on_path()
    from ansible.module_utils.gaudi.faults.entry import PARTS, Known
    from ansible.module_utils.gaudi.faults.known import FAULTS

    def row(fault: Known) -> str:
        todo = [fault.remedy, *(f"({case}) {text}" for case, text in fault.remedies.items())]
        by = [f"`{fault.seen_by}`"] * bool(fault.seen_by) + [f"a line of the log: `{fault.signs}`"] * bool(fault.signs)
        by += [f"`{fault.hints}` where {fault.when.replace('_', ' ')}"] * bool(fault.hints)
        name = f"`{fault.id}`" + ("" if fault.severity == "error" else f" ({fault.severity})")
        cells = (name, fault.sentence, " ".join(filter(None, todo)), ", ".join(by), fault.source)
        # A bar within a cell would end it.
        return f"| {' | '.join(cell.replace('|', BAR) for cell in cells)} |"

    lines: list[str] = []
    for part in PARTS:
        lines += ["", f"## {part[0].upper()}{part[1:]}", "", *HEAD]
        lines += [row(fault) for fault in FAULTS if fault.part == part]
    # In a template {{ stands for a brace.
    return [line.replace("{{", "{").replace("}}", "}").rstrip() for line in lines[1:]]


def tables_in(text: str) -> list[str]:
    """The lines between the markers of the document."""
    return text.partition(BEGIN)[2].partition(END)[0].strip().splitlines()


if __name__ == "__main__":
    before, _, rest = DOCUMENT.read_text(encoding="utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    DOCUMENT.write_text("\n".join([f"{before}{BEGIN}", *tables(), f"{END}{after}"]), encoding="utf-8")
