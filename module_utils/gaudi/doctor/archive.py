"""Put together an archive of records: names of its files, their texts, and what was removed from them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from . import recorded, removal
from .bundle import masked_text

FORMAT = 1
"""Of record.json. It counts up when a reader of old archives would misread new ones."""
DESCRIPTION = "record.json"
REMOVED = "REMOVED.txt"
_HEAD = "Removed from this record, by kind: how often, then each placeholder with how often. Values are not shown.\n\n"


@dataclass(frozen=True)
class Archive:
    """An archive: the stem of its name, its files by path, and what was removed, as lines."""

    name: str
    files: dict[str, str]
    report: list[str]


def make(records: Mapping[str, Any], run: str, date: str) -> Archive:
    """Return the archive of the records of nodes, by their names in the inventory. A node may report anything.

    run: what a run of the playbooks printed; empty without one. date: such as 2026-11-27.
    """
    of_nodes, given = list[dict[str, str]](), list[dict[str, list[str]]]()
    for name, record in records.items():
        report = record if isinstance(record, Mapping) else {}
        texts, names = recorded.texts_of(report.get("texts")), removal.names_of(report.get("names"))
        if removal.too_many(names):
            texts = {f"text {number}": removal.TOO_MANY for number in range(1, len(texts) + 1)}
        of_nodes.append(texts)
        given.append({**names, removal.HOST: [str(name), *names[removal.HOST]]})
    if run:
        of_nodes.append({recorded.RUN: recorded.texts_of({recorded.RUN: masked_text(run)})[recorded.RUN]})
    # Names of texts have the site's words too, such as an instance called after a person.
    names_of = [name for texts in of_nodes for name in texts]
    senders = [number for number, texts in enumerate(of_nodes) for _ in texts]
    values = [text for texts in of_nodes for text in texts.values()]
    removed = removal.remove([*values, *names_of], given, [*senders, *senders])
    clean, clean_names = iter(removed.texts[: len(names_of)]), iter(removed.texts[len(names_of) :])
    files, hosts = dict[str, str](), dict[str, Any]()
    for number, texts in enumerate(of_nodes, start=1):
        shown = [(next(clean_names), next(clean)) for _ in texts]
        if number > len(records):
            files["record/run.txt"] = shown[0][1]
            continue
        host = f"{removal.HOST}-{number}"
        file_names = recorded.file_names(name for name, _ in shown)
        files.update({f"record/{host}/{file}": text for file, (_, text) in zip(file_names, shown)})
        hosts[host] = {
            **recorded.described(dict(shown)),
            "texts": {file: name for file, (name, _) in zip(file_names, shown)},
        }
    first: dict[str, Any] = next(iter(hosts.values()), recorded.described({}))
    report_lines = removal.report(removed)
    files[f"record/{REMOVED}"] = _HEAD + "".join(f"{line}\n" for line in report_lines)
    description = {"format": FORMAT, "date": date, "hosts": hosts}
    files[f"record/{DESCRIPTION}"] = json.dumps(description, indent=1) + "\n"
    return Archive(f"record_{first['driver']}_{first['card']}_{date}", files, report_lines)
