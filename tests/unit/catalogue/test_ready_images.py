"""docs/images.md lists the vendor's ready-made images as the release files do."""

from __future__ import annotations

from plugin_utils import releases
from tests.unit.catalogue.documentation import ROOT


def test_the_page_has_every_ready_made_image_once() -> None:
    rows = [
        f"| {name} | `{image['path']}` | {image.get('tag', 'a digest')} | {image['vllm']} | {image['pytorch']} |"
        for name in releases.names()
        for image in releases.read(name).get("ready_images", [])
    ]
    page = (ROOT / "docs" / "images.md").read_text(encoding="utf-8").splitlines()
    assert [line for line in page if line.startswith("|") and "/habanalabs/vllm-" in line] == rows
    assert rows
