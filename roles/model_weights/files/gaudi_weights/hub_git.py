"""Any host of git and git-lfs: git brings the list, with pointers in place of large files; their bytes come over HTTP.

git-lfs itself would keep a second copy of every file. Its batch interface, asked here, says where the bytes are
(git-lfs, docs/api/batch.md).
"""

from __future__ import annotations

import base64
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import urllib3
from gaudi.node import beneath
from gaudi.weights import answers

from .hubs import Hub
from .model import RemoteFile, SourceFailure
from .network import Connections, bundle, secrets_of, start_of
from .request import HubSource
from .rsync import Limit, beginning, limited
from .transfer import CONNECT_SECONDS, OK, SILENCE_SECONDS, FileLocation, address, origin

LFS = "application/vnd.git-lfs+json"
POINTER = re.compile(
    rb"version https://git-lfs\.github\.com/spec/v1\n(?:.*\n)*?oid sha256:([0-9a-f]{64})\nsize (\d+)\n"
)
POINTER_SIZE = 1024  # bytes a pointer has at most (git-lfs, docs/spec.md)
# What git itself brings of one file; hosts of models put larger ones into git-lfs, and those are not fetched twice.
LARGEST = "100m"
# Bytes that git may bring of a repository, and that a command of it may print: a host decides what it sends, before it
# is known how much disk space the weights need. LARGEST is one file.
MOST_BROUGHT = 16 << 30
MOST_PRINTED = 256 << 20
MOST_FILES = 100_000
# Bytes of an answer of git-lfs about one file; honest ones have a few hundred.
MOST_ANSWERED = 1 << 20

# Messages of git on standard error in the C locale, and their meaning. Any other error is permanent.
REFUSED = re.compile(r"Authentication failed|could not read (Username|Password)|returned error: 40[13]")
UNKNOWN = re.compile(r"couldn't find remote ref|not our ref|unadvertised object|no such remote ref")
ABSENT = re.compile(r"repository .* not found|returned error: 404|does not appear to be a git repository")
NETWORK = re.compile(r"unable to access|RPC failed|could not read (Username|Password)|Authentication failed|HTTP code")
PASSING = re.compile(
    r"returned error: (429|5\d\d)|Could not resolve|Failed to connect|Connection (refused|reset|timed out)|Empty reply|"
    r"transfer closed|Operation too slow|early EOF|unexpected disconnect|Couldn't connect|Recv failure|hung up"
)


