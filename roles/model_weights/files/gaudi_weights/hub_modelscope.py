"""ModelScope: its library lists and authenticates.

modelscope_hub is what the package modelscope itself lists and downloads with (since its version 1.38), without the
70 MB of the rest of it.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

# Read when the library is loaded: it would wait in its own clock, where neither a stop nor the job's followers reach.
os.environ["MODELSCOPE_REPO_TREE_PAGE_MAX_ATTEMPTS"] = "1"

import requests
from gaudi.weights import answers
from modelscope_hub import HubApi, errors
from modelscope_hub.config import HubConfig

from .hubs import Hub
from .model import RemoteFile, SourceFailure
from .network import bundle, refused, secrets_of, unreached
from .request import HubSource
from .transfer import FileLocation


class ModelScopeHub(Hub):
    """One ModelScope hub, or a mirror of it."""

    def __init__(self, source: HubSource, scratch: Path) -> None:
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
            with settings_for(source):
                listed = self.api.list_repo_files(source.repository, "model", revision=source.revision)
        except errors.NotExistError as error:
            raise SourceFailure(
                f"{where} or its revision {source.revision} does not exist, or is private and this token may not see "
                "it: correct them in catalog/models, or give this source another token"
                f"{self.quoted(error)}"
            ) from error
        except errors.AuthenticationError as error:
            raise SourceFailure(
                f"{where} refuses {'the' if self.token else 'to serve without a'} token (status {error.status_code}): "
                "accept the model's licence on the hub, and give this source a token of that account"
                f"{self.quoted(error)}"
            ) from error
        except errors.APIError as error:
            answer = getattr(error, "response", None)
            headers = answer.headers if answer is not None else {}
            body = json.dumps(error.response_body).encode()
            status = error.status_code or 500
            raise refused(status, headers, body, source, f"{source.endpoint}/", self.where) from error
        except (errors.NetworkError, requests.RequestException) as error:
            raise unreached(error, source, source.endpoint) from error
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

    def quoted(self, error: errors.APIError) -> str:
        """The hub's own message, as the end of a sentence."""
        body = json.dumps(error.response_body).encode()
        return answers.quoted(answers.message_of({}, body, secrets_of(self.source)))

    def place(self, file: RemoteFile) -> FileLocation:
        """The address the library downloads from, which redirects; the token is sent as the library does."""
        url = self.api.legacy.get_download_url(self.source.repository, "model", file.name, self.source.revision)
        if not self.token:
            return FileLocation(url, {})
        return FileLocation(url, {"Authorization": f"Bearer {self.token}", "Cookie": f"m_session_id={self.token}"})


def in_latin1(proxy: str) -> str:
    """A proxy's address of which requests, which sends accounts in Latin-1, sends the same bytes as the others."""
    parts = urlsplit(proxy)
    if parts.username is None:
        return proxy
    user, password = (
        quote(unquote(text or "").encode().decode("latin-1"), safe="") for text in (parts.username, parts.password)
    )
    return f"{parts.scheme}://{user}:{password}@{parts.netloc.rpartition('@')[2]}"


@contextlib.contextmanager
def settings_for(source: HubSource) -> Iterator[None]:
    """Have the library use the inventory's proxy alone, and the certificates that the node trusts instead of its own.

    It has no options for them.

    Accounts of a .netrc are not sent either. The environment belongs to this process alone.
    """
    names = {"http_proxy", "https_proxy", "all_proxy", "no_proxy", "curl_ca_bundle", "requests_ca_bundle"}
    proxy = source.proxy_for(source.endpoint)
    proxy = in_latin1(proxy) if proxy else None
    before = dict(os.environ)
    for name in [name for name in before if name.lower() in names]:
        del os.environ[name]
    chosen = {f"{urlsplit(source.endpoint).scheme}_proxy": proxy} if proxy else {"no_proxy": "*"}
    if trusted := bundle():
        chosen["REQUESTS_CA_BUNDLE"] = trusted
    os.environ.update({**chosen, "NETRC": os.devnull})
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
