"""Records of owners are read by the parsers; an archive becomes such a record with one command."""

from __future__ import annotations

import io
import json
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from ansible.module_utils.gaudi.doctor import archive

from action_plugins.record_archive import MOST_OF_RUN, packed, printed, write
from tests import recorded

UNIT = Path(__file__).resolve().parent.parent
CARDS = UNIT / "cards/recorded"
FOLDERS = sorted(path for path in recorded.ROOT.iterdir() if (path / archive.DESCRIPTION).is_file())


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """An archive of recorded outputs, as record.yml would write it."""
    texts = {
        "hl-smi": CARDS / "1.22.1/hl-smi.txt",
        "hl-smi topo -c -N": CARDS / "1.22.0/hl-smi_topo_-c_-N.txt",
        "hl-smi -n link -i 0000:29:00.0": CARDS / "1.23.0/hl-smi_-n_link.txt",
        "hl-smi -L": CARDS / "1.12.1/hl-smi_-L_-i.txt",
        "lspci -d 1da3:": CARDS / "1.23.0/lspci_-d_1da3.txt",
        "lsmod": UNIT / "driver/recorded/lsmod_1.23.0.txt",
        "start of chat": UNIT / "serving/recorded/start__0.26.0_gaudi2_tp8__qwen3-235b.txt",
    }
    sent = {name: path.read_text() for name, path in texts.items()} | {
        "dkms status": "dkms is not on the node\n",
        "hl-smi --fw-versions": "usage: hl-smi\n",
        "status of each command": "0  hl-smi\n2  hl-smi --fw-versions\n",
    }
    content = archive.make({"blade7": {"texts": sent, "names": {}}}, "", "2026-11-27")
    return write(tmp_path / "out", content.name, packed(content.files))


def taken(made: Path, root: Path) -> Path:
    root.mkdir(exist_ok=True)
    return recorded.take(made, root)


