"""One model from the first source that serves it: staged, checked, and published in one rename."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import PurePosixPath
from typing import Any, TypeVar

from gaudi.base.command_line import PICKLED
from gaudi.base.refusal import Refusal
from gaudi.node import beneath
from gaudi.node.weights import measurements
from gaudi.weights import pin_file, record
from gaudi.weights.record import Manifest, RecordedFile

from . import contents, manifest
from .hubs import connect
from .model import (
    RemoteFile,
    SourceFailure,
    StopSwitch,
    TransferInterrupt,
    at,
    check_listing,
    choose,
    first_line,
    listed,
)
from .network import Connections
from .progress import TransferProgress
from .request import HubSource, WeightsRequest
from .staging import already_whole, check_names, check_room, clear, only_one, publish, put_right
from .transfer import FIRST_PAUSE, HASTE_SECONDS, LONGEST_PAUSE, RateLimit, Transfer, size

# What a server reads of measurements; whatever else lies beside them is not taken.
MEASURED_ENDINGS = (".json", ".npz")
Item = TypeVar("Item")
Result = TypeVar("Result")


def now() -> str:
    """The time as records have it."""
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def revision_of(source: HubSource, done: Manifest) -> str:
    """The revision to repair from: the recorded one if this source knows it, else the source's own."""
    return done.revision if source.repository == done.repository and not source.pinned else source.revision


def check_commit(source: HubSource, answered: str) -> None:
    """Raise SourceFailure where a source, such as a mirror, answers for another commit than is pinned."""
    if source.pinned and answered != source.revision:
        raise SourceFailure(
            f"{source.name} answers with the commit {answered!r} of {source.repository}, but {source.revision} is "
            "pinned: it is a mirror that lies or is broken. Use another source"
        )


def check_measurements_pinned(request: WeightsRequest, source: HubSource) -> None:
    """Refuse measurements without a pin: the repository's owner could exchange them, and a server runs code in them."""
    if request.measured_cards and not source.pinned:
        raise pin_file.measurements_not_pinned(source.repository)


def pinned_files(chosen: list[RemoteFile], there: list[RemoteFile], source: HubSource) -> list[RemoteFile]:
    """The files with the checksums that the catalogue has; those count, whatever the source states.

    Raises SourceFailure where the source lacks one of them, or states another checksum.
    """
    stated = {file.name: file.sha256 for file in there}
    wrong = {name for name, sha256 in source.files.items() if name not in stated or stated[name] not in (None, sha256)}
    if wrong:
        raise SourceFailure(
            f"{source.name} lacks files of {source.repository} that the catalogue pins, or has others: "
            f"{listed(wrong)}. Use another source"
        )
    return [
        RemoteFile(file.name, file.size, sha256=source.files[file.name]) if file.name in source.files else file
        for file in chosen
    ]


def check_added(wanted: list[RemoteFile], source: HubSource) -> None:
    """Raise SourceFailure where a source has files beside the pinned ones that would decide what runs."""
    added = {file.name for file in wanted if pin_file.needs_pin(file.name)} - set(source.files)
    if source.files and added:
        raise SourceFailure(
            f"{source.name} has files of {source.repository} that decide what runs, and the catalogue, which pins "
            f"others, does not pin them: {listed(added)}. Use another source, or look at them and pin all "
            "(playbooks/pin.yml -e model=NAME -e write=true)"
        )


def check_pickles(chosen: list[RemoteFile], source: HubSource) -> None:
    """Raise SourceFailure where a source without checksums has weights in pickled tensors alone."""
    endings = {PurePosixPath(file.name).suffix for file in chosen}
    if not source.files and endings & {*PICKLED} and ".safetensors" not in endings:
        raise SourceFailure(str(pin_file.pickles_not_pinned(f"{source.repository} on {source.name}")))


def in_parallel(jobs: int, work: Callable[[Item], Result], items: list[Item], stop: StopSwitch) -> list[Result]:
    """Do the work for all items, several at a time; the first failure stops the rest and is raised."""
    with ThreadPoolExecutor(jobs) as threads:
        running: list[Future[Result]] = [threads.submit(work, item) for item in items]
        done, waiting = wait(running, return_when=FIRST_EXCEPTION)
        failed = next((error for future in done if (error := future.exception())), None)
        if failed is not None:
            stop.set()
            wait([future for future in waiting if not future.cancel()])
            stop.resume()
            raise failed
    return [future.result() for future in running]


