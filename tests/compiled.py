"""Where programs that a test starts with an environment of its own keep their compiled code."""

from __future__ import annotations

import os

# As for the tests themselves: in the folder that the Makefile names, or nowhere.
SETTINGS = {name: os.environ[name] for name in ("PYTHONPYCACHEPREFIX", "PYTHONDONTWRITEBYTECODE") if name in os.environ}
