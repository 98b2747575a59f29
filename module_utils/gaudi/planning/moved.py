"""What was said for another release: options, variables and arguments that this one has in another way, or lacks.

A release file says under ``successors`` what became of a name: ``becomes`` another one, is ``implied`` and needs no
word any more, or has no successor ``because`` of something. The first two are lines in the plan's ``changes``. The last
is refused where the request says it, all such names in one refusal; what only the model's file says is left out, with a
line. Releases without ``successors`` are left alone.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import replace

from ..base.checks import shown
from ..base.refusal import Refusal
from ..catalogue.entries import ReleaseEntry
from ..catalogue.surface import CHECKED, ServerSurface, normal
from ..families.registry import family_of
from ..families.shared import KNOBS
from ..image.recipe import ImageSettings, pins_of_other_releases
from ..plugin_buckets.variables import is_number
from ..request.options import READERS, InstanceRequest
from ..rules.draft import Draft
from .arguments import is_option

# How alike a name must be to one that is known to be taken for it, mistyped.
ALIKE = 0.9


def moved(wanted: InstanceRequest, said: Mapping[str, object], release: ReleaseEntry, draft: Draft) -> InstanceRequest:
    """The request in the words of the release; ``said`` is the request itself, without its model's defaults, and with
    its arguments read as options.

    Raises Refusal for what has no successor and was asked for, a sentence for each.
    """
    if not release.successors:
        return wanted
    surface, gone = ServerSurface(release), _options(said, release)
    environment = {}
    asked = said.get("extra_environment")
    for name, value in wanted.extra_environment.items():
        successor = release.successors.get(name)
        if surface.reads(name) or (successor is None and not _mistyped(name, release)):
            environment[name] = value
        elif successor is None:
            gone.append(f"{name} is read by nobody; it looks like {_mistyped(name, release)}")
        elif successor.becomes is not None:
            environment.setdefault(successor.becomes, value)
            draft.change(f"{name}={value}: {successor.becomes}={value}")
        elif successor.implied is not None:
            draft.change(f"{name}={value}: left out, {successor.implied}")
        elif isinstance(asked, Mapping) and name in asked:
            gone.append(f"{name}: {successor.because}")
        else:
            draft.change(f"{name}={value}: left out, {successor.because}")
    arguments = _arguments(wanted, release, surface, draft, gone)
    if gone:
        raise Refusal(
            "not_in_this_release",
            f"Release {release.name} does not know: {'; '.join(gone)}. Correct "
            f"{'it' if len(gone) == 1 else 'them'}, or use another release.",
        )
    return replace(wanted, extra_environment=environment, extra_args=arguments)


def _options(said: Mapping[str, object], release: ReleaseEntry) -> list[str]:
    """Options of the request itself that the release has no counterpart for, with the reason."""
    family = family_of(release)
    return [
        f"{name}: {family.reasons[name]}"
        for name in family.without_effect
        if said.get(name) is not None and name in family.reasons
    ]


def _mistyped(name: str, release: ReleaseEntry) -> str | None:
    """The variable that a mistyped one is meant for; None for a name that is like no other."""
    # A number of another version's buckets is no slip of the pen: the plan's buckets say that it is without effect.
    if not CHECKED.match(name) or is_number(name):
        return None
    near = difflib.get_close_matches(name, sorted(release.variables), 1, cutoff=ALIKE)
    return near[0] if near else None


def _arguments(
    wanted: InstanceRequest, release: ReleaseEntry, surface: ServerSurface, draft: Draft, gone: list[str]
) -> tuple[str, ...]:
    """Further arguments without those that are implied here; ``gone`` gets a line for each that has no successor."""
    kept: list[str] = []
    dropped = False
    for token in wanted.extra_args:
        name = normal(token)
        successor = release.successors.get(name) if is_option(token) and not surface.knows(token) else None
        if not is_option(token):
            # A value goes with its option.
            kept += [] if dropped else [token]
            continue
        dropped = successor is not None and successor.becomes is None
        if successor is None:
            kept.append(token)
        elif successor.becomes is not None:
            kept.append(successor.becomes + "".join(token.partition("=")[1:]))
            draft.change(f"{name}: {successor.becomes}")
        elif successor.implied is not None:
            draft.change(f"{name}: left out, {successor.implied}")
        else:
            gone.append(f"{shown(name)}: {successor.because}")
    return tuple(kept)


def for_release(settings: ImageSettings, release: ReleaseEntry, draft: Draft) -> ImageSettings:
    """A site's image settings without the pins of other releases: a line each, so that a plan of another release can be
    read. A build refuses them, and a site that builds nothing need not hear of them.
    """
    if release.build is None:
        return settings
    others = pins_of_other_releases(release, release.build, settings.way, settings.pins)
    for name in others if settings.build else ():
        draft.change(
            f"serving_image_pins.{name}: take it out before the image is built; release {release.name} has no "
            f"repository {name}"
        )
    return replace(settings, pins={name: pin for name, pin in settings.pins.items() if name not in others})


def by_way(release: ReleaseEntry, settings: ImageSettings, draft: Draft) -> ReleaseEntry:
    """The release as another way of building (serving_image_way) has it: constants, options and classes of its pins.

    Warns that these differ from the release's own.
    """
    way = release.build.ways.get(settings.way) if release.build is not None and settings.build else None
    if way is None or not way.pins:
        return release
    built = " and ".join(f"{name} {pin.reference or pin.commit[:9]}" for name, pin in way.pins.items())
    draft.warn(
        f"serving_image_way is {settings.way}: the image has {built}. Only options and classes that these pins have "
        f"and release {release.name} supports are taken; others are refused, and variables that these pins do not read "
        f"are left out."
    )
    lacks = way.lacks
    draft.unread = lacks["variables"]
    return replace(
        release,
        constants={**release.constants, **way.constants},
        arguments=release.arguments - lacks["arguments"],
        variables=release.variables - lacks["variables"],
        typed_variables={
            name: typed for name, typed in release.typed_variables.items() if name not in lacks["variables"]
        },
        architectures=(way.architectures or release.architectures - lacks["architectures"])
        - way.refused_architectures.keys(),
        model_types=way.model_types or release.model_types,
        refused_architectures={**release.refused_architectures, **way.refused_architectures},
        warned={**release.warned, **way.warned},
    )


def check_values(wanted: InstanceRequest, release: ReleaseEntry) -> None:
    """A variable whose type the release file knows takes no other; the server would end, or read something else. One
    that an option stands for has the option's range.
    """
    options = {variable: option for option, variable in KNOBS.items()}
    for name, value in wanted.extra_environment.items():
        typed = release.typed_variables.get(name)
        needed = typed.wrong(value) if typed is not None else None
        if needed is not None:
            raise Refusal(
                "wrong_variable_value",
                f"extra_environment sets {name} to {shown(value)}, but release {release.name} reads {needed} there. "
                f"Correct it.",
            )
        if name in options and typed is not None:
            READERS[options[name]](value, f"extra_environment.{name}")
