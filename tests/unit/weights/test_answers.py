"""What answers say: their message, and how long they ask to wait."""

from __future__ import annotations

import pytest
from gaudi.weights import answers


@pytest.mark.report("W07")
@pytest.mark.parametrize(
    ("headers", "body", "shown"),
    [
        ({"X-Error-Message": "Rate limited"}, b'{"error": "other"}', "Rate limited"),
        ({}, b'{"error": {"message": "no"}}', "no"),
        ({}, b'{"errors": [{"code": 1, "message": "denied"}]}', "denied"),
        ({"Content-Type": "text/plain"}, b"over\r\n its\x1b[31m quota\n", "over its [31m quota"),
        ({"Content-Type": "text/html; charset=utf-8"}, b"<html><title>Blocked</title><body>x", "Blocked"),
        ({"Content-Type": "application/json"}, b"{", ""),
        ({}, b"your token hf_abcdefgh12345678 is bad", "your token *** is bad"),
        ({}, b"my secret word", "my *** word"),
        ({}, b"see https://x.example.com/a?X-Amz-Signature=0123456789abcdef", "see https://x.example.com/a?***"),
        ({}, b"", ""),
        ({}, b"\xff\xfe", "\ufffd\ufffd"),
    ],
)
def test_a_message_is_one_printable_line_without_secrets(headers: dict[str, str], body: bytes, shown: str) -> None:
    assert answers.message_of(headers, body, ["secret"]) == shown


def test_a_message_is_of_bounded_length() -> None:
    assert len(answers.message_of({}, b"x" * 100_000)) == answers.MOST_SHOWN + 1


@pytest.mark.report("W03")
@pytest.mark.parametrize(
    ("status", "headers", "seconds"),
    [
        (429, {}, None),
        (429, {"Retry-After": "7"}, 7.0),
        (503, {"Retry-After": "1e9"}, 1e9 - 30),
        (503, {"Retry-After": "-3"}, 0.0),
        (503, {"Retry-After": "soon"}, None),
        (503, {"Retry-After": "nan"}, None),
        (503, {"Retry-After": "Thu, 01 Jan 1970 00:00:42 GMT"}, 12.0),
        (429, {"RateLimit": '"api";r=0;t=170'}, 170.0),
        (429, {"RateLimit": '"api";r=0;t=170, "pages";r=3;t=250'}, 170.0),
        (429, {"RateLimit": "limit=1"}, None),
        (429, {"RateLimit-Reset": "20"}, 20.0),
        (429, {"X-RateLimit-Reset": "1600000030"}, 1600000000.0),
        (403, {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "9"}, 9.0),
        (500, {"RateLimit": '"api";r=0;t=170'}, None),
    ],
)
def test_how_long_an_answer_asks_to_wait(status: int, headers: dict[str, str], seconds: float | None) -> None:
    assert answers.pause_asked(status, headers, 30.0) == seconds
