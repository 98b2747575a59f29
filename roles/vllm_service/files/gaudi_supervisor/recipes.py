"""Compiled recipes: what a start finds of them, and the copy that another instance's folder gives.

A server writes to its folder from within its container, so no link in it is followed.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from gaudi.base.documents import Damaged, parse
from gaudi.base.paths import RECIPES
from gaudi.base.recipes import COPYING, PARTNERS, is_keyed
from gaudi.base.refusal import Refusal
from gaudi.base.units import human_bytes
from gaudi.node import beneath, folders
from gaudi.node.documents import read_text
from gaudi.node.kept import InstancePaths
from gaudi.serving.kept import PLAN
from gaudi.serving.plan import Plan, recipe_directory

from .reporter import Reporter
from .settings import Paths, Settings
from .state import SupervisorState
from .systemd import say

MODE = 0o750
# The bridge locks this empty file before it removes recipes, so it must stay.
LOCK = "eviction.lock"


@dataclass(frozen=True)
class FoundRecipes:
    """What a start finds: files and bytes in its folder, and the instance that gave them; empty where none did."""

    files: int
    bytes: int
    given_by: str = ""


def made_ready(folder: Path, alive: Callable[[], None]) -> tuple[FoundRecipes, list[str]]:
    """Ensure that an instance's own folder exists with its usable recipes, or else with a copy of another instance's.

    alive: called between files. Returns what is there now, and what was thrown away or left out, in sentences. Faults
    that cannot be repaired are reported as well: a server without recipes compiles them. Raises OSError where no folder
    can be made at all.
    """
    said: list[str] = []
    _make(folder.parent)
    _clear(folder.with_name(COPYING + folder.name), said)
    if os.path.lexists(folder) and not beneath.is_folder(folder, folder.parent):
        beneath.remove(folder, folder.parent)
        said.append(f"{folder} was no directory of compiled recipes, and is removed")
    _throw_away(folder, said)
    count, size = folders.measured(folder)
    giver = ""
    if not count:
        for other in folders.recipe_givers(folder):
            if _copy(other, folder, alive, said):
                count, size = folders.measured(folder)
                giver = other.name
                break
    _make(folder)
    return FoundRecipes(count, size, giver), said


def _make(folder: Path) -> None:
    """Make a folder that is not there, as the role does, whatever the umask."""
    if not folder.is_dir():
        folder.mkdir(parents=True)
        folder.chmod(MODE)


def _partner(path: Path) -> Path | None:
    """The other file of a recipe; None where there is none."""
    other = PARTNERS.get(path.suffix)
    return path.with_suffix(other) if other is not None and os.path.lexists(path.with_suffix(other)) else None


def _is_half(path: Path) -> bool:
    """Whether a file is one of a recipe's two, and alone."""
    return path.suffix in PARTNERS and _partner(path) is None


def _throw_away(folder: Path, said: list[str]) -> None:
    """Remove what no recipe can be: empty files, links, pipes, what cannot be read; and halves, also of these."""
    for path, is_folder in list(beneath.all_in(folder)):
        if is_folder or path.name == LOCK or not os.path.lexists(path):
            continue
        try:
            with beneath.open_file(path, folder) as stream:
                what = "" if stream.read(1) else "is empty"
        except (OSError, Refusal):
            what = "cannot be read"
        if not what and _is_half(path):
            what = f"has no {PARTNERS[path.suffix]} beside it"
        if not what:
            continue
        try:
            # Metadata goes before its recipe.
            for each in sorted(filter(None, (path, _partner(path)))):
                beneath.remove(each, folder)
        except (OSError, Refusal) as failed:
            said.append(f"{path} {what}, and cannot be removed ({failed})")
            continue
        said.append(f"The compiled recipe {path} {what}, and is thrown away")


def _clear(folder: Path, said: list[str]) -> None:
    try:
        beneath.remove_tree(folder, folder.parent)
    except (OSError, Refusal) as failed:
        said.append(f"{folder} cannot be removed ({failed})")


