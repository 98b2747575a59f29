"""The API keys of an instance: those of the inventory and those of playbooks/keys.yml, as SHA-256 digests.

A key itself exists only on the controller, and only while it is read or drawn. Every node stores digests, in a document
of this form: {"schema": 1, "keys": [{"name": "alice", "origin": "playbook", "digest": "...", "ends":
"2027-01-31T23:59:59Z"}]}. ``ends`` is null for a key without an end. ``written`` may stand beside the keys: by which
controller (``by``) and when (``at``). The guard (roles/vllm_service/files/guard) reads the document in the container; a
test checks that both read it alike. Sentences never contain a key, since a wrong one may be nearly right.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from ..base.checks import switch
from ..base.documents import parse
from ..base.refusal import Refusal

SCHEMA = 1
# The most keys of an instance that a node may report.
MOST_EXPORTED = 1024
FORM = {"keys": [{"name": str, "origin": str, "digest": str, "ends": (str, type(None))}]}

# Keys of the inventory are replaced by every run of the role; keys of playbooks/keys.yml change with that playbook
# only.
INVENTORY = "inventory"
PLAYBOOK = "playbook"

# A key as a client sends it: printable ASCII without blanks, long enough to resist guessing.
KEY = re.compile(r"[!-~]{16,512}\Z")
NAME = re.compile(r"[a-z0-9]([a-z0-9._-]{0,46}[a-z0-9])?\Z")
DIGEST = re.compile(r"[0-9a-f]{64}\Z")
MOMENT = re.compile(r"\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])T([01]\d|2[0-3]):[0-5]\d:[0-5]\dZ\Z", re.ASCII)
_DAY = re.compile(r"\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])\Z", re.ASCII)
# A digest in the inventory: "sha256:DIGEST", optionally a name, optionally an end.
_WRITTEN = re.compile(r"sha256:(?P<digest>[0-9a-f]{64})(?: (?P<name>\S+))?(?: until (?P<ends>\S+))?\Z")
_PREFIX = "sha256:"


@dataclass(frozen=True)
class ApiKey:
    """One key: its name, its origin, its digest (64 hexadecimal digits), and until when it is valid, in UTC."""

    name: str
    origin: str
    digest: str
    ends: str | None = None


def digest_of(key: str) -> str:
    """Return the digest by which a node knows a key."""
    return hashlib.sha256(key.encode()).hexdigest()


def moment(text: object) -> str:
    """Normalise an end, such as 2027-01-31T23:59:59Z; a date alone means its last second. Raises Refusal."""
    if isinstance(text, str) and _DAY.match(text):
        text = f"{text}T23:59:59Z"
    if not isinstance(text, str) or not MOMENT.match(text):
        raise Refusal(
            "not_a_moment",
            f"The end of a key is {str(text)[:40]!r}, but must be a date such as 2027-01-31, or a moment in UTC such "
            "as 2027-01-31T18:00:00Z.",
        )
    return text


def name_of_key(text: object) -> str:
    """Check the name of a key. Raises Refusal."""
    if not isinstance(text, str) or not NAME.match(text):
        raise Refusal(
            "not_a_key_name",
            f"The name of a key is {str(text)[:60]!r}, but must be at most 48 of a-z, 0-9, dot, _ and -, with a letter "
            "or a digit at both ends.",
        )
    return str(text)


def of_instance(given: object, instance: str | None) -> Sequence[object]:
    """Return the inventory's entries for an instance: a list applies to all instances, a mapping names them.

    Raises Refusal for anything else; the sentence does not quote it.
    """
    entries = given.get(instance) if isinstance(given, Mapping) else given
    if entries is None:
        return ()
    if isinstance(entries, (str, bytes)) or not isinstance(entries, Sequence):
        raise not_keys(f"vllm_service_api_keys.{instance}" if isinstance(given, Mapping) else "vllm_service_api_keys")
    return entries


def not_keys(what: str) -> Refusal:
    """Say why a value is not a list of keys, without quoting it."""
    return Refusal(
        "not_keys",
        f"{what} must be a list of keys (vllm_service_api_keys for all instances, or a mapping from an instance to its "
        "list), and is not. Its value is not shown: it may hold a secret.",
    )


def with_guard(request: object, given: object) -> object:
    """Set ``guarded`` in a request if its instance has keys in the inventory. Raises Refusal if it is false."""
    if not isinstance(request, Mapping):
        return request
    name = request.get("instance")
    if not of_instance(given, name if isinstance(name, str) else None):
        return request
    said = request.get("guarded")
    if said is not None and not switch(said, "guarded"):
        raise Refusal(
            "keys_for_open_server",
            f"guarded is false, but vllm_service_api_keys has keys for {name}. Take them out, or leave guarded out.",
        )
    return {**request, "guarded": True}


def for_instance(given: object, instance: str) -> list[ApiKey]:
    """Return an instance's inventory keys, each once.

    Raises Refusal, without the value, for a wrong entry, and for a key with two ends.
    """
    found: dict[str, ApiKey] = {}
    for number, said in enumerate(of_instance(given, instance), 1):
        key = entry(said, number)
        if found.setdefault(key.digest, key).ends != key.ends:
            raise Refusal(
                "key_with_two_ends",
                f"Entry {number} of vllm_service_api_keys is a key that another entry has with another end. Keep one "
                "of the two.",
            )
    return list(found.values())


def entry(said: object, number: int) -> ApiKey:
    """Parse an inventory entry: a key, or its digest with name and end. Raises Refusal, without the entry."""
    default = f"inventory-{number}"
    if isinstance(said, str) and said.startswith(_PREFIX):
        read = _WRITTEN.match(said)
        if read is None:
            raise Refusal(
                "not_a_key_digest",
                "A digest of a key is sha256: and 64 hexadecimal digits in lower case, then perhaps a name, then "
                'perhaps "until" and a date. playbooks/keys.yml -e export=true prints such entries.',
            )
        name = name_of_key(read["name"]) if read["name"] else default
        return ApiKey(name, INVENTORY, read["digest"], moment(read["ends"]) if read["ends"] else None)
    if not isinstance(said, str) or not KEY.match(said):
        raise Refusal(
            "not_an_api_key",
            f"Entry {number} of vllm_service_api_keys is no key, which has 16 to 512 printable ASCII characters and no "
            "blanks.",
        )
    return ApiKey(default, INVENTORY, digest_of(said))


def read(text: str) -> list[ApiKey]:
    """Parse a key document. Raises ValueError, with a clause that begins with "it", for anything else."""
    content = parse(text, FORM, SCHEMA)
    found = [ApiKey(str(key["name"]), str(key["origin"]), str(key["digest"]), key["ends"]) for key in content["keys"]]
    for key in found:
        if not DIGEST.match(key.digest) or not (key.ends is None or MOMENT.match(key.ends)):
            raise ValueError(f"its key {key.name[:60]!r} has no digest, or no end that can be read")
    return found


def document(keys: Sequence[ApiKey], by: str = "", at: str = "") -> dict[str, Any]:
    """Return the document for a node: the keys, the time, and the controller that wrote it, if known."""
    written = {"written": {"by": by, "at": at}} if by else {}
    return {"schema": SCHEMA, "keys": [asdict(key) for key in keys], **written}


def digest_of_inventory(keys: Sequence[ApiKey]) -> str:
    """Return a digest of the inventory's keys, independent of their order; 64 hexadecimal digits."""
    of_inventory = sorted(json.dumps(asdict(key), sort_keys=True) for key in keys if key.origin == INVENTORY)
    return digest_of("\n".join(of_inventory))


