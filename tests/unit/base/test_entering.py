"""What enters a unit, a kernel's command line, a call of docker, git, pip or apt, or a file's name stays one word.

Each validator is given values that are nearly right: one that it takes, with something hostile in it somewhere.
"""

from __future__ import annotations

import configparser
import functools
import json
import re
import shlex
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from ansible.errors import AnsibleFilterError
from ansible.module_utils.gaudi.base import checks, values
from ansible.module_utils.gaudi.base.refusal import Refusal
from ansible.module_utils.gaudi.benchmark import asked, figures
from ansible.module_utils.gaudi.fabric.measuring import Demo
from ansible.module_utils.gaudi.host import cmdline, sysctl
from ansible.module_utils.gaudi.image.addresses import git_config, pip_config
from ansible.module_utils.gaudi.image.recipe import ImageSettings
from ansible.module_utils.gaudi.jobs.decisions import check_key
from ansible.module_utils.gaudi.preflight.site import VARIABLES
from ansible.module_utils.gaudi.request import options
from ansible.module_utils.gaudi.serving import keys
from ansible.module_utils.gaudi.weights.record import unsafe
from hypothesis import given
from hypothesis import strategies as st

from filter_plugins.checked import checked
from filter_plugins.job_key import job_key
from tests.unit.base.test_values import LETHAL, PIECES
from tests.unit.benchmark.made import run
from tests.unit.driver.made import FACTS
from tests.unit.image.made import made

COMMIT = "0123456789abcdef" * 2 + "01234567"
ADDRESS = "https://git.example.com/group/name"
LOCKED = "wheel==1.0 --hash=sha256:" + "ab" * 32


def pin(**said: str) -> list[str]:
    found = made("1.22", pins={"vllm_fork": {"repository": ADDRESS, "commit": COMMIT, **said}}).pins["vllm_fork"]
    return [found.repository, found.commit]


def demo(**said: str) -> list[str]:
    found = Demo.from_mapping({"repository": ADDRESS, "commit": COMMIT, **said})
    assert found is not None
    return [found.repository, found.commit]


def of_form(pattern: re.Pattern[str]) -> Callable[[str], list[str]]:
    return lambda value: [checks.matching(value, "x", pattern, "right")]


def of_image(key: str) -> Callable[[str], list[str]]:
    # What is empty is not said.
    return lambda value: [getattr(ImageSettings.from_mapping({key: value}), key) or "none"]


def constraint(value: str) -> list[str]:
    return ["".join(pair) for pair in ImageSettings.from_mapping({"constraints": [value]}).constraints.items()]


def of_site(name: str) -> Callable[[str], list[str]]:
    def read(value: str) -> list[str]:
        VARIABLES[name][0](value)
        return [value]

    return read


def run_of_benchmark(value: str) -> list[str]:
    return [figures.read(json.dumps({**run(), "run": value}))["run"]]


def name_of_file(value: str) -> list[str]:
    if unsafe(value):
        raise ValueError(value)
    assert not {"", ".", ".."} & set(value.split("/"))
    return []


# What reads a value and gives the words that land, and a value that is right.
READERS: dict[str, tuple[Callable[[str], Sequence[str]], str]] = {
    **{
        f"values.{kind}": (lambda value, read=read: [read(value, "x")], right)  # type: ignore[misc]
        for kind, read, right in (
            ("address", values.address, "https://u:p%40ss@host.example:8080/a/b?c=d"),
            ("fingerprint", values.fingerprint, "68B60407372208D22B0FB02D3CDFF4A7960A84B2"),
            ("node", values.node, "gaudi-01.example.org"),
            ("program", values.program, "/usr/bin/python3.11"),
            ("proxy", values.proxy, "http://user:p%40ss@proxy.example:3128"),
            ("reached", values.reached, "10.20.0.11"),
            ("word", values.word, "habanalabs-container-runtime=1.22.2-32"),
        )
    },
    "the filter checked": (lambda value: [checked(value, "word", "x") or "empty"], "jammy"),
    "the key of a job": (lambda value: [check_key(value)], "fetch.qwen3-8b"),
    "the key that a folder gives": (lambda value: [check_key(job_key(value))], "Qwen3-8B"),
    "an argument of the kernel": (lambda value: cmdline.check([value]), "intel_iommu=on"),
    "the name of a kernel setting": (lambda value: [*sysctl.check_request({value: "1"})], "net.ipv4/conf.eth0"),
    "a kernel": (lambda value: FACTS.headers_of("deb", value), "6.8.0-45-generic"),
    "the version of a driver": (lambda value: [FACTS.wanted({"driver": value}, "Debian").version], "1.22.2-32"),
    "an image": (of_image("ref"), "registry.example.com:5000/gaudi/vllm:1"),
    "the name of an image": (of_image("name"), "registry.example.com/gaudi"),
    "the base of an image": (of_image("base"), "registry.example.com/base:1"),
    "a constraint of pip": (constraint, "numpy==1.26.4"),
    "the repository of a pin": (lambda value: pin(repository=value), ADDRESS),
    "the commit of a pin": (lambda value: pin(commit=value), COMMIT),
    "the repository of hccl_demo": (lambda value: demo(repository=value), ADDRESS),
    "the commit of hccl_demo": (lambda value: demo(commit=value), COMMIT),
    "the name of a key": (lambda value: [keys.name_of_key(value)], "alice-2027.web"),
    "the end of a key": (lambda value: [keys.moment(value)], "2027-01-31T18:00:00Z"),
    "the name of an instance": (of_form(values.INSTANCE), "chat-1"),
    "an interface": (of_form(options.INTERFACE), "eth0.100"),
    "a registry": (of_form(options.REGISTRY), "vault.habana.ai"),
    "a variable": (of_form(options.VARIABLE), "VLLM_PORT"),
    "the name of a run": (run_of_benchmark, f"{'a' * 12}-20260131T080000Z"),
    "how many at a time": (lambda value: [*map(str, asked.concurrencies([value]))], "16"),
    "the release of a site": (of_site("gaudi_release"), "1.22"),
    "the name of a file of weights": (name_of_file, "tokenizer/merges.txt"),
}  # fmt: skip
# In these a blank stands between words that are meant; a line they stay all the same.
SEVERAL_WORDS = ("the release of a site",)


