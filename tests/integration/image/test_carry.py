"""An image carried as a file, against a stand-in for the engine's client."""

from __future__ import annotations

import hashlib
import io
import json
import os
import signal
import subprocess
import sys
import tarfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.gaudi.node import weight_folders
from ansible.module_utils.gaudi.weights import record
from gaudi_image.archive import images, same_as
from gaudi_weights import take
from gaudi_weights.progress import TransferProgress
from hypothesis import given
from hypothesis import strategies as st

from tests import compiled
from tests.unit.weights.test_take import RSYNC

ROOT = Path(__file__).resolve().parents[3]
REFERENCE = "gaudi-serving/vllm:1.22-0123456789ab"
CONFIG = "c" * 64
ID = f"sha256:{CONFIG}"
LABELS = {"gaudi-serving.image.release": "1.22"}

DOCKER = """#!{python} -ES
import json, sys, time
from pathlib import Path
place = Path({folder!r})
words = sys.argv[1:]
with (place / "asked").open("a") as asked:
    asked.write(json.dumps(words) + "\\n")
there = json.loads((place / "there.json").read_text())
if words[:2] == ["image", "inspect"]:
    if words[2] not in there:
        print("[]")
        print("Error: No such image", file=sys.stderr)
        sys.exit(1)
    print(json.dumps([there[words[2]]]))
elif words[0] == "info":
    print(place)
    if (place / "exchanged").exists():
        (place / "exchanged").rename(place / "data" / "vllm.tar")
elif words[:2] == ["image", "save"]:
    said = (place / "save").read_text()
    if said:
        print(said, file=sys.stderr)
        sys.exit(1)
    sys.stdout.buffer.write((place / "archive").read_bytes())
    sys.stdout.flush()
    if (place / "slow").exists():
        print("waiting", file=sys.stderr)
        time.sleep(60)
elif words[:2] == ["image", "load"]:
    said = (place / "load").read_text()
    if said:
        print(said)
        sys.exit(1)
    content = Path(words[words.index("--input") + 1]).read_bytes() if "--input" in words else sys.stdin.buffer.read()
    (place / "given").write_bytes(content)
    (place / "there.json").write_text((place / "loaded.json").read_text())
elif words[:2] == ["image", "rm"]:
    del there[words[2]]
    (place / "there.json").write_text(json.dumps(there))
else:
    sys.exit(9)
"""


def archive(*names: str, index: str = "") -> bytes:
    """What docker save writes, as far as it is read."""
    files = {"manifest.json": [{"Config": f"blobs/sha256/{CONFIG}", "RepoTags": list(names), "Layers": []}]}
    if index:
        files["index.json"] = {"manifests": [{"digest": index}]}  # type: ignore[assignment]
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, content in files.items():
            text = json.dumps(content).encode()
            member = tarfile.TarInfo(name)
            member.size = len(text)
            tar.addfile(member, io.BytesIO(text))
    return out.getvalue()


