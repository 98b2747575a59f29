"""Contents of a support bundle, and what is masked in it: a bundle must not contain a usable secret.

The files are listed one by one; a new file on the node is in no bundle until it is listed here. API keys, tokens and
the file with the environment of an instance are never read. Everything else is masked too, as a site may have put a
secret anywhere: of an environment and of the kernel's command line only the values of known names are shown.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from ..base import paths
from ..base.printable import printable, printable_lines
from ..catalogue.surface import CHECKED
from ..host.cmdline import END, split
from ..host.cmdline import value as value_of_word

FILES = (
    paths.ACCEPTANCE,
    paths.HOST_TUNING,
    paths.IMAGE_RECORD,
    paths.RESERVATIONS,
    "/etc/os-release",
    "/proc/cmdline",
    "/proc/meminfo",
    "/proc/buddyinfo",
)
# Files of each instance, below the directories of its plan and of its state.
OF_PLAN = ("plan.json", "let_through.json")
OF_STATE = ("state.json",)
# Seconds a command may take; hl-smi hangs where the driver does.
COMMAND_SECONDS = 20
COMMANDS: Sequence[Sequence[str]] = (
    ("uname", "-a"),
    ("hl-smi",),
    ("lsmod",),
    ("dkms", "status"),
    ("df", "-h"),
    ("docker", "version"),
    ("docker", "ps", "--all", "--format", "{{.ID}} {{.Image}} {{.Names}} {{.Status}}"),
    ("systemctl", "list-units", "--all", "--no-pager", "--plain", "vllm-*", "gaudi-*", "docker.service"),
    ("journalctl", "--dmesg", "--boot", "--priority=err", "--no-pager", "--lines=200"),
)

# Characters of a line that are shown, and of all findings of a node and of its bundle: a node may report any length.
LONGEST_LINE = 4096
MOST_OF_FINDINGS = 1 << 18
MOST_OF_BUNDLE = 16 << 20

MASKED = "(taken out)"
CUT = "(cut)"
NOT_SHOWN = "(set, not shown)"

_NAMES = (
    r"token(?![a-z])|(?:api|access|auth|hf|hub)[_-]?tokens|secret|passw|passphrase|credential|authorization|cookie"
    r"|(?:account|private)[_-]?key"
)
# pass, pwd, ... are parts of many words, so they count at the end of a name only. max_num_batched_tokens is no secret.
_SECRET_NAME = re.compile(rf"{_NAMES}|apikey|(?:^|[_.-])(?:keys?|pass|pwd|pat|sas|sig|auth)$", re.IGNORECASE)
_SECRET_WORD = re.compile(
    rf"{_NAMES}|api[_-]?key|(?:[_-](?:keys?|pat|sas|sig)|(?<![^\W_])(?:pass|pwd|auth))(?![\w-])", re.IGNORECASE
)
# A part of an option's value that is an object.
_PART = re.compile(r"\.[A-Za-z][\w.-]*")
# Also where its quotes are escaped themselves, as in JSON within a text.
_QUOTED = r"\\+[\"'][^\"']*[\"']?|\"(?:\\[\s\S]|[^\"\\])*\"?|'(?:\\[\s\S]|[^'\\])*'?"
# NAME=value, NAME => value and "name": "value", also as Python prints them, and --name value: any name, with what may
# be its value.
# Patterns that look for secret names themselves take quadratic time for a long word.
_ASSIGNED = re.compile(r"(?<![\w-])([\w-]+)\\*[\"']?\s*[=:]+>?\s*")
_ASSIGNED_VALUE = re.compile(
    rf"{re.escape(MASKED)}|{_QUOTED}|\[[^\]]*\]?|\([^)]*\)?|\{{[^}}]*\}}?|(?i:(?:bearer|basic|token)\s+)?[^\s\"}}]+"
)
# An option alone in its line, as some tools print arguments.
_ALONE = re.compile(r"[\s-]*[\"']?--([A-Za-z][\w-]*)[\"']?,?\s*")
# A name at the end of a line, whose value begins in the next one.
_BEGUN = re.compile(r"(?<![\w-])([\w-]+)\\*[\"']?\s*[=:]+>?\s*$")
_ENDS_OF_BEGUN = ("=", ":", ">")
_OPTION = re.compile(r"(?<![\w-])([\w-]+)[\"']?[\s,]+")
_OPTION_VALUE = re.compile(rf"{re.escape(MASKED)}|{_QUOTED}|[^\s\"-]\S*")
# An option of a server that takes several values.
_KEY = r"(?:\"(?!--)[^\"]+\"|'(?!--)[^']+'|[^\s,\"'-][^\s,]*)"
_KEYS = re.compile(rf"(--api[_-]key[\"']?[\s,]+){_KEY}(?:(?:[ \t]*,[ \t]*|[ \t]+){_KEY})+")


def _without_account(address: re.Match[str]) -> str:
    """Mask the account of an address, which ends at the last @."""
    account, _, host = address[2].rpartition("@")
    return f"{address[1]}{MASKED}@{host}" if account else address[0]


_ADDRESSES: Sequence[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]]] = (
    # A header's value goes on to the end of the line.
    (re.compile(r"(authorization[\"']?\s*[=:]\s*|cookie[\"']?\s*:\s*).+", re.IGNORECASE), rf"\1{MASKED}"),
    # The account in an address; one without a scheme is a proxy's. A password may contain @ and /. A match takes the
    # whole word: a pattern that ended with @ would take quadratic time for a word without one.
    (re.compile(r"(://)([^\s\"]*)"), _without_account),
    (re.compile(r"(proxy[\"']?\s*[=:]\s*[\"']?)([^\s\"']+)", re.IGNORECASE), _without_account),
    (re.compile(r"(?<![\w.+-])[\w.+-]+:(?!//)[^\s\":=]+@(?!sha256:)"), f"{MASKED}@"),
    # The query of an address, which may have a signature.
    (re.compile(r"\?[\w.%~+-]+=\S*"), f"?{MASKED}"),
)
_FORMS = (
    # What is a secret by its own form: a header's value, a token of Hugging Face, a key of playbooks/keys.yml.
    (re.compile(r"(\bbearer\s+)[^\s\"']+", re.IGNORECASE), rf"\1{MASKED}"),
    (re.compile(r"(?<![A-Za-z0-9])hf_[A-Za-z0-9]{20,}"), MASKED),
    (re.compile(r"(?<![\w-])gaudi-[\w-]{43}(?![\w-])"), MASKED),
    # A token of GitHub, GitLab, Docker's hub, Slack, npm, PyPI or NVIDIA, a key of OpenAI's form, of Google's or of
    # AWS, a JSON web token, a key of ssh with its comment.
    (
        re.compile(
            r"(?<![\w-])(?:gh[a-z]_|github_pat_|glpat-|dckr_[a-z]{3}_|xox[a-z]-|npm_(?=[A-Za-z0-9]{36})|pypi-AgE|nvapi-"
            r"|sk-|sk_(?:live|test)_|AIza|ya29\.)[\w-]{16,}"
        ),
        MASKED,
    ),
    # Accounts in the arguments of curl and sshpass.
    (
        re.compile(
            r"(?<![\w-])((?:-[A-Za-z]{0,8}u[ =]?|--(?:proxy-)?user[ =]))(?!\d+:\d)(?:\"[^\s:\"]+:[^\"]+|'[^\s:']+:[^']+"
            r"|[^\s:@/\"']+:\S+)"
        ),
        rf"\1{MASKED}",
    ),
    (re.compile(r"(\bsshpass -p ?)\S+"), rf"\1{MASKED}"),
    # docker login -p WORD, and a line of .netrc.
    (re.compile(r"(\blogin\b[^\n]{0,200}?\s(?:-p ?|password\s))\S+"), rf"\1{MASKED}"),
    (re.compile(r"(?<![A-Z0-9])A[KS]IA[A-Z0-9]{16}(?![A-Z0-9])"), MASKED),
    (re.compile(r"(?<![\w-])(?:ssh-[a-z0-9-]{2,20}|ecdsa-sha2-[a-z0-9-]{2,20}) AAAA[\w+/=]+(?: \S+@\S+)?"), MASKED),
    (re.compile(r"(?<![\w-])eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*"), MASKED),
)
# A private key goes over many lines, or to the end of what was kept of a text.
_PRIVATE_KEY = re.compile(
    r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY-----|\Z)"
)
_KEY_BEGINS = re.compile(r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY-----(?!.*-----END )")
# Its lines, headers included. Any other line ends it, as it may be cut.
_KEY_LINE = re.compile(r"\s*(?:[A-Za-z0-9+/=]*|(?:Proc-Type|DEK-Info|Comment): .*)\s*")
_PROXY_NAME = re.compile(r"proxy$", re.IGNORECASE)
_PROXY_ACCOUNT = re.compile(r"^\S+@")

_ENVIRONMENT = re.compile(r"(?:^|_)env(?:ironment)?$", re.IGNORECASE)
_VARIABLE = "environment."
# Variables that plans set themselves, beside those with a prefix of the server.
_OF_PLANS = {
    *("HABANA_LOGS", "HF_HOME", "HOME", "NUMBA_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"),
    *("XDG_CACHE_HOME", "XDG_CONFIG_HOME"),
    *("FI_EFA_USE_DEVICE_RDMA", "GLOO_SOCKET_IFNAME", "HCCL_SOCKET_IFNAME", "LD_LIBRARY_PATH", "LIBFABRIC_ROOT"),
    *("MLX5_SCATTER_TO_CQE", "OMPI_MCA_btl_vader_single_copy_mechanism", "RDMAV_FORK_SAFE", "TOKENIZERS_PARALLELISM"),
}

COMMAND_LINE = "/proc/cmdline"
# Arguments of the kernel that explain how a node behaves, and whose values can be no secret.
_KERNEL_ARGUMENTS = {
    *("BOOT_IMAGE", "amd_iommu", "amd_pstate", "cgroup_enable", "console", "crashkernel", "default_hugepagesz"),
    *("hugepages", "hugepagesz", "intel_idle.max_cstate", "intel_iommu", "intel_pstate", "iommu", "iommu.passthrough"),
    *("iommu.strict", "isolcpus", "maxcpus", "mem", "mitigations", "nohz_full", "numa_balancing", "nr_cpus", "pci"),
    *("pcie_aspm", "processor.max_cstate", "rcu_nocbs", "selinux", "apparmor", "systemd.unified_cgroup_hierarchy"),
    *("transparent_hugepage", "module_blacklist", "modprobe.blacklist", "kernel.numa_balancing"),
}
_KERNEL_FLAG = re.compile(r"[\w.-]{1,40}")
_KERNEL_VALUE = re.compile(r"[\w.,:/+-]{1,80}")


def masked(value: Any, name: str = "") -> Any:
    """Return a JSON value with secrets masked, by the names of their keys; ``name`` is the key of the value itself."""
    if value in (None, "", [], {}) or isinstance(value, bool):
        return value
    if _SECRET_NAME.search(name):
        return MASKED
    if _ENVIRONMENT.search(name):
        return _environment(value)
    if isinstance(value, Mapping):
        return {key: masked(each, str(key)) for key, each in _named(value).items()}
    if isinstance(value, list):
        return _words(value, name)
    if isinstance(value, str) and (document := _document_in(value)):
        return json.dumps(masked(document))
    if isinstance(value, str):
        return _plain(_PROXY_ACCOUNT.sub(f"{MASKED}@", value) if _PROXY_NAME.search(name) else value)
    return value


def _document_in(text: str) -> Any:
    """Return the JSON object or list that a text is, such as an option's value; None for any other text."""
    if not text.startswith(("{", "[")):
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _named(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """Mask what a neighbouring key names: {"name": "HF_TOKEN", "value": ...}, {"value": "environment.X", ...}."""
    explained = str(document.get("value", ""))
    if explained.startswith(_VARIABLE):
        variable = explained[len(_VARIABLE) :]
        rest = {key: _variable(variable, document[key]) for key in ("result", "inputs") if key in document}
        return {**document, **rest}
    if "name" in document and "value" in document and _SECRET_NAME.search(str(document["name"])):
        return {**document, "value": MASKED}
    return document


def _environment(environment: object) -> object:
    """Return an environment with the values of those variables that a release knows; any may hold a site's secret."""
    if isinstance(environment, Mapping):
        return {key: _variable(str(key), each) for key, each in environment.items()}
    if not isinstance(environment, list):
        return NOT_SHOWN
    shown: list[object] = []
    for each in environment:
        if isinstance(each, Mapping):
            shown.append({"name": each.get("name"), "value": _variable(str(each.get("name")), each.get("value"))})
        else:
            variable, _, value = str(each).partition("=")
            shown.append(f"{variable}={_variable(variable, value)}")
    return shown


def _variable(name: str, value: object) -> object:
    # A plan is refused if its release does not know a name with a prefix of the server (catalogue/surface.py).
    known = name in _OF_PLANS or CHECKED.match(name)
    return masked(value, name) if known else NOT_SHOWN


def _words(words: Sequence[Any], name: str) -> list[Any]:
    """Mask what follows an option such as ``--hf-token``, or a part of its value (``.token``), up to the next one."""
    option, shown = "", list[Any]()
    for word in words:
        part = isinstance(word, str) and _PART.fullmatch(word) and not _SECRET_NAME.search(option or name)
        if part or (isinstance(word, str) and word.startswith("--")):
            option, given, value = word.partition("=")
            shown.append(f"{option}={masked(value, option)}" if given else _plain(word))
            option = "" if given else option
        else:
            shown.append(masked(word, option or name))
    return shown


def _plain(text: str) -> str:
    text = _PRIVATE_KEY.sub(MASKED, text)
    text = "\n".join(map(cut, text.split("\n")))
    for pattern, instead in _ADDRESSES:
        text = pattern.sub(instead, text)
    text = _without_values(text, _ASSIGNED, _ASSIGNED_VALUE, lambda word: word)
    text = _KEYS.sub(rf"\1{MASKED}", text)
    text = _without_values(text, _OPTION, _OPTION_VALUE, lambda word: word.partition("--")[2])
    for pattern, instead in _FORMS:
        text = pattern.sub(instead, text)
    return text


def cut(text: str, longest: int = LONGEST_LINE) -> str:
    """Cut a text that is too long before its last word: part of a word may be a secret that no pattern finds."""
    if len(text) <= longest:
        return text
    # Blanks alone are no word.
    words = text[:longest].rsplit(None, 1)
    return f"{words[0]} {CUT}" if len(words) > 1 else CUT


def _without_values(text: str, named: re.Pattern[str], value: re.Pattern[str], name: Callable[[str], str]) -> str:
    """Mask the values behind names that a secret has. ``name``: the part of a word that is a name."""
    # Nearly all lines of a log end here.
    if not _SECRET_WORD.search(text):
        return text
    parts, position = list[str](), 0
    while match := named.search(text, position):
        parts.append(text[position : match.end()])
        position = match.end()
        if _SECRET_WORD.search(name(match[1])) and (found := value.match(text, position)):
            parts.append(MASKED)
            position = found.end()
    return "".join([*parts, text[position:]])


def _kernel_argument(word: str) -> str:
    if "=" not in word:
        return word if _KERNEL_FLAG.fullmatch(word) else NOT_SHOWN
    argument = word.strip('"').partition("=")[0]
    if argument in _KERNEL_ARGUMENTS and _KERNEL_VALUE.fullmatch(value_of_word(word)):
        return word
    return f"{argument}={NOT_SHOWN}" if _KERNEL_FLAG.fullmatch(argument) else NOT_SHOWN


def masked_text(text: str, name: str = "") -> str:
    """Return a file's or command's text as printable text with secrets masked; ``name`` is the file's path."""
    if name == COMMAND_LINE:
        # What stands behind END goes to init.
        return " ".join(map(_kernel_argument, itertools.takewhile(lambda word: word != END, split(text)))) + "\n"
    try:
        document = json.loads(text)
        return json.dumps(masked(document), indent=4) + "\n"
    except RecursionError:
        # Nobody can tell what in it is a secret.
        return f"{CUT}\n"
    except ValueError:
        lines = _PRIVATE_KEY.sub(MASKED, text).splitlines()
        return "\n".join(masked_lines(map(printable, lines))) + "\n"


def of_node(findings: Sequence[str], text: str) -> str:
    """Return a support bundle as the controller writes it. A node may report any findings and any text."""
    found = masked_text(cut("\n".join(findings), MOST_OF_FINDINGS))
    return f"{found}\n{printable_lines(cut(text, MOST_OF_BUNDLE))}"


def masked_lines(lines: Iterable[str]) -> Iterator[str]:
    """Yield lines of any program with secrets masked, a line each."""
    in_key = is_value = False
    # The secret option above whose values are in lines of their own.
    option = ""
    for line in lines:
        begins = bool(_KEY_BEGINS.search(line))
        in_key = begins or (in_key and bool(_KEY_LINE.fullmatch(line)))
        alone = _ALONE.fullmatch(line)
        of_option = bool(option) and alone is None
        yield MASKED if (in_key and not begins) or ((is_value or of_option) and line.strip()) else _plain(line)
        if alone is not None:
            option = alone[1] if _SECRET_WORD.search(alone[1]) else ""
        elif line.strip():
            # Several keys may follow one option of them.
            option = (
                option if option.replace("_", "-") == "api-key" and not line.lstrip(" \"'").startswith("--") else ""
            )
        if end := line.rstrip():
            # The other searches take long for a long line, which hardly ever ends so.
            name = _BEGUN.search(line) if end.endswith(_ENDS_OF_BEGUN) and _SECRET_WORD.search(line) else None
            is_value = name is not None and bool(_SECRET_WORD.search(name[1]))


def page(texts: Mapping[str, str]) -> str:
    """Join several texts into one, each masked and below its name."""
    return "\n".join(f"==== {printable(name)}\n{masked_text(text, name)}" for name, text in texts.items())
