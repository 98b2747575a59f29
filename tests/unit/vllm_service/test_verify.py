"""vllm_service_verify: the container against its plan, and a question to a server, before anybody says "it serves"."""

from __future__ import annotations

import copy
import itertools
import json
import os
import secrets
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.gaudi.base import paths
from ansible.module_utils.gaudi.base.listeners import Listener
from ansible.module_utils.gaudi.node import containers, folders, instances, listening, states
from ansible.module_utils.gaudi.serving import confinement
from ansible.module_utils.gaudi.serving.plan import LABEL_PLAN

from library import vllm_service_verify
from tests.unit.host.modules import run_main
from tests.unit.vllm_service.made import guarded, make_plan

PROBE = "the-supervisors-own-token"
CONTAINER = "c" * 64
PLAN = make_plan(30001, Path("/data/models/Tiny"))
PLAN["paths"] = ["/health", "/v1/models"]
PLAN["container"]["mounts"].append({"source": "/data/recipe_cache/tiny", "target": "/cache", "read_only": False})
MODEL = PLAN["served_model_name"]
REPLY: dict[str, Any] = {
    "choices": [{"message": {"content": " Paris.\n"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 4, "completion_tokens": 2},
}


def inspected(**changes: Any) -> dict[str, Any]:
    """What the engine says of a container that is confined as planned, but for some changes."""
    planned = PLAN["container"]
    box = {
        "CapDrop": ["ALL"],
        "CapAdd": [f"CAP_{name}" for name in planned["capabilities"]] or None,
        "Privileged": False,
        "ReadonlyRootfs": planned["read_only"],
        "SecurityOpt": ["no-new-privileges"],
        "Runtime": planned["runtime"],
        "NetworkMode": "host",
        "IpcMode": "private",
        "PidMode": "",
        "ShmSize": planned["shm_mib"] << 20,
        "PidsLimit": planned["pids"],
        "Devices": [],
        # As the engine has them where nobody said anything.
        "RestartPolicy": {"Name": "no", "MaximumRetryCount": 0},
        **{name: "" if name.startswith("Cpuset") else 0 for name in confinement.UNSET},
        "Ulimits": [{"Name": name, "Hard": value} for name, value in planned["ulimits"].items()],
    }
    mounts = [
        {"Type": "bind", "Source": "/data/recipe_cache/tiny", "RW": True},
        {"Type": "bind", "Source": "/data/models/Tiny", "RW": False},
        {"Type": "volume", "Source": "/var/lib/docker/volumes/x", "RW": True},
    ]
    config = {"Image": PLAN["image"], "Labels": {LABEL_PLAN: "wished"}}
    state = {"Running": True, "Pid": os.getpid()}
    whole = {"Id": CONTAINER, "HostConfig": box, "Mounts": mounts, "Config": config, "State": state}
    return {**whole, **{key: value for key, value in changes.items() if key in whole}} | {
        "HostConfig": {**box, **{key: value for key, value in changes.items() if key in box}}
    }


# /proc/PID/status of a process below the engine's filter.
PROCESS = "Name:\tpython3\nNoNewPrivs:\t1\nSeccomp:\t2\nSeccomp_filters:\t1\n"


@pytest.mark.parametrize("policy", [{"Name": "no"}, {"Name": ""}, None])
def test_a_container_as_planned_has_no_differences(policy: dict[str, str] | None) -> None:
    assert confinement.differences(inspected(RestartPolicy=policy), PLAN, PROCESS) == []


@pytest.mark.parametrize(
    ("process", "said"),
    [
        (PROCESS.replace("Seccomp:\t2", "Seccomp:\t0"), "seccomp mode 0 of its process"),
        (PROCESS.replace("Seccomp:\t2\n", ""), "seccomp mode None of its process"),
        (PROCESS.replace("NoNewPrivs:\t1", "NoNewPrivs:\t0"), "its process may gain privileges"),
    ],
)
def test_the_kernel_is_asked_as_well(process: str, said: str) -> None:
    assert confinement.differences(inspected(), PLAN, process) == [said]


def test_a_container_without_core_dumps_is_as_planned_whether_its_plan_says_so_or_not() -> None:
    limits = [{"Name": "nofile", "Hard": 1048576}, {"Name": "core", "Hard": 0}]
    plan = copy.deepcopy(PLAN)
    assert confinement.differences(inspected(Ulimits=limits), plan, PROCESS) == []
    plan["container"]["ulimits"]["core"] = 0
    assert confinement.differences(inspected(Ulimits=limits), plan, PROCESS) == []


def test_the_nodes_shared_memory_has_no_size_of_the_container() -> None:
    plan = copy.deepcopy(PLAN)
    plan["container"].update(ipc="host", shm_mib=None)
    assert confinement.differences(inspected(IpcMode="host", ShmSize=0), plan, PROCESS) == []


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"CapDrop": []}, "dropped capabilities []"),
        ({"CapAdd": ["CAP_SYS_ADMIN"]}, "added capabilities ['SYS_ADMIN']"),
        ({"Privileged": True}, "it is privileged"),
        ({"ReadonlyRootfs": not PLAN["container"]["read_only"]}, "read-only root"),
        ({"SecurityOpt": None}, "security options None"),
        ({"Runtime": "runc"}, "runtime runc"),
        ({"Devices": [{"PathOnHost": "/dev/kvm"}]}, "devices"),
        ({"Ulimits": [{"Name": "nofile", "Hard": 1}]}, "limits {'nofile': 1}"),
        (
            {"Ulimits": [{"Name": "nofile", "Hard": 1048576}, {"Name": "core", "Hard": -1}]},
            "limits {'nofile': 1048576, '",
        ),
        ({"SecurityOpt": ["no-new-privileges", "seccomp=unconfined"]}, "security options ['seccomp=unconfined']"),
        ({"SecurityOpt": ["no-new-privileges", "label=disable"]}, "security options ['label=disable']"),
        ({"NetworkMode": "bridge"}, "network bridge"),
        ({"IpcMode": "host"}, "ipc host"),
        ({"PidMode": "host"}, "pid namespace host"),
        ({"ShmSize": 64 << 20}, "shared memory 64 MiB"),
        ({"PidsLimit": None}, "at most None processes"),
        ({"Mounts": [{"Type": "bind", "Source": "/etc", "RW": True}]}, "writable directories ['/etc']"),
        ({"Config": {"Image": "other"}}, "image other"),
        ({"RestartPolicy": {"Name": "always", "MaximumRetryCount": 0}}, "restart policy always"),
        ({"RestartPolicy": {"Name": "on-failure", "MaximumRetryCount": 3}}, "restart policy on-failure"),
        ({"Memory": 4 << 30, "MemorySwap": -1}, "limits of the engine Memory 4294967296, MemorySwap -1"),
        ({"NanoCpus": 700_000_000}, "limits of the engine NanoCpus 700000000"),
        ({"CpuQuota": 70_000}, "limits of the engine CpuQuota 70000"),
        ({"CpusetCpus": "0-3"}, "limits of the engine CpusetCpus 0-3"),
    ],
)
def test_whatever_differs_is_named(changes: dict[str, Any], said: str) -> None:
    (found,) = confinement.differences(inspected(**changes), PLAN, PROCESS)
    assert found.startswith(said)


