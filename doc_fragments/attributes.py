"""Attributes that many module pages share."""

from __future__ import annotations


class ModuleDocFragment:
    """What ansible-doc finds here, by the names attributes.node and attributes.reads."""

    NODE = r"""
attributes:
  platform:
    description: Linux with systemd.
    support: full
    platforms: posix
"""

    READS = r"""
attributes:
  check_mode:
    description: Only reads, so check mode makes no difference.
    support: full
  diff_mode:
    description: Changes nothing.
    support: none
  platform:
    description: Linux with systemd.
    support: full
    platforms: posix
"""