class CarryNode:
    """A folder that stands for a node."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        client = folder / "bin" / "docker"
        client.parent.mkdir()
        client.write_text(DOCKER.format(python=sys.executable, folder=str(folder)))
        client.chmod(0o755)
        self.image = {"Id": ID, "Size": 20000, "Config": {"Labels": {**LABELS, "other": "x"}}}
        self.has({})
        (folder / "loaded.json").write_text(json.dumps({REFERENCE: self.image}))
        (folder / "archive").write_bytes(archive(REFERENCE))
        for name in ("save", "load", "asked"):
            (folder / name).write_text("")
        self.file = folder / "data" / "vllm.tar"
        self.file.parent.mkdir()

    def has(self, there: dict[str, Any]) -> None:
        """Set the images of the engine."""
        (self.folder / "there.json").write_text(json.dumps(there))

    def start(self, *words: str, before: str = "") -> subprocess.Popen[str]:
        """Begin; ``before`` is Python that runs first."""
        search = os.pathsep.join([str(ROOT / "module_utils"), str(ROOT / "roles/serving_image/files")])
        environment = {
            "PATH": f"{self.folder / 'bin'}:/usr/bin:/bin",
            "PYTHONPATH": search,
            **compiled.SETTINGS,
            "GAUDI_JOB_PROGRESS": str(self.folder / "progress.json"),
            "GAUDI_JOB_RESULT": str(self.folder / "result.json"),
        }
        program = f"{before}\nimport sys\nfrom gaudi_image.__main__ import main\nsys.exit(main(sys.argv[1:]))"
        command = [sys.executable, "-c", program, *words]
        return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def run(self, *words: str) -> tuple[int, str]:
        """Run to the end: status and what was printed."""
        work = self.start(*words)
        printed, _ = work.communicate(timeout=300)
        return work.returncode, printed

    def save(self) -> tuple[int, str]:
        return self.run("save", REFERENCE, str(self.file))

    def load(self) -> tuple[int, str]:
        return self.run("load", str(self.file))

    @property
    def result(self) -> dict[str, Any]:
        """What the job is told."""
        content: dict[str, Any] = json.loads((self.folder / "result.json").read_text())
        return content

    @property
    def there(self) -> dict[str, Any]:
        """The images of the engine."""
        content: dict[str, Any] = json.loads((self.folder / "there.json").read_text())
        return content

    @property
    def asked(self) -> list[str]:
        """The commands, in order."""
        return [" ".join(json.loads(line)) for line in (self.folder / "asked").read_text().splitlines()]

    @property
    def files(self) -> list[str]:
        """What lies beside the file."""
        return sorted(path.name for path in self.file.parent.iterdir())


@pytest.fixture
def node(tmp_path: Path) -> CarryNode:
    return CarryNode(tmp_path / "node")


@pytest.fixture
def carried(node: CarryNode) -> CarryNode:
    """A node to which an image was carried, and which has none yet."""
    node.has({REFERENCE: node.image})
    assert node.save()[0] == 0
    node.has({})
    return node


def test_a_file_has_its_checksum_and_what_it_is_beside_it(node: CarryNode) -> None:
    node.has({REFERENCE: node.image})
    status, printed = node.save()
    assert status == 0, printed
    assert node.files == ["vllm.tar", "vllm.tar.json", "vllm.tar.sha256"]
    digest = hashlib.sha256(archive(REFERENCE)).hexdigest()
    size = len(archive(REFERENCE))
    assert node.result == {"file": str(node.file), "changed": True, "sha256": digest, "bytes": size}
    checked = subprocess.run(
        ["sha256sum", "--check", "vllm.tar.sha256"], cwd=node.file.parent, capture_output=True, check=False
    )
    assert checked.returncode == 0
    assert json.loads((node.file.parent / "vllm.tar.json").read_text()) == {
        "schema": 1,
        "reference": REFERENCE,
        "id": ID,
        "labels": LABELS,
        "bytes": len(archive(REFERENCE)),
        "sha256": digest,
    }
    assert json.loads((node.folder / "progress.json").read_text())["unit"] == "bytes"


def test_the_same_image_is_not_saved_twice(node: CarryNode) -> None:
    node.has({REFERENCE: node.image})
    node.save()
    assert node.save()[0] == 0
    assert not node.result["changed"]
    assert [words for words in node.asked if "save" in words] == [f"image save {REFERENCE}"]
    node.has({REFERENCE: {**node.image, "Id": "sha256:other"}})
    node.save()
    assert node.result["changed"]


@pytest.mark.parametrize(
    ("said", "id_", "words"),
    [
        ("write: no space", "not_saved", "could not be saved: write: no space"),
        ("", "no_such_image", "playbooks/image.yml"),
    ],
)
def test_what_is_not_saved_leaves_nothing(node: CarryNode, said: str, id_: str, words: str) -> None:
    if said:
        node.has({REFERENCE: node.image})
    (node.folder / "save").write_text(said)
    assert node.save()[0] == 1
    assert node.result["refused_id"] == id_
    assert words in node.result["refused"]
    assert node.files == []


def test_room_is_looked_for_first(node: CarryNode) -> None:
    node.has({REFERENCE: {**node.image, "Size": 1 << 60}})
    assert node.save()[0] == 1
    assert node.result["refused_id"] == "no_room"
    assert not any("save" in words for words in node.asked)


def test_a_stop_leaves_nothing_and_what_a_kill_left_goes(node: CarryNode) -> None:
    node.has({REFERENCE: node.image})
    (node.folder / "slow").write_text("")
    (node.file.parent / "vllm.tar.0123.writing").write_text("half")
    work = node.start("save", REFERENCE, str(node.file))
    while not any("image save" in words for words in node.asked):
        assert work.poll() is None
    work.send_signal(signal.SIGTERM)
    printed, _ = work.communicate(timeout=300)
    assert (work.returncode, node.files) == (130, []), printed


# The signal comes when the program is there, and nobody has it yet.
AT_ONCE = """
import os, signal, subprocess
class Popen(subprocess.Popen):
    def __init__(self, command, **options):
        super().__init__(command, **options)
        if "save" in command:
            os.kill(os.getpid(), signal.SIGTERM)
