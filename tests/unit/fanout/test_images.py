"""Which node gives an image to which others."""

from __future__ import annotations

from typing import Any

import pytest
from ansible.errors import AnsibleError
from ansible.module_utils.gaudi.fanout.images import image_shares
from hypothesis import given, settings
from hypothesis import strategies as st

from filter_plugins.image_recipes import image_recipes
from tests.unit.image.made import document
from tests.unit.preflight.test_templates import evaluate, fact_of, results, runs, task_of

IMAGE, OTHER = "gaudi-serving/vllm:1.22-a", "gaudi-serving/vllm:1.22-b"


def node(lacks: list[str], wants: list[str] | None = None, site: str = "one") -> dict[str, Any]:
    return {"site": site, "wants": [IMAGE] if wants is None else wants, "lacks": lacks}


def test_the_first_node_builds_and_gives_to_the_others() -> None:
    said = {name: node([IMAGE]) for name in ("c", "a", "b")}
    assert image_shares(said) == {IMAGE: {"give": ["c"], "take": {"a": "c", "b": "c"}}}
    assert image_shares(said, "b", "one") == {IMAGE: {"give": ["b"], "take": {"c": "b", "a": "b"}}}


@pytest.mark.parametrize(("build_host", "seed"), [("b", "b"), ("", "h")])
def test_a_node_that_reports_an_image_is_not_chosen_for_that(build_host: str, seed: str) -> None:
    """Others run what the seed gives them: the controller chooses it, not the node that says it has the image."""
    said = {"h": node([IMAGE]), "b": node([IMAGE]), "m": node([])}
    share = image_shares(said, build_host, "one")[IMAGE]
    assert share["give"] == [seed]
    assert set(share["take"]) == {"h", "b"} - {seed}


def test_no_image_is_copied_where_no_node_lacks_it_or_one_node_wants_it() -> None:
    assert image_shares({"a": node([]), "b": node([])}) == {}
    assert image_shares({"a": node([IMAGE]), "b": node([OTHER], [OTHER])}) == {}


def test_a_build_host_that_cannot_give_is_replaced_by_no_other_node() -> None:
    """It runs no instance in the image, or --limit leaves it out: each node of its site builds for itself."""
    said = {"a": node([], [OTHER]), "b": node([IMAGE]), "c": node([IMAGE])}
    assert image_shares(said, "a", "one") == {}
    assert image_shares({name: said[name] for name in "bc"}, "a", "one") == {}


@pytest.mark.parametrize("wants", [[OTHER], [OTHER, IMAGE]])
def test_a_report_of_wanted_images_makes_no_node_the_seed_of_others(wants: list[str]) -> None:
    """Without a build host only the first node of a site can be the seed, whatever a later one says it wants."""
    said = {"a": node([OTHER], [OTHER]), "m": node([], wants), "b": node([IMAGE]), "c": node([IMAGE])}
    assert image_shares(said) == {}


def test_each_site_has_a_seed_of_its_own() -> None:
    """The build host gives to its own site; in another one the first node of the run builds."""
    said = {"a": node([IMAGE]), "b": node([IMAGE]), "x": node([IMAGE], site="two"), "y": node([], site="two")}
    assert image_shares(said) == {IMAGE: {"give": ["a"], "take": {"b": "a"}}}
    said["y"] = node([IMAGE], site="two")
    shares = {IMAGE: {"give": ["b", "x"], "take": {"a": "b", "y": "x"}}}
    assert image_shares(said, "b", "one") == shares


@pytest.mark.parametrize(
    ("host", "site"),
    [("", ""), ("nowhere", ""), ("b", "one"), ("x", "two")],
    ids=["none", "unknown", "default", "other"],
)
def test_the_site_of_a_build_host_is_the_inventorys(host: str, site: str) -> None:
    """A build host outside the run has a site all the same."""
    said = {"a": node([IMAGE]), "b": node([IMAGE]), "c": node([IMAGE], site="two"), "d": node([IMAGE], site="two")}
    report = fact_of("serving_image", "shares", "Say what this node wants")
    hosts = {name: {report: each} for name, each in said.items()}
    inventory = {
        "groups": {"all": [*said, "x"]},
        "hostvars": {**hosts, "x": {"gaudi_weights_site": "two"}},
        "ansible_play_hosts": list(said),
        "serving_image_build_host": host,
    }
    (decided,) = task_of("serving_image", "shares", "Decide who gives")["ansible.builtin.set_fact"].values()
    assert evaluate("serving_image", decided, **inventory) == image_shares(said, host, site)