class Fetch:
    """One model from one source into the staging folder."""

    def __init__(
        self, request: WeightsRequest, source: HubSource, progress: TransferProgress, stop: StopSwitch
    ) -> None:
        self.request = request
        self.source = source
        self.progress = progress
        self.stop = stop
        self.arrived = manifest.ArrivedFiles(request.staging)
        # hf_xet reads ahead: a limit would slow the writing, not the network traffic.
        unlimited = replace(source, xet=source.xet and not request.rate_limit)
        self.hub = connect(unlimited, request.staging / record.SCRATCH)
        patience = request.wait_limit if len(request.sources) == 1 else min(HASTE_SECONDS, request.wait_limit)
        self.transfer = Transfer(
            Connections(source, request.jobs), RateLimit(request.rate_limit), stop, patience, progress.waits
        )

    def listing(self) -> list[RemoteFile]:
        """What the source has. Raises SourceFailure for a list that cannot be right, or that is none."""
        try:
            found = self.hub.files()
            check_listing(found, self.hub.where)
        except Refusal:
            raise
        except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
            # The page of a proxy, for instance, which the libraries take for an answer of the hub.
            raise SourceFailure(
                f"{self.hub.where} answers what is no list of files ({first_line(error)}): use another source"
            ) from error
        return found

    def files(self) -> list[RemoteFile]:
        """What is wanted of what the source has."""
        listed_files = self.listing()
        check_commit(self.source, self.hub.revision)
        found = pinned_files(
            choose(listed_files, self.request.include, self.request.exclude), listed_files, self.source
        )
        if self.request.measured_cards:
            found = [file for file in found if file.name.endswith(MEASURED_ENDINGS)]
            contents.check_measurements((file.name for file in found), self.request.measured_cards)
        check_added(found, self.source)
        if self.request.unpickles:
            check_pickles(found, self.source)
        return found

    def one(self, file: RemoteFile) -> RecordedFile:
        """Bring one file into the staging folder, checked."""
        staging = self.request.staging
        if file.sha256 is not None and self.arrived.has(file.name, file.sha256):
            return RecordedFile(file.name, file.size, file.sha256)
        beneath.make_folders((staging / file.name).parent, staging)
        content = self.hub.content(file)
        if content is not None:
            self.progress.advance(len(content) - size(staging, file.name))
            with beneath.replacing(staging / file.name, staging) as out:
                out.write(content)
        sha256 = self.transfer.fetch(file, self.hub.place, staging, self.progress.advance)
        if file.name.endswith(".safetensors"):
            contents.check_safetensors(staging, file.name)
        if self.request.measured_cards:
            measurements.check_measurements(staging / file.name, staging)
        self.arrived.add(file.name, sha256)
        return RecordedFile(file.name, file.size, sha256)

    def all(self, files: list[RemoteFile]) -> Manifest:
        """Bring all files: indexes first, since they tell whether the model is whole, then the largest."""
        here = sum(min(size(self.request.staging, file.name), file.size) for file in files)
        total = sum(file.size for file in files)
        check_names(self.request, ((file.name, file.size) for file in files))
        check_room(self.request, total - here)
        self.progress.begin("fetch", total, here)
        entries = []
        indexes = [file for file in files if file.name.endswith(contents.INDEX)]
        for index in indexes:
            entries.append(self.one(index))
            contents.check_index(self.request.staging, index.name, (file.name for file in files))
        rest = sorted((file for file in files if file not in indexes), key=lambda file: -file.size)
        entries += in_parallel(self.request.jobs, self.one, rest, self.stop)
        self.progress.end()
        ordered = tuple(sorted(entries, key=lambda entry: entry.name))
        return Manifest(self.source.name, self.source.repository, self.hub.revision, now(), ordered)


def damaged(request: WeightsRequest, done: Manifest, progress: TransferProgress, stop: StopSwitch) -> list[str]:
    """Names of files whose bytes are not the recorded ones: reads everything, and records when and the outcome."""
    wrong = set(manifest.wrong_sizes(request.target, done))
    whole = [file for file in done.files if file.name not in wrong]
    progress.begin("verify", sum(file.size for file in whole))

    def advance(count: int) -> None:
        if stop.is_set():
            raise TransferInterrupt
        progress.advance(count)

    def right(file: RecordedFile) -> bool:
        return manifest.sha256_of(request.target / file.name, request.target, advance) == file.sha256

    wrong |= {file.name for file, fine in zip(whole, in_parallel(request.jobs, right, whole, stop)) if not fine}
    progress.end()
    note = json.dumps({"verified": now(), "wrong": sorted(wrong)}) + "\n"
    manifest.write(request.target / record.VERIFIED, note, request.target)
    return sorted(wrong)


def repair(fetch: Fetch, done: Manifest, wrong: list[str]) -> None:
    """Fetch the named files alone and put each in its place in one rename."""
    recorded = {file.name: file for file in done.files}
    files = [file for file in fetch.listing() if file.name in wrong]
    if len(files) < len(wrong):
        raise SourceFailure(f"{fetch.source.name} no longer has {listed(set(wrong) - {f.name for f in files})}")
    # The record says what the file must be, whatever the source says today.
    files = [RemoteFile(file.name, recorded[file.name].size, recorded[file.name].sha256) for file in files]
    missing = sum(file.size for file in files)
    check_room(replace(fetch.request, extra_room=0), missing)
    fetch.progress.begin("repair", missing, sum(min(size(fetch.request.staging, f.name), f.size) for f in files))
    in_parallel(fetch.request.jobs, fetch.one, files, fetch.stop)
    fetch.progress.end()
    put_right(fetch.request, wrong)