subprocess.Popen = Popen
"""


def test_a_stop_counts_while_the_work_is_started(node: CarryNode) -> None:
    node.has({REFERENCE: node.image})
    (node.folder / "slow").write_text("")
    work = node.start("save", REFERENCE, str(node.file), before=AT_ONCE)
    printed, _ = work.communicate(timeout=300)
    assert (work.returncode, node.files) == (130, []), printed


# The signal does not end a read that waits: another thread gets it.
WHILE_IT_READS = """
import signal, threading, time
from gaudi_image.engine import EngineClient
began = EngineClient._began
def signalled():
    time.sleep(1)
    signal.pthread_kill(threading.get_ident(), signal.SIGTERM)
def _began(self, work):
    began(self, work)
    threading.Thread(target=signalled).start()
EngineClient._began = _began
"""


def test_a_stop_counts_while_the_engine_says_nothing(node: CarryNode) -> None:
    node.has({REFERENCE: node.image})
    (node.folder / "slow").write_text("")
    work = node.start("save", REFERENCE, str(node.file), before=WHILE_IT_READS)
    printed, _ = work.communicate(timeout=300)
    assert (work.returncode, node.files) == (130, []), printed


def test_a_whole_file_is_loaded_once(carried: CarryNode) -> None:
    status, printed = carried.load()
    assert status == 0, printed
    assert carried.result == {"reference": REFERENCE, "id": ID, "changed": True}
    assert "image load --quiet" in carried.asked
    assert (carried.folder / "given").read_bytes() == archive(REFERENCE)
    assert carried.load()[0] == 0
    assert not carried.result["changed"]
    assert len([words for words in carried.asked if "load" in words]) == 1


def test_the_engine_gets_the_file_that_was_checked(carried: CarryNode) -> None:
    """Another file has its name when the engine is asked to load it."""
    (carried.folder / "exchanged").write_bytes(archive(REFERENCE, "other/image:1"))
    status, printed = carried.load()
    assert status == 0, printed
    assert carried.file.read_bytes() == archive(REFERENCE, "other/image:1")
    assert (carried.folder / "given").read_bytes() == archive(REFERENCE)


@pytest.mark.parametrize("change", [{"Id": "sha256:x"}, {"Config": {"Labels": {}}}])
def test_an_image_that_is_not_the_one_of_its_description_keeps_no_name(
    carried: CarryNode, change: dict[str, Any]
) -> None:
    (carried.folder / "loaded.json").write_text(json.dumps({REFERENCE: {**carried.image, **change}, "other:1": {}}))
    assert carried.load()[0] == 1
    assert carried.result["refused_id"] == "file_of_other_images"
    assert f"so the name {REFERENCE} was removed" in carried.result["refused"]
    assert carried.there == {"other:1": {}}


def test_an_image_that_had_the_name_before_keeps_it(carried: CarryNode) -> None:
    before = {REFERENCE: {**carried.image, "Id": "sha256:x"}}
    carried.has(before)
    assert carried.load()[0] == 1
    assert carried.there == before


STATVFS = """
import os, types
_real = os.statvfs
def _seen(path):
    seen = _real(path)
    names = ("f_bsize", "f_frsize", "f_blocks", "f_bfree", "f_bavail", "f_files", "f_ffree", "f_favail", "f_flag")
    found = types.SimpleNamespace(**{name: getattr(seen, name) for name in names})
    CHANGE
    return found
