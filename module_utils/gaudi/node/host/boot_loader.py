"""Read the boot loader's menu and settings, and what it boots next; host/boot_menu.py interprets them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

from ...base.refusal import Refusal
from ...host import boot_menu, grub
from ...host.boot_menu import MenuEntry
from ..module import output

GRUB_DEFAULTS = Path("/etc/default/grub")
GRUB_CONFIG = Path("/boot/grub/grub.cfg")
# GRUB's environment block, of Debian and of RHEL.
GRUB_ENVIRONMENTS = (Path("/boot/grub/grubenv"), Path("/boot/grub2/grubenv"))


def grub_files(defaults: Path) -> list[tuple[str, str]]:
    """Return /etc/default/grub (``defaults``) and the files after it, path and text, in grub-mkconfig's order.

    Dangling links are skipped. Bytes that are not UTF-8, as in old comments, become "?". Raises Refusal, with the path,
    for a file that cannot be read.
    """
    found = []
    for path in (defaults, *sorted(defaults.parent.glob("grub.d/*.cfg"))):
        if path.is_file():
            try:
                found.append((str(path), path.read_text(errors="replace")))
            except OSError as error:
                raise Refusal(
                    "file_unreadable", f"{path} cannot be read ({error.strerror}). Correct that, then run again."
                ) from error
    return found


@dataclass(frozen=True)
class BootChoice:
    """A kernel image, "" where it is not known, and what chooses it: a file with its line, or "" for the default."""

    image: str = ""
    place: str = ""


def boot_entries() -> tuple[MenuEntry, ...]:
    """Return GRUB's menu; empty on a node without a grub.cfg."""
    entries: tuple[MenuEntry, ...] = boot_menu.parse_menu(content(GRUB_CONFIG))
    return entries


def boot_variables() -> dict[str, str]:
    """Return the variables of GRUB's environment block."""
    block = next((text for path in GRUB_ENVIRONMENTS if (text := content(path))), "")
    variables: dict[str, str] = boot_menu.parse_environment(block)
    return variables


def boots_next(module: AnsibleModule) -> BootChoice:
    """Return what boots next: by grubby where the system has it, else by grub.cfg and its environment block."""
    default = output(module, ["grubby", "--default-kernel"])
    if default is None:
        return _choice(boot_menu.default_of(content(GRUB_CONFIG), boot_variables()), "")
    once = boot_variables().get("next_entry", "")
    image = boot_menu.of_grubby(output(module, ["grubby", "--info=ALL"]) or "", once) if once else ""
    return BootChoice(image or default.strip())


def grub_is_set_up(module: AnsibleModule) -> bool:
    """Whether a drop-in of GRUB takes effect here: there are update-grub, its defaults and its configuration."""
    update_grub = module.get_bin_path("update-grub")
    return bool(update_grub) and GRUB_DEFAULTS.is_file() and GRUB_CONFIG.is_file()


def boots_after_update(module: AnsibleModule, without: str = "") -> BootChoice:
    """Return what boots once grub.cfg is written again, such as by update-grub; unknown where grubby sets it.

    without: a drop-in that is gone by then.
    """
    if module.get_bin_path("grubby") is not None or not GRUB_CONFIG.is_file():
        return BootChoice()
    try:
        files = grub.replaced(grub_files(GRUB_DEFAULTS), without, None)
        found = boot_menu.of_files(files, boot_variables())
    except Refusal:
        # update-grub fails on such a file as well, and leaves grub.cfg as it is.
        return BootChoice()
    return _choice(*found) if found else BootChoice()


def _choice(default: str, place: str) -> BootChoice:
    entry = boot_menu.chosen_entry(boot_entries(), default)
    return BootChoice(entry.kernel if entry else "", place)


def content(path: Path) -> str:
    """Return a file's text; "" if there is no such file."""
    return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
