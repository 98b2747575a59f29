"""ModelScope: its library lists and authenticates.

modelscope_hub is what the package modelscope itself lists and downloads with (since its version 1.38), without the
70 MB of the rest of it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

from modelscope_hub import HubApi, errors
from modelscope_hub.config import HubConfig

from .hubs import Hub
from .model import RemoteFile, SourceFailure
from .request import Source
from .transfer import Place


class ModelScope(Hub):
    """One ModelScope hub, or a mirror of it."""

    def __init__(self, source: Source, scratch: Path) -> None:
        super().__init__(source)
        self.token = source.token()
        folder = scratch / "modelscope"
        # Empty, not None: without a token of ours, none that lies in somebody's home is sent either.
        self.api = HubApi(
            HubConfig(endpoint=source.endpoint, token=self.token or "", cache_dir=folder, config_dir=folder)
        )

    def files(self) -> list[RemoteFile]:
        """All files of the revision; directories are left out. Raises SourceFailure with what to do."""
        source, where = self.source, self.where
        try:
            with only_proxy(source.proxy, source.endpoint):
                listed = self.api.list_repo_files(source.repository, "model", revision=source.revision)
        except errors.NotExistError as error:
            raise SourceFailure(
                f"{where} or its revision {source.revision} does not exist, or is private and this token may not see "
                "it: correct them in catalog/models, or give this source another token"
            ) from error
        except (errors.AuthenticationError, errors.PermissionDeniedError) as error:
            raise SourceFailure(
                f"{where} refuses {'the' if self.token else 'to serve without a'} token (status {error.status_code}): "
                "accept the model's licence on the hub, and give this source a token of that account"
            ) from error
        except (errors.ServerError, errors.RateLimitError) as error:
            raise SourceFailure(
                f"{where} cannot be listed: status {error.status_code}",
                passing=True,
                retry_after=getattr(error, "retry_after", None),
            ) from error
        except errors.NetworkError as error:
            raise SourceFailure(f"{where} cannot be reached", passing=True) from error
        except errors.HubError as error:
            raise SourceFailure(f"{where} cannot be listed: {error.message}") from error
        found = []
        for file in listed:
            if file.is_dir:
                continue
            if not file.sha256:
                raise SourceFailure(f"{where} states no checksum of {file.path!r}")
            found.append(RemoteFile(file.path, file.size, sha256=file.sha256.lower()))
        return found

    def place(self, file: RemoteFile) -> Place:
        """The address the library downloads from, which redirects; the token is sent as the library does."""
        url = self.api.legacy.get_download_url(self.source.repository, "model", file.name, self.source.revision)
        if not self.token:
            return Place(url, {})
        return Place(url, {"Authorization": f"Bearer {self.token}", "Cookie": f"m_session_id={self.token}"})


@contextlib.contextmanager
def only_proxy(proxy: str | None, endpoint: str) -> Iterator[None]:
    """Make the library's requests use the inventory's proxy and no other: the library has no option for it.

    Accounts of a .netrc are not sent either. The environment belongs to this process alone.
    """
    names = {"http_proxy", "https_proxy", "all_proxy", "no_proxy"}
    before = dict(os.environ)
    for name in [name for name in before if name.lower() in names]:
        del os.environ[name]
    chosen = {f"{urlsplit(endpoint).scheme}_proxy": proxy} if proxy else {"no_proxy": "*"}
    os.environ.update({**chosen, "NETRC": os.devnull})
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
