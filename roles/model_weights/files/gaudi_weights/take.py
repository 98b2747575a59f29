"""Take a model from another node of the site: python3 -m gaudi_weights.take REQUEST.json

rsync brings the bytes and continues with what is there; every file is read and held against the record as soon as it
has come, and only then put into the staging folder, out of which the next node may take it while later files are still
on their way here. One rename publishes the folder. Python 3.9 and its standard library. Exit status 0 when it is whole,
1 with one sentence.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

from gaudi.base.documents import Damaged
from gaudi.base.refusal import Refusal
from gaudi.node import beneath, documents, files, folders
from gaudi.node.weights import measurements
from gaudi.weights import pin_file, record
from gaudi.weights.record import Manifest, RecordedFile

from . import manifest, rsync
from .model import listed
from .progress import TransferProgress
from .request import HubSource, WeightsRequest, read_whole
from .rsync import Peer
from .run import Work, run
from .staging import already_whole, check_room, clear, only_one, publish, put_right

LOOK_AGAIN = 1.0  # seconds between two looks at how much has arrived, and at a peer that has nothing new
READERS = 4  # files read at the same time when they are checked


@dataclass(frozen=True)
class Offer:
    """What a peer offers: made is the record; relays, whether the peer is still receiving it itself.

    repositories: those that the folder may be from, with what the catalogue pins of them (pin_file.binding).
    """

    peer: Peer
    made: Manifest
    relays: bool
    repositories: tuple[dict[str, Any], ...] = ()

    def check_pins(self) -> None:
        """Raise Refusal for a record with other files than the catalogue pins: a hub's would be refused as well."""
        known = [str(source["repository"]) for source in self.repositories]
        pinned = any(source.get("files") for source in self.repositories)
        if pinned and self.made.repository not in known:
            raise Refusal(
                "peer_not_as_pinned",
                f"{self.peer.name} gives a folder of {self.made.repository}, and the catalogue pins that of "
                f"{' or '.join(known)}. Move the folder away there, and fetch it again",
            )
        recorded = {file.name: file.sha256 for file in self.made.files}
        wrong = pin_file.contradicted(recorded, self.made.repository, self.repositories)
        if wrong:
            raise Refusal(
                "peer_not_as_pinned",
                f"{self.peer.name} gives files of {self.made.repository} that the catalogue pins otherwise, or that "
                f"decide what runs and are not pinned: {listed(wrong)}. Look at them there, and pin them if they are "
                "right (playbooks/pin.yml -e model=NAME -e write=true)",
            )


def load(path: Path) -> tuple[WeightsRequest, Offer]:
    """Read a request the role has written; raises Refusal for one that is not whole."""
    try:
        content = read_whole(path)
        peer = Peer(content["peer"], content["address"], Path(content["password_file"]))
        made = record.parse(json.dumps(content["manifest"]))
        # What is there already counts if it is of the revision that is given.
        of_peer = HubSource(peer.name, peer.address, made.repository, made.revision, None, None)
        request = WeightsRequest(
            target=Path(content["target"]),
            sources=(of_peer,),
            extra_room=int(content["extra_room"]),
            reserve=int(content["reserve"]),
            measured_cards=int(content["measured_cards"]),
            mounted_on=Path(content["mounted_on"]) if content["mounted_on"] else None,
            root_option=str(content["root_option"]),
        )
        known = pin_file.binding(content["repositories"], content["kinds"])
        repositories = tuple({**said, "repository": str(said["repository"])} for said in known)
        return request, Offer(peer, made, bool(content["relays"]), repositories)
    except Refusal:
        raise
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Refusal(
            "request_unreadable", f"the request {path} cannot be read ({type(error).__name__}: {error})"
        ) from error


