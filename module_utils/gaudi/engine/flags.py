"""Arguments of dockerd: read them from its unit and its process, and name the keys of daemon.json that they set."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence

# Values by key of daemon.json.
Flags = Mapping[str, Sequence[str]]

# Flags whose key in daemon.json has another name (installConfigFlags and NamedListOptsRef in moby, cmd/dockerd).
_KEYS = {
    "add-runtime": "runtimes",
    "authorization-plugin": "authorization-plugins",
    "cdi-spec-dir": "cdi-spec-dirs",
    "cluster-store-opt": "cluster-store-opts",
    "default-address-pool": "default-address-pools",
    "default-network-opt": "default-network-opts",
    "default-ulimit": "default-ulimits",
    "dns-opt": "dns-opts",
    "exec-opt": "exec-opts",
    "graph": "data-root",
    "host": "hosts",
    "insecure-registry": "insecure-registries",
    "label": "labels",
    "log-opt": "log-opts",
    "node-generic-resource": "node-generic-resources",
    "registry-mirror": "registry-mirrors",
    "storage-opt": "storage-opts",
}
_SHORT = {
    "b": "bridge",
    "D": "debug",
    "G": "group",
    "g": "graph",
    "H": "host",
    "l": "log-level",
    "p": "pidfile",
    "s": "storage-driver",
    "v": "version",
}
# Flags that take no value from the next word.
_SWITCHES = frozenset(
    {
        *("allow-direct-routing", "cri-containerd", "debug", "disable-legacy-registry", "experimental", "help", "icc"),
        *("init", "ip-forward", "ip-forward-no-drop", "ip-masq", "ip6tables", "iptables", "ipv6", "live-restore"),
        *("no-new-privileges", "raw-logs", "rootless", "selinux-enabled", "tls", "tlsverify", "userland-proxy"),
        *("validate", "version"),
    }
)
# dockerd merges runtimes of flags and file; any other key in both keeps it from starting.
MERGED = frozenset({"runtimes"})
CONFIG_FILE = "config-file"
_PROGRAM = "dockerd"
_ARGV = re.compile(r"argv\[\]=(.*?) ; ignore_errors=")
_BRACED = re.compile(r"\$\{(\w+)\}")


def is_dockerd(words: Sequence[str]) -> bool:
    """Whether a command line is the engine's."""
    return bool(words) and words[0].rpartition("/")[2] == _PROGRAM


def parse(words: Sequence[str]) -> dict[str, list[str]]:
    """Return the values of dockerd's flags by key of daemon.json; words: its command line with the program."""
    found: dict[str, list[str]] = {}
    rest = list(words[1:])
    while rest:
        word = rest.pop(0)
        if word == "--":
            break
        for name, value in _flags_of(word, rest):
            found.setdefault(_KEYS.get(name, name), []).append(value)
    return found


def last(flags: Flags, key: str) -> str:
    """Return the last value of a flag, which is the one that counts; "" if it is not set."""
    return next(iter(reversed(flags.get(key, ()))), "")


def _flags_of(word: str, rest: list[str]) -> list[tuple[str, str]]:
    """Return the flags of one word with their values; a value in the next word is taken from ``rest``."""
    if word.startswith("--"):
        name, given, value = word[2:].partition("=")
        return [(name, value if given else _value(name, rest))]
    found, letters = [], word[1:] if word.startswith("-") else ""
    while letters:
        name, letters = _SHORT.get(letters[0], letters[0]), letters[1:]
        if name in _SWITCHES and not letters.startswith("="):
            found.append((name, "true"))
            continue
        found.append((name, letters[letters.startswith("=") :] if letters else _value(name, rest)))
        break
    return found


def _value(name: str, rest: list[str]) -> str:
    return "true" if name in _SWITCHES else rest.pop(0) if rest else ""


def as_bool(value: str) -> bool:
    """Read a switch's value as Go's strconv.ParseBool does."""
    return value.lower() in ("1", "t", "true")


def unit_command(exec_start: str, variables: Mapping[str, str]) -> list[str]:
    """Return the words of a unit's command.

    exec_start: what ``systemctl show --property=ExecStart`` prints. variables: the unit's environment. A word $NAME is
    split into words, ${NAME} is not (systemd.service(5)).
    """
    match = _ARGV.search(exec_start)
    words: list[str] = []
    for word in _split(match[1]) if match else []:
        if re.fullmatch(r"\$\w+", word):
            words += _split(variables.get(word[1:], ""))
        else:
            words.append(_BRACED.sub(lambda name: variables.get(name[1], ""), word))
    return words


def without_config_file(words: Sequence[str]) -> list[str]:
    """Return the arguments of a command line of dockerd without its configuration file; [] for another program."""
    if not is_dockerd(words):
        return []
    kept, rest = [], list(words[1:])
    while rest:
        word = rest.pop(0)
        if word == f"--{CONFIG_FILE}":
            del rest[:1]
        elif not word.startswith(f"--{CONFIG_FILE}="):
            kept.append(word)
    return kept


def _split(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:
        # An unpaired quote is part of a word.
        return text.split()


def environment_file(text: str) -> dict[str, str]:
    """Read a unit's environment file (systemd.exec(5))."""
    found = {}
    for line in text.replace("\\\n", "").splitlines():
        name, given, value = line.strip().partition("=")
        if given and not name.startswith(("#", ";")):
            value = value.strip()
            quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "\"'"
            found[name.strip()] = value[1:-1] if quoted else value
    return found


def named_in(key: str, texts: Mapping[str, str]) -> str:
    """Return which file sets a key by a flag; "" if none does.

    texts: files of the unit by path, of which the last one counts.
    """
    names = [name for name, other in _KEYS.items() if other == key] + [key]
    letters = "".join(letter for letter, name in _SHORT.items() if name in names)
    spelling = "|".join([*(f"--{re.escape(name)}" for name in names), *([f"-[{letters}]"] if letters else [])])
    flag = re.compile(rf"(?:^|[\s\"'=])(?:{spelling})(?=[\s=\"']|$)", re.MULTILINE)
    plain = {
        path: "\n".join(line for line in text.splitlines() if not line.lstrip().startswith(("#", ";")))
        for path, text in texts.items()
    }
    return next((path for path, text in reversed([*plain.items()]) if flag.search(text)), "")
