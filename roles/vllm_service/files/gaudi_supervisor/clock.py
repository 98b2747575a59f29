"""How often, and how long: what does not depend on the instance."""

from __future__ import annotations

from datetime import datetime, timezone

# Seconds. How often the endpoint is asked, and how long one command of the engine or hl-smi may take.
POLL_STARTING = 1.0
POLL_SERVING = 10.0
COMMAND_TIMEOUT = 60.0
HTTP_TIMEOUT = 5.0
# state.json follows a fast warm-up at most this often; a new phase is written at once.
STATE_INTERVAL = 0.5
# Serving this long means that the start was good: earlier failures no longer count.
STABLE_SECONDS = 600.0
LONGEST_PAUSE = 300.0
# The unit's start limit is ten starts in 600 seconds: after a failure before an attempt is counted, the pause is at
# least this long.
CLEAR_OF_LIMIT = 60.0
# Whoever has an instance's lock for longer than this keeps it: a run that starts the instance no longer waits.
KEPT_FOR_LONG = 30.0
# For a server that never served: it has no requests to finish, and may be deaf to SIGTERM.
HURRY = 10.0


# How long the memory of cards may still be in use before a start; twice the 10 s that an owner saw after a container.
MEMORY_FREE = 20.0


def now_text() -> str:
    """Now, in UTC, to the second."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds").replace("+00:00", "Z")