os.statvfs = _seen
"""


def test_the_engine_writes_where_a_confined_job_may_not(carried: CarryNode) -> None:
    """Below Docker's directory everything is read-only to a job."""
    work = carried.start("load", str(carried.file), before=STATVFS.replace("CHANGE", "found.f_flag |= os.ST_RDONLY"))
    printed, _ = work.communicate(timeout=300)
    assert work.returncode == 0, printed


def test_room_for_the_engine_is_looked_for(carried: CarryNode) -> None:
    work = carried.start("load", str(carried.file), before=STATVFS.replace("CHANGE", "found.f_bavail = 0"))
    work.communicate(timeout=300)
    assert carried.result["refused_id"] == "no_room"
    assert not any("image load" in each for each in carried.asked)


def test_progress_ends_with_all_of_it(carried: CarryNode) -> None:
    progress = json.loads((carried.folder / "progress.json").read_text())
    assert progress["done"] == progress["total"] == len(archive(REFERENCE))


def test_an_engine_that_names_images_by_their_manifest_is_believed(carried: CarryNode) -> None:
    manifest = "sha256:" + "d" * 64
    (carried.folder / "archive").write_bytes(archive(REFERENCE, index=manifest))
    carried.has({REFERENCE: {**carried.image, "Id": "sha256:before"}})
    assert carried.save()[0] == 0
    carried.has({})
    (carried.folder / "loaded.json").write_text(json.dumps({REFERENCE: {**carried.image, "Id": manifest}}))
    assert carried.load()[0] == 0
    assert carried.result["changed"]
    assert carried.load()[0] == 0
    assert not carried.result["changed"]


def damaged(node: CarryNode) -> None:
    content = bytearray(node.file.read_bytes())
    content[700] ^= 1
    node.file.write_bytes(content)


def described(node: CarryNode, content: bytes) -> None:
    """Have the file be another one, that is said to be whole."""
    node.file.write_bytes(content)
    path = node.file.with_name("vllm.tar.json")
    said = json.loads(path.read_text())
    said.update(sha256=hashlib.sha256(content).hexdigest(), bytes=len(content))
    path.write_text(json.dumps(said))


@pytest.mark.parametrize(
    ("change", "id_", "words"),
    [
        (damaged, "image_file_damaged", "had "),
        (lambda node: node.file.write_bytes(b"short"), "image_file_damaged", "has 5 bytes, and had"),
        (lambda node: node.file.unlink(), "no_image_file", "vllm.tar is not there"),
        (lambda node: node.file.with_name("vllm.tar.json").unlink(), "no_image_file", "vllm.tar.json is not there"),
        (
            lambda node: node.file.with_name("vllm.tar.json").write_text("{"),
            "image_file_undescribed",
            "copy both files",
        ),
        (lambda node: described(node, archive(REFERENCE, "x:1")), "file_of_other_images", f"{REFERENCE}, x:1"),
        (lambda node: described(node, b"x" * 4096), "no_image_file", "no archive that docker save wrote"),
        (lambda node: (node.folder / "load").write_text("invalid tar header"), "not_loaded", "invalid tar header"),
        (lambda node: node.has({REFERENCE: {**node.image, "Id": "sha256:x"}}), "other_image_there", "docker image rm"),
        (
            lambda node: node.has({REFERENCE: {**node.image, "Config": {"Labels": {}}}}),
            "other_image_there",
            "another image on this node",
        ),
        (lambda node: node.file.parent.chmod(0o777), "others_may_write", "chmod go-w"),
        (lambda node: node.file.chmod(0o666), "others_may_write", "vllm.tar can be written by everybody"),
    ],
)
def test_what_is_not_whole_or_not_it_is_refused(carried: CarryNode, change: Any, id_: str, words: str) -> None:
    change(carried)
    status, printed = carried.load()
    assert status == 1
    assert carried.result["refused_id"] == id_, printed
    assert words in carried.result["refused"]
    assert id_ == "not_loaded" or not any("image load" in each for each in carried.asked)


Change = Callable[[tarfile.TarFile, dict[str, bytes]], None]


