"""Options whose value lands in a file of the system, and the form that keeps it one word there; and options of a
measurement, read as the role reads them that comes when much is done already."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from ..base import values
from ..base.refusal import Refusal
from ..fabric import burn_in, classes, runs
from ..image.addresses import apt_key, apt_sources, asked, check_reached, git_config, pip_config
from ..image.recipe import check_pushed
from ..serving.firewall import networks
from ..weights import pin_file

# By option. Empty means: not set.
FORMS: Mapping[str, values.Reader] = {
    "container_runtime_habana_key": values.index,
    "container_runtime_habana_key_fingerprint": values.fingerprint,
    "container_runtime_habana_package": values.word,
    "container_runtime_habana_path": values.program,
    "container_runtime_habana_repository": values.index,
    "container_runtime_habana_suite": values.word,
    "container_runtime_http_proxy": values.engine_proxy,
    "container_runtime_https_proxy": values.engine_proxy,
    "container_runtime_no_proxy": values.no_proxy,
    "container_runtime_rhel_key": values.index,
    "container_runtime_rhel_key_fingerprint": values.fingerprint,
    "container_runtime_rhel_repository": values.index,
    "gaudi_driver_key": values.index,
    "gaudi_driver_key_fingerprint": values.fingerprint,
    "gaudi_driver_repository": values.index,
    "gaudi_driver_suite": values.word,
    "gaudi_http_proxy": values.site_proxy,
    "gaudi_https_proxy": values.site_proxy,
    "gaudi_no_proxy": values.no_proxy,
    "gaudi_weights_address": values.reached,
    "model_weights_python": values.program,
    "model_weights_python_index": values.address,
    "serving_image_http_proxy": values.proxy,
    "serving_image_https_proxy": values.proxy,
    "serving_image_no_proxy": values.no_proxy,
    "vllm_service_python": values.program,
}
# By option; each raises Refusal for what no node can do.
READERS: Mapping[str, Callable[[Any], object]] = {
    "fabric_check_burn_in": burn_in.requested_tests,
    "fabric_check_floors": classes.read_floors,
    "fabric_check_tests": runs.check_tests,
    pin_file.OF_SITE: pin_file.commits,
    "serving_image_apt_key": lambda value: apt_key(str(value)),
    "serving_image_apt_sources": lambda value: apt_sources(str(value)),
    "serving_image_git_accounts": lambda value: git_config({}, value),
    "serving_image_git_mirrors": lambda value: git_config(value, ()),
    "serving_image_python_indexes": pip_config,
    "vllm_service_firewall_sources": lambda value: networks(value, "vllm_service_firewall_sources"),
}
SOURCES = "model_weights_sources"
# Options whose addresses may have an account: of git, pip, apt and dnf. Requests to a proxy never use TLS.
_ACCOUNTS = "serving_image_git_accounts"
_WITH_ACCOUNTS = {
    *(name for name, form in FORMS.items() if form in (values.address, values.index)),
    *("serving_image_apt_sources", "serving_image_git_mirrors", "serving_image_python_indexes"),
}
_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]*://[^\s'\",]+")


def landing_faults(name: str, value: object) -> Iterator[str]:
    """Say what is wrong with a value of the right type, for the option it is of."""
    if name == SOURCES:
        for place, source in enumerate(value if isinstance(value, (list, tuple)) else ()):
            yield from _source_faults(f"{name}[{place}]", source)
    try:
        if name in FORMS and value != "":
            FORMS[name](value, name)
        if name in READERS:
            READERS[name](value)
    except Refusal as refusal:
        yield str(refusal)


def unencrypted(name: str, value: object) -> list[str]:
    """Say to which hosts an option's accounts are sent without TLS; its value has been found right."""
    if name == _ACCOUNTS and isinstance(value, (list, tuple)):
        found = [str(account["address"]) for account in value]
    elif name in _WITH_ACCOUNTS:
        lines = [line.partition("#")[0] for line in _text(value).splitlines()]
        found = [each for each in _ADDRESS.findall("\n".join(lines)) if urlsplit(each).username is not None]
    else:
        found = []
    hosts = sorted({str(urlsplit(each).hostname) for each in found if values.is_unencrypted(each)})
    return [
        f"{name} has an account for {host} without TLS: anybody on the way reads its password. Use https:// there."
        for host in hosts
    ]


def push_faults(build: object, push: object, name: object) -> list[str]:
    """Say what is wrong with an image that is built and pushed, for the options of that name."""
    if not (_on(build) and _on(push)):
        return []
    try:
        check_pushed(str(name))
    except Refusal as refusal:
        return [str(refusal)]
    return []


def key_faults(sources: object, key: object) -> list[str]:
    """Say what is wrong with a key of packages that no source is trusted by, for the options of that name."""
    try:
        apt_sources(str(sources), apt_key(str(key)))
    except Refusal as refusal:
        return [str(refusal)]
    return []


def trust_faults(key: str, said: Mapping[str, object]) -> list[str]:
    """Say that nothing tells the key of packages from another one.

    key: its option. said: values of this option and of those that tell the key from others, by option.
    """
    known = [name for name in said if name != key]
    if not said[key] or any(said[name] for name in known):
        return []
    return [
        f"{key} is set without its fingerprint. Whoever can answer in place of that server could give another key, and "
        f"packages that run as root. Set {' or '.join(known)} (gpg --show-keys FILE prints a fingerprint)."
    ]


def network_faults(build: object, network: object, said: Mapping[str, object]) -> list[str]:
    """Say what an image that is built in this network could not be built from.

    build, network: values of the options of that name. said: those of options with addresses and proxies, by option.
    """
    if not _on(build):
        return []
    try:
        check_reached(str(network), [(host, host, options) for host, options in asked(said).items()])
    except Refusal as refusal:
        return [str(refusal)]
    return []


def _text(value: object) -> str:
    """Return the texts of a value, a line each."""
    if isinstance(value, Mapping):
        value = list(value.values())
    return "\n".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


def _on(value: object) -> bool:
    """Whether a switch is on, as Ansible reads it."""
    return str(value).lower() in ("true", "yes", "on", "1", "y", "t")


def _source_faults(what: str, source: object) -> Iterator[str]:
    if not isinstance(source, Mapping):
        return
    endpoint = str(source.get("endpoint") or "")
    over_http = _on(source.get("token_over_http", False))
    try:
        values.check_source(str(source.get("name")), endpoint, bool(source.get("token")), over_http)
        values.address(endpoint, f"{what}.endpoint")
        if source.get("proxy"):
            values.hub_proxy(source["proxy"], f"{what}.proxy")
    except Refusal as refusal:
        yield str(refusal)
