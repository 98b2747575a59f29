"""Take an archive of playbooks/record.yml as a fixture: its texts below tests/unit/recorded, with a row in INDEX.md.

python -m tests.recorded ARCHIVE. Says at once what the parsers read in it; tests/unit/recorded feeds every archive that
was taken to them. The archive comes from outside: only texts with the names of a record are taken, of bounded size, and
pytest collects nothing below their folder (tests/unit/recorded/conftest.py).
"""

from __future__ import annotations

import gzip
import io
import json
import re
import sys
import tarfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from plugin_utils import brain

brain.on_path()

from ansible.module_utils.gaudi.base.printable import printable
from ansible.module_utils.gaudi.cards import hl_smi, network_ifs
from ansible.module_utils.gaudi.doctor import archive, findings, recorded
from ansible.module_utils.gaudi.driver import kernels
from ansible.module_utils.gaudi.fabric import burn_in, verdict
from ansible.module_utils.gaudi.serving import load
from ansible.module_utils.gaudi.serving.progress import Progress

ROOT = Path(__file__).resolve().parent / "unit/recorded"
INDEX = "INDEX.md"
_HOST = r"host-\d{1,4}"
_TEXT = r"[A-Za-z0-9=+,][A-Za-z0-9._,=+-]{0,130}\.txt"
_FILE = re.compile(rf"record/(record\.json|REMOVED\.txt|run\.txt|{_HOST}/{_TEXT})")
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_WORD = re.compile(r"[A-Za-z0-9.+-]{1,60}")
MOST_FILES = 100_000
MOST_BYTES = 256 << 20


def files_of(path: Path) -> dict[str, str]:
    """Return the texts of an archive by path. Raises ValueError for one that playbooks/record.yml cannot have made."""
    found: dict[str, str] = {}
    with gzip.open(path) as packed:
        whole = packed.read(MOST_BYTES + 1)
    if len(whole) > MOST_BYTES:
        raise ValueError(f"{path} is no archive of playbooks/record.yml: it has more than {MOST_BYTES} bytes")
    with tarfile.open(fileobj=io.BytesIO(whole)) as tar:
        for entry in tar:
            name = _FILE.fullmatch(entry.name)
            # A sparse file has any size, whatever the archive has.
            if not name or not entry.isfile() or entry.issparse() or len(found) >= MOST_FILES:
                raise ValueError(f"{path} is no archive of playbooks/record.yml: {entry.name!r:.200}")
            content = tar.extractfile(entry)
            found[name[1]] = content.read().decode() if content else ""
    return found


def description_of(text: str) -> dict[str, Any]:
    """Return record.json. Raises ValueError where it has another form."""
    document = json.loads(text)
    hosts = document["hosts"]
    fine = document["format"] == archive.FORMAT and _DATE.fullmatch(document["date"]) and hosts
    for name, host in hosts.items():
        fine = fine and re.fullmatch(_HOST, name) and isinstance(host["cards"], int)
        fine = fine and _WORD.fullmatch(host["driver"]) and _WORD.fullmatch(host["card"])
        fine = fine and all(re.fullmatch(_TEXT, file) for file in host["texts"])
        fine = fine and all(isinstance(text, str) for text in host["texts"].values())
    if not fine:
        raise ValueError(f"{archive.DESCRIPTION} has a form that is not known here")
    return dict(document)


def take(path: Path, root: Path = ROOT) -> Path:
    """Unpack an archive below a folder, add its row to the index, and return its own folder."""
    files = files_of(path)
    try:
        described = description_of(files[archive.DESCRIPTION])
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} has no {archive.DESCRIPTION} that is known here") from error
    first = next(iter(described["hosts"].values()))
    stem, number = f"{first['driver']}_{first['card']}_{described['date']}", 1
    while (folder := root / (stem if number == 1 else f"{stem}_{number}")).exists():
        number += 1
    for name, text in files.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8", newline="")
    cards = ", ".join(f"{host['cards']} x {host['card']}" for host in described["hosts"].values())
    with (root / INDEX).open("a", encoding="utf-8") as index:
        index.write(f"| {folder.name} | {first['driver']} | {cards} | {described['date']} |\n")
    return folder


# -- what the parsers read in it


def _table(text: str) -> str:
    table = hl_smi.parse_table(text)
    unknown = [card.index for card in table.cards if None in (card.memory_total_mib, card.temperature_c)]
    if not table.cards or unknown:
        raise ValueError(f"cards without memory or temperature: {unknown or 'no card at all'}")
    return f"{len(table.cards)} cards, driver {table.driver_version}"


