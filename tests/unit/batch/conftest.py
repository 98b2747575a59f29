"""What the tests import lies where the role has it."""

from __future__ import annotations

import sys
from pathlib import Path

ROLES = Path(__file__).resolve().parents[3] / "roles"
sys.path.insert(0, str(ROLES / "offline_batch/files"))
