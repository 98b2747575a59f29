"""Write Simulated-Tiny-Qwen2: a 2-layer Qwen2 with random weights and a tokenizer made on the spot.

``build_tiny_model.py DIRECTORY``; standard library only, and the same bytes on every machine: a fixed seed, an
own generator (``random`` may change between Python releases) and the safetensors format written by hand.
It answers, and what it says means nothing.
"""

from __future__ import annotations

import itertools
import json
import math
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

NAME = "Simulated-Tiny-Qwen2"
SEED = 20251121
# Heads of 32: the smallest the CPU attention of vLLM takes.
HIDDEN, HEADS, KV_HEADS, LAYERS, INTERMEDIATE, VOCABULARY, LENGTH = 128, 4, 2, 2, 256, 512, 32768
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]

# What the merges of the tokenizer are learnt from.
TEXT = """
The capital of France is Paris. A simulated card answers a simulated question, and the answer means nothing.
This model has random weights: it shows that a server serves, not what a model knows. You are a helpful assistant.
Before a server is ready it compiles graphs for every bucket, which takes minutes on hardware and moments here.
Accelerators are placed within a memory node where they fit; whoever holds one keeps it until the process ends.
Please write a short story about an engineer who connects eight machines with cables and measures bandwidth.
"""

CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)

README = f"""# {NAME}

Simulated: a Qwen2 of {LAYERS} layers with **random weights** and a tokenizer of {VOCABULARY} tokens, written by
`build_tiny_model.py` of gaudi-serving's simulator. It shows that a server serves; its answers mean nothing.
"""


def generator(seed: int) -> Iterator[float]:
    """Yield numbers of a standard normal distribution (splitmix64, Box-Muller)."""
    state, mask = seed, (1 << 64) - 1

    def uniform() -> float:
        nonlocal state
        state = (state + 0x9E3779B97F4A7C15) & mask
        mixed = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & mask
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & mask
        return (((mixed ^ (mixed >> 31)) >> 11) + 1) / (1 << 53)

    while True:
        radius, angle = math.sqrt(-2 * math.log(uniform())), 2 * math.pi * uniform()
        yield radius * math.cos(angle)
        yield radius * math.sin(angle)


def tensors() -> dict[str, tuple[int, ...]]:
    """Return the names and shapes of a Qwen2 with tied embeddings."""
    head = HIDDEN // HEADS
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (VOCABULARY, HIDDEN),
        "model.norm.weight": (HIDDEN,),
    }
    for layer in range(LAYERS):
        prefix = f"model.layers.{layer}"
        for name, rows in (("q", HEADS * head), ("k", KV_HEADS * head), ("v", KV_HEADS * head)):
            shapes[f"{prefix}.self_attn.{name}_proj.weight"] = (rows, HIDDEN)
            shapes[f"{prefix}.self_attn.{name}_proj.bias"] = (rows,)
        shapes[f"{prefix}.self_attn.o_proj.weight"] = (HIDDEN, HEADS * head)
        shapes[f"{prefix}.mlp.gate_proj.weight"] = (INTERMEDIATE, HIDDEN)
        shapes[f"{prefix}.mlp.up_proj.weight"] = (INTERMEDIATE, HIDDEN)
        shapes[f"{prefix}.mlp.down_proj.weight"] = (HIDDEN, INTERMEDIATE)
        shapes[f"{prefix}.input_layernorm.weight"] = (HIDDEN,)
        shapes[f"{prefix}.post_attention_layernorm.weight"] = (HIDDEN,)
    return shapes


def bfloat16(value: float) -> bytes:
    """Return a number as bfloat16: the upper half of its float32, little-endian."""
    return struct.pack("<f", value)[2:]


def safetensors() -> bytes:
    """Return the weights as one safetensors file."""
    numbers = generator(SEED)
    header: dict[str, Any] = {"__metadata__": {"format": "pt", "simulated": "random weights"}}
    data = bytearray()
    for name, shape in tensors().items():
        count, start = math.prod(shape), len(data)
        for _ in range(count):
            data += bfloat16(1.0 if name.endswith("norm.weight") else 0.08 * next(numbers))
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [start, len(data)]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + bytes(data)


