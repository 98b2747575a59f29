"""The options of every role, as ``meta/argument_specs.yml``, ``meta/ranges.yml`` and ``defaults/main.yml`` have them.

Who imports this calls ``brain.on_path()`` first.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import yaml
from ansible.errors import AnsibleError, AnsibleUndefinedVariable
from ansible.module_utils.gaudi.preflight import options as rules
from ansible.parsing.vault import EncryptedString
from ansible.template import Templar, trust_as_template

from plugin_utils import brain

ROLES = brain.ROOT / "roles"
# The files are ours and have none of Ansible's own tags; libyaml reads them ten times as fast.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True)
class DeclaredOptions:
    """What the roles say of themselves."""

    roles: tuple[str, ...]
    # Options and their defaults by name. Defaults are templates that Ansible trusts.
    options: Mapping[str, Mapping[str, Any]]
    defaults: Mapping[str, Any]
    # Names under which roles leave what others may read.
    results: frozenset[str]


@dataclass(frozen=True)
class OptionValue:
    """A value as the host has it, or why it cannot be read yet."""

    value: Any
    why_not: str | None


@functools.cache
def declared() -> DeclaredOptions:
    """What all roles declare, read once a process."""
    roles = sorted(path.name for path in ROLES.iterdir() if (path / "meta/argument_specs.yml").is_file())
    results: set[str] = set()
    defaults: dict[str, Any] = {}
    ranges: dict[str, Any] = {}
    for role in roles:
        ranges.update(_content(role, "meta/ranges.yml"))
        results.update(_content(role, "meta/results.yml"))
        defaults.update(_trusted(_content(role, "defaults/main.yml")))
    options = rules.merged(_content(role, "meta/argument_specs.yml") for role in roles)
    return DeclaredOptions(tuple(roles), rules.ranged(options, ranges), defaults, frozenset(results))


def _content(role: str, name: str) -> dict[str, Any]:
    file = ROLES / role / name
    # One of the two safe loaders.
    return (yaml.load(file.read_text(encoding="utf-8"), _LOADER) or {}) if file.exists() else {}  # noqa: S506


def _trusted(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _trusted(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_trusted(item) for item in value]
    return trust_as_template(value) if isinstance(value, str) else value


class HostOptions:
    """A host's variables above the defaults of all roles."""

    def __init__(self, loader: Any, variables: Mapping[str, Any]) -> None:
        self.set = set(variables)
        self._known = {**declared().defaults, **variables}
        self._templar = Templar(loader=loader, variables=self._known)

    def read(self, name: str) -> OptionValue:
        """The value of an option: the host's, or the role's default; None where there is neither."""
        return self._read(self._known.get(name))

    def default(self, name: str) -> Any:
        """The role's own value, whatever the host has; None where it cannot be read."""
        return self._read(declared().defaults.get(name)).value

    def _read(self, value: Any) -> OptionValue:
        try:
            return OptionValue(plain(self._templar.template(value)), None)
        except AnsibleUndefinedVariable as error:
            # Names a variable, never a value.
            return OptionValue(None, str(error))
        except AnsibleError:
            return OptionValue(None, "its template or its vault cannot be read")

    def given(self) -> Iterator[tuple[str, Mapping[str, Any], OptionValue]]:
        """Every option the host has a value of its own of, in the order of names.

        Roles that a play imports bring their defaults among the host's variables.
        """
        for name, option in sorted(declared().options.items()):
            if name in self.set and not self._is_default(name):
                yield name, option, self.read(name)

    def _is_default(self, name: str) -> bool:
        value, default = self._known[name], declared().defaults.get(name)
        return default is not None and not isinstance(value, EncryptedString) and bool(value == default)


def plain(value: Any) -> Any:
    """A value of nothing but mappings, lists and scalars. Raises AnsibleError where a vault does not open."""
    if isinstance(value, EncryptedString):
        return str(value)
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value
