"""What the journals of both programs have in common."""

from __future__ import annotations

DECIDED = {
    "request": dict,
    "source": {str: (int, int, int)},
    "actions": {str: {str: str}},
    "result_bytes": {str: int},
    "carried": [str],
}