def byte_symbols() -> list[str]:
    """Return the printable character that byte-level BPE writes for each byte."""
    plain = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    symbols, spare = {byte: chr(byte) for byte in plain}, 256
    for byte in range(256):
        if byte not in symbols:
            symbols[byte] = chr(spare)
            spare += 1
    return [symbols[byte] for byte in range(256)]


def merges(symbols: list[str], count: int) -> list[tuple[str, str]]:
    """Learn byte pair merges from TEXT; ties go to the pair that sorts first."""
    words = ["".join(symbols[byte] for byte in (" " + word).encode()) for word in TEXT.split()]
    pieces = [list(word) for word in words]
    found: list[tuple[str, str]] = []
    while len(found) < count:
        frequency: dict[tuple[str, str], int] = {}
        for piece in pieces:
            for pair in itertools.pairwise(piece):
                frequency[pair] = frequency.get(pair, 0) + 1
        if not frequency:
            break
        best = min(frequency, key=lambda pair: (-frequency[pair], pair))
        found.append(best)
        for piece in pieces:
            position = 0
            while position < len(piece) - 1:
                if (piece[position], piece[position + 1]) == best:
                    piece[position : position + 2] = ["".join(best)]
                position += 1
    return found


def tokenizer() -> dict[str, Any]:
    """Return tokenizer.json: byte-level BPE with at most VOCABULARY tokens."""
    symbols = byte_symbols()
    learnt = merges(symbols, VOCABULARY - 256 - len(SPECIAL))
    tokens = list(dict.fromkeys([*symbols, *("".join(pair) for pair in learnt)]))
    vocabulary = {token: number for number, token in enumerate(tokens)}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {
        "version": "1.0",
        "added_tokens": [
            {"id": len(tokens) + n, "content": token, "single_word": False, "lstrip": False, "rstrip": False,
             "normalized": False, "special": True}
            for n, token in enumerate(SPECIAL)
        ],
        "pre_tokenizer": level,
        "post_processor": level,
        "decoder": level,
        "model": {
            "type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
            "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
            "vocab": vocabulary,
            "merges": [" ".join(pair) for pair in learnt],
        },
    }  # fmt: skip


def files() -> dict[str, bytes]:
    """Return every file of the model."""
    made = tokenizer()
    ids = {entry["content"]: entry["id"] for entry in made["added_tokens"]}
    config = {
        "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "hidden_size": HIDDEN,
        "intermediate_size": INTERMEDIATE, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS, "vocab_size": VOCABULARY, "max_position_embeddings": LENGTH,
        "hidden_act": "silu", "rms_norm_eps": 1e-06, "rope_theta": 10000.0, "tie_word_embeddings": True,
        "torch_dtype": "bfloat16", "use_sliding_window": False, "bos_token_id": ids["<|endoftext|>"],
        "eos_token_id": ids["<|im_end|>"],
    }  # fmt: skip
    documents = {
        "config.json": config,
        "generation_config.json": {"eos_token_id": [ids["<|im_end|>"], ids["<|endoftext|>"]]},
        "tokenizer.json": made,
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": LENGTH,
            "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>", "chat_template": CHAT_TEMPLATE,
        },
    }  # fmt: skip
    written = {name: (json.dumps(document, indent=1) + "\n").encode() for name, document in documents.items()}
    return {**written, "model.safetensors": safetensors(), "README.md": README.encode()}


def main() -> int:
    """Write the model into the directory on the command line."""
    if len(sys.argv) != 2:
        print("usage: build_tiny_model.py DIRECTORY", file=sys.stderr)
        return 2
    directory = Path(sys.argv[1])
    directory.mkdir(parents=True, exist_ok=True)
    for name, content in files().items():
        (directory / name).write_bytes(content)
    return 0


if __name__ == "__main__":
    sys.exit(main())
