"""A simulated git host with git-lfs: git's own server program, and the batch interface of git-lfs beside it.

Repositories are real ones, with pointers in them; git and git-lfs clone them as they would any other.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
import subprocess
from pathlib import Path
from typing import Any

from simulator.hub.content import LFS_SUFFIXES, HubFile, HubRepository, describe
from simulator.hub.server import HubHandler, SimulatedHub

LFS = "application/vnd.git-lfs+json"
ATTRIBUTES = "".join(f"*{suffix} filter=lfs diff=lfs merge=lfs -text\n" for suffix in LFS_SUFFIXES)


def publish(hub: SimulatedHub, name: str, folder: Path, root: Path, **more: Any) -> HubRepository:
    """Make a folder's files the newest commit of a repository below root; large files are not copied."""
    bare = root / f"{name}.git"
    files = {
        path.relative_to(folder).as_posix(): describe(path.relative_to(folder).as_posix(), path)
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
    if not bare.exists():
        git(bare.parent, "init", "--quiet", "--bare", "--initial-branch=main", str(bare), parents=True)
        # As hosts do: any commit may be named, and a clone may leave large files out.
        git(bare, "config", "uploadpack.allowFilter", "true")
        git(bare, "config", "uploadpack.allowAnySHA1InWant", "true")
    contents = {".gitattributes": ATTRIBUTES.encode()}
    for file in files.values():
        contents[file.name] = pointer(file) if file.lfs else file.path.read_bytes()
    stream = [b"commit refs/heads/main\ncommitter Maker <maker@example.com> 1700000000 +0000\ndata 6\nupload\n"]
    if git(bare, "for-each-ref", "refs/heads/main"):
        stream.append(b"from refs/heads/main^0\ndeleteall\n")
    for file_name, content in contents.items():
        stream.append(f"M 100644 inline {file_name}\ndata {len(content)}\n".encode() + content + b"\n")
    git(bare, "fast-import", "--quiet", given=b"".join(stream))
    made = hub.repositories.setdefault(name, HubRepository(name, **more))
    made.main = git(bare, "rev-parse", "refs/heads/main").decode().strip()
    made.commits[made.main] = files
    return made


def pointer(file: HubFile) -> bytes:
    """What git holds of a file that git-lfs holds."""
    return f"version https://git-lfs.github.com/spec/v1\noid sha256:{file.sha256}\nsize {file.size}\n".encode()


def git(folder: Path, *arguments: str, given: bytes = b"", parents: bool = False) -> bytes:
    """Run git in a folder; returns what it prints."""
    if parents:
        folder.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    command = ["git", "-C", str(folder), *arguments]
    return subprocess.run(command, input=given, env=environment, check=True, capture_output=True).stdout


class GitHost(HubHandler):
    """The host. Repositories lie below its root."""

    where = "hub"
    root: Path

    def do_POST(self) -> None:
        """Answer like any other request; the body is read where it is needed."""
        self.do_GET()

    def token_sent(self) -> str | None:
        """The password of basic authentication, whoever the user is."""
        try:
            pair = base64.b64decode(self.headers.get("Authorization", "").removeprefix("Basic ")).decode()
        except (binascii.Error, UnicodeDecodeError):
            return ""
        return pair.partition(":")[2] or None

    def answer(self, path: list[str], query: dict[str, list[str]]) -> None:
        """Route as hosts do: git's own protocol, and that of git-lfs below info/lfs."""
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0)) if not self.chunked() else self.chunks()
        name = "/".join(path[:2]).removesuffix(".git")
        repository = self.hub.repositories.get(name)
        wanted = path[2:] == ["info", "lfs", "objects", "batch"]
        if self.failed(self.hub.fault("resolve" if wanted else "list", name)):
            return
        closed = repository is not None and (repository.private or repository.gated)
        if (self.token is not None or closed) and self.token not in self.hub.tokens:
            self.send(401, {"WWW-Authenticate": 'Basic realm="simulated"'})
        elif repository is None:
            self.send(404, {}, b"repository not found")
        elif wanted:
            self.batch(repository, json.loads(body))
        elif path[2:] in (["info", "refs"], ["git-upload-pack"]):
            self.backend(f"/{name}.git/{'/'.join(path[2:])}", body)
        else:
            self.send(404, {})

    def chunked(self) -> bool:
        """Whether the request's body comes in chunks."""
        return self.headers.get("Transfer-Encoding", "") == "chunked"

    def chunks(self) -> bytes:
        """The body that comes in chunks."""
        body = b""
        while size := int(self.rfile.readline(), 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def batch(self, repository: HubRepository, asked: dict[str, Any]) -> None:
        """Say where large files are: with the delivery network, at a signed address."""
        files = {file.sha256: file for commit in repository.commits.values() for file in commit.values() if file.lfs}
        found = []
        for wanted in asked["objects"]:
            file = files.get(wanted["oid"])
            answer: dict[str, object] = {"oid": wanted["oid"], "size": wanted["size"], "authenticated": True}
            if file is None:
                answer["error"] = {"code": 404, "message": "Object does not exist"}
            else:
                answer["actions"] = {"download": {"href": self.hub.signed(repository.name, file)}}
            found.append(answer)
        body = json.dumps({"transfer": "basic", "objects": found}).encode()
        self.send(200, {"Content-Type": LFS}, body)

    def backend(self, path: str, body: bytes) -> None:
        """Let git's own server program answer (git-http-backend(1), a CGI program)."""
        environment = {
            "PATH": os.environ["PATH"],
            "GIT_PROJECT_ROOT": str(self.root),
            "GIT_HTTP_EXPORT_ALL": "1",
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
            "GIT_CONFIG_GLOBAL": os.devnull,
            "PATH_INFO": path,
            "QUERY_STRING": self.path.partition("?")[2],
            "REQUEST_METHOD": self.command,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "CONTENT_LENGTH": str(len(body)),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "REMOTE_USER": "reader",
            "REMOTE_ADDR": self.client_address[0],
        }
        # Its status is not 0 when it refuses what is asked for; the refusal itself is in its answer.
        done = subprocess.run(["git", "http-backend"], input=body, env=environment, check=False, capture_output=True)
        head, _, content = done.stdout.partition(b"\r\n\r\n")
        headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n"))
        status = int(headers.pop("Status", "200").split()[0])
        self.send(status, headers, content)
