"""Hugging Face, and every mirror that speaks its interface: its library lists, authenticates and resolves."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path

import httpx2
from gaudi.weights import answers
from huggingface_hub import HfApi, constants, errors, hf_hub_url, set_client_factory
from urllib3.util import parse_url

from . import xet
from .hubs import Hub
from .model import RemoteFile, SourceFailure
from .network import Connections, refused, secrets_of, trust, unreached
from .request import HubSource
from .transfer import FileLocation, Way, origin

TIMEOUT = 60.0  # seconds for one question to a hub
# Bytes of an answer. A list has some 300 for each file, and no model has 10,000.
MOST_ANSWERED = 16 << 20


class LimitedStream(httpx2.SyncByteStream):
    """The body of an answer, with an end in time and size: the library's own limit is for each read."""

    def __init__(self, body: Iterable[bytes]) -> None:
        self.body = body

    def __iter__(self) -> Iterator[bytes]:
        """Yield the blocks. Raises ReadError where they are too many, ReadTimeout where they take too long."""
        until, came = time.monotonic() + TIMEOUT, 0
        for block in self.body:
            came += len(block)
            if came > MOST_ANSWERED:
                raise httpx2.ReadError(f"its answer has more than {MOST_ANSWERED} bytes")
            if time.monotonic() > until:
                raise httpx2.ReadTimeout(f"its answer took more than {TIMEOUT:.0f} s")
            yield block

    def close(self) -> None:
        """Close the connection's own body."""
        if isinstance(self.body, httpx2.SyncByteStream):
            self.body.close()


class LimitedTransport(httpx2.HTTPTransport):
    """Connections whose answers end."""

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        """Ask, and limit what is answered. Raises ReadError for a compressed answer: its size is not its content's."""
        request.headers["Accept-Encoding"] = "identity"
        response = super().handle_request(request)
        if response.headers.get("Content-Encoding", "identity") != "identity":
            response.close()
            raise httpx2.ReadError("its answer is compressed, which was not asked for")
        if isinstance(response.stream, httpx2.SyncByteStream):
            response.stream = LimitedStream(response.stream)
        return response


class HuggingFace(Hub):
    """One hub that speaks this interface."""

    def __init__(self, source: HubSource, scratch: Path) -> None:
        super().__init__(source)
        self.token = source.token()
        # hf_xet can be told of a proxy by the environment only; through one, plain HTTP serves.
        self.xet_wanted = source.xet and not source.proxy and xet.installed()
        self.storage = xet.Storage(Connections(source, xet.STREAMS), scratch)
        self.over_xet: set[str] = set()
        self.lock = threading.Lock()
        # Sources are asked one after the other, so the library's one client can be each one's in turn. It reads no
        # proxy from the environment: the inventory alone decides where requests go.
        proxy = source.proxy_for(source.endpoint)
        through = httpx2.Proxy(proxy, ssl_context=trust() if proxy.startswith("https:") else None) if proxy else None
        transport = LimitedTransport(verify=trust(), trust_env=False, proxy=through)
        set_client_factory(lambda: httpx2.Client(transport=transport, follow_redirects=True, trust_env=False))
        # False: without a token of ours, none that lies in somebody's home is sent either.
        self.api = HfApi(endpoint=source.endpoint, token=self.token or False, library_name="gaudi-serving")

    def files(self) -> list[RemoteFile]:
        """All files of the revision. Raises SourceFailure with what to do."""
        source, where = self.source, self.where
        try:
            info = self.api.model_info(
                source.repository, revision=source.revision, files_metadata=True, timeout=TIMEOUT
            )
        except errors.GatedRepoError as error:
            raise SourceFailure(
                f"{where} is gated: accept its licence with an account on the hub, and give this source a token of it"
                f"{self.quoted(error)}"
            ) from error
        except errors.RevisionNotFoundError as error:
            raise SourceFailure(
                f"{where} has no revision {source.revision}: pin one that exists, in catalog/models or as revision"
            ) from error
        except errors.RepositoryNotFoundError as error:
            token = "and a token was sent, which may be the wrong one" if self.token else "and no token was sent"
            raise SourceFailure(
                f"{where} does not exist or is private, {token}: look at its name, or give this source a token that "
                f"may read it{self.quoted(error)}"
            ) from error
        except errors.HfHubHTTPError as error:
            if error.response.status_code == 401:
                raise SourceFailure(
                    f"{where} refuses the token (status 401): give this source another{self.quoted(error)}"
                ) from error
            raise self.refusal(error) from error
        except (httpx2.HTTPError, OSError) as error:
            raise unreached(error, source, source.endpoint) from error
        if not info.sha:
            raise SourceFailure(f"{where} does not say which commit {source.revision} is")
        # A branch becomes the commit it names now: what is listed and what is fetched are the same.
        self.revision = info.sha
        found = []
        for sibling in info.siblings or []:
            if sibling.size is None:
                raise SourceFailure(f"{where} does not tell the size of {sibling.rfilename!r}")
            found.append(
                RemoteFile(
                    name=sibling.rfilename,
                    size=sibling.size,
                    sha256=sibling.lfs.sha256 if sibling.lfs else None,
                    blob=None if sibling.lfs else sibling.blob_id,
                )
            )
        return found

    def quoted(self, error: errors.HfHubHTTPError) -> str:
        """The hub's own message, as the end of a sentence."""
        answer = error.response
        return answers.quoted(answers.message_of(answer.headers, answer.content, secrets_of(self.source)))

    def refusal(self, error: errors.HfHubHTTPError) -> SourceFailure:
        """What an answer means that the library has no error of its own for."""
        answer = error.response
        return refused(answer.status_code, answer.headers, answer.content, self.source, str(answer.url), self.where)

    def place(self, file: RemoteFile) -> FileLocation:
        """The resolve address; the token is for the hub only, not for the target of a redirect."""
        url = hf_hub_url(self.source.repository, file.name, revision=self.revision, endpoint=self.source.endpoint)
        headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        with self.lock:
            # Asked for again: it broke off on the way, or was not what it should be.
            if self.xet_wanted and file.name in self.over_xet:
                self.xet_wanted = False
                failed = self.storage.failure or f"{file.name} did not come as the hub states it"
                print(f"{self.where}: what is left comes over plain HTTP, since Xet failed ({failed})", flush=True)
        return FileLocation(url, headers, partial(self._over_xet, file, headers))

    def _over_xet(self, file: RemoteFile, headers: dict[str, str], answer: Mapping[str, str]) -> Way | None:
        """The way over Xet to a file the hub says is stored there."""
        if not self.xet_wanted:
            return None
        xet_hash = answer.get("X-Xet-Hash")
        said = httpx2.Response(302, headers=dict(answer)).links.get("xet-auth", {}).get("url", "")
        # A mirror may hand on what the hub says of itself; it gives the access itself, and gets the token.
        said = said.replace(constants.HUGGINGFACE_CO_URL_HOME.rstrip("/"), self.source.endpoint, 1)
        try:
            if xet_hash is None or origin(said) != origin(self.source.endpoint):
                return None
        except SourceFailure:  # it is no address
            return None
        # Asked of the hub as the inventory writes it, however others would read this address.
        hub = parse_url(self.source.endpoint)
        renew = f"{hub.scheme}://{hub.netloc}{parse_url(said).request_uri}"
        with self.lock:
            self.over_xet.add(file.name)
        return partial(self.storage.blocks, renew, headers, xet_hash, file.size)
