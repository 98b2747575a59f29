"""A simulated ModelScope: the part of its interface that its own library lists and downloads models with.

After modelscope_hub 0.5.1 (_legacy_api.py): repo/files answers Data.Files with Path, Size, Sha256, IsLFS and Type, each
file with a checksum and directories among them; repo?FilePath= sends small files itself and redirects for large ones;
tokens come as a cookie and as a header; errors are JSON with Code and Message. Whether the real hub's status codes for
what is not there are these was not seen.
"""

from __future__ import annotations

import posixpath
from http.cookies import SimpleCookie

from simulator.hub.content import HubFile, HubRepository
from simulator.hub.server import HubHandler


class ModelScopeFront(HubHandler):
    """The hub: lists, and where files are."""

    where = "hub"

    def token_sent(self) -> str | None:
        """The token of the header or of the cookie."""
        cookie = SimpleCookie(self.headers.get("Cookie", "")).get("m_session_id")
        return super().token_sent() or (cookie.value if cookie else None)

    def answer(self, path: list[str], query: dict[str, list[str]]) -> None:
        """Route as the real hub does."""
        if path[:3] != ["api", "v1", "models"] or path[5:6] != ["repo"]:
            self.refuse_code(404, 10010404, "not found")
            return
        name = "/".join(path[3:5])
        if self.failed(
            self.hub.fault("list" if path[6:] == ["files"] else "resolve", query.get("FilePath", [name])[0])
        ):
            return
        repository = self.readable(name)
        if repository is None:
            return
        revision = query.get("Revision", ["master"])[0]
        commit = repository.commit("main" if revision == "master" else revision)
        if commit is None:
            self.refuse_code(404, 10010205001, f"Revision {revision} not found")
        elif path[6:] == ["files"]:
            self.send_json({"Code": 200, "Data": {"Files": tree(repository.commits[commit])}, "Success": True})
        else:
            self.resolve(repository, repository.commits[commit].get(query["FilePath"][0]))

    def readable(self, name: str) -> HubRepository | None:
        """The repository, if whoever asks may read it; otherwise it has been refused."""
        repository = self.hub.repositories.get(name)
        known = self.token in self.hub.tokens
        if self.token is not None and not known:
            self.refuse_code(401, 10010101002, "invalid access token")
        elif repository is None or (repository.private and not known):
            self.refuse_code(404, 10010205001, f"model {name} not found")
        elif repository.gated and not known:
            self.refuse_code(403, 10010103001, "access denied")
        else:
            return repository
        return None

    def refuse_code(self, status: int, code: int, message: str) -> None:
        """Refuse as the real hub does."""
        self.send_json({"Code": code, "Message": message, "Success": False}, status)

    def resolve(self, repository: HubRepository, file: HubFile | None) -> None:
        """Send a small file, or say where a large one is."""
        if file is None:
            self.refuse_code(404, 10010205001, "file not found")
        elif file.lfs:
            self.send(302, {"Location": self.hub.signed(repository.name, file), "X-Linked-ETag": f'"{file.sha256}"'})
        else:
            self.send_file(file, {})


def tree(files: dict[str, HubFile]) -> list[dict[str, object]]:
    """What repo/files lists: all files, and their directories."""
    folders = {
        posixpath.join(*parts[:depth]) for name in files if (parts := name.split("/")) for depth in range(1, len(parts))
    }
    return [
        *({"Path": name, "Name": posixpath.basename(name), "Type": "tree", "Size": 0} for name in sorted(folders)),
        *(
            {
                "Path": file.name,
                "Name": posixpath.basename(file.name),
                "Type": "blob",
                "Size": file.size,
                "Sha256": file.sha256,
                "IsLFS": file.lfs,
            }
            for file in files.values()
        ),
    ]
