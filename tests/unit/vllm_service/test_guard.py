"""The API key guard: every route, every kind of connection, keys that change."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.gaudi.serving import keys as keys_module
from ansible.module_utils.gaudi.serving.keys import ApiKey, digest_of, document
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.node.damages import DAMAGES, damage
from tests.unit.ports import free_port

SOURCE = Path(__file__).resolve().parents[3] / "roles/vllm_service/files/guard/gaudi_guard.py"


def load() -> Any:
    """Import the guard as the serving image does: from a directory on the search path."""
    spec = importlib.util.spec_from_file_location("gaudi_guard", SOURCE)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["gaudi_guard"] = module
    spec.loader.exec_module(module)
    return module


GUARD = load()
KEY = "correct-horse-battery"
PROBE = "the-supervisors-own-token"


def ask(
    guard: Any, *headers: tuple[bytes, bytes], kind: str = "http", path: str = "/v1/models"
) -> list[dict[str, Any]]:
    """Send one request through the guard; return what came back."""
    sent: list[dict[str, Any]] = []

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    async def receive() -> dict[str, Any]:
        return {"type": f"{kind}.connect"}

    asyncio.run(guard({"type": kind, "path": path, "headers": list(headers)}, receive, send))
    return sent


async def application(scope: Any, receive: Any, send: Any) -> None:
    """Whatever is behind the guard."""
    await send({"type": "through", "path": scope.get("path")})


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    path = tmp_path / "keys.json"
    write(path, KEY, "second-key-0123456789")
    (tmp_path / "probe").write_text(f"{digest_of(PROBE)}\n")
    return path


def write(path: Path, *given: str, ends: str | None = None) -> None:
    """Replace the digests that a guard has, as the role does."""
    fresh = path.with_name("fresh")
    made = [ApiKey(f"key-{number}", "inventory", digest_of(key), ends) for number, key in enumerate(given)]
    fresh.write_text(json.dumps(document(made)))
    fresh.replace(path)


@pytest.fixture
def guard(keys: Path) -> Any:
    return GUARD.ApiKeyGuard(application, keys, keys.parent)


@pytest.fixture
def closed(keys: Path) -> Any:
    """A guard whose door is closed."""
    (keys.parent / "closed").touch()
    return GUARD.ApiKeyGuard(application, keys, keys.parent)


AUTHORIZED = (b"authorization", f"Bearer {KEY}".encode())


def test_nobody_gets_in_while_the_server_stops(closed: Any, keys: Path) -> None:
    refused = ask(closed, AUTHORIZED)
    assert refused[0]["status"] == 503
    assert (b"retry-after", b"60") in refused[0]["headers"]
    assert b"stopping" in refused[1]["body"]
    assert ask(closed, AUTHORIZED, kind="websocket") == [{"type": "websocket.close", "code": 1013}]
    # Who has no key is not told how the server is.
    assert ask(closed)[0]["status"] == 401
    (keys.parent / "closed").unlink()
    assert ask(closed, AUTHORIZED)[0]["type"] == "through"


def test_the_supervisor_still_asks_how_many_requests_run(closed: Any) -> None:
    assert ask(closed, AUTHORIZED, path="/metrics")[0]["type"] == "through"
    assert ask(closed, path="/metrics")[0]["status"] == 401


@pytest.mark.parametrize("path", ["/v1/models", "/health", "/metrics", "/docs", "/tokenize", "/"])
def test_no_route_is_open(guard: Any, path: str) -> None:
    refused = ask(guard, path=path)
    assert refused[0]["status"] == 401
    assert b"Missing or wrong API key" in refused[1]["body"]
    assert ask(guard, (b"authorization", f"Bearer {KEY}".encode()), path=path) == [{"type": "through", "path": path}]


@pytest.mark.parametrize(
    "headers",
    [
        [(b"authorization", b"Bearer wrong")],
        [(b"authorization", KEY.encode())],
        [(b"authorization", b"Basic " + KEY.encode())],
        [(b"authorization", b"Bearer ")],
        [(b"authorization", f"Bearer {KEY}x".encode())],
        [(b"authorization", f"Bearer {KEY}\nsecond-key-0123456789".encode())],
        [(b"authorization", b"Bearer wrong"), (b"authorization", f"Bearer {KEY}".encode())],
        [(b"authorization", "Bearer schlüssel".encode("latin-1"))],
        [(b"x-api-key", KEY.encode())],
    ],
)
def test_refused(guard: Any, headers: list[tuple[bytes, bytes]]) -> None:
    assert ask(guard, *headers)[0]["status"] == 401


def test_every_key_opens(guard: Any) -> None:
    assert ask(guard, (b"Authorization", b"bearer second-key-0123456789"))[0]["type"] == "through"


def test_a_websocket_is_closed_before_it_opens(guard: Any) -> None:
    assert ask(guard, kind="websocket") == [{"type": "websocket.close", "code": 1008}]
    assert ask(guard, (b"authorization", f"Bearer {KEY}".encode()), kind="websocket")[0]["type"] == "through"


def test_the_servers_own_life_is_none_of_its_business(guard: Any) -> None:
    assert ask(guard, kind="lifespan")[0]["type"] == "through"


def test_changed_keys_count_at_once(guard: Any, keys: Path) -> None:
    header = (b"authorization", f"Bearer {KEY}".encode())
    assert ask(guard, header)[0]["type"] == "through"
    write(keys, "another-key-0123456789")
    assert ask(guard, header)[0]["status"] == 401
    assert ask(guard, (b"authorization", b"Bearer another-key-0123456789"))[0]["type"] == "through"


def test_without_a_file_nobody_gets_in(guard: Any, keys: Path) -> None:
    assert ask(guard, AUTHORIZED)[0]["type"] == "through"
    keys.unlink()
    assert ask(guard, AUTHORIZED)[0]["status"] == 401
    write(keys, KEY)
    assert ask(guard, AUTHORIZED)[0]["type"] == "through"


DAMAGED = ["", "{", "[]", "null", "3", "{}", f"{KEY}\n", '{"schema": 2, "keys": []}', '{"schema": 1, "keys": 5}']


@pytest.mark.parametrize("text", [*DAMAGED, '{"schema": 1, "keys": [{"digest": "00", "ends": null}]}', "[" * 100000])
def test_what_cannot_be_read_opens_for_nobody(guard: Any, keys: Path, text: str) -> None:
    assert ask(guard, AUTHORIZED)[0]["type"] == "through"
    keys.write_text(text)
    for key in (KEY, "", text.strip()[:100], digest_of(KEY)):
        assert ask(guard, (b"authorization", f"Bearer {key}".encode()))[0]["status"] == 401
    keys.unlink()
    keys.mkdir()
    assert ask(guard, AUTHORIZED)[0]["status"] == 401


@pytest.mark.parametrize("kind", DAMAGES)
def test_a_damaged_file_opens_for_nobody_and_holds_nobody_up(guard: Any, keys: Path, kind: str) -> None:
    """To read a pipe waited for ever, and the server with it."""
    damage(keys, kind)
    assert ask(guard, (b"authorization", f"Bearer {KEY}".encode()))[0]["status"] == 401


@pytest.mark.parametrize("headers", [[(b"authorization", f"Bearer {digest_of(KEY)}".encode())]])
def test_a_digest_is_no_key(guard: Any, headers: list[tuple[bytes, bytes]]) -> None:
    assert ask(guard, *headers)[0]["status"] == 401


@pytest.mark.parametrize(("ends", "opens"), [("2000-01-01T00:00:00Z", False), ("2999-12-31T23:59:59Z", True)])
def test_a_key_opens_until_its_end(guard: Any, keys: Path, ends: str, opens: bool) -> None:
    write(keys, KEY, ends=ends)
    assert (ask(guard, AUTHORIZED)[0]["type"] == "through") is opens


def test_the_supervisors_token_opens_and_only_the_last_one(guard: Any, keys: Path) -> None:
    header = (b"authorization", f"Bearer {PROBE}".encode())
    assert ask(guard, header)[0]["type"] == "through"
    (keys.parent / "probe").write_text(digest_of("another-token"))
    assert ask(guard, header)[0]["status"] == 401
    (keys.parent / "probe").write_text("")
    assert ask(guard, (b"authorization", b"Bearer "))[0]["status"] == 401


@given(st.lists(st.tuples(st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=16), st.booleans())))
def test_guard_and_library_read_a_document_alike(entries: list[tuple[str, bool]]) -> None:
    made = [ApiKey("x", "playbook", digest_of(key), "2030-01-01T00:00:00Z" if end else None) for key, end in entries]
    text = json.dumps(document(made))
    assert keys_module.read(text) == made
    assert GUARD.read_keys(text) == [(bytes.fromhex(key.digest), key.ends) for key in made]


@pytest.mark.parametrize("ends", ["31.12.2020", "never", "", 5, {}])
def test_an_end_that_cannot_be_read_opens_for_nobody(ends: object) -> None:
    text = json.dumps({"schema": 1, "keys": [{"digest": digest_of(KEY), "ends": ends}]})
    with pytest.raises((ValueError, TypeError)):
        GUARD.read_keys(text)


# As create_server_socket of vLLM makes its socket.
LISTENS = """
import socket, sys
sock = socket.socket()
sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
sock.bind((sys.argv[1], int(sys.argv[2])))
sock.listen()
print("listens", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize(("path", "shared"), [(str(SOURCE.parent), False), ("", True)])
def test_no_process_listens_at_the_port_of_a_guarded_server_beside_it(path: str, shared: bool) -> None:
    port = free_port()
    command = [sys.executable, "-c", LISTENS]
    environment = {**os.environ, "PYTHONPATH": path}
    with subprocess.Popen(
        [*command, "0.0.0.0", str(port)], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout
        assert server.stdout.readline() == "listens\n"
        second = subprocess.run(
            [*command, "127.0.0.1", str(port)], input="", capture_output=True, text=True, check=False
        )
        server.communicate("")
    assert (second.returncode == 0) is shared, second.stderr
    assert shared or "Address already in use" in second.stderr
