"""The table of docs/models.md, made from the catalogue; run as a module it writes the table into the document."""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[3]
PLAYBOOKS = ROOT / "playbooks"
DOCUMENT = ROOT / "docs" / "models.md"
BEGIN, END = "<!-- models: begin -->", "<!-- models: end -->"


@functools.cache
def models() -> dict[str, dict[str, Any]]:
    """Every catalogue entry by its file's name."""
    folder = ROOT / "catalog" / "models"
    return {path.stem: yaml.safe_load(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.yml"))}


def playbook_name(name: str) -> str:
    """The playbook that serves a model."""
    return f"serve_{re.sub(r'[.-]', '_', name)}.yml"


def cards(entry: dict[str, Any]) -> int:
    """The cards a model is served on where nobody says otherwise."""
    number: int = entry["defaults"].get("tensor_parallel_size", 1)
    return number


def table(entries: dict[str, dict[str, Any]]) -> list[str]:
    """The lines of the table."""
    lines = [
        "| model | cards | for | stored as | GB | releases | playbook |",
        "| --- | ---: | --- | --- | ---: | --- | --- |",
    ]
    for name, entry in sorted(entries.items()):
        cells = [
            f"`{name}`",
            str(cards(entry)),
            " and ".join(KINDS[kind] for kind in entry.get("limit_mm_per_prompt", {}))
            or PURPOSE[entry.get("task", "generate")],
            entry["dtype"],
            f"{entry['weights_bytes'] / 1e9:.1f}" if "weights_bytes" in entry else "?",
            ", ".join(dict.fromkeys([*entry["releases"], *entry.get("validated", {}).get("releases", [])])),
            f"`{playbook_name(name)}`",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


KINDS = {"audio": "sounds", "image": "pictures", "video": "films"}
PURPOSE = {"generate": "text", "complete": "text, no chat", "embed": "embeddings", "score": "rerank scores"}


def table_in(text: str) -> list[str]:
    """The lines between the markers of the document."""
    return text.partition(BEGIN)[2].partition(END)[0].strip().splitlines()


if __name__ == "__main__":
    before, _, rest = DOCUMENT.read_text(encoding="utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    DOCUMENT.write_text("\n".join([f"{before}{BEGIN}", *table(models()), f"{END}{after}"]), encoding="utf-8")
