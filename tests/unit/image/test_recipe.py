"""What an image is built from, and the name that follows from it."""

from __future__ import annotations

from typing import Any

import pytest
from ansible.module_utils.gaudi.base.refusal import Refusal
from ansible.module_utils.gaudi.catalogue.entries import ReleaseEntry
from ansible.module_utils.gaudi.image import parts
from ansible.module_utils.gaudi.image.recipe import ImageSettings, base_reference, recipe

from plugin_utils import releases
from plugin_utils.catalogue_files import findings
from tests.unit.image.made import document, entry, made

OTHER = "0123456789abcdef0123456789abcdef01234567"


def refused(release: str = "1.22", /, **settings: Any) -> Refusal:
    with pytest.raises(Refusal) as caught:
        made(release, **settings)
    return caught.value


@pytest.mark.parametrize("name", releases.names())
def test_every_release_names_a_way_to_its_image(name: str) -> None:
    way = made(name)
    assert way.base == f"{entry(name).image['path']}:{entry(name).image['tag']}"
    code = "vllm_gaudi" if way.build.kind == "plugin" else "vllm_fork"
    assert way.pins[code].commit == entry(name).pins[code].commit
    assert way.reference.startswith(f"gaudi-serving/vllm:{name}-")


@pytest.mark.parametrize("name", [*releases.names(), "plugin"])
def test_what_is_pinned_is_a_whole_commit(name: str) -> None:
    way = made(name, ("host_nics",))
    assert all(len(pin.commit) == 40 for pin in way.pins.values())
    assert {"libfabric", "hccl_ofi_wrapper", "hccl_demo"} <= set(way.pins)


def test_the_release_of_the_tests_fits_the_schema() -> None:
    assert findings("release", document("plugin")) == []
    assert list(made("plugin").pins) == ["vllm_gaudi", "vllm", "hccl_demo"]


def test_names_of_images_stay() -> None:
    """A name that changes has every site build, and every instance start, again."""
    assert {name: made(name, ("numactl",)).tag for name in releases.names()} == TAGS


@pytest.mark.parametrize(
    "settings",
    [
        {"pins": {"vllm_fork": {"commit": OTHER}}},
        {"parts": ["audio"]},
        {"constraints": ["transformers==4.57.0"]},
        {"constraints": ["nothing-else>=1"]},
        {"base": "registry.example.com/gaudi:1"},
    ],
)
def test_what_a_site_writes_down_changes_the_name(settings: dict[str, Any]) -> None:
    assert made(**settings).tag != made().tag


def test_addresses_do_not_change_the_name() -> None:
    assert made(registry="mirror.example.com").tag == made().tag
    assert made(registry="mirror.example.com").base_reference == f"mirror.example.com/{made().base}"
    mirrored = {
        "vllm_fork": {"repository": "https://git.example.com/vllm-fork", "commit": entry().pins["vllm_fork"].commit}
    }
    assert made(pins=mirrored).tag == made().tag
    assert made(pins=mirrored).pins["vllm_fork"].repository == "https://git.example.com/vllm-fork"
    assert made(parts=[]).tag == made().tag


def test_the_name_of_the_site_comes_before_the_tag() -> None:
    settings = ImageSettings.from_mapping({"build": True, "name": "registry.example.com:5000/gaudi/vllm"})
    assert recipe(entry(), settings).reference == f"registry.example.com:5000/gaudi/vllm:{made().tag}"


def test_parts_are_those_that_are_wished_and_those_that_are_needed() -> None:
    way = made(needs=("pillow_simd", "numactl"), parts=["audio", "numactl"])
    assert way.parts == ("numactl", "audio", "pillow_simd")
    assert made(needs=("numactl",)).tag == made(parts=["numactl"]).tag


def test_labels_say_what_was_built_and_what_the_release_pins() -> None:
    labels = made(pins={"vllm_fork": {"commit": OTHER}}).labels
    assert labels["gaudi-serving.image.commit.vllm_fork"] == OTHER
    assert labels["gaudi-serving.image.released.vllm_fork"] == entry().pins["vllm_fork"].commit
    said = labels["gaudi-serving.image.released.neural_compressor"]
    assert said == labels["gaudi-serving.image.commit.neural_compressor"] == entry().pins["neural_compressor"].commit


def test_a_digest_that_is_pinned_is_part_of_the_base() -> None:
    content = document()
    content["image"]["digest"] = "sha256:" + "a" * 64
    way = recipe(ReleaseEntry.from_mapping(content), ImageSettings(build=True))
    assert way.base.endswith(":1.22.2-32@sha256:" + "a" * 64)
    assert way.base_digest == "sha256:" + "a" * 64
    assert way.tag != made().tag
    # It is that of the release's base, not of one that the site names.
    assert (
        recipe(ReleaseEntry.from_mapping(content), ImageSettings(build=True, base="registry/own:1")).base_digest == ""
    )