def add(tar: tarfile.TarFile, name: str, content: bytes = b"", **said: Any) -> None:
    member = tarfile.TarInfo(name)
    for key, value in said.items():
        setattr(member, key, value)
    member.size = 0 if said.get("type", tarfile.REGTYPE) != tarfile.REGTYPE else len(content)
    tar.addfile(member, io.BytesIO(content))


def crafted(change: Change) -> bytes:
    """An archive that says it brings REFERENCE, with more that another reader might take for its lists."""
    files = {"manifest.json": listed(REFERENCE), "evil.json": listed(REFERENCE, "other/image:1")}
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        add(tar, "manifest.json", files["manifest.json"])
        change(tar, files)
    return out.getvalue()


def listed(*names: str, **more: Any) -> bytes:
    return json.dumps([{"Config": f"{CONFIG}.json", "RepoTags": list(names), "Layers": [], **more}]).encode()


def global_header(tar: tarfile.TarFile, files: dict[str, bytes]) -> None:
    """Python gives all that follows this name, Go does not."""
    assert tar.fileobj is not None
    content = tarfile.TarInfo.create_pax_global_header({"path": "harmless"})
    tar.fileobj.write(content)
    tar.offset += len(content)
    add(tar, "manifest.json", files["evil.json"])


def link_to_itself(tar: tarfile.TarFile, files: dict[str, bytes]) -> None:
    add(tar, "d", type=tarfile.SYMTYPE, linkname=".")
    add(tar, "d/manifest.json", files["evil.json"])


def beneath_a_layer(tar: tarfile.TarFile, files: dict[str, bytes]) -> None:
    add(tar, f"{CONFIG}/layer.tar", type=tarfile.SYMTYPE, linkname=f"../{CONFIG}/layer.tar")
    add(tar, f"{CONFIG}/layer.tar/x", files["evil.json"])


def index(*names: str, key: str = "io.containerd.image.name") -> bytes:
    manifests = [{"digest": f"sha256:{'d' * 64}", "annotations": {key: name}} for name in names]
    return json.dumps({"schemaVersion": 2, "manifests": manifests}).encode()


CRAFTED: dict[str, Change] = {
    "the same path, otherwise written": lambda tar, files: add(tar, "./manifest.json", files["evil.json"]),
    "the same path twice": lambda tar, files: add(tar, "manifest.json", files["evil.json"]),
    "a path with two strokes": lambda tar, files: add(tar, "a//manifest.json", files["evil.json"]),
    "a path up": lambda tar, files: add(tar, "a/../manifest.json", files["evil.json"]),
    "a link to where it lies": link_to_itself,
    "a file beneath a shared layer": beneath_a_layer,
    "a hard link": lambda tar, _files: add(tar, "x", type=tarfile.LNKTYPE, linkname="manifest.json"),
    "a device": lambda tar, _files: add(tar, "x", type=tarfile.CHRTYPE),
    "a name for all that follows": global_header,
    "no name in pax": lambda tar, files: add(tar, "manifest.json", files["evil.json"], pax_headers={"path": ""}),
    "a name of a sparse file": lambda tar, files: add(
        tar, "manifest.json", files["evil.json"], pax_headers={"GNU.sparse.name": "harmless"}
    ),
    "a list for engines with containerd's store": lambda tar, _files: add(
        tar, "index.json", index(f"docker.io/{REFERENCE}", "docker.io/other/image:1")
    ),
    "the other name there": lambda tar, _files: add(
        tar, "index.json", index("docker.io/other/image:1", key="org.opencontainers.image.ref.name")
    ),
    "a list that is a link": lambda tar, _files: add(tar, "index.json", type=tarfile.SYMTYPE, linkname="evil.json"),
}


@pytest.mark.parametrize("change", CRAFTED.values(), ids=CRAFTED)
def test_an_archive_brings_no_image_that_only_the_engine_reads(carried: CarryNode, change: Change) -> None:
    described(carried, crafted(change))
    status, printed = carried.load()
    assert status == 1, printed
    assert carried.result["refused_id"] in ("no_image_file", "file_of_other_images")
    assert not any("image load" in each for each in carried.asked)


