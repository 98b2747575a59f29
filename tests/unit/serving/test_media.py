"""The picture, the film and the sound that a server is asked about, read by what did not make them."""

from __future__ import annotations

import base64
import io
import itertools
import struct
import wave
import zlib
from typing import Any

import pytest
from ansible.module_utils.gaudi.base.refusal import Refusal
from ansible.module_utils.gaudi.serving import answers, media

PLAN: dict[str, Any] = {"task": "generate", "served_model_name": "omni", "instance": "omni"}


def pixels(png: bytes, side: int) -> set[bytes]:
    """The different pixels of a PNG, whose chunks have their checksums."""
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    rest, found = png[8:], {}
    while rest:
        (size,) = struct.unpack(">I", rest[:4])
        name, data, checksum = rest[4:8], rest[8 : 8 + size], rest[8 + size : 12 + size]
        assert struct.unpack(">I", checksum) == (zlib.crc32(name + data),)
        found[name], rest = data, rest[12 + size :]
    assert list(found) == [b"IHDR", b"IDAT", b"IEND"]
    assert struct.unpack(">IIBBBBB", found[b"IHDR"]) == (side, side, 8, 2, 0, 0, 0)
    whole, row = zlib.decompress(found[b"IDAT"]), 1 + 3 * side
    assert len(whole) == row * side
    rows = [whole[start : start + row] for start in range(0, len(whole), row)]
    assert {each[0] for each in rows} == {0}
    return {each[place : place + 3] for each in rows for place in range(1, row, 3)}


def test_a_picture_is_a_png_of_one_colour() -> None:
    assert pixels(media.picture(media.RED), media.SIDE) == {bytes(media.RED)}
    assert pixels(media.picture(media.BLUE), media.SIDE) == {bytes(media.BLUE)}


def test_a_sound_is_a_wav_of_a_second() -> None:
    with wave.open(io.BytesIO(media.sound())) as sound:
        assert (sound.getnchannels(), sound.getsampwidth(), sound.getframerate(), sound.getnframes()) == (
            *(1, 2, media.RATE),
            media.RATE,
        )
        samples = struct.unpack(f"<{media.RATE}h", sound.readframes(media.RATE))
    crossings = sum(before < 0 <= after for before, after in itertools.pairwise(samples))
    assert abs(crossings - media.TONE) <= 1


def test_a_film_has_its_pictures_where_its_index_says() -> None:
    """OpenCV 4.11 and 5.0 were seen to read eight pictures of it, four red and four blue, two a second."""
    film = media.film()
    assert (film[:4], struct.unpack("<I", film[4:8])[0], film[8:12]) == (b"RIFF", len(film) - 8, b"AVI ")
    begin = film.index(b"movi")
    index = film.index(b"idx1")
    (size,) = struct.unpack("<I", film[index + 4 : index + 8])
    entries = list(struct.iter_unpack("<4sIII", film[index + 8 : index + 8 + size]))
    assert len(entries) == media.FRAMES
    colours = []
    for name, flags, place, length in entries:
        at = begin + place
        assert (name, flags, film[at : at + 4]) == (b"00dc", 0x10, b"00dc")
        assert struct.unpack("<I", film[at + 4 : at + 8]) == (length,)
        (colour,) = pixels(film[at + 8 : at + 8 + length], media.FILM_SIDE)
        colours.append(tuple(colour))
    assert colours == [media.RED] * 4 + [media.BLUE] * 4


@pytest.mark.parametrize(
    ("limits", "kinds"),
    [
        ({}, []),
        ({"image": 1}, [["image_url"]]),
        ({"image": 5, "video": 5}, [["image_url"], ["image_url", "image_url"], ["video_url"]]),
        ({"audio": 5}, [["input_audio"]]),
        (
            {"audio": 1, "image": 2, "video": 1},
            [["image_url"], ["image_url", "image_url"], ["video_url"], ["input_audio"]],
        ),
    ],
)
def test_a_model_is_asked_about_what_it_takes(limits: dict[str, int], kinds: list[list[str]]) -> None:
    first, *about_files = answers.questions({**PLAN, "ask": {"media": limits}}, "Why?", 32)
    assert first.asked == "Why?"
    contents = [exchange.body["messages"][0]["content"] for exchange in about_files]
    assert [[part["type"] for part in content[1:]] for content in contents] == kinds
    for exchange, content in zip(about_files, contents, strict=True):
        assert content[0] == {"type": "text", "text": exchange.asked}
        assert (exchange.path, exchange.body["max_tokens"]) == ("/v1/chat/completions", 32)


def test_files_are_sent_as_the_client_of_the_manuals_sends_them() -> None:
    limits = {"audio": 1, "image": 2, "video": 1}
    asked = answers.questions({**PLAN, "ask": {"media": limits}}, "Why?", 32)[1:]
    one, two, film, sound = (exchange.body["messages"][0]["content"][1:] for exchange in asked)
    red = {"type": "image_url", "image_url": {"url": encoded("data:image/png;base64,", media.picture(media.RED))}}
    blue = {"type": "image_url", "image_url": {"url": encoded("data:image/png;base64,", media.picture(media.BLUE))}}
    assert (one, two) == ([red], [red, blue])
    url = encoded("data:video/x-msvideo;base64,", media.film())
    assert film == [{"type": "video_url", "video_url": {"url": url}}]
    assert sound == [{"type": "input_audio", "input_audio": {"data": encoded("", media.sound()), "format": "wav"}}]


def encoded(before: str, content: bytes) -> str:
    return before + base64.b64encode(content).decode()


def test_an_answer_about_a_file_has_the_shape_of_every_chat() -> None:
    """A recorded form: no model of the simulated nodes looks at pictures."""
    exchange = answers.questions({**PLAN, "ask": {"media": {"image": 1}}}, "Why?", 32)[1]
    reply: dict[str, Any] = {
        "model": "omni",
        "choices": [
            {"index": 0, "message": {"role": "assistant", "content": "This picture is red."}, "finish_reason": "stop"}
        ],
        "usage": {"prompt_tokens": 91, "total_tokens": 97, "completion_tokens": 6},
    }
    assert answers.answer_of(exchange, reply, "omni") == "This picture is red."
    reply["choices"][0]["message"]["content"] = ""
    with pytest.raises(Refusal, match=r"to: What colour is this picture\? That is no answer"):
        answers.answer_of(exchange, reply, "omni")
