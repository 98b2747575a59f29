"""What logging sets before a message in a server's line."""

from __future__ import annotations

import re

# Characters of a text that are searched: patterns take more than linear time, and a line may have 64 KiB.
LOOKED_AT = 1000
# The logging prefix: level, date, time, source line. Of several processes that a line names the last counts.
PREFIX = re.compile(
    r"^(?:(?:\([^()]{1,80}\) ?(?=\([^()]{1,80}\bpid=\d)){0,3}\((?P<process>[^)]{1,80})\) ?)?"
    r"(?:(?P<level>[A-Z]+) [\d-]+ [\d:.,]+ (?:\[(?P<source>[^\]]{1,80})\] ?|(?P<old_source>\S+)\] ?)?)?"
)