class VllmServer(HTTPServer):
    """Answers as vLLM does, and remembers what it was asked."""

    replies: dict[str, tuple[int, dict[str, Any] | bytes]]
    asked: list[tuple[str, str | None, dict[str, Any] | None]]
    # Paths on which it forgets to ask for a key; whether it asks at all.
    open: set[str]
    guarded: bool


class VllmHandler(BaseHTTPRequestHandler):
    """One request."""

    server: VllmServer

    def do_GET(self) -> None:
        self._answer(None)

    def do_POST(self) -> None:
        self._answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

    def _answer(self, body: dict[str, Any] | None) -> None:
        authorization = self.headers.get("Authorization")
        self.server.asked.append((self.path, authorization, body))
        asked_as = f"{self.path} {self.headers['Upgrade']}" if self.headers["Upgrade"] else self.path
        reply: dict[str, Any] | bytes
        if self.server.guarded and authorization != f"Bearer {PROBE}" and asked_as not in self.server.open:
            status, reply = (403 if self.headers["Upgrade"] else 401), {"error": "who?"}
        else:
            streamed = self.server.replies.get(f"{self.path} streamed") if body and body.get("stream") else None
            status, reply = streamed or self.server.replies.get(self.path, (404, {}))
        self.send_response(status)
        if status == 302 and isinstance(reply, dict):
            self.send_header("Location", reply["location"])
        self.end_headers()
        self.wfile.write(reply if isinstance(reply, bytes) else json.dumps(reply).encode())

    def log_message(self, *_arguments: Any) -> None:
        """Say nothing."""