@pytest.mark.parametrize(("name", "by_itself"), [("a", [0, 1]), ("b", [1])])
def test_a_node_builds_nothing_that_it_takes(name: str, by_itself: list[int]) -> None:
    plans = [{"instance": need, "image": "x", "requires": {"image": [need]}} for need in ("numactl", "audio")]
    references = [recipe["reference"] for recipe in image_recipes(plans, document(), {})]
    looked = task_of("serving_image", "look", "serving_image")["register"]
    given_ = {
        "inventory_hostname": name,
        "serving_image_build": True,
        "serving_image_plans": plans,
        "serving_image_release": document(),
        looked: {"results": [{"item": image, "pulled": True, "current": False} for image in references]},
    }
    shares = {
        fact_of("serving_image", "shares", "Decide who gives"): {references[0]: {"give": ["a"], "take": {"b": "a"}}}
    }
    builds = task_of("serving_image", "build", "node_job")["loop"]
    built = evaluate("serving_image", builds, **given_, **shares)
    assert [recipe["reference"] for recipe in built] == [references[number] for number in by_itself]
    # Without sharing nobody has decided anything.
    assert [recipe["reference"] for recipe in evaluate("serving_image", builds, **given_)] == references


def accepted(seeds: dict[str, Any]) -> Any:
    """Return the ids that host b of site one accepts; seeds: the id that each seed reported."""
    given_ = {
        "inventory_hostname": "b",
        "ansible_play_hosts": ["a", "b", "x", "y"],
        "serving_image_shared": {"key": IMAGE, "value": {"give": ["a", "x"], "take": {"b": "a", "y": "x"}}},
        "hostvars": {name: results("serving_image", node_job={"result": {"id": id_}}) for name, id_ in seeds.items()},
    }
    loads = task_of("serving_image", "share", "Load it")
    return evaluate("serving_image", loads["vars"]["serving_image_ids"], **given_)


def test_a_node_accepts_the_id_of_its_own_site_alone() -> None:
    assert accepted({"a": f"sha256:{'a' * 64}", "x": f"sha256:{'e' * 64}"}) == [f"sha256:{'a' * 64}"]


@pytest.mark.parametrize("id_", ["", None, 7, [f"sha256:{'e' * 64}"], {"id": 1}, f"sha256:{'e' * 64}\n", "latest"])
def test_a_seed_that_reports_no_id_gives_nothing(id_: Any) -> None:
    with pytest.raises(AnsibleError, match="id of an image"):
        accepted({"a": id_})


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
    decides = task_of("serving_image", "get", "Decide which images go from node to node")
    assert runs("serving_image", decides, **said) is shares


NODES = st.dictionaries(
    st.sampled_from("abcdef"),
    st.tuples(st.sampled_from(["one", "two"]), st.sets(st.sampled_from([IMAGE, OTHER])), st.booleans()),
)


@given(NODES, st.sampled_from(["", *"abcdef"]))
def test_every_node_that_lacks_an_image_takes_it_from_the_seed_of_its_site_or_builds_it(
    drawn: dict[str, tuple[str, set[str], bool]], build_host: str
) -> None:
    said = {
        name: node(sorted(wants) if lacks else [], sorted(wants), site) for name, (site, wants, lacks) in drawn.items()
    }
    build_site = said[build_host]["site"] if build_host in said else "one"
    shares = image_shares(said, build_host, build_site)
    first = {site: next((name for name in said if said[name]["site"] == site), "") for site in ("one", "two")}
    for image, share in shares.items():
        assert not set(share["give"]) & set(share["take"])
        for taker, seed in share["take"].items():
            site = said[taker]["site"]
            assert image in said[taker]["lacks"]
            assert image in said[seed]["wants"]
            named = build_host and site == build_site
            # Nothing that a node reports has a part in the choice.
            assert seed == (build_host if named else first[site])


@settings(max_examples=40)
@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda inner: st.lists(inner, max_size=3)))
def test_what_a_node_reports_as_its_images_gives_others_no_instruction(hostile: Any) -> None:
    said = {"a": node([IMAGE]), "b": node([IMAGE])}
    for key in ("wants", "lacks"):
        shares = image_shares({**said, "m": {**node([]), key: hostile}})
        assert {image: share["give"] for image, share in shares.items()} == {IMAGE: ["a"]}
        assert {name: seed for name, seed in shares[IMAGE]["take"].items() if name != "m"} == {"b": "a"}