@pytest.mark.parametrize(
    "text",
    [
        listed(REFERENCE, repotags=[REFERENCE, "other/image:1"]),
        listed(REFERENCE)[:-2] + b', "RepoTags": ["' + REFERENCE.encode() + b'"]}]',
        b"{}",
        b'[{"Config": null}]',
        b"[7]",
        b"\xff",
    ],
)
def test_a_list_that_go_reads_otherwise_is_refused(carried: CarryNode, text: bytes) -> None:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        add(tar, "manifest.json", text)
    described(carried, out.getvalue())
    assert carried.load()[0] == 1
    assert carried.result["refused_id"] == "no_image_file"


@given(at=st.integers(0, 1 << 14), byte=st.integers(0, 255))
def test_no_archive_ends_otherwise_than_with_names_or_a_refusal(at: int, byte: int) -> None:
    content = bytearray(crafted(lambda tar, _files: add(tar, "index.json", index(f"docker.io/{REFERENCE}"))))
    content[at % len(content)] = byte
    try:
        names, _ = images(io.BytesIO(bytes(content)))
    except (ValueError, KeyError, TypeError, AttributeError):
        return
    assert names[:1] != ["other/image:1"]


def test_an_archive_is_read_as_docker_writes_it(carried: CarryNode) -> None:
    """Folders, a layer in common, and sizes beyond 8 GiB, which pax has."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        add(tar, f"{CONFIG}/", type=tarfile.DIRTYPE)
        add(tar, f"{CONFIG}/layer.tar", b"x" * 600, pax_headers={"mtime": "1700000000.5", "size": "600"})
        add(tar, f"{'d' * 64}/layer.tar", type=tarfile.SYMTYPE, linkname=f"../{CONFIG}/layer.tar")
        add(tar, "manifest.json", listed(REFERENCE, LayerSources={"sha256:x": {"size": 1}}))
        add(tar, "index.json", index(f"docker.io/{REFERENCE}"))
    assert images(out) == ([REFERENCE], {ID, f"sha256:{'d' * 64}"})
    described(carried, out.getvalue())
    status, printed = carried.load()
    assert status == 0, printed


def digest_of(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def stored(*blobs: bytes, config: bytes, tops: Sequence[bytes] = (), **files: bytes) -> io.BytesIO:
    """An archive of an engine since 25: all parts by their checksum; files has others, by path."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for blob in dict.fromkeys((config, *blobs, *tops)):
            add(tar, f"blobs/sha256/{digest_of(blob)[7:]}", blob)
        path = f"blobs/sha256/{digest_of(config)[7:]}"
        add(tar, "manifest.json", json.dumps([{"Config": path, "RepoTags": [REFERENCE], "Layers": []}]).encode())
        named = [{"digest": digest_of(top), "annotations": {}} for top in tops]
        if tops:
            add(tar, "index.json", json.dumps({"schemaVersion": 2, "manifests": named}).encode())
        for name, content in files.items():
            add(tar, name, content)
    return out


def manifest(of: bytes, **more: Any) -> bytes:
    said = {"schemaVersion": 2, "config": {"digest": digest_of(of)}, "layers": [], **more}
    return json.dumps(said).encode()


HONEST, EVIL = b'{"config": "honest"}', b'{"config": "evil"}'
MANIFEST = manifest(HONEST)
MANY = json.dumps({"manifests": [{"digest": digest_of(MANIFEST)}, {"digest": digest_of(b"elsewhere")}]}).encode()


@pytest.mark.parametrize("given", [HONEST, MANIFEST])
def test_the_image_that_was_given_is_known_by_its_checksums_in_any_engine(given: bytes) -> None:
    both = {digest_of(HONEST), digest_of(MANIFEST)}
    assert same_as(stored(config=HONEST, tops=[MANIFEST]), digest_of(given)) == both
    if given == HONEST:
        # Engines before 25.
        assert same_as(stored(config=HONEST), digest_of(given)) == {digest_of(HONEST)}


def test_an_image_of_several_processors_is_known_by_its_checksums() -> None:
    found = same_as(stored(MANIFEST, config=HONEST, tops=[MANY]), digest_of(MANY))
    assert found == {digest_of(HONEST), digest_of(MANIFEST), digest_of(MANY)}


