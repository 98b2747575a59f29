"""A node for each test."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.vllm_service.node import SupervisedNode


@pytest.fixture
def node() -> Iterator[SupervisedNode]:
    """A fresh node. Not under tmp_path: a socket's path has room for 107 characters."""
    root = Path(tempfile.mkdtemp(prefix="gs-"))
    made = SupervisedNode(root)
    yield made
    made.close()