@pytest.fixture
def server() -> Iterator[VllmServer]:
    started = VllmServer(("127.0.0.1", 0), VllmHandler)
    started.asked, started.open, started.guarded = [], set(), False
    started.replies = {"/v1/models": (200, {"data": [{"id": MODEL}]}), "/v1/chat/completions": (200, REPLY)}
    thread = threading.Thread(target=started.serve_forever, args=(0.01,))
    thread.start()
    yield started
    started.shutdown()
    thread.join()
    started.server_close()


@pytest.fixture(autouse=True)
def _engine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An engine whose container is as planned and is this process, a token, and a proxy that nobody may use."""
    (tmp_path / f"proc/{os.getpid()}").mkdir(parents=True)
    (tmp_path / f"proc/{os.getpid()}/status").write_text(PROCESS)
    monkeypatch.setattr(containers, "PROC", tmp_path / "proc")
    monkeypatch.setattr(containers, "outlived", lambda _module, _container, _plan: [])
    monkeypatch.setattr(containers, "lies_there", lambda _plan, _label: True)
    monkeypatch.setattr(listening, "cgroup_of", lambda pid: f"0::/docker/{CONTAINER}\n" if pid == os.getpid() else "")
    monkeypatch.setattr(paths, "INSTANCE_STATES", str(tmp_path / "states"))
    (tmp_path / "states/tiny").mkdir(parents=True)
    (tmp_path / "states/tiny/probe").write_text(f"{PROBE}\n")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setattr(AnsibleModule, "get_bin_path", lambda *_arguments, **_options: "docker")
    monkeypatch.setattr(AnsibleModule, "run_command", lambda *_arguments: (0, json.dumps([inspected()]), ""))
    monkeypatch.setattr(instances, "read", lambda _module, _names: [{"current": True}])


READ = instances.read


def full(**changes: int) -> SimpleNamespace:
    """What the kernel says of a file system without room, or with, and without a fixed number of files."""
    return SimpleNamespace(**{"f_frsize": 4096, "f_bfree": 1, "f_files": 0, "f_ffree": 0, "f_flag": 0, **changes})


def verify(server: VllmServer, **given: Any) -> dict[str, Any]:
    url = f"http://127.0.0.1:{server.server_port}"
    arguments = {
        "plan": copy.deepcopy(PLAN),
        "label": "wished",
        "url": url,
        "question": "Capital?",
        **given,
    }
    return run_main("library.vllm_service_verify", arguments)


def test_documented_is_taken() -> None:
    documented = yaml.safe_load(vllm_service_verify.DOCUMENTATION)["options"]
    real = {
        name: {key: value for key, value in option.items() if key != "no_log"}
        for name, option in vllm_service_verify.ARGUMENT_SPEC.items()
    }
    assert {name: {key: said[key] for key in said if key != "description"} for name, said in documented.items()} == real


def test_a_server_that_answers_is_asked_under_its_name(server: VllmServer) -> None:
    answer = verify(server)
    assert (answer["changed"], answer["answer"], answer["models"]) == (False, "Paris.", [MODEL])
    (listed, _, _), (asked, authorization, body), *_metrics = server.asked
    assert (listed, asked, authorization) == ("/v1/models", "/v1/chat/completions", None)
    assert body is not None
    assert body["model"] == MODEL


def test_a_server_calls_itself_what_it_likes(server: VllmServer) -> None:
    """Its name is bytes of its choice: none of them ends who looks, and none is taken for what the kernel says."""
    status = containers.PROC / str(os.getpid()) / "status"
    status.write_bytes(b"Name:\t\xff\x1cSeccomp:\t2\n" + PROCESS.encode())
    assert verify(server)["answer"] == "Paris."
    unfiltered = PROCESS.replace("Seccomp:\t2\n", "")
    assert unfiltered != PROCESS
    status.write_bytes(b"Name:\ta\x1cSeccomp:\t2\n" + unfiltered.encode())
    assert "seccomp mode None" in verify(server)["msg"]


GUARDED = guarded({**copy.deepcopy(PLAN)}, Path("/x"))
EVERYWHERE = ["/health", "/v1/models", "/", "/no-such-path"]


def test_a_guarded_server_is_asked_without_a_key_everywhere_then_with_the_supervisors_token(server: VllmServer) -> None:
    server.guarded = True
    answer = verify(server, plan=copy.deepcopy(GUARDED))
    assert answer["answer"] == "Paris."
    assert PROBE not in json.dumps(answer)
    without = [path for path, authorization, _ in server.asked if authorization is None]
    assert without == [*EVERYWHERE, EVERYWHERE[0]]
    with_token = [path for path, authorization, _ in server.asked if authorization]
    assert with_token == ["/v1/models", "/v1/chat/completions", "/metrics"]


@pytest.mark.parametrize("path", [*EVERYWHERE, "/health websocket"])
def test_a_guarded_server_with_one_open_path_is_told(server: VllmServer, path: str) -> None:
    server.guarded, server.open = True, {path}
    said = verify(server, plan=copy.deepcopy(GUARDED))["msg"]
    name = "a websocket" if "websocket" in path else path
    assert f"answered without one: {name} ({server.replies.get(path.split()[0], (404,))[0]})." in said
    assert not [authorization for _, authorization, _ in server.asked if authorization]


def test_a_server_that_is_to_be_guarded_and_is_open_is_told(server: VllmServer) -> None:
    """The plan is wished, the server that runs asks nobody."""
    assert "is to ask everybody for a key" in verify(server, plan=copy.deepcopy(GUARDED))["msg"]


def test_no_redirection_is_followed(server: VllmServer) -> None:
    server.guarded = True
    with VllmServer(("127.0.0.1", 0), VllmHandler) as other:
        other.timeout, other.asked, other.open, other.guarded, other.replies = 0.2, [], set(), False, {}
        server.replies["/v1/models"] = (302, {"location": f"http://127.0.0.1:{other.server_port}/v1/models"})
        assert "answered with status 302" in verify(server, plan=copy.deepcopy(GUARDED))["msg"]
        other.handle_request()
        assert other.asked == []


@pytest.mark.parametrize("reply", [b"[" * 100_000, b"5", b"{"])
def test_an_answer_that_is_none_is_told(server: VllmServer, reply: bytes) -> None:
    server.replies["/v1/models"] = (200, reply)
    assert "gave no answer" in verify(server)["msg"]


@pytest.mark.parametrize("guarded", [False, True])
def test_an_answer_that_is_no_http_does_nothing_to_a_terminal(
    server: VllmServer, monkeypatch: pytest.MonkeyPatch, guarded: bool
) -> None:
    monkeypatch.setattr(VllmHandler, "_answer", lambda self, _body: self.wfile.write(b"\x1b[2J\x9b31m\r\n\r\n"))
    said = verify(server, **({"plan": copy.deepcopy(GUARDED)} if guarded else {}))["msg"]
    assert "gave no answer" in said
    assert said.isprintable()


def test_who_else_listens_at_the_port_gets_nothing(server: VllmServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "cgroup_of", lambda _pid: "0::/user.slice\n")
    said = verify(server, plan=copy.deepcopy(GUARDED))["msg"]
    assert f"(pid {os.getpid()}, uid {os.getuid()}), which is not of the container vllm-tiny" in said
    assert server.asked == []


@pytest.mark.parametrize("check", range(1, 21))
def test_a_process_that_takes_the_port_while_a_server_is_asked_gets_nothing(
    server: VllmServer, monkeypatch: pytest.MonkeyPatch, check: int
) -> None:
    """The listeners are checked before and after each of ten connections. One of these checks finds another process."""
    checks, read = itertools.count(1), listening.listeners_at

    def listeners(address: str, port: int) -> list[Listener]:
        return [Listener(address, port, 1)] if next(checks) == check else read(address, port)

    server.guarded = True
    server.replies["/metrics"] = (200, IDLE)
    server.replies["/v1/chat/completions streamed"] = (200, stream("", "one", " two", " three", tokens=7))
    monkeypatch.setattr(listening, "listeners_at", listeners)
    answer = verify(server, plan=copy.deepcopy(GUARDED))
    assert "which is not of the container vllm-tiny" in answer["msg"]
    assert len(server.asked) == (check - 1) // 2


def test_without_a_question_nothing_is_asked(server: VllmServer) -> None:
    assert verify(server, question="")["answer"] == ""
    assert server.asked == [("/v1/models", None, None)]


@pytest.mark.parametrize(
    ("path", "reply", "said"),
    [
        ("/v1/models", (200, {"data": [{"id": "other"}]}), f"serves other, but not {MODEL}."),
        ("/v1/models", (401, {"error": "who?"}), "/v1/models answered with status 401: "),
        ("/v1/chat/completions", (500, {"error": "oom"}), '/v1/chat/completions answered with status 500: {"error'),
        ("/v1/chat/completions", (200, {"choices": []}), 'answered {"choices": []} to: Capital?'),
        (
            "/v1/chat/completions",
            (200, {**REPLY, "choices": [{"message": {"content": " "}, "finish_reason": "stop"}]}),
            "to: Capital? That is no answer of /v1/chat/completions: it has no text.",
        ),
    ],
)
def test_a_server_that_does_not_serve_is_told_so(
    server: VllmServer, path: str, reply: tuple[int, dict[str, Any]], said: str
) -> None:
    server.replies[path] = reply
    answer = verify(server)
    assert answer["failed"] is True
    assert said in answer["msg"]


def test_a_server_that_refuses_a_picture_is_told_with_the_question(server: VllmServer) -> None:
    plan = {**copy.deepcopy(PLAN), "ask": {"media": {"image": 1}}}
    assert verify(server, plan=plan)["answer"] == "Paris."
    asked = [body for path, _, body in server.asked if path == "/v1/chat/completions" and body]
    assert [part["type"] for part in asked[1]["messages"][0]["content"]] == ["text", "image_url"]
    server.replies["/v1/chat/completions"] = (400, {"error": "tiny is not a multimodal model"})
    said = verify(server, plan=plan)["msg"]
    assert said.endswith('{"error": "tiny is not a multimodal model"} It was asked: Capital?')


WARM: dict[str, Any] = {
    **PLAN,
    "paths": [*PLAN["paths"], "/tokenize"],
    "buckets": {"prompt_graphs": 1, "prompt_bs": [1], "prompt_seq": [4096]},
}


def saying(server: VllmServer, monkeypatch: pytest.MonkeyPatch, content: str) -> list[str]:
    """Have the server say so to every question, and count tokens; returns the texts of warnings, as they come."""
    said = {**REPLY, "choices": [{"message": {"content": content}, "finish_reason": "stop"}]}
    server.replies |= {"/v1/chat/completions": (200, said), "/tokenize": (200, {"count": 340})}
    warned: list[str] = []
    monkeypatch.setattr(AnsibleModule, "warn", lambda _self, text: warned.append(text))
    monkeypatch.setattr(secrets, "randbelow", lambda _most: 382913)
    return warned


@pytest.mark.parametrize(
    ("content", "outcome", "warns"), [("482913", "right", 0), ("The number is 17.", "doubtful", 1)]
)
def test_long_prompt_is_judged(
    server: VllmServer, monkeypatch: pytest.MonkeyPatch, content: str, outcome: str, warns: int
) -> None:
    warned = saying(server, monkeypatch, content)
    assert verify(server, plan=WARM, question="", long_prompt=True)["long_prompt"] == outcome
    assert len(warned) == warns
    (counted, _, _), (asked, _, body) = server.asked[-2:]
    assert (counted, asked) == ("/tokenize", "/v1/chat/completions")
    assert body is not None
    assert len(body["messages"][0]["content"]) > 10_000


def test_long_prompt_that_is_answered_with_garbage_fails(server: VllmServer, monkeypatch: pytest.MonkeyPatch) -> None:
    saying(server, monkeypatch, "!" * 256)
    answer = verify(server, plan=WARM, question="", long_prompt=True)
    assert (answer["failed"], answer["refused_id"]) == (True, "answer_unreadable")


@pytest.mark.parametrize("reply", [(500, {"error": "x"}), (200, b"no JSON"), (200, b"[]")])
def test_long_prompt_that_the_server_fails_with_fails(
    server: VllmServer, monkeypatch: pytest.MonkeyPatch, reply: tuple[int, Any]
) -> None:
    saying(server, monkeypatch, "x")
    server.replies["/v1/chat/completions"] = reply
    answer = verify(server, plan=WARM, question="", long_prompt=True)
    assert answer["failed"]
    assert "a prompt that fills its longest bucket" in answer["msg"]


@pytest.mark.parametrize("kind", [TimeoutError, socket.timeout])
def test_long_prompt_without_an_answer_in_time_is_a_warning(
    server: VllmServer, monkeypatch: pytest.MonkeyPatch, kind: type[OSError]
) -> None:
    warned = saying(server, monkeypatch, "482913")
    answer = listening.answer

    def late(connection: Any, path: str, *rest: Any) -> tuple[int, bytes]:
        if path == "/v1/chat/completions":
            raise kind("timed out")
        return answer(connection, path, *rest)

    monkeypatch.setattr(listening, "answer", late)
    assert verify(server, plan=WARM, question="", long_prompt=True)["long_prompt"] == "unanswered"
    assert "within 60 s" in warned[0]


def test_long_prompt_takes_the_time_of_its_own(server: VllmServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other questions have that of the option."""
    saying(server, monkeypatch, "482913")
    waited = []
    connected = listening.connected

    def kept(url: str, sockets: Any, timeout: float) -> Any:
        waited.append(timeout)
        return connected(url, sockets, timeout)

    monkeypatch.setattr(listening, "connected", kept)
    verify(server, plan=WARM, question="", long_prompt=True, timeout=7)
    assert waited == [7, 60, 60]


