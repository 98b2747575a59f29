"""The tables of docs/faults.md, made from the list; run as a module it writes them into the document."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from plugin_utils import brain

if TYPE_CHECKING:
    from ansible.module_utils.gaudi.faults.entry import KnownFault

ROOT = Path(__file__).resolve().parents[3]
DOCUMENT = ROOT / "docs" / "faults.md"
BEGIN, END = "<!-- faults: begin -->", "<!-- faults: end -->"
BAR = "\\|"
HEAD = "| {} | what is wrong | what to do | again | recognised by | source |"
RULE = "| --- | --- | --- | --- | --- | --- |"
# Where a fault follows from what this project reads and writes itself.
OURS = "this project"


def tables() -> list[str]:
    """The lines of the tables: for each subject the faults that a log shows, then those that a check finds."""
    brain.on_path()
    from ansible.module_utils.gaudi.faults.entry import ERROR, PARTS
    from ansible.module_utils.gaudi.faults.known import FAULTS

    def row(fault: KnownFault) -> str:
        todo = [fault.remedy, *(f"({case}) {text}" for case, text in fault.remedies.items())]
        by = [f"`{fault.seen_by}`"] * bool(fault.seen_by) + [f"a line such as `{shown(fault)}`"] * bool(fault.example)
        by += [f"where {fault.when.replace('_', ' ')}"] * bool(fault.hints and not fault.signs)
        name = f'<a id="{fault.id}"></a>`{fault.id}`' + ("" if fault.severity == ERROR else f" ({fault.severity})")
        again = "" if not fault.example or fault.severity != ERROR else "yes" if fault.retry else "no"
        cells = (name, fault.sentence, " ".join(filter(None, todo)), again, ", ".join(by), fault.source or OURS)
        # A bar within a cell would end it.
        return f"| {' | '.join(cell.replace('|', BAR) for cell in cells)} |"

    lines: list[str] = []
    for part in PARTS:
        of_part = [fault for fault in FAULTS if fault.part == part]
        in_logs = [fault for fault in of_part if fault.example]
        found = [fault for fault in of_part if not fault.example]
        lines += ["", f"## {part[0].upper()}{part[1:]}"]
        for title, faults in (("in a log", in_logs), ("found by a check", found)):
            lines += ["", HEAD.format(title), RULE, *map(row, faults)] if faults else []
    # In a template {{ stands for a brace.
    return [line.replace("{{", "{").replace("}}", "}").rstrip() for line in lines[1:]]


def shown(fault: KnownFault) -> str:
    """The line of a fault's example that shows it, short and without what would end a cell of code."""
    line = next((line.strip() for line in fault.example.splitlines() if line.strip()), "")
    return (line if len(line) <= LONGEST else f"{line[:LONGEST]}…").replace("`", "'")


LONGEST = 160


def tables_in(text: str) -> list[str]:
    """The lines between the markers of the document."""
    return text.partition(BEGIN)[2].partition(END)[0].strip().splitlines()


if __name__ == "__main__":
    before, _, rest = DOCUMENT.read_text(encoding="utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    DOCUMENT.write_text("\n".join([f"{before}{BEGIN}", *tables(), f"{END}{after}"]), encoding="utf-8")
