"""Nothing of a record is a test: its texts come from outside."""

from __future__ import annotations

from pathlib import Path

HERE = Path(__file__).resolve().parent


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Leave out what lies below a folder here."""
    return True if collection_path.is_dir() and collection_path != HERE else None