def test_the_site_pins_its_base_with_a_digest_in_its_name() -> None:
    own = f"registry/own:1@sha256:{'b' * 64}"
    pinned = made(base=own)
    assert (pinned.base_reference, pinned.base_digest) == (own, f"sha256:{'b' * 64}")
    assert pinned.tag != made(base="registry/own:1").tag
    assert base_reference(entry(), ImageSettings(build=True, base=own), "mirror.example.com") == own
    assert base_reference(entry(), ImageSettings(build=True), "mirror.example.com") == (
        made(registry="mirror.example.com").base_reference
    )


@pytest.mark.parametrize(
    ("settings", "id_", "words"),
    [
        ({"pins": {"vllm_fork": {"commit": "4cd8c06"}}}, "wrong_form", "whole commit id of 40"),
        ({"pins": {"vllm_fork": {"commit": "aice/v1.22.0"}}}, "wrong_form", "never a branch"),
        ({"pins": {"vllm_forg": {"commit": OTHER}}}, "unknown_image_pin", "vllm_forg"),
        ({"pins": {"vllm_fork": {"commit": OTHER, "repository": "https://x/$(id)"}}}, "wrong_form", "address"),
        ({"parts": ["pillow"]}, "unknown_image_part", "pillow_simd"),
        ({"constraints": ["transformers"]}, "wrong_constraint", "transformers==4.57.1"),
        ({"constraints": ["a==1; rm -rf /"]}, "wrong_constraint", "rm -rf"),
        ({"ref": "registry.example.com/vllm:1"}, "image_given_and_built", "Keep one"),
        ({"name": "registry.example.com/vllm:1"}, "wrong_form", "without a tag"),
        ({"push": True}, "push_without_registry", "would be pushed to Docker Hub. Name a registry of yours"),
        ({"push": True, "name": "gaudi/vllm"}, "push_without_registry", "'gaudi/vllm', which begins with no registry"),
        ({"push": True, "name": "vllm"}, "push_without_registry", "serving_image_push: false"),
        ({"tag": "x"}, "unknown_key", "tag"),
    ],
)
def test_a_wrong_wish_is_refused(settings: dict[str, Any], id_: str, words: str) -> None:
    refusal = refused(**settings)
    assert refusal.id == id_
    assert words in str(refusal)


@pytest.mark.parametrize("host", ["registry.example.com", "localhost", "localhost:5000", "registry:5000", "10.0.0.7"])
def test_an_image_is_pushed_to_the_registry_in_its_name(host: str) -> None:
    assert ImageSettings.from_mapping({"build": True, "push": True, "name": f"{host}/gaudi/vllm"}).push


def test_a_part_that_a_release_cannot_have_is_refused() -> None:
    assert refused("1.18", parts=["audio"]).id == "image_part_not_offered"
    assert "catalog/releases/1.24.yml does not say how to install it" in str(refused("1.24", parts=["pillow_simd"]))


def test_a_release_without_a_way_is_refused() -> None:
    content = document()
    del content["build"]
    with pytest.raises(Refusal, match="serving_image_ref"):
        recipe(ReleaseEntry.from_mapping(content), ImageSettings(build=True))


def test_a_release_that_pins_no_hccl_demo_is_refused() -> None:
    content = document()
    del content["pins"]["hccl_demo"]
    with pytest.raises(Refusal, match="serving_image_pins") as caught:
        recipe(ReleaseEntry.from_mapping(content), ImageSettings(build=True))
    assert caught.value.id == "no_image_pin"


def test_what_a_plan_needs() -> None:
    assert parts.needed(True, (), False) == ("numactl",)
    assert parts.needed(False, ("image", "video"), False) == ("pillow_simd",)
    assert parts.needed(True, ("audio", "image"), True) == ("numactl", "host_nics", "audio", "pillow_simd")


def test_a_ready_image_may_lack_what_only_makes_it_faster() -> None:
    assert parts.missing(("numactl", "audio", "pillow_simd"), ("numactl",)) == ("audio",)


TAGS = {
    "1.16": "1.16-5b3737fb6dc5",
    "1.18": "1.18-a72992965901",
    "1.21": "1.21-b89a365ec8f4",
    "1.22": "1.22-45078576749b",
    "1.22-2025.11": "1.22-2025.11-849082187626",
    "1.23": "1.23-d7e93b600391",
    "1.24": "1.24-684ce1950a6a",
    "1.24.1": "1.24.1-f0b9becabd34",
    "deepseek-r1": "deepseek-r1-994253026ca5",
    "deepseek-r1-2025.11": "deepseek-r1-2025.11-bca715f889e6",
}