def summary(request: WeightsRequest, made: Manifest, progress: TransferProgress, **more: Any) -> dict[str, Any]:
    """The result of the work."""
    return {
        "target": str(request.target),
        "source": made.source,
        "repository": made.repository,
        "revision": made.revision,
        "files": len(made.files),
        "bytes": made.size,
        "received": progress.received,
        "repaired": [],
        **more,
    }


def fetch(request: WeightsRequest, progress: TransferProgress, stop: StopSwitch) -> dict[str, Any]:
    """Have the model at its target, whole. Raises Refusal, TransferInterrupt, OSError for a disk that takes no more."""
    done = already_whole(request)
    if done is not None and not request.recheck and not manifest.known_wrong(request.target, done):
        return summary(request, done, progress)
    with only_one(request):
        done = already_whole(request)  # another fetch may have ended since
        wrong: list[str] = []
        if done is not None:
            look = (
                damaged(request, done, progress, stop)
                if request.recheck
                else manifest.known_wrong(request.target, done)
            )
            if not look:
                clear(request.staging)
                return summary(request, done, progress)
            wrong = look
        progress.received = 0

        def from_source(source: HubSource) -> dict[str, Any]:
            if done is not None:
                repair(Fetch(request, replace(source, revision=revision_of(source, done)), progress, stop), done, wrong)
                return summary(request, done, progress, repaired=wrong)
            check_measurements_pinned(request, source)
            fetching = Fetch(request, source, progress, stop)
            made = fetching.all(fetching.files())
            publish(request, made)
            return summary(request, made, progress)

        return first_that_serves(request, from_source, progress, stop)


def first_that_serves(
    request: WeightsRequest, work: Callable[[HubSource], dict[str, Any]], progress: TransferProgress, stop: StopSwitch
) -> dict[str, Any]:
    """Ask the sources in their order; again while one of them is only away, or asks to wait. Raises Refusal.

    Before the first byte, a source that is away is waited for a minute, and one that had too many requests as long as
    it asks; after it, both. Nothing is waited for longer than the request's limit.
    """
    began, pause, arrived = stop.clock(), FIRST_PAUSE, 0
    soon, late = began + min(HASTE_SECONDS, request.wait_limit), began + request.wait_limit
    failures: dict[str, SourceFailure] = {}
    due: dict[str, float] = {}  # when a source may be asked again that asked to wait
    told: set[str] = set()
    while True:
        for source in request.sources:
            if stop.clock() < due.get(source.name, 0.0) - 0.001:
                continue
            try:
                return work(source)
            except SourceFailure as failure:
                failures[source.name] = failure
                due[source.name] = stop.clock() + (failure.retry_after or 0.0)
                if str(failure) not in told:
                    print(failure, flush=True)
                    told.add(str(failure))
                waited = failure.waited
            if progress.received > arrived:  # something came: a source lives
                arrived, pause = progress.received, FIRST_PAUSE
                # In this order, so that a caller who waited the whole time has no rounding error left to wait for.
                soon = late = stop.clock() + (request.wait_limit - waited)
        now = stop.clock()
        left = {
            name: (late if failure.limited else soon) - now for name, failure in failures.items() if failure.passing
        }
        hopeful = {name for name, seconds in left.items() if seconds > max(due[name] - now, 0.0)}
        if not hopeful:
            why = "; ".join(too_late(failure, due[name] - now, request) for name, failure in failures.items())
            raise Refusal("no_source_serves", f"no source can serve {request.target.name}: {why}")
        longest = max(left[name] for name in hopeful)
        asked = min(max(due[name] - now, 0.0) for name in hopeful)
        until = f"as it asks, the next time at {at(asked)}" if asked else f"for {longest:.0f} s at most"
        progress.waits(f"no source serves now ({'; '.join(map(str, failures.values()))}), asked again {until}")
        if stop.wait(asked or min(pause, longest)):
            raise TransferInterrupt
        pause = min(pause * 2, LONGEST_PAUSE)


def too_late(failure: SourceFailure, asked: float, request: WeightsRequest) -> str:
    """Why a source does not serve; with the time, where it asks to wait longer than anything is waited for."""
    if not failure.passing or asked <= 0.0:
        return str(failure)
    return (
        f"{failure}. It asks to wait until {at(asked)} ({asked:.0f} s), and no more than {request.wait_limit:.0f} s "
        "are waited in all (model_weights_wait_limit). Run this again then"
    )


def verify(request: WeightsRequest, progress: TransferProgress, stop: StopSwitch) -> dict[str, Any]:
    """Read every byte of the finished model again. Raises Refusal with the names of bad files.

    With recheck they are part of the result instead, and the next step repairs them.
    """
    done = already_whole(request)
    if done is None:
        raise Refusal(
            "no_finished_model",
            f"there is no finished model in {request.target}; fetch it with playbooks/fetch_weights.yml",
        )
    wrong = damaged(request, done, progress, stop)
    if wrong and not request.recheck:
        raise Refusal(
            "files_damaged",
            f"{len(wrong)} of {len(done.files)} files of {request.target} are missing or damaged: {', '.join(wrong)}. "
            "playbooks/fetch_weights.yml fetches them again, and nothing else",
        )
    return summary(request, done, progress, received=0, wrong=wrong)
