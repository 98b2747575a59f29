"""Which node gives an image to which others."""

from __future__ import annotations

from typing import Any

import pytest
from ansible.module_utils.gaudi.fanout.images import image_shares
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.preflight.test_templates import evaluate

IMAGE, OTHER = "gaudi-serving/vllm:1.22-a", "gaudi-serving/vllm:1.22-b"


def node(lacks: list[str], wants: list[str] | None = None, site: str = "one") -> dict[str, Any]:
    return {"site": site, "wants": [IMAGE] if wants is None else wants, "lacks": lacks}


def test_the_first_node_builds_and_gives_to_the_others() -> None:
    said = {name: node([IMAGE]) for name in ("c", "a", "b")}
    assert image_shares(said) == {IMAGE: {"give": ["c"], "take": ["a", "b"]}}
    assert image_shares(said, "b") == {IMAGE: {"give": ["b"], "take": ["c", "a"]}}


def test_who_has_it_gives_it() -> None:
    said = {"a": node([IMAGE]), "b": node([]), "c": node([IMAGE])}
    assert image_shares(said, "a") == {IMAGE: {"give": ["b"], "take": ["a", "c"]}}


def test_nothing_is_carried_where_nobody_lacks_it_or_one_node_wants_it() -> None:
    assert image_shares({"a": node([]), "b": node([])}) == {}
    assert image_shares({"a": node([IMAGE]), "b": node([OTHER], [OTHER])}) == {}


def test_a_build_host_that_does_not_want_an_image_does_not_build_it() -> None:
    said = {"a": node([], [OTHER]), "b": node([IMAGE]), "c": node([IMAGE])}
    assert image_shares(said, "a") == {IMAGE: {"give": ["b"], "take": ["c"]}}


def test_each_site_has_a_giver_of_its_own() -> None:
    said = {"a": node([IMAGE]), "b": node([IMAGE]), "x": node([IMAGE], site="two"), "y": node([], site="two")}
    assert image_shares(said) == {IMAGE: {"give": ["a", "y"], "take": ["b", "x"]}}


@pytest.mark.parametrize(("name", "by_itself"), [("a", [IMAGE, OTHER]), ("b", [OTHER])])
def test_a_node_builds_nothing_that_it_takes(name: str, by_itself: list[str]) -> None:
    given_ = {
        "inventory_hostname": name,
        "__serving_image_lacking": [IMAGE, OTHER],
        "__serving_image_shares": {IMAGE: {"give": ["a"], "take": ["b"]}},
    }
    assert evaluate("serving_image", "{{ __serving_image_not_taken }}", **given_) == by_itself
    # Without sharing nobody has decided anything.
    del given_["__serving_image_shares"]
    assert evaluate("serving_image", "{{ __serving_image_not_taken }}", **given_) == [IMAGE, OTHER]


@pytest.mark.parametrize(
    ("site", "shares"),
    [
        ({"share": True, "build": True}, True),
        ({"share": True, "build": True, "push": True}, False),
        ({"share": True}, False),
        ({"build": True}, False),
    ],
)
def test_images_are_shared_where_they_are_built_and_not_pushed(site: dict[str, bool], shares: bool) -> None:
    said = {f"serving_image_{key}": value for key, value in site.items()}
    assert evaluate("serving_image", "{{ __serving_image_sharing }}", **said) is shares


NODES = st.dictionaries(
    st.sampled_from("abcdef"),
    st.tuples(st.sampled_from(["one", "two"]), st.sets(st.sampled_from([IMAGE, OTHER])), st.booleans()),
)


@given(NODES)
def test_every_node_that_lacks_an_image_takes_it_or_gives_it(drawn: dict[str, tuple[str, set[str], bool]]) -> None:
    said = {
        name: node(sorted(wants) if lacks else [], sorted(wants), site) for name, (site, wants, lacks) in drawn.items()
    }
    shares = image_shares(said)
    for image in (IMAGE, OTHER):
        share = shares.get(image, {"give": [], "take": []})
        assert not set(share["give"]) & set(share["take"])
        for site in ("one", "two"):
            lacking = [name for name in said if said[name]["site"] == site and image in said[name]["lacks"]]
            builders = [name for name in lacking if name not in share["take"]]
            had = any(
                image in words["wants"] and image not in words["lacks"]
                for words in said.values()
                if words["site"] == site
            )
            # Built once a site at most, and not where a node has it.
            assert len(builders) == (0 if had or not lacking else 1)
