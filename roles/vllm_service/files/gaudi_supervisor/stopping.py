"""How an instance ends: by somebody's wish, and with which exit status."""

from __future__ import annotations

EXIT_STOPPED = 0
EXIT_GAVE_UP = 69
EXIT_RETRY = 75
EXIT_CONFIGURATION = 78


class Stopped(Exception):
    """SIGTERM while there was no container to drain."""
