"""Look up on the controller which addresses a name has, within a time, and which of them are the controller's own."""

from __future__ import annotations

import ipaddress
import socket
import threading

# The system's resolver has no limit of its own for one name.
SECONDS = 5
# Of the protocol "discard". Nothing is sent there.
_ANY_PORT = 9


def addresses_of(host: str, seconds: float = SECONDS) -> list[str]:
    """Return the addresses of a name, each once; an address stands for itself.

    Raises OSError: gaierror for a name that the controller does not know, TimeoutError after so many seconds.
    """
    found: list[str] = []
    failed: list[OSError] = []

    def look_up() -> None:
        try:
            answers = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        except OSError as error:
            failed.append(error)
        except UnicodeError:
            failed.append(socket.gaierror(socket.EAI_NONAME, "Name or service not known"))
        else:
            found.extend(dict.fromkeys(str(answer[4][0]) for answer in answers))

    looking = threading.Thread(target=look_up, daemon=True)
    looking.start()
    looking.join(seconds)
    if failed:
        raise failed[0]
    if not found:
        raise TimeoutError("timed out")
    return found


def is_own(address: str) -> bool:
    """Whether an address is one of this machine: the kernel sends to it from the address itself. Sends nothing."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((address, _ANY_PORT))
            source = str(probe.getsockname()[0])
    except OSError:
        # There is no route, or the address is a broadcast.
        return False
    return ipaddress.ip_address(source) == ipaddress.ip_address(address)
