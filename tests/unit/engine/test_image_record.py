"""What a serving image must be: the right digest, the right packages, recorded."""

from __future__ import annotations

import json

import pytest
from ansible.module_utils.gaudi.engine import image_record

REPOSITORY = "vault.habana.ai/gaudi-docker/1.22.2/ubuntu22.04/habanalabs/pytorch-installer-2.7.1"
REFERENCE = f"{REPOSITORY}:1.22.2-32"
DIGEST = "sha256:" + "ab" * 32
OTHER = "sha256:" + "cd" * 32


@pytest.mark.parametrize(
    ("reference", "repository"),
    [
        (REFERENCE, REPOSITORY),
        (f"{REPOSITORY}@{DIGEST}", REPOSITORY),
        (f"{REFERENCE}@{DIGEST}", REPOSITORY),
        ("mirror.lan:5000/a/b:1", "mirror.lan:5000/a/b"),
        ("mirror.lan:5000/a/b", "mirror.lan:5000/a/b"),
        ("busybox:1", "busybox"),
    ],
)
def test_tag_and_digest_are_no_part_of_the_repository(reference: str, repository: str) -> None:
    assert image_record.repository_of(reference) == repository


def test_the_digest_is_that_of_the_repository_it_was_pulled_from() -> None:
    inspected = {"RepoDigests": [f"mirror.lan:5000/x@{OTHER}", f"{REPOSITORY}@{DIGEST}"]}
    assert image_record.digest_of(inspected, REFERENCE) == DIGEST
    assert image_record.digest_of({"RepoDigests": None}, REFERENCE) is None
    assert image_record.digest_of({"RepoDigests": [f"{REPOSITORY}@<none>"]}, REFERENCE) is None


def test_a_moved_tag_is_refused_with_both_digests() -> None:
    image_record.check_digest(REFERENCE, DIGEST, DIGEST)
    image_record.check_digest(REFERENCE, DIGEST, "")
    with pytest.raises(ValueError, match=f"has the digest {OTHER}, but the release pins {DIGEST}"):
        image_record.check_digest(REFERENCE, OTHER, DIGEST)
    with pytest.raises(ValueError, match="of no registry"):
        image_record.check_digest(REFERENCE, None, DIGEST)


def test_a_name_that_another_image_has_is_reported_by_digest_or_id() -> None:
    pulled, built = {"id": OTHER, "digest": DIGEST}, {"id": OTHER, "digest": None}
    for before, now in (
        (pulled, pulled),
        # An engine that keeps images otherwise gives another id to the same one.
        (pulled, {**pulled, "id": DIGEST}),
        (built, built),
        # It was pushed.
        (built, pulled),
        ({}, pulled),
        ({}, built),
    ):
        assert image_record.moved(REFERENCE, before, now) is None
    said = image_record.moved(REFERENCE, pulled, {"id": DIGEST, "digest": None})
    assert f"{REFERENCE} is another image now: its digest is of no registry, and was {DIGEST}." in str(said)
    said = image_record.moved(REFERENCE, built, {"id": DIGEST, "digest": None})
    assert f"{REFERENCE} is another image now: its id is {DIGEST}, and was {OTHER}." in str(said)
    assert f"docker image rm {REFERENCE}" in str(said)
    assert "its id is" in str(image_record.moved(REFERENCE, built, {"id": DIGEST, "digest": DIGEST}))


def listing(*names: str) -> dict[str, str]:
    packages: dict[str, str] = image_record.parse_packages(
        json.dumps([{"name": name, "version": "1"} for name in names])
    )
    return packages


NEEDED = ["habana-torch-plugin", "vllm"]


def test_names_are_compared_as_python_does() -> None:
    found = image_record.check_packages(REFERENCE, listing("Habana_Torch.Plugin", "vLLM", "torch"), NEEDED)
    assert found == {"habana-torch-plugin": "1", "vllm": "1"}


def test_the_vendors_bare_image_is_refused_with_what_to_do() -> None:
    with pytest.raises(
        ValueError, match=r"holds no vllm \(pip list in it\)\. The vendor's own image comes without vLLM"
    ):
        image_record.check_packages(REFERENCE, listing("habana-torch-plugin", "torch"), NEEDED)


def test_an_image_of_something_else_is_refused() -> None:
    with pytest.raises(ValueError, match=r"holds no habana-torch-plugin and no vllm .* no image of the Gaudi software"):
        image_record.check_packages(REFERENCE, listing("torch"), NEEDED)


@pytest.mark.parametrize("text", ["", "Package Version", '{"name": "vllm"}', "[1]", '[{"name": "vllm"}]'])
def test_something_else_than_a_listing_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="something else than a list of packages"):
        image_record.parse_packages(text)


def test_the_record_survives_writing_and_reading() -> None:
    images = {REFERENCE: {"id": OTHER, "digest": DIGEST, "packages": {"vllm": "0.9"}}}
    assert image_record.ImageRecord.parse(image_record.render_record(images)).images == images


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"schema": 2, "images": {}}',
        '{"schema": 1, "images": []}',
        '{"schema": 1, "images": {"a": []}}',
        '{"schema": 1, "images": {"a": {"id": 5}}}',
        '{"schema": 1, "images": {}, "history": {"chat": "a"}}',
    ],
)
def test_a_record_that_is_not_ours_is_none(text: str) -> None:
    with pytest.raises(ValueError, match=r"^it "):
        image_record.ImageRecord.parse(text)