class Git(Hub):
    """One repository on one host."""

    def __init__(self, source: HubSource, scratch: Path) -> None:
        super().__init__(source)
        self.token = source.token()
        self.scratch = scratch
        self.folder = scratch / "git"
        self.address = f"{source.endpoint}/{source.repository}"
        self.lfs = f"{self.address.removesuffix('.git')}.git/info/lfs"
        self.pool = Connections(source, 4)
        self.blobs: dict[str, str] = {}  # git's hash by name, of files whose content git brings

    def files(self) -> list[RemoteFile]:
        """All files of the revision, without links and submodules. Raises SourceFailure with what to do."""
        if shutil.which("git") is None:
            raise SourceFailure(f"{self.where} needs git on this node, and there is none: install the package git")
        beneath.remove_tree(self.folder, self.scratch)
        beneath.make_folders(self.folder, self.scratch)
        self.git("init", "--quiet", "--bare")
        self.git("remote", "add", "origin", self.address)
        wanted = ["--depth=1", "--no-tags", f"--filter=blob:limit={LARGEST}", "--", "origin", self.source.revision]
        self.git("fetch", "--quiet", *wanted)
        self.revision = self.git("rev-parse", "FETCH_HEAD^{commit}").decode().strip()
        # Asking for the size of a blob git has left out would fetch it.
        absent = set(
            self.git("rev-list", "--objects", "--missing=print", self.revision).decode(errors="replace").split()
        )
        found = []
        try:
            entries = self.git("ls-tree", "-r", "-z", self.revision).decode().split("\0")
        except UnicodeDecodeError as error:
            raise SourceFailure(f"{self.where} has a file whose name is not UTF-8: use another source") from error
        listed = [(entry.split("\t", 1)[1], entry.split()) for entry in entries if entry]
        plain = {name: fields[2] for name, fields in listed if fields[0].startswith("100")}
        here = {name: oid for name, oid in plain.items() if f"?{oid}" not in absent}
        sizes = self.sizes(sorted(set(here.values())))
        pointers = self.pointers(sorted({oid for oid in here.values() if sizes[oid] < POINTER_SIZE}))
        for name, oid in plain.items():
            if oid in pointers:
                sha256, size = pointers[oid]
                found.append(RemoteFile(name, size, sha256=sha256))
            elif name in here:
                self.blobs[name] = oid
                found.append(RemoteFile(name, sizes[oid], blob=oid))
            else:
                raise SourceFailure(
                    f"{self.where} has {name} in git itself and not in git-lfs, larger than {LARGEST}B; use another "
                    "source"
                )
        return found

    def sizes(self, oids: list[str]) -> dict[str, int]:
        """Bytes of blobs that are here."""
        asked = "".join(f"{oid}\n" for oid in oids).encode()
        shown = self.git("cat-file", "--batch-check=%(objectname) %(objectsize)", given=asked).decode().split()
        return dict(zip(shown[::2], map(int, shown[1::2])))

    def pointers(self, oids: list[str]) -> dict[str, tuple[str, int]]:
        """SHA-256 and size, by git's hash, of what those of the blobs name that are pointers."""
        shown = self.git("cat-file", "--batch", given="".join(f"{oid}\n" for oid in oids).encode())
        found, position = {}, 0
        for oid in oids:
            begin = shown.index(b"\n", position) + 1
            end = begin + int(shown[position : begin - 1].split()[2])
            pointer = POINTER.fullmatch(shown[begin:end])
            if pointer:
                found[oid] = (pointer[1].decode(), int(pointer[2]))
            position = end + 1
        return found

    def content(self, file: RemoteFile) -> bytes | None:
        """The content of a file git has brought."""
        return self.git("cat-file", "blob", self.blobs[file.name]) if file.name in self.blobs else None

    def place(self, file: RemoteFile) -> FileLocation:
        """Ask the host where the bytes of a large file are. Raises SourceFailure with what to do."""
        url = f"{self.lfs}/objects/batch"
        wanted = {"operation": "download", "transfers": ["basic"], "objects": [{"oid": file.sha256, "size": file.size}]}
        response = self.pool.request(
            "POST",
            url,
            body=json.dumps(wanted),
            headers={"Accept": LFS, "Content-Type": LFS, "User-Agent": "gaudi-serving", **self.credentials()},
            preload_content=False,
            timeout=urllib3.Timeout(connect=CONNECT_SECONDS, read=SILENCE_SECONDS),
        )
        if response.status != OK:
            raise self.pool.refusal(response, url, elsewhere=False)
        try:
            text = start_of(response, MOST_ANSWERED + 1)
            if len(text) > MOST_ANSWERED:
                raise ValueError(f"more than {MOST_ANSWERED} bytes")
            answer: dict[str, Any] = json.loads(text)["objects"][0]
            if "error" in answer:
                code = int(answer["error"].get("code") or 0)
                message = answers.message_of({}, json.dumps(answer["error"]).encode(), [self.token])
                lacks = "does not have" if code in (404, 410) else f"refuses ({code})"
                raise SourceFailure(f"{address(url)} {lacks} {file.name}: {message}", passing=answers.is_passing(code))
            action = answer["actions"]["download"]
            href, headers = str(action["href"]), {str(k): str(v) for k, v in action.get("header", {}).items()}
        except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
            raise SourceFailure(f"{address(url)} answers what is no answer of git-lfs: use another source") from error
        finally:
            response.close()
        if not headers and not answer.get("authenticated") and origin(href) == origin(url):
            headers = self.credentials()
        return FileLocation(href, headers)

    def credentials(self) -> dict[str, str]:
        """The header with user and token; none without a token."""
        if not self.token:
            return {}
        pair = base64.b64encode(f"{self.source.user}:{self.token}".encode()).decode()
        return {"Authorization": f"Basic {pair}"}

    def git(self, *arguments: str, given: bytes = b"") -> bytes:
        """Run git in the folder and return what it prints. Raises SourceFailure with what its words mean."""
        command = ["git", "-C", str(self.folder), *arguments]
        status, printed, text = self.run(command, given)
        if status == 0:
            return printed
        said = text.decode(errors="replace").strip()
        if UNKNOWN.search(said):
            raise SourceFailure(f"{self.where} has no revision {self.source.revision}: pin one that exists")
        quoted = self.ask_again(said)
        if REFUSED.search(said):
            token = "the token" if self.token else "to serve without a token"
            raise SourceFailure(f"{self.where} refuses {token}: give this source one that may read it{quoted}")
        if ABSENT.search(said):
            raise SourceFailure(f"{self.where} does not exist, or is private and this token may not see it{quoted}")
        last = said.splitlines()[-1] if said else f"status {status}"
        raise SourceFailure(f"{self.where} cannot be listed: git says {last!r}", passing=bool(PASSING.search(said)))

    def run(self, command: list[str], given: bytes) -> tuple[int, bytes, bytes]:
        """Run git and return its status, what it prints, and the beginning of its errors.

        Raises SourceFailure, and removes the folder, where the host sends more than a repository of weights has.
        """
        limit = Limit(MOST_BROUGHT, min(MOST_BROUGHT, shutil.disk_usage(self.scratch).free // 2), MOST_FILES)
        with tempfile.TemporaryFile() as asked:
            asked.write(given)
            asked.seek(0)
            with subprocess.Popen(
                command,
                stdin=asked,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=self.environment(),
                start_new_session=True,
            ) as ran:

                def stop() -> None:
                    # git's own processes for a transport and a pack are in its group.
                    os.killpg(ran.pid, signal.SIGKILL)

                with limited(self.folder, limit, stop) as exceeded, beginning(ran.stderr) as said:
                    printed = ran.stdout.read(MOST_PRINTED + 1) if ran.stdout else b""
                    if len(printed) > MOST_PRINTED:
                        stop()
        if exceeded.is_set() or len(printed) > MOST_PRINTED or limit.exceeded(self.folder):
            beneath.remove_tree(self.folder, self.scratch)
            raise SourceFailure(
                f"{self.where} sends more outside git-lfs than a model has, or than half of the free disk space, and "
                "was stopped. What it sent is removed; use another source"
            )
        return ran.returncode, printed, bytes(said)

    def ask_again(self, said: str) -> str:
        """Raise SourceFailure with the cause that a host or proxy gives: git shows neither headers nor messages.

        A missing repository and a refused token have sentences of their own; of those, return the host's message.
        """
        if not NETWORK.search(said):
            return ""
        url = f"{self.address}/info/refs?service=git-upload-pack"
        response = self.pool.request(
            "GET",
            url,
            headers={"User-Agent": "git/gaudi-serving", **self.credentials()},
            preload_content=False,
            timeout=urllib3.Timeout(connect=CONNECT_SECONDS, read=SILENCE_SECONDS),
        )
        try:
            if response.status in (401, 404):
                body = self.pool.body(response)
                return answers.quoted(answers.message_of(response.headers, body, secrets_of(self.source)))
            if response.status >= 400:
                raise self.pool.refusal(response, url, elsewhere=False)
        finally:
            response.close()
        return ""

    def environment(self) -> dict[str, str]:
        """The environment of git: no configuration, no prompt, and for this host a helper that reads the token's file.

        The token itself is in no argument, environment or file but its own: the helper is run by a shell whose
        printf is a part of it.
        """
        settings = {
            "http.lowSpeedLimit": "1",
            "http.lowSpeedTime": f"{SILENCE_SECONDS:.0f}",
            "http.proxy": self.source.proxy_for(self.address) or "",
            "credential.helper": "",
        }
        if os.environ.get("SSL_CERT_FILE"):
            settings["http.sslCAInfo"] = settings["http.proxySSLCAInfo"] = bundle() or ""
        if self.token:
            name = shlex.quote(self.source.user)
            path = shlex.quote(str(self.source.token_file))
            scheme, host, port = origin(self.source.endpoint)
            settings[f"credential.{scheme}://{host}{f':{port}' if port else ''}.helper"] = (
                f"""!f() {{ test "$1" != get || printf 'username=%s\\npassword=%s\\n' {name} "$(cat {path})"; }}; f"""
            )
        numbered = {
            **{f"GIT_CONFIG_KEY_{number}": key for number, key in enumerate(settings)},
            **{f"GIT_CONFIG_VALUE_{number}": value for number, value in enumerate(settings.values())},
        }
        return {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": str(self.folder),
            "LC_ALL": "C",
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_CONFIG_COUNT": str(len(settings)),
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_ALLOW_PROTOCOL": "http:https",
            **numbered,
        }