@pytest.mark.parametrize(
    "content",
    [
        stored(config=EVIL),
        stored(config=EVIL, tops=[manifest(EVIL)]),
        stored(config=HONEST, tops=[manifest(EVIL)]),
        stored(config=EVIL, tops=[MANIFEST]),
        stored(config=HONEST, tops=[MANIFEST, manifest(EVIL)]),
        stored(config=HONEST, tops=[manifest(HONEST, Config={"digest": digest_of(EVIL)})]),
        stored(config=HONEST, tops=[manifest(EVIL, config={"digest": digest_of(HONEST), "Digest": digest_of(EVIL)})]),
        stored(MANIFEST, manifest(EVIL), config=HONEST, tops=[json.dumps({"manifests": [
            {"digest": digest_of(MANIFEST)}, {"digest": digest_of(manifest(EVIL))}]}).encode()]),
    ],
)  # fmt: skip
@pytest.mark.parametrize("given", [HONEST, MANIFEST, MANY])
def test_another_image_under_the_name_of_the_one_that_was_given_is_refused(content: io.BytesIO, given: bytes) -> None:
    """Names and ids in an archive are its writer's."""
    with pytest.raises((ValueError, KeyError)):
        same_as(content, digest_of(given))


def test_a_part_under_a_wrong_checksum_is_refused() -> None:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        add(tar, f"blobs/sha256/{digest_of(HONEST)[7:]}", EVIL)
        path = f"blobs/sha256/{digest_of(HONEST)[7:]}"
        add(tar, "manifest.json", json.dumps([{"Config": path, "RepoTags": [REFERENCE]}]).encode())
    assert images(out)[1] == {digest_of(HONEST)}, "so it says"
    with pytest.raises(ValueError, match="which is not the image"):
        same_as(out, digest_of(HONEST))


def test_an_image_of_another_id_than_was_given_is_not_loaded(carried: CarryNode) -> None:
    """A node that only takes it may say that it has it, and give another one to the others."""
    assert carried.run("load", str(carried.file), REFERENCE, "sha256:given")[0] == 1
    assert carried.result["refused_id"] == "file_of_other_images"
    # The stand-in's archive has no configuration of that checksum.
    assert carried.run("load", str(carried.file), REFERENCE, "sha256:given", ID)[0] == 1
    assert carried.result["refused_id"] == "no_image_file"
    assert not any("image load" in each for each in carried.asked)
    content, image = stored(config=HONEST).getvalue(), {**carried.image, "Id": digest_of(HONEST)}
    carried.has({REFERENCE: image})
    (carried.folder / "archive").write_bytes(content)
    assert carried.save()[0] == 0
    carried.has({})
    (carried.folder / "loaded.json").write_text(json.dumps({REFERENCE: image}))
    status, printed = carried.run("load", str(carried.file), REFERENCE, digest_of(HONEST))
    assert status == 0, printed
    assert carried.result["changed"]


def test_another_image_than_the_one_that_is_meant_is_refused(carried: CarryNode) -> None:
    """Another node wrote file and description."""
    assert carried.run("load", str(carried.file), "gaudi-serving/vllm:1.22-other")[0] == 1
    assert carried.result["refused_id"] == "file_of_other_images"
    assert carried.run("load", str(carried.file), REFERENCE)[0] == 0


@pytest.mark.parametrize(
    ("name", "id_"),
    [("vllm.tar", "no_absolute_path"), ("/nowhere/x.tar", "no_folder"), ("/a/../b", "no_absolute_path")],
)
def test_a_file_that_cannot_be_meant_is_refused(node: CarryNode, name: str, id_: str) -> None:
    assert node.run("save", REFERENCE, name)[0] == 1
    assert node.result["refused_id"] == id_


def test_wrong_words_are_a_wrong_usage(node: CarryNode) -> None:
    for words in ([], ["save", "x"], ["other", "x"]):
        status, printed = node.run(*words)
        assert status == 2
        assert "save REFERENCE FILE" in printed