def test_no_part_of_a_line_is_taken_from_what_a_run_printed(tmp_path: Path) -> None:
    """The part that is missing may say that the rest is a secret."""
    line = "HF_TOKEN: " + "s3cret" * 40 + "\n"
    (tmp_path / "run.log").write_text(line * (MOST_OF_RUN // len(line) + 2))
    found = printed(str(tmp_path / "run.log"))
    assert len(found) > MOST_OF_RUN // 2
    assert set(found.splitlines()) == {line.rstrip()}
    (tmp_path / "run.log").write_text(line)
    assert printed(str(tmp_path / "run.log")) == line


def test_index_has_every_record_and_no_other() -> None:
    rows = (recorded.ROOT / recorded.INDEX).read_text().partition("| --- |")[2].splitlines()[1:]
    assert [row.split(" | ")[0].lstrip("| ") for row in rows] == [path.name for path in FOLDERS]


def test_every_text_of_every_record_is_read() -> None:
    """What differs is a bug of a parser, or wants an entry of its own here, with the reason."""
    assert [(path.name, *found) for path in FOLDERS for found in recorded.read(path) if found[2]] == []


def test_an_archive_is_taken_and_read_at_once(made: Path, tmp_path: Path) -> None:
    folder = taken(made, tmp_path / "root")
    assert folder.name == "1.22.1_HL-225_2026-11-27"
    found = {file: (shown, complaint) for file, shown, complaint in recorded.read(folder)}
    assert found["host-1/hl-smi.txt"] == ("8 cards, driver 1.22.1-97ec1a4", "")
    assert found["host-1/hl-smi_topo_-c_-N.txt"] == ("8 rows", "")
    assert found["host-1/hl-smi_-n_link_-i_0000-29-00.0.txt"] == ("18 rows", "")
    assert "656 s" in found["host-1/start_of_chat.txt"][0]
    assert found["host-1/hl-smi_--fw-versions.txt"] == ("ended with status 2", "")
    assert len(found) == 8
    assert (tmp_path / "root/INDEX.md").read_text() == (
        "| 1.22.1_HL-225_2026-11-27 | 1.22.1 | 8 x HL-225 | 2026-11-27 |\n"
    )
    assert taken(made, tmp_path / "root").name == "1.22.1_HL-225_2026-11-27_2"


def test_what_a_parser_cannot_read_is_said(made: Path, tmp_path: Path) -> None:
    folder = taken(made, tmp_path / "root")
    (folder / "host-1/hl-smi.txt").write_text("| another layout |\n")
    complaints = [complaint for file, _, complaint in recorded.read(folder) if file == "host-1/hl-smi.txt"]
    assert complaints
    assert complaints[0].startswith("ValueError: hl-smi printed no table")


def test_an_archive_is_for_its_owner_alone_and_the_same_each_time(tmp_path: Path) -> None:
    files = {"record/b.txt": "b", "record/a.txt": "a"}
    assert packed(files) == packed(dict(reversed(files.items())))
    first, second = (write(tmp_path / "new/out", "record_x", packed(files)) for _ in range(2))
    assert (first.name, second.name) == ("record_x.tar.gz", "record_x_2.tar.gz")
    assert first.stat().st_mode & 0o777 == 0o600
    assert first.parent.stat().st_mode & 0o777 == 0o700
    assert sorted(path.name for path in first.parent.iterdir()) == ["record_x.tar.gz", "record_x_2.tar.gz"]


@pytest.mark.parametrize(
    "name",
    [
        *("/etc/passwd", "record/../x", "record/host-1/../../x", "record/.x", "x", "link"),
        # What pytest would run.
        *("record/conftest.py", "record/host-1/test_x.py", "record/host-1/conftest.py", "record/test_x.txt"),
    ],
)
def test_an_archive_that_leads_elsewhere_is_refused(name: str, tmp_path: Path) -> None:
    path = tmp_path / "x.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        entry = tarfile.TarInfo("record/run.txt" if name == "link" else name)
        if name == "link":
            entry.type, entry.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(entry, io.BytesIO())
    with pytest.raises(ValueError, match="no archive"):
        recorded.take(path, tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["x.tar.gz"]


@pytest.mark.parametrize(
    "document", [{}, [], {"format": 2, "date": "2026-11-27", "hosts": {"host-1": {}}}, {"format": 1, "hosts": {}}]
)
def test_a_description_of_another_form_is_refused(document: object, tmp_path: Path) -> None:
    path = write(tmp_path, "x", packed({"record/record.json": json.dumps(document)}))
    with pytest.raises(ValueError, match=r"record\.json"):
        recorded.take(path, tmp_path)


def test_a_description_that_names_other_files_is_refused(made: Path, tmp_path: Path) -> None:
    for about in ({"texts": {"../../../conftest.py": "lsmod"}}, {"cards": "8 |\n| x"}, {"texts": {"a.txt": 7}}):
        host = {"driver": "1.22.1", "card": "HL-225", "cards": 8, "texts": {}, **about}
        document = {"format": archive.FORMAT, "date": "2026-11-27", "hosts": {"host-1": host}}
        path = write(tmp_path, "x", packed({"record/record.json": json.dumps(document)}))
        with pytest.raises(ValueError, match=r"record\.json"):
            recorded.take(path, tmp_path)


def test_an_archive_of_more_than_a_record_has_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before tarfile reads a header, which may be as large as it likes."""
    monkeypatch.setattr(recorded, "MOST_BYTES", 1 << 20)
    path = write(tmp_path, "x", packed({"record/run.txt": "x" * (2 << 20)}))
    with pytest.raises(ValueError, match="more than"):
        recorded.take(path, tmp_path)


def test_a_text_without_its_bytes_is_refused(tmp_path: Path) -> None:
    """A sparse file of a few hundred bytes would be read as gigabytes."""
    path = tmp_path / "x.tar.gz"
    with tarfile.open(path, "w:gz", format=tarfile.PAX_FORMAT) as tar:
        entry = tarfile.TarInfo("record/run.txt")
        entry.size = 4
        sparse = {"major": "0", "minor": "1", "map": "0,4", "name": entry.name, "size": str(1 << 40)}
        entry.pax_headers = {f"GNU.sparse.{key}": value for key, value in sparse.items()}
        tar.addfile(entry, io.BytesIO(b"text"))
    with pytest.raises(ValueError, match="no archive"):
        recorded.take(path, tmp_path)


def test_pytest_collects_nothing_of_a_record(tmp_path: Path) -> None:
    """A text may look like a file of doctests, which pytest runs."""
    shutil.copy(Path(__file__).with_name("conftest.py"), tmp_path / "conftest.py")
    text = tmp_path / "1.22_HL-225/host-1/test_x.txt"
    text.parent.mkdir(parents=True)
    ran = tmp_path / "ran"
    text.write_text(f">>> open({str(ran)!r}, 'w').close()\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    subprocess.run(command, cwd=tmp_path, check=False, capture_output=True)
    assert not ran.exists()


def test_what_an_archive_says_reaches_a_terminal_as_printable_text(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(recorded, "take", lambda path: recorded.ROOT)
    monkeypatch.setattr(recorded, "read", lambda folder: iter([("host-1/a.txt", "ended with status \x1b]0;x\x07", "")]))
    assert recorded.main([str(made)]) == 0
    assert "\x1b" not in capsys.readouterr().out