def unwritten_since_now(stream: BinaryIO) -> Callable[[], bool]:
    """Return a function that tells whether nobody has had a file open for writing from now on. It counts until a close.

    A read lease (fcntl(2)) is not given where somebody has, and ends when somebody opens it. On a file system without
    leases the function tells False.
    """
    try:
        # By default the end of a lease ends the process. SIGURG is ignored (signal(7)).
        fcntl.fcntl(stream, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(stream, fcntl.F_SETLEASE, fcntl.F_RDLCK)
    except OSError:
        return lambda: False
    return lambda: fcntl.fcntl(stream, fcntl.F_GETLEASE) == fcntl.F_RDLCK


class PeerTransfer:
    """Files of one model from one peer into the staging folder."""

    def __init__(
        self, request: WeightsRequest, offer: Offer, wanted: Sequence[RecordedFile], progress: TransferProgress
    ) -> None:
        self.request, self.offer, self.wanted, self.progress = request, offer, wanted, progress
        self.staging, self.incoming = request.staging, request.staging / record.INCOMING
        self.arrived = manifest.ArrivedFiles(self.staging)
        self.missing = {file.name: file for file in wanted if not self.arrived.has(file.name, file.sha256)}
        self.checks: dict[str, Future[bool | None]] = {}
        self.modules = [rsync.ARRIVING, rsync.WHOLE] if offer.relays else [rsync.WHOLE]
        self.seen = (0, "")  # files that came, and what the peer said last
        self.alive = time.monotonic()

    @property
    def here(self) -> int:
        """Bytes of the wanted files that lie in the staging folder, checked or not."""
        here = (self.staging, self.incoming)
        return sum(
            min(max(folders.size_of(folder / file.name, self.staging) or 0 for folder in here), file.size)
            for file in self.wanted
        )

    @property
    def size(self) -> int:
        """Bytes of the wanted files."""
        return sum(file.size for file in self.wanted)

    def adopt(self) -> None:
        """Continue with files of an interrupted run: they are not checked yet, so no other node gets them."""
        for name in self.missing:
            if beneath.is_file(self.staging / name, self.staging):
                self.move(self.staging / name, self.incoming / name)

    def move(self, path: Path, place: Path) -> None:
        """Give a file another place in the staging folder."""
        beneath.make_folders(place.parent, self.staging)
        beneath.rename(path, self.staging, place)

    def check(self, file: RecordedFile, ended: bool = False) -> bool | None:
        """Read every byte; what is as recorded goes to its place, anything else is removed.

        A peer decides what it sends, and may send a file again while this reads it. None: rsync may have it open, so it
        has to be checked again when rsync has ended.
        Raises Refusal for measurements that hold anything but arrays, whoever recorded them.
        """
        path, place = self.incoming / file.name, self.staging / file.name
        if folders.size_of(path, self.staging) != file.size:
            return self.wrong(path)
        with beneath.open_file(path, self.staging) as stream:
            unwritten = unwritten_since_now(stream)
            if not ended and not unwritten():
                return None
            if manifest.sha256_of(path, self.staging, lambda _count: None) != file.sha256:
                return self.wrong(path) if ended or unwritten() else None
            if self.request.measured_cards:
                measurements.check_measurements(path, self.staging)
            # rsync keeps a file it is writing to itself, and one it continues as it was: nobody else could give it.
            os.fchmod(stream.fileno(), 0o644)
            os.fsync(stream.fileno())
            # Here rsync does not find it by its name any more.
            self.move(path, place)
            if not ended and not unwritten():
                self.move(place, path)
                return None
        files.sync_folder(place.parent)
        self.arrived.add(file.name, file.sha256)
        return True

    def wrong(self, path: Path) -> bool:
        """Remove a file that is not as recorded; False."""
        beneath.remove(path, self.staging)
        return False

    def all(self) -> None:
        """Bring what is missing, until it is here or the peer has no more. Raises Refusal."""
        self.adopt()
        beneath.remove(self.incoming / record.RELAY, self.staging)  # an earlier peer's
        sizes = [file.size for file in self.missing.values()]
        limit = rsync.Limit.of(self.incoming, self.missing, max(sizes, default=0), sum(sizes))
        self.progress.begin("take", self.size, self.here)
        with ThreadPoolExecutor(READERS) as readers:
            while waiting := [file for name, file in self.missing.items() if name not in self.checks]:
                if not self.ask(waiting, readers, limit):
                    self.wait()
            again = [name for name, check in self.checks.items() if check.result() is None]
            self.checks.update({name: readers.submit(self.check, self.missing[name], ended=True) for name in again})
        wrong = [name for name, check in self.checks.items() if not check.result()]
        self.progress.advance(self.here - self.progress.done)
        self.progress.end()
        if wrong:
            peer, folder = self.offer.peer.name, self.request.target.name
            raise Refusal(
                "not_as_recorded",
                f"{peer} gave {len(wrong)} files of {folder} that are not what its record says: {listed(wrong)}. "
                f"playbooks/verify_weights.yml --limit {peer} tells whether its own are damaged",
            )

    def ask(self, waiting: list[RecordedFile], readers: ThreadPoolExecutor, limit: rsync.Limit) -> bool:
        """Ask once for all that is missing; whether any of it came. A file is checked while the next ones come."""
        before = len(self.checks)

        def come(name: str) -> None:
            if name in self.missing and name not in self.checks:
                self.checks[name] = readers.submit(self.check, self.missing[name])

        # Only what the record names is asked for; a symbolic link in its place is not taken.
        options = ["--chmod=F644", "--inplace"]
        names = [file.name for file in waiting]
        if self.offer.relays:
            # The next attempt asks again for files that the peer still lacks.
            options.append("--ignore-missing-args")
            names.append(record.RELAY)
        try:
            rsync.receive(
                *(self.offer.peer, self.incoming, self.request.target.name, options, names, limit),
                module=self.modules[0],
                heard=come,
            )
        except rsync.MissingPeerFolder as gone:
            if not self.offer.relays:
                raise Refusal("folder_gone", str(gone)) from gone
            # It has begun by now, or has published its folder meanwhile.
            self.modules.reverse()
            return False
        for file in waiting:
            # An earlier run may have fetched everything, and a folder that does not exist can give nothing.
            if not self.offer.relays or folders.size_of(self.incoming / file.name, self.staging) == file.size:
                come(file.name)
        if len(self.checks) == before and self.modules[0] == rsync.WHOLE:
            # An empty folder lies under the name for now.
            self.modules.reverse()
        return len(self.checks) > before

    def wait(self) -> None:
        """Give a peer time that takes this itself; raises Refusal when it gave up or shows no sign of life."""
        try:
            says = documents.read_json(self.incoming / record.RELAY, {"gave_up": str}, place=self.staging) or {}
        except Damaged:
            says = {}
        peer = self.offer.peer.name
        if why := says.get("gave_up"):
            raise Refusal("peer_gave_up", f"{peer} cannot pass on {self.request.target.name}: {why}")
        seen = (len(self.checks), json.dumps(says))
        if seen != self.seen:
            self.seen, self.alive = seen, time.monotonic()
        if time.monotonic() - self.alive > rsync.SILENCE:
            raise Refusal(
                "peer_silent",
                f"{peer} was to pass on {self.request.target.name} and has shown no sign of life for {rsync.SILENCE} s",
            )
        time.sleep(LOOK_AGAIN)  # a peer on another node does not announce that it has checked another file

    @contextmanager
    def relayed(self) -> Iterator[None]:
        """Tell the receivers behind this node that it is working, or why it gave up; count the bytes that arrive."""
        over = threading.Event()

        def say(beat: int, gave_up: str = "") -> None:
            said = {"beat": beat, "gave_up": gave_up}
            files.write_json(self.staging / record.RELAY, said, durable=False, place=self.staging)

        def watch() -> None:
            beat = 0
            while not over.wait(LOOK_AGAIN):
                beat += 1
                say(beat)
                self.progress.advance(self.here - self.progress.done)

        say(0)
        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        gave_up = ""
        try:
            yield
        except (Refusal, OSError) as error:
            gave_up = str(error)
            raise
        finally:
            over.set()
            watcher.join()
            if gave_up:
                say(0, gave_up)


def take(request: WeightsRequest, offer: Offer, progress: TransferProgress) -> dict[str, Any]:
    """Bring the complete model to its target: all of it, or the files that are wrong in the present copy.

    Raises Refusal, and OSError if the disk is full.
    """
    result: dict[str, Any] = {"target": str(request.target), "peer": offer.peer.name, "bytes": offer.made.size}
    result.update(received=0, repaired=[])
    done = already_whole(request)
    if done is not None and not manifest.known_wrong(request.target, done):
        return result
    offer.check_pins()
    with only_one(request):
        done = already_whole(request)  # another run may have ended since
        wrong = manifest.known_wrong(request.target, done) if done is not None else []
        if done is not None and not wrong:
            clear(request.staging)
            return result
        if done is not None and done.files != offer.made.files:
            raise Refusal(
                "other_files",
                f"{offer.peer.name} has other files under the name {request.target.name}, so those that are wrong here "
                "cannot be taken from it",
            )
        wanted = [file for file in offer.made.files if done is None or file.name in wrong]
        taking = PeerTransfer(request, offer, wanted, progress)
        lacking = taking.size - taking.here
        with taking.relayed():
            check_room(request if done is None else replace(request, extra_room=0), lacking)
            beneath.make_folders(taking.incoming, taking.staging)
            taking.all()
        if done is None:
            publish(request, offer.made)
        else:
            put_right(request, wrong)
    return {**result, "received": lacking, "repaired": wrong}


def main(arguments: list[str]) -> int:
    """Entry point."""

    def begin() -> tuple[Path, Work]:
        request, offer = load(Path(arguments[0]))
        return request.target, lambda progress: take(request, offer, progress)

    return run(begin)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
