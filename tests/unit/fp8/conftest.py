"""What the tests import lies where the role has it."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "roles/fp8_weights/files"))