def test_an_image_lies_in_a_folder_as_weights_do(node: CarryNode) -> None:
    """What the fan-out of weights gives and takes: whole by its record, and gone like any other."""
    node.has({REFERENCE: node.image})
    root, name = node.file.parent, "serving-image-1.22-0123456789ab"
    # As a job has it.
    work = node.start("share", REFERENCE, str(root / name), before="import os; os.umask(0o077)")
    printed, _ = work.communicate(timeout=300)
    assert work.returncode == 0, printed
    for path in (root / name, *(root / name).rglob("*")):
        assert path.stat().st_mode & 0o755 == (0o755 if path.is_dir() else 0o644)
    assert node.result == {**node.result, "changed": True, "id": ID}
    (found,) = weight_folders.look(root, [name])
    assert (found["status"], found["repository"], found["revision"]) == ("whole", REFERENCE, ID)
    made = record.parse((root / name / record.MANIFEST).read_text())
    assert made.names == ["vllm.tar", "vllm.tar.json"]
    for file in made.files:
        assert hashlib.sha256((root / name / file.name).read_bytes()).hexdigest() == file.sha256
    # A node that has taken these files loads the image from them.
    node.has({})
    assert node.run("load", str(root / name / "vllm.tar"))[0] == 0
    assert node.result["id"] == ID


def test_an_image_is_not_saved_twice_for_others_and_another_one_takes_its_place(node: CarryNode) -> None:
    node.has({REFERENCE: node.image})
    folder = node.file.parent / "shared"
    assert node.run("share", REFERENCE, str(folder))[0] == 0
    assert node.run("share", REFERENCE, str(folder))[0] == 0
    assert not node.result["changed"]
    (folder / "vllm.tar").write_bytes(b"short")
    assert node.run("share", REFERENCE, str(folder))[0] == 0
    assert (node.result["changed"], (folder / "vllm.tar").read_bytes()) == (True, archive(REFERENCE))
    node.has({REFERENCE: {**node.image, "Id": "sha256:other"}})
    assert node.run("share", REFERENCE, str(folder))[0] == 0
    assert weight_folders.look(folder.parent, ["shared"])[0]["revision"] == "sha256:other"
    assert [path.name for path in folder.parent.iterdir()] == ["shared"]


def test_a_folder_of_somebody_is_not_an_images(node: CarryNode) -> None:
    node.has({REFERENCE: node.image})
    folder = node.file.parent / "shared"
    folder.mkdir()
    (folder / "mine").write_text("x")
    assert node.run("share", REFERENCE, str(folder))[0] == 1
    assert node.result["refused_id"] == "no_folder_of_an_image"
    assert (folder / "mine").read_text() == "x"


def test_what_is_not_saved_is_not_given(node: CarryNode) -> None:
    folder = node.file.parent / "shared"
    assert node.run("share", REFERENCE, str(folder))[0] == 1
    assert node.result["refused_id"] == "no_such_image"
    assert weight_folders.look(folder.parent, ["shared"]) == []


def test_another_node_takes_it_as_weights_and_loads_it(
    node: CarryNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the network: a program stands in for rsync, as for weights."""
    node.has({REFERENCE: node.image})
    folder, other = node.file.parent / "serving-image-1.22", CarryNode(tmp_path / "other")
    assert node.run("share", REFERENCE, str(folder))[0] == 0
    program = tmp_path / "bin/rsync"
    program.parent.mkdir()
    program.write_text(RSYNC.format(python=sys.executable))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=os.pathsep)
    monkeypatch.setenv("GIVEN", str(folder))
    (tmp_path / "token").write_text("secret")
    target = other.file.parent / folder.name
    request = {
        "peer": "gaudi-01",
        "address": "rsync://receiver@10.0.0.7:8730",
        "relays": False,
        "repositories": {},
        "kinds": [],
        "password_file": str(tmp_path / "token"),
        "target": str(target),
        "manifest": json.loads((folder / record.MANIFEST).read_text()),
        "mounted_on": "",
        "root_option": "gaudi_weights_root",
        "reserve": 0,
        "extra_room": 0,
        "measured_cards": 0,
    }
    (tmp_path / "take.json").write_text(json.dumps(request))
    take.take(*take.load(tmp_path / "take.json"), TransferProgress(None))
    assert other.run("load", str(target / "vllm.tar"))[0] == 0
    assert (other.result["changed"], other.result["id"]) == (True, ID)
