"""Hold a node's tree against the table of paths.

    owned.py                       lines "MODE USER:GROUP PATH" on standard input; prints what is not as the table says
    owned.py ROLE-OR-PROGRAM ...   paths on standard input; prints those that belong to nobody named

Exit status: 1 where anything was printed.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2] / "module_utils"))

from gaudi.base import owned_paths


def main(owners: list[str]) -> int:
    """Read, compare, print."""
    lines = [line.rstrip("\n") for line in sys.stdin if line.strip()]
    if owners:
        rows = {path: owned_paths.owner_of(path) for path in lines}
        said = [path for path, owned in rows.items() if owned is None or owned.owner not in owners]
    else:
        found = (line.split(" ", 2) for line in lines)
        said = owned_paths.faults(owned_paths.ObservedPath(path, user, mode.zfill(4)) for mode, user, path in found)
    print("\n".join(said), end="")
    return 1 if said else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
