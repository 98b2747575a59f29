"""Let the tests import what runs on nodes, and give each a node."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "roles/vllm_service/files"))

from tests.integration.vllm_service.node import SupervisedNode


@pytest.fixture
def node() -> Iterator[SupervisedNode]:
    """A fresh node. Not under tmp_path: a socket's path has room for 107 characters."""
    root = Path(tempfile.mkdtemp(prefix="gs-"))
    made = SupervisedNode(root)
    yield made
    made.close()