def with_inventory(held: Sequence[ApiKey], wanted: Sequence[ApiKey]) -> list[ApiKey]:
    """Replace the inventory's keys by the given ones; keys of the playbook stay, unless the inventory has them now.

    Otherwise an exported key would open the instance for ever: its entry could neither end nor remove it.
    """
    taken_over = {key.digest for key in wanted}
    return [*wanted, *(key for key in held if key.origin != INVENTORY and key.digest not in taken_over)]


def created(name: str, digest: str, ends: str | None = None) -> ApiKey:
    """A key of the playbook. Raises Refusal."""
    if not DIGEST.match(digest):
        raise Refusal("not_a_key_digest", "The digest of a key is 64 hexadecimal digits in lower case.")
    return ApiKey(name_of_key(name), PLAYBOOK, digest, moment(ends) if ends else None)


def with_created(held: Sequence[ApiKey], key: ApiKey, now: str) -> list[ApiKey]:
    """Add a key. Raises Refusal if its name is taken, or its end is over; ``now`` has the form of an end."""
    if key.ends is not None and key.ends < now:
        raise Refusal("key_over", f"The key would have ended at {key.ends} already. Choose a later end.")
    if key.name in {other.name for other in held}:
        raise Refusal("key_name_taken", f"There is a key {key.name} already. Revoke it first, or choose another name.")
    return [*held, key]


