"""How a wait ends when somebody asks for the end."""

from __future__ import annotations


class Stopped(Exception):
    """SIGTERM while there was no container to drain."""
