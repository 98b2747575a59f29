"""Serve a folder's files, and send who asks for a package to another server: redirecting.py FOLDER PORT ADDRESS.

The vendor's server does so. It answered a request for a package with 302 and an address at an S3 store of its own
(JChen-318/gaudi2-single-card-driver, record of 2026-10-09); what else stands in that address was not recorded. Indexes
come from the server itself, as the same record has it.
"""

from __future__ import annotations

import functools
import http.server
import sys


class RedirectingHandler(http.server.SimpleHTTPRequestHandler):
    """Answers one request. ``store``: the address of the other server."""

    store = ""

    def send_head(self):  # type: ignore[no-untyped-def]
        """Send what stands before the content; None where there is none."""
        if not self.path.endswith(".deb"):
            return super().send_head()
        self.send_response(302)
        self.send_header("Location", f"{self.store}{self.path}")
        self.send_header("Content-Length", "0")
        self.end_headers()
        return None


def server(folder: str, port: int, store: str, address: str = "") -> http.server.ThreadingHTTPServer:
    """Return a server of a folder's files that is not running yet."""
    bound = type("Bound", (RedirectingHandler,), {"store": store.rstrip("/")})
    return http.server.ThreadingHTTPServer((address, port), functools.partial(bound, directory=folder))


if __name__ == "__main__":
    server(sys.argv[1], int(sys.argv[2]), sys.argv[3]).serve_forever()