def without(held: Sequence[ApiKey], name: str) -> list[ApiKey]:
    """Remove a key by name, with every other entry of the same digest. Raises Refusal for an unknown name."""
    gone = {key.digest for key in _named(held, name)}
    return [key for key in held if key.digest not in gone]


def ending(held: Sequence[ApiKey], name: str, ends: str | None, desired: Collection[str] = ()) -> list[ApiKey]:
    """Set the end of a key.

    desired: digests of the keys that the inventory has now. Raises Refusal for an unknown name, and for a key that the
    inventory has or had, under this name or another one: its entry says when the key ends.
    """
    digests = {key.digest for key in _named(held, name)}
    entry = next((key.name for key in held if key.origin == INVENTORY and key.digest in digests), None)
    if entry is not None or digests.intersection(desired):
        called = "" if entry in (None, name) else f", called {entry} there"
        raise Refusal(
            "key_of_inventory",
            f"{name} is a key of the inventory{called}, which says when it ends. Change its entry in "
            "vllm_service_api_keys, then run site.yml.",
        )
    return [replace(key, ends=ends) if key.name == name else key for key in held]


def _named(held: Sequence[ApiKey], name: str) -> list[ApiKey]:
    found = [key for key in held if key.name == name]
    if not found:
        names = ", ".join(key.name for key in held) or "none"
        raise Refusal("no_such_key", f"There is no key {name[:60]!r}. There are: {names}.")
    return found


def written(key: ApiKey) -> str:
    """Return a key as an inventory entry; it contains the digest, not the key."""
    until = f" until {key.ends}" if key.ends else ""
    return f"{_PREFIX}{key.digest} {key.name}{until}"


def exported(value: object, node: str) -> list[str]:
    """Check the inventory entries that a node reports: each has the form of ``written``, perhaps without a name.

    value: a list of at most 1024 entries. node: the name that the inventory has for the node. Raises Refusal, which
    names the node and quotes no entry: Ansible would run an expression that somebody pastes into an inventory.
    """
    if isinstance(value, (str, bytes)) or not isinstance(value, Sequence) or len(value) > MOST_EXPORTED:
        raise Refusal(
            "no_exported_keys",
            f"{node} reports no list of at most {MOST_EXPORTED} keys. Take nothing from its output into the inventory, "
            "and check who can change the node.",
        )
    for number, each in enumerate(value, 1):
        read = _WRITTEN.match(each) if isinstance(each, str) else None
        if (
            read is None
            or (read["name"] and not NAME.match(read["name"]))
            or (read["ends"] and not MOMENT.match(read["ends"]))
        ):
            raise Refusal(
                "not_an_exported_key",
                f"{node} reports an entry {number} that is no digest of a key with a name and an end. It is not shown. "
                "Take nothing from the output of this node into the inventory, and check who can change the node.",
            )
    return [str(each) for each in value]