def test_long_prompt_of_a_plan_without_a_warm_up_is_left_out(
    server: VllmServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    warned = saying(server, monkeypatch, "x")
    assert verify(server, question="", long_prompt=True)["long_prompt"] == "none"
    assert "warms up none that is long enough" in warned[0]
    assert [path for path, _, _ in server.asked] == ["/v1/models"]


def test_long_prompt_for_a_server_that_cannot_count_is_shorter(
    server: VllmServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    saying(server, monkeypatch, "482913")
    assert verify(server, plan=WARM, question="", long_prompt=True)["long_prompt"] == "right"
    server.replies["/tokenize"] = (200, b"no JSON")
    assert verify(server, plan=WARM, question="", long_prompt=True)["long_prompt"] == "right"
    counted, estimated = (body for path, _, body in server.asked if path == "/v1/chat/completions")
    assert counted is not None
    assert estimated is not None
    assert len(estimated["messages"][0]["content"]) < len(counted["messages"][0]["content"])


def test_long_prompt_is_off_by_default(server: VllmServer, monkeypatch: pytest.MonkeyPatch) -> None:
    saying(server, monkeypatch, "!" * 256)
    assert verify(server, plan=WARM, question="")["long_prompt"] == ""
    assert [path for path, _, _ in server.asked] == ["/v1/models"]


def test_an_embedding_of_another_size_than_the_plan_says_is_refused(server: VllmServer) -> None:
    plan = {**copy.deepcopy(PLAN), "task": "embed", "ask": {"dimensions": 4}}
    data = [{"index": place, "embedding": [0.5, float(place), 0.0]} for place in (0, 1)]
    server.replies["/v1/embeddings"] = (200, {"data": data})
    answer = verify(server, plan=plan)
    assert answer["refused_id"] == "answer_misshapen"
    assert answer["msg"].endswith("its embeddings have 3 numbers, and the model's hidden_size is 4.")
    plan["ask"]["dimensions"] = 3
    assert verify(server, plan=plan)["answer"] == "an embedding of 3 numbers for each of two texts"


IDLE = b"vllm:num_requests_running 0\nvllm:num_requests_waiting 0\n"


def stream(*contents: str, tokens: int) -> bytes:
    chunks: list[dict[str, Any]] = [{"choices": [{"delta": {"content": content}}]} for content in contents]
    chunks.append({"choices": [], "usage": {"completion_tokens": tokens}})
    return b"".join(b"data: " + json.dumps(chunk).encode() + b"\n\n" for chunk in chunks) + b"data: [DONE]\n\n"


@pytest.fixture
def streaming(server: VllmServer, monkeypatch: pytest.MonkeyPatch) -> VllmServer:
    """A server that has nothing else to do, and writes a word each time the clock is looked at."""
    server.replies["/metrics"] = (200, IDLE)
    monkeypatch.setattr(
        listening,
        "streamed",
        lambda *_asked: enumerate(stream("", "one", " two", " three", tokens=7).splitlines(keepends=True)),
    )
    return server


def record_of(tmp_path: Path) -> dict[str, Any]:
    return dict(json.loads((tmp_path / "states/tiny/pace.json").read_text()))


def test_how_quickly_it_writes_is_written_down_and_compared(streaming: VllmServer, tmp_path: Path) -> None:
    answer = verify(streaming)
    # Lines 2, 4 and 6 of the stream have text; seven tokens came.
    assert answer["pace"] == {"first_token_seconds": 2, "tokens_per_second": 1.5}
    assert (answer["changed"], answer.get("warnings", [])) == (False, [])
    written = record_of(tmp_path)
    assert list(written["plans"]) == ["wished"]
    assert written["plans"]["wished"]["last"]["tokens_per_second"] == 1.5
    written["plans"]["wished"]["early"][0]["tokens_per_second"] = 10.0
    (tmp_path / "states/tiny/pace.json").write_text(json.dumps(written))
    again = verify(streaming)
    assert (again["changed"], again.get("failed", False)) == (False, False)
    early = record_of(tmp_path)["plans"]["wished"]["early"]
    assert [each["tokens_per_second"] for each in early] == [10.0, 1.5]


def test_a_damaged_record_is_begun_anew(streaming: VllmServer, tmp_path: Path) -> None:
    (tmp_path / "states/tiny/pace.json").write_text("{")
    assert verify(streaming)["answer"] == "Paris."
    assert list(record_of(tmp_path)["plans"]) == ["wished"]


@pytest.mark.parametrize(
    "metrics", [(404, {}), (200, b""), (200, IDLE.replace(b"running 0", b"running 1")), (200, b"\xff")]
)
def test_who_has_other_requests_is_not_measured(streaming: VllmServer, tmp_path: Path, metrics: Any) -> None:
    streaming.replies["/metrics"] = metrics
    assert verify(streaming)["pace"] == {}
    assert not (tmp_path / "states/tiny/pace.json").exists()


def test_a_stream_that_tells_nothing_fails_nothing(server: VllmServer, tmp_path: Path) -> None:
    """The server answers the streamed question with one piece, as it does the other."""
    server.replies["/metrics"] = (200, IDLE)
    answer = verify(server)
    assert (answer["answer"], answer["pace"]) == ("Paris.", {})
    streamed = [
        body for path, _, body in server.asked if path == "/v1/chat/completions" and body and body.get("stream")
    ]
    assert [(body["max_tokens"], body["temperature"], body["ignore_eos"]) for body in streamed] == [(64, 0, True)]
    assert not (tmp_path / "states/tiny/pace.json").exists()


def test_a_container_that_is_not_confined_ends_it_before_anything_is_asked(
    server: VllmServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    loose = json.dumps([inspected(Privileged=True)])
    monkeypatch.setattr(AnsibleModule, "run_command", lambda *_arguments: (0, loose, ""))
    assert verify(server)["msg"].endswith(
        "is not confined as planned: it is privileged. Have it made again: systemctl restart vllm-tiny"
    )
    assert server.asked == []


def test_a_server_with_former_keys_ends_it_before_anything_is_asked(
    server: VllmServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = "it still has the former /etc/gaudi-serving/instances/tiny/guard, which was replaced"
    monkeypatch.setattr(containers, "outlived", lambda _module, _container, _plan: [said])
    assert verify(server)["msg"] == (
        f"tiny does not run with what is on the node: {said}. Run the playbook again, which restarts it."
    )
    assert server.asked == []


def test_a_run_whose_wish_was_overwritten_names_who_did_it(
    server: VllmServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(paths, "INSTANCES", str(tmp_path))
    said = verify(server, label="another")["msg"]
    assert said.startswith(f"{PLAN['instance']} does not run with what this run has written")
    (tmp_path / PLAN["instance"]).mkdir()
    written = {"by": "controller-2", "at": "2026-11-23T02:00:00Z"}
    (tmp_path / PLAN["instance"] / "explanation.json").write_text(json.dumps({"written": written}))
    said = verify(server, label="another")["msg"]
    assert "The plan on the node was written by controller-2 at 2026-11-23T02:00:00Z." in said
    (tmp_path / PLAN["instance"] / "explanation.json").write_text("{")
    assert "failed" in verify(server, label="another")


def test_a_container_that_ended_meanwhile_is_told(server: VllmServer, monkeypatch: pytest.MonkeyPatch) -> None:
    ended = json.dumps([inspected(State={"Running": False, "Pid": 0})])
    monkeypatch.setattr(AnsibleModule, "run_command", lambda *_arguments: (0, ended, ""))
    assert "does not run" in verify(server)["msg"]


def test_a_supervisor_that_does_not_take_up_the_disk_ends_it(
    server: VllmServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vllm_service_verify, "LOOK_AGAIN", 0.0)
    answers_of = iter([False, False, True])
    late = {"unwritten": "", "damaged": ""}
    monkeypatch.setattr(instances, "read", lambda _module, _names: [{**late, "current": next(answers_of)}])
    assert verify(server)["answer"] == "Paris."
    monkeypatch.setattr(vllm_service_verify, "HAND_OVER_SECONDS", 0.0)
    monkeypatch.setattr(instances, "read", lambda _module, _names: [{**late, "current": False}])
    assert "systemctl reload vllm-tiny" in verify(server)["msg"]
    late["damaged"] = "state.json is damaged: it is empty"
    assert "on the disk (state.json is damaged: it is empty)." in verify(server)["msg"]


def test_a_full_disk_is_not_the_supervisors_fault(
    server: VllmServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(instances, "read", READ)
    monkeypatch.setattr(instances, "PROGRAMS", tmp_path)
    monkeypatch.setattr(states, "STATES", tmp_path)
    monkeypatch.setattr(instances, "systemctl", lambda _module, *_arguments: "ActiveState=active\n")
    monkeypatch.setattr(os, "statvfs", lambda _path: full())
    monkeypatch.setattr(vllm_service_verify, "HAND_OVER_SECONDS", 0.0)
    said = verify(server)["msg"]
    assert said.startswith("What the supervisor of tiny runs with cannot be told, because ")
    assert f"{tmp_path}/tiny/state.json cannot be written: the file system of {tmp_path} has 4.1 kB free" in said
    assert "systemctl reload" not in said


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({}, "has 4.1 kB free, and 20.0 MB are needed"),
        ({"f_bfree": 10**6, "f_files": 9}, "has no room for one more file (df -i)"),
        ({"f_flag": os.ST_RDONLY}, "is read-only"),
        ({"f_bfree": 10**6}, ""),
    ],
)
def test_what_keeps_a_file_from_being_written_is_said(
    changes: dict[str, int], what: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(os, "statvfs", lambda _path: full(**changes))
    path = tmp_path / "not there/state.json"
    said = f"{path} cannot be written: the file system of {tmp_path} {what}" if what else ""
    assert folders.no_room(path, instances.ROOM) == said


def test_ports_that_are_open_to_others_end_it(server: VllmServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The supervisor closes them within its next look: it is waited for, and told where it does not."""
    plan = copy.deepcopy(PLAN)
    plan["listen"]["closed_ports"] = [28000, 28015]
    rule = 'type filter hook input priority filter - 10;\niifname != "lo" tcp dport 28000-28015 reject with tcp reset\n'
    answers = [(1, "", "Error: No such file or directory"), (0, rule, "")]
    asked: list[list[str]] = []

    def command(_module: AnsibleModule, words: list[str], *_more: Any) -> tuple[int, str, str]:
        if words[0] != "nft":
            return 0, json.dumps([inspected()]), ""
        asked.append(words)
        return answers[min(len(asked), len(answers)) - 1]

    monkeypatch.setattr(AnsibleModule, "run_command", command)
    monkeypatch.setattr(vllm_service_verify, "LOOK_AGAIN", 0.0)
    assert "failed" not in verify(server, plan=plan)
    assert asked == [["nft", "list", "table", "inet", "gaudi_serving_tiny"]] * 2
    monkeypatch.setattr(vllm_service_verify, "HAND_OVER_SECONDS", 0.0)
    answers[1:] = []
    told = verify(server, plan=plan)
    assert told["failed"]
    assert "Ports 28000-28015 of the server's own processes are not closed to others" in told["msg"]
