"""The programs that build, and that take from other nodes, are imported as on a node."""

from __future__ import annotations

import sys
from pathlib import Path

for role in ("fp8_weights", "model_weights", "serving_image"):
    sys.path.insert(0, str(Path(__file__).resolve().parents[3] / f"roles/{role}/files"))