@functools.cache
def spoiled(right: str) -> st.SearchStrategy[str]:
    """Values that are nearly right, and some that are not at all."""
    hostile = st.one_of(PIECES, st.text(max_size=4), st.sampled_from(["-", "--", "../", "/..", "٣", "İ", "\x1b[2J"]))
    places = st.integers(0, len(right))
    return st.one_of(
        st.builds(lambda at, piece: right[:at] + piece + right[at:], places, hostile),
        st.builds(lambda piece: piece + right, hostile),
        st.builds(lambda piece: right + piece, hostile),
        st.lists(PIECES, max_size=6).map("".join),
    )


def test_what_is_right_is_taken() -> None:
    for name, (read, right) in READERS.items():
        assert not [word for word in read(right) if LETHAL.search(word)], name


@pytest.mark.parametrize("name", sorted(READERS))
@given(data=st.data())
def test_what_enters_stays_one_word(name: str, data: st.DataObject) -> None:
    read, right = READERS[name]
    try:
        words = read(data.draw(spoiled(right)))
    except Refusal as refused:
        assert str(refused).replace("\n", "").isprintable()
        return
    except (ValueError, AnsibleFilterError):
        return
    for word in words:
        assert not re.search(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]", word)
        if name not in SEVERAL_WORDS:
            assert shlex.split(word) == [word]
            assert not word.startswith("-")
            assert word.isascii()


WHEEL = re.compile(r"[A-Za-z0-9._-]+==[A-Za-z0-9.!+_-]+( --hash=sha256:[0-9a-f]{64})+")
LINE = st.one_of(PIECES, st.text(max_size=20), st.lists(PIECES, max_size=5).map("".join))


@given(value=LINE)
def test_a_kernel_setting_is_one_line(value: str) -> None:
    try:
        (word,) = sysctl.check_request({"vm.overcommit_memory": value}).values()
    except Refusal as refused:
        assert str(refused).replace("\n", "").isprintable()
        return
    assert word.isprintable()
    assert word


@given(origin=LINE, mirror=LINE, name=LINE, password=LINE)
def test_a_configuration_of_git_has_the_lines_that_are_meant(
    origin: str, mirror: str, name: str, password: str
) -> None:
    account = {"address": "https://git.example.com", "username": name, "password": password}
    try:
        lines = git_config({origin: f"https://mirror.example/{mirror}"}, [account]).splitlines()
    except Refusal as refused:
        assert str(refused).replace("\n", "").isprintable()
        return
    begins = ["[url ", "\tinsteadOf = ", "[http ", "\textraHeader = "]
    assert [line[: len(begin)] for line, begin in zip(lines, begins, strict=True)] == begins


@given(address=LINE)
def test_a_configuration_of_pip_has_one_section(address: str) -> None:
    try:
        said = pip_config([f"https://index.example/{address}"])
    except Refusal as refused:
        assert str(refused).replace("\n", "").isprintable()
        return
    parsed = configparser.ConfigParser()
    parsed.read_string(said)
    assert parsed.sections() == ["global"]
    assert set(parsed["global"]) <= {"index-url", "trusted-host"}


@pytest.mark.parametrize("place", ["begin", "end", "instead"])
@given(piece=LINE)
def test_a_line_of_a_lock_is_one(place: str, piece: str) -> None:
    line: Any = {"begin": piece + LOCKED, "end": LOCKED + piece, "instead": piece}[place]
    try:
        lines = ImageSettings.from_mapping({"lock": line}).lock
    except Refusal as refused:
        assert str(refused).replace("\n", "").isprintable()
        return
    # A line break of any kind parts lines, each of which is judged.
    assert [each for each in lines if not WHEEL.fullmatch(each)] == []


@pytest.mark.parametrize(
    ("near", "asked"),
    [([], ""), (["gaudi2"], " Did you mean gaudi2?"), (["gaudi2", "gaudi3"], " Did you mean gaudi2 or gaudi3?")],
)
def test_a_name_that_is_near_is_asked_for(near: Sequence[str], asked: str) -> None:
    assert checks.question(near) == asked


@pytest.mark.parametrize(("said", "answer"), [("gaudi22", "Did you mean gaudi2?"), ("x", "There is one.")])
def test_where_no_name_is_near_something_else_is_said(said: str, answer: str) -> None:
    assert checks.meant(said, ["gaudi2"], otherwise="There is one.") == answer