def _copy(source: Path, folder: Path, alive: Callable[[], None], said: list[str]) -> bool:
    """Copy the recipes of another instance, which may be writing; whether the folder has them now.

    A file that changed meanwhile is left out, and the other one of its recipe: its server had not finished it. The
    copy has its name once it is whole.
    """
    unfinished = folder.with_name(COPYING + folder.name)
    if full := folders.no_room(unfinished, folders.measured(source)[1]):
        said.append(f"The recipes of {source.name} are not copied. {full}")
        return False
    try:
        beneath.make_folders(unfinished, unfinished)
        unfinished.chmod(MODE)
        for path, before in list(folders.filled_files(source)):
            alive()
            target = unfinished / path.relative_to(source)
            beneath.make_folders(target.parent, unfinished)
            with beneath.open_file(path, source) as read, beneath.open_file(target, unfinished, "xb") as written:
                shutil.copyfileobj(read, written, 1 << 20)
            after = beneath.look(path, source)
            if after is None or (after.st_size, after.st_mtime_ns) != (before.st_size, before.st_mtime_ns):
                beneath.remove(target, unfinished)
        for target, _ in list(folders.filled_files(unfinished)):
            if _is_half(target):
                beneath.remove(target, unfinished)
        if folder.is_dir():
            beneath.remove_tree(folder, folder.parent)
        beneath.rename(unfinished, unfinished.parent, folder)
    except (OSError, Refusal) as failed:
        said.append(f"The recipes of {source.name} cannot be copied ({failed})")
        _clear(unfinished, said)
        return False
    return True


def prepare(plan: Plan, settings: Settings, paths: Paths, state: SupervisorState, reporter: Reporter) -> None:
    """Have the plan's folder of recipes ready, and write down what is in it. Nothing here ends a start."""
    state.document["recipes"] = None
    folder = recipe_directory({"environment": plan.environment, "container": plan.container})
    if not is_keyed(folder, str(paths.state)):
        return
    reporter.publish("checking", "looking for compiled recipes")

    def alive() -> None:
        reporter.extend(settings.stall)
        reporter.ping()

    try:
        found, said = made_ready(Path(folder), alive)
    except OSError as failed:
        say(f"{folder} cannot be made ({failed.strerror}): recipes that are compiled now may be lost.", 4)
        return
    for sentence in said:
        say(f"{sentence}.", 4)
    if found.given_by:
        say(f"It starts with a copy of the compiled recipes of {found.given_by}: {found.files} files.")
    state.document["recipes"] = {"folder": folder, **vars(found)}
    prune(paths, settings.recipes_gib)


def prune(paths: Paths, gib: int) -> None:
    """Remove the oldest folders of recipes that no current or kept plan names, until the rest has so many GiB.

    Unused recipes may be needed again. Where a plan cannot be read nothing is removed: it may name any of
    them. Nothing here ends a start.
    """
    root = paths.state / Path(RECIPES).name
    named = _named(paths)
    if named is None:
        return
    spare = []
    # Folders in transfer from another node, left by a run that was cut off: no plan uses these either.
    carried = [path for path in root.glob("*") if folders.on_its_way(path.name)]
    kept = [path for path in root.glob("*/[!.]*") if path.parent not in carried]
    for folder in sorted([*carried, *kept]):
        if str(folder) not in named and beneath.is_folder(folder, root):
            files = list(folders.filled_files(folder))
            newest = max((seen.st_mtime for _, seen in files), default=0.0)
            spare.append((newest, folder, sum(seen.st_size for _, seen in files)))
    left, most = sum(size for _, _, size in spare), gib * 1024**3
    for _, folder, size in sorted(spare):
        if left <= most:
            return
        try:
            beneath.remove_tree(folder, root)
        except (OSError, Refusal) as failed:
            say(f"{folder}, whose recipes no plan uses, cannot be removed ({failed}).", 4)
            continue
        say(f"Removed {folder}: no plan uses its compiled recipes, and {human_bytes(most)} of such are kept.")
        left -= size


def _named(paths: Paths) -> set[str] | None:
    """The folders that plans of the node name, those that are kept to go back to as well; None where one is damaged."""
    plans, states = paths.etc / "instances", paths.state / "instances"
    texts: list[str] = []
    try:
        texts += [text for file in plans.glob("*/plan.json") if (text := read_text(file)) is not None]
        for state in folders.of_instances(states):
            kept, damaged = InstancePaths(state.name, state, plans, paths.units).kept()
            if damaged:
                return None
            texts += [each.files[PLAN] for each in kept]
        return {recipe_directory(parse(text)) for text in texts}
    except (Damaged, OSError, ValueError):
        return None
