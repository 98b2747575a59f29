"""Write files of ours; with library_for also the library that the programs among them import."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent.parent))
from plugin_utils.node_library import WithLibrary


class ActionModule(WithLibrary):
    """The module node_files, with the library before it."""
