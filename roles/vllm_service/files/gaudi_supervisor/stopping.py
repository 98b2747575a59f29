"""How an instance ends: the signals that stop it, and its exit statuses."""

from __future__ import annotations

import signal

# SIGTERM and SIGINT stop, SIGHUP hands over to the program on disk.
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

EXIT_STOPPED = 0
EXIT_GAVE_UP = 69
EXIT_RETRY = 75
EXIT_CONFIGURATION = 78


class Stopped(Exception):
    """SIGTERM while there was no container to drain."""