def test_another_way_takes_the_place_of_the_pins_of_vllm_alone() -> None:
    own, other = made(), made(way="habana_main")
    assert other.pins["vllm_fork"].commit == "0366662c12e2d26584dd2616d82bfd1b58247489"
    assert other.pins["vllm_hpu_extension"].commit == "048015b0938d93bbe7c802c8df5e868431551b3b"
    # habana_main asks for none; the base image has one.
    assert "neural_compressor" not in other.pins
    assert other.pins["hccl_demo"] == own.pins["hccl_demo"]
    assert other.tag != own.tag
    assert other.labels["gaudi-serving.image.released.vllm_fork"] == entry().pins["vllm_fork"].commit


def test_what_a_way_says_otherwise_counts() -> None:
    upstream = made("1.18", way="upstream")
    assert upstream.build.requirements == "requirements/hpu.txt"
    assert upstream.pins["vllm_fork"].repository == "https://github.com/vllm-project/vllm"
    assert upstream.constraints["transformers"] == "<4.51"
    assert made("1.18").constraints["transformers"] == "==4.43.2"
    mine = made("1.18", way="upstream", pins={"vllm_fork": {"commit": OTHER}})
    assert (mine.pins["vllm_fork"].commit, mine.pins["vllm_fork"].repository) == (
        OTHER,
        "https://github.com/vllm-project/vllm",
    )


def test_the_labels_of_an_image_that_was_built_from_a_lock_say_so() -> None:
    lock = [f"ray==2.40 --hash=sha256:{digit * 64}" for digit in "01"]
    first, second = (made(lock=line).labels["gaudi-serving.image.lock"] for line in lock)
    assert first != second
    assert len(first) == 64
    assert "gaudi-serving.image.lock" not in made().labels


def test_a_way_that_does_the_same_gives_the_same_image() -> None:
    assert made("1.18", way="dockerfile_hpu").tag == made("1.18").tag


@pytest.mark.parametrize(
    ("release", "way", "id_", "words"),
    [
        ("1.18", "habana_main", "way_refused", "no commit of it fits both"),
        ("1.18", "master", "unknown_way", "knows upstream, habana_main, dockerfile_hpu"),
        ("1.21", "upstream", "unknown_way", "no other way than its own pins"),
    ],
)
def test_a_way_that_there_is_not_is_refused(release: str, way: str, id_: str, words: str) -> None:
    with pytest.raises(Refusal, match=words) as caught:
        made(release, way=way)
    assert caught.value.id == id_


def test_what_is_wrong_with_a_wish_is_said_at_once() -> None:
    settings: dict[str, Any] = {"way": "master", "parts": ["numctl"], "pins": {"vllm": {"commit": OTHER}}}
    with pytest.raises(Refusal) as caught:
        made("1.18", **settings)
    assert caught.value.id == "unknown_way"
    first, second, third = str(caught.value).splitlines()
    assert "serving_image_way is 'master'" in first
    assert "serving_image_parts has 'numctl'" in second
    assert "serving_image_pins names 'vllm'" in third


def test_each_way_has_whole_commits_and_a_source() -> None:
    ways = {
        f"{name}.{way}": said
        for name in releases.names()
        for build in [entry(name).build]
        if build is not None
        for way, said in build.ways.items()
    }
    assert {"1.18.upstream", "1.18.habana_main", "1.18.dockerfile_hpu", "1.22.habana_main"} <= set(ways)
    for name, said in ways.items():
        assert said.source, name
        assert all(len(pin.commit) == 40 for pin in said.pins.values()), name


@pytest.mark.parametrize(
    "address",
    [
        "https://reader:hunter2@git.example/vllm",
        "https://hunter2@git.example/vllm",
        "HTTPS://hunter2@git.example/vllm",
        "ssh://git:hunter2@git.example/vllm",
        "git://hunter2@git.example",
    ],
)
def test_an_account_in_the_address_of_a_pin_is_refused_and_not_shown(address: str) -> None:
    """It would be a word of a RUN instruction, and lie in .git/config of a layer."""
    with pytest.raises(Refusal) as refused:
        made(pins={"vllm_fork": {"commit": "a" * 40, "repository": address}})
    assert refused.value.id == "account_in_pin"
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize("address", ["ssh://git@git.example/vllm", "https://git.example/@scope/vllm"])
def test_an_address_without_a_secret_is_taken(address: str) -> None:
    assert made(pins={"vllm_fork": {"commit": "a" * 40, "repository": address}}).pins["vllm_fork"].repository == address


def test_the_program_that_measures_is_a_checkout_of_its_own() -> None:
    way = made("1.22", ("inc_calibration",))
    assert way.pins["inc_calibration"].commit == entry("deepseek-r1").pins["vllm_fork"].commit
    assert way.directory("inc_calibration") == "/opt/inc-calibration"
    # Images without it keep their names.
    assert "inc_calibration" not in made("1.22").pins
    with pytest.raises(Refusal) as caught:
        made("1.24.1", ("inc_calibration",))
    assert caught.value.id == "no_image_pin"
