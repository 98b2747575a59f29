"""The boot loader: which arguments it gives the next kernel, and which files set that command line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from . import grub
from .grub import BootEntry, Word
from .shell import TextPosition


@dataclass(frozen=True)
class Boot:
    """The boot loader: the tool that sets kernel arguments, the boot entries, and GRUB's files.

    ``loader`` is "grub" or "grubby", None if the arguments cannot be set. ``defaults`` and ``config`` are GRUB's paths.
    """

    defaults: str
    config: str
    loader: str | None = None
    entries: Sequence[BootEntry] = ()
    files: Sequence[tuple[str, str]] = ()
    read_only: bool = False

    def refusal(self) -> str | None:
        """Say why the boot entries cannot be changed, or None when they can."""
        if not self.read_only:
            return None
        return f"{self.config.rpartition('/')[0]} is mounted read-only. Mount it for writing, then run again."

    def follows(self) -> list[str] | None:
        """Return the arguments that the next update-grub gives every kernel; None without GRUB's files."""
        return [word.text for word in grub.command_line(grub.evaluate(self.files))] if self.files else None

    def taken_away(self, arguments: Sequence[str], own: str) -> str:
        """Say which file after our drop-in ``own`` overwrites the command line; "" if none does.

        Our drop-in is evaluated as if it contained these arguments already.
        """
        place = grub.taken_away(self._with_ours(arguments, own), own)
        if place is None:
            return ""
        return (
            f"{place} overwrites {grub.DEFAULT}, without what {own} adds to it, so that {' '.join(arguments)} do not "
            f'reach the kernel. Write "${grub.DEFAULT} ..." there, or move that line to a file that sorts before.'
        )

    def written(self, arguments: Sequence[str], own: str) -> list[list[Word]]:
        """Return command lines, each word with its file and line, as if our drop-in ``own`` had these arguments."""
        if self.loader == "grubby":
            return [
                [Word(word, TextPosition(f"grubby, {entry.kernel}", 1)) for word in entry.arguments]
                for entry in self.entries
            ]
        return [grub.command_line(grub.evaluate(self._with_ours(arguments, own)))]

    def unread(self) -> list[str]:
        """Say which of GRUB's files contain shell code that this parser does not evaluate."""
        return [
            f"{place}: what this says is worked out by a shell, and is not read here; what the next boot brings may be "
            "different. /proc/cmdline shows it after a reboot."
            for place in grub.unread(self.files)
        ]

    def _with_ours(self, arguments: Sequence[str], own: str) -> list[tuple[str, str]]:
        """Return GRUB's files as if our drop-in contained these arguments already."""
        return grub.replaced(self.files, own, grub.render(arguments) if arguments else None)
