"""What every kind of source does: list the files of a revision with sizes and checksums, and say where they lie."""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from pathlib import Path

from gaudi.weights.hub_kinds import hub_kind

from .model import RemoteFile
from .request import HubSource
from .transfer import FileLocation


class Hub(ABC):
    """One source, ready to be asked. The revision is the commit the files are of once they are listed, where the
    source says which that is."""

    def __init__(self, source: HubSource) -> None:
        self.source = source
        self.revision = source.revision
        self.where = f"{source.name} ({source.endpoint}): {source.repository}"

    @abstractmethod
    def files(self) -> list[RemoteFile]:
        """All files of the revision. Raises SourceFailure with what to do."""

    @abstractmethod
    def place(self, file: RemoteFile) -> FileLocation:
        """The address of a file's bytes now; asked for again at every attempt, since signed addresses expire."""

    def content(self, file: RemoteFile) -> bytes | None:
        """The content of a file that came with the list, None for all others. It is checked like any other."""
        return None


def connect(source: HubSource, scratch: Path) -> Hub:
    """The hub of a source; scratch is a folder for its temporary files.

    Raises Refusal for an unknown kind.
    """
    client = hub_kind(source.kind).client
    # Imported when needed: each library costs memory and a part of a second.
    hub: Hub = getattr(importlib.import_module(f".hub_{source.kind}", __package__), client)(source, scratch)
    return hub
