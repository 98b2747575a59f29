"""What layers without a KV cache keep for each sequence, by the model's config.json."""

from __future__ import annotations

from ansible.module_utils.gaudi.catalogue.entries import State
from ansible.module_utils.gaudi.model.state import state_of

from tests.unit.families.test_plugin import GDN_TEXT, MAMBA


def test_what_layers_without_a_cache_keep() -> None:
    # (2 * 16 * 128 + 32 * 128) * 3 in bfloat16, 32 * 128 * 128 in float32.
    assert state_of(GDN_TEXT) == State("gdn", 30, 8192 * 3 * 2 + 32 * 128 * 128 * 4)
    # (128 * 64 + 2 * 128) * 3 and 128 * 64 * 128, both in bfloat16.
    assert state_of(MAMBA) == State("mamba", 36, 8448 * 3 * 2 + 128 * 64 * 128 * 2)
    for key in ("linear_num_key_heads", "full_attention_interval"):
        assert state_of({name: value for name, value in GDN_TEXT.items() if name != key}) is None
    assert state_of({"num_hidden_layers": 4}) is None
