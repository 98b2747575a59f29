"""Keep the server's port to the server; Python imports this module at its start from the guard's directory.

vLLM sets SO_REUSEPORT on the socket of its API, up to the releases of July 2026 (create_server_socket). All containers
are in the node's network with the same user, so another container could then listen at the same port, socket(7), and
receive requests with their keys. Without the option the kernel refuses a second listener.
Runs inside the serving image, on whatever Python is there.
"""

from __future__ import annotations

import socket
from typing import Any

_setsockopt = socket.socket.setsockopt


def setsockopt(self: socket.socket, *option: Any) -> None:
    """Set an option of a socket as before, but never SO_REUSEPORT."""
    if option[:2] != (socket.SOL_SOCKET, socket.SO_REUSEPORT):
        _setsockopt(self, *option)


socket.socket.setsockopt = setsockopt  # type: ignore[assignment,method-assign]