def _rows(read: Callable[[str], Any]) -> Callable[[str], str]:
    def checked(text: str) -> str:
        found = read(text)
        if not found:
            raise ValueError("nothing was read")
        return f"{len(found)} rows"

    return checked


def _csv(fields: str) -> Callable[[str], str]:
    return _rows(lambda text: hl_smi.parse_csv(text, fields.split(",")))


def _start(text: str) -> str:
    progress = Progress()
    for line in text.splitlines():
        progress.hear(line)
    return progress.text()


def _metrics(text: str) -> str:
    found = load.read(text)
    if found is None:
        raise ValueError("no counts of requests")
    return f"{found.running} running, {found.waiting} waiting"


# By the beginning of a text's name: what reads it.
READERS: Mapping[str, Callable[[str], str]] = {
    "hl-smi -Q ": lambda text: "",
    "hl-smi -L": _rows(hl_smi.parse_list),
    "hl-smi --fw-versions": _rows(hl_smi.parse_fw_versions),
    "hl-smi topo": _rows(hl_smi.parse_topo),
    "hl-smi -n link": _rows(hl_smi.parse_links),
    "hl-smi -n ports": _rows(hl_smi.parse_ports),
    "lspci -d 1da3:": _rows(hl_smi.parse_lspci),
    "lsmod": _rows(lambda text: [name for name in kernels.loaded(text) if name.startswith("habanalabs")]),
    "/opt/habanalabs/qual/": _rows(network_ifs.parse_status),
    "/var/lib/gaudi-serving/acceptance.json": _rows(verdict.read_verdict),
    "/var/lib/gaudi-serving/burn_in.log": lambda text: str(burn_in.parse_hl_qual(text, None)),
    "journalctl --dmesg": lambda text: f"{len(findings.of_kernel_log(text.splitlines()))} findings",
    recorded.START: _start,
    recorded.METRICS: _metrics,
}
# What a text says that has nothing to read, by why (node/recording.py).
_ABSENT = re.compile(
    r"is not on the node$|cannot be read: |did not end within|^It does not serve|^When it started last is not|"
    r"^The journal has no start",
    re.MULTILINE,
)


def read(folder: Path) -> Iterator[tuple[str, str, str]]:
    """Yield file, what a parser read in it, and its complaint, of an archive's folder; one of both is empty."""
    described = description_of((folder / archive.DESCRIPTION).read_text(encoding="utf-8"))
    for host, about in described["hosts"].items():
        statuses = _statuses(folder / host, about["texts"])
        for file, name in about["texts"].items():
            text = (folder / host / file).read_bytes().decode()
            reader = _reader(name)
            if reader is None or (len(text) < 300 and _ABSENT.search(text)):
                continue
            if statuses.get(name, "0") != "0":
                yield f"{host}/{file}", f"ended with status {statuses[name]}", ""
                continue
            try:
                yield f"{host}/{file}", reader(text), ""
            except (ValueError, KeyError, TypeError) as error:
                yield f"{host}/{file}", "", f"{type(error).__name__}: {error}"


def _statuses(folder: Path, texts: Mapping[str, str]) -> dict[str, str]:
    """Return the status that each command ended with, as far as the record has it."""
    file = next((file for file, name in texts.items() if name == recorded.STATUSES), None)
    lines = (folder / file).read_text(encoding="utf-8").splitlines() if file else []
    return {name: status for status, _, name in (line.partition("  ") for line in lines)}


def _reader(name: str) -> Callable[[str], str] | None:
    if name == "hl-smi":
        return _table
    if name.startswith("hl-smi -Q "):
        return _csv(name.split()[2])
    return next((reader for start, reader in READERS.items() if name.startswith(start)), None)


def main(arguments: list[str]) -> int:
    """Take one archive; 1 where a parser complains."""
    if len(arguments) != 1:
        print("usage: python -m tests.recorded ARCHIVE", file=sys.stderr)
        return 2
    try:
        folder = take(Path(arguments[0]))
    except (OSError, ValueError, tarfile.TarError) as error:
        print(printable(str(error)), file=sys.stderr)
        return 2
    found = list(read(folder))
    for file, shown, complaint in found:
        print(printable(f"{'DIFFERS' if complaint else 'read   '}  {file}: {(complaint or shown)[:200]}"))
    print(f"{folder.relative_to(ROOT.parents[2])} and its row in {INDEX} are new. What differs is a bug report.")
    return 1 if any(complaint for _, _, complaint in found) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
