"""Ask a served model what people ask, with the client they use, and look at the shape of every answer.

    python openai_client.py SSH_CONFIG NODE PORT NAME PATH

The server listens on loopback of NODE, at PORT; it is reached through ssh, as a person would. NAME and PATH are the
names it serves the model by. The model may say anything: what is looked at is status, counts and structure. Prints
what went well and what did not as JSON, and the latter again to standard error; the status is 1 where something
did not.
"""

from __future__ import annotations

import contextlib
import json
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import openai

PATIENCE = 300.0  # seconds for an answer, or for the way to be there
AT_ONCE = 64
LONG = 500  # tokens that nobody waits for
TRIES = 5  # answers that are left
QUESTION: list[Any] = [{"role": "user", "content": "What is the capital of France?"}]
CITIES = ["Paris", "Rome"]
WEATHER: Any = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather of a city.",
        "strict": True,
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "enum": CITIES}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}
SCHEMA: Any = {
    "type": "object",
    "properties": {"city": {"type": "string", "enum": CITIES}, "sure": {"type": "boolean"}},
    "required": ["city", "sure"],
    "additionalProperties": False,
}


class Asker:
    """What people ask of one model; every method that begins with ``ask_`` is a check."""

    def __init__(self, client: openai.OpenAI, name: str, path: str) -> None:
        self.client, self.name, self.path = client, name, path

    def chat(self, **options: Any) -> Any:
        """A chat completion, short and always the same unless said otherwise."""
        said = {"model": self.name, "messages": QUESTION, "max_tokens": 12, "temperature": 0, **options}
        return self.client.chat.completions.create(**said)

    def whole(self, **options: Any) -> Any:
        """A chat completion that does not end by itself: on which processor which word comes is the model's affair."""
        return self.chat(extra_body={"ignore_eos": True}, **options)

    def ask_names(self) -> None:
        """Both names are served, and answers show the first."""
        assert [model.id for model in self.client.models.list()] == [self.name, self.path]
        assert self.chat(model=self.path).model == self.name

    def ask_stream_with_usage(self) -> None:
        """A stream ends with what it used."""
        chunks = list(self.whole(stream=True, stream_options={"include_usage": True}))
        assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks[:-1] if chunk.choices)
        assert not chunks[-1].choices
        assert chunks[-1].usage.completion_tokens == 12

    def ask_logprobs(self) -> None:
        """A probability for each token, and the best ones beside it."""
        answer = self.chat(logprobs=True, top_logprobs=3)
        tokens = answer.choices[0].logprobs.content
        assert len(tokens) == answer.usage.completion_tokens
        assert all(len(token.top_logprobs) == 3 and token.logprob <= 0 for token in tokens)
        text: Any = self.client.completions.create(model=self.name, prompt="Paris", max_tokens=4, logprobs=2, echo=True)
        assert len(text.choices[0].logprobs.tokens) == text.usage.total_tokens

    def ask_several_answers(self) -> None:
        """n answers to one question."""
        assert [choice.index for choice in self.chat(n=3, temperature=1).choices] == [0, 1, 2]

    def ask_seed(self) -> None:
        """The same seed gives the same answer, another one another."""
        first, again, other = (self.chat(seed=seed, temperature=1).choices[0].message.content for seed in (7, 7, 8))
        assert first == again != other

    def ask_stop(self) -> None:
        """An answer ends before the word it is to stop at."""
        whole = self.whole(max_tokens=48).choices[0].message.content
        # A letter that is still to come from the next token ends nothing, so the word is one of plain letters.
        word = re.findall("[A-Za-z]{3}", whole)[-1]
        ended = self.whole(max_tokens=48, stop=[word]).choices[0]
        assert (ended.finish_reason, ended.message.content) == ("stop", whole[: whole.index(word)])

    def ask_penalties(self) -> None:
        """Penalties are taken, and change what is said."""
        plain = self.whole(max_tokens=48).choices[0].message.content
        other = self.whole(max_tokens=48, frequency_penalty=1.5, presence_penalty=1.0).choices[0].message.content
        assert other != plain

    def ask_json_object(self) -> None:
        """What comes is JSON as far as it goes."""
        choice = self.chat(response_format={"type": "json_object"}, max_tokens=64, temperature=1, seed=1).choices[0]
        assert choice.message.content.lstrip().startswith("{")
        if choice.finish_reason == "stop":
            assert isinstance(json.loads(choice.message.content), dict)

    def ask_json_schema(self) -> None:
        """What comes follows the schema."""
        wanted = {"type": "json_schema", "json_schema": {"name": "answer", "schema": SCHEMA, "strict": True}}
        choice = self.chat(response_format=wanted, max_tokens=128).choices[0]
        possible = [f'{{"city":"{city}","sure":{sure}}}' for city in CITIES for sure in ("true", "false")]
        assert follows(choice.message.content, choice.finish_reason, possible), choice

    def ask_tools(self) -> None:
        """A tool that is asked for by name is called as it wants to be; where the model chooses, it may not."""
        by_name = {"type": "function", "function": {"name": "weather"}}
        choice = self.chat(tools=[WEATHER], tool_choice=by_name, max_tokens=256).choices[0]
        if choice.message.tool_calls:
            (call,) = choice.message.tool_calls
            assert call.function.name == "weather"
            assert json.loads(call.function.arguments)["city"] in CITIES
        else:
            call = '<tool_call>{{"name":"weather","arguments":{{"city":"{}"}}}}</tool_call>'
            assert follows(choice.message.content, choice.finish_reason, [call.format(city) for city in CITIES]), choice
        chosen = self.chat(tools=[WEATHER], tool_choice="auto").choices[0]
        assert chosen.message.content or chosen.message.tool_calls

    def ask_responses(self) -> None:
        """The newer interface."""
        answer: Any = self.client.responses.create(model=self.name, input="What is 1 + 1?", max_output_tokens=12)
        (message,) = answer.output
        assert [part.type for part in message.content] == ["output_text"], answer
        # This interface has no ignore_eos: the model may end by itself before it has said 12 tokens.
        assert 0 < answer.usage.output_tokens <= 12, answer.usage
        assert answer.status in (("completed",) if answer.usage.output_tokens < 12 else ("completed", "incomplete"))

    def ask_several_prompts(self) -> None:
        """A completion of each."""
        answer = self.client.completions.create(model=self.name, prompt=["Paris", "Rome", "Oslo"], max_tokens=4)
        assert [choice.index for choice in answer.choices] == [0, 1, 2]

    def ask_too_long(self) -> None:
        """A question beyond the model's length is refused, and so is an answer."""
        for options in ({"messages": [{"role": "user", "content": "one two " * 2000}]}, {"max_tokens": 100000}):
            with raises(openai.BadRequestError) as refused:
                self.chat(**options)
            assert re.search("context length|max_model_len", str(refused[0])), refused

    def ask_unknown_model(self) -> None:
        """404, with the name."""
        with raises(openai.NotFoundError) as refused:
            self.chat(model="no-such-model")
        assert "no-such-model" in str(refused[0]), refused

    def ask_embeddings_and_rerank(self) -> None:
        """A model that writes text says that it does neither."""
        with raises(openai.NotFoundError, openai.BadRequestError):
            self.client.embeddings.create(model=self.name, input="Paris")
        with raises(openai.NotFoundError, openai.BadRequestError):
            body = {"model": self.name, "query": "capital", "documents": ["Paris", "Rome"]}
            self.client.post("/rerank", body=body, cast_to=dict[str, Any])

    def ask_many_at_once(self) -> None:
        """Every one of them is answered."""
        with ThreadPoolExecutor(AT_ONCE) as askers:
            answers = list(askers.map(lambda number: self.whole(seed=number), range(AT_ONCE)))
        assert all(answer.usage.completion_tokens == 12 for answer in answers)

    def ask_and_go_away(self) -> None:
        """Whoever leaves in the middle of an answer leaves no work behind."""
        # A server that does not notice writes every answer to its end. One that does may have written one, where the
        # machine was too busy for us to leave in time.
        assert any(self.written_after_leaving() < LONG for _ in range(TRIES))

    def written_after_leaving(self) -> float:
        """Tokens that the server wrote of an answer of LONG tokens whose reader left at the first one."""
        before = self.metric("generation_tokens_total")
        stream = self.whole(stream=True, max_tokens=LONG)
        next(iter(stream))
        stream.close()
        # The counts follow the answer: before they name its first token, they do not name the request either.
        until(lambda: self.metric("generation_tokens_total") > before, "the server to count what it answered")
        until(lambda: self.metric("num_requests_running") == 0, "the server to stop answering nobody")
        return self.metric("generation_tokens_total") - before

    def metric(self, name: str) -> float:
        """A number that the server gives about itself."""
        root = str(self.client.base_url).removesuffix("/v1/")
        text = self.client.get(f"{root}/metrics", cast_to=str)
        (line,) = (line for line in text.splitlines() if line.startswith(f"vllm:{name}{{"))
        return float(line.rpartition(" ")[2])


def follows(text: str, finished: str, possible: list[str]) -> bool:
    """Whether a text is one of the possible ones, or was on the way to one; JSON may have any blanks in between."""
    said = "".join(text.split())
    return said in possible if finished == "stop" else any(whole.startswith(said) for whole in possible)


@contextlib.contextmanager
def raises(*kinds: type[Exception]) -> Iterator[list[Exception]]:
    """Expect an error of the client, and give it."""
    found: list[Exception] = []
    try:
        yield found
    except kinds as error:
        found.append(error)
    else:
        raise AssertionError(f"no {' or '.join(kind.__name__ for kind in kinds)}")


def until(condition: Callable[[], bool], what: str) -> None:
    """Wait for a condition. Raises TimeoutError."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(what)
        time.sleep(0.05)  # neither a port nor a server tells when it is so far


@contextlib.contextmanager
def way(config: str, node: str, port: int) -> Iterator[int]:
    """A port of this machine that leads to one of the node's loopback."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        here = int(probe.getsockname()[1])
    ssh = subprocess.Popen(
        ["ssh", "-F", config, "-N", "-o", "ExitOnForwardFailure=yes", "-L", f"127.0.0.1:{here}:127.0.0.1:{port}", node]
    )

    def open_now() -> bool:
        assert ssh.poll() is None, f"ssh ended with status {ssh.returncode}"
        with socket.socket() as attempt:
            return attempt.connect_ex(("127.0.0.1", here)) == 0

    try:
        until(open_now, "the way to the node")
        yield here
    finally:
        ssh.terminate()
        ssh.wait()


def main(config: str, node: str, port: str, name: str, path: str) -> int:
    """Ask everything; one thing that goes wrong does not keep the others from being asked."""
    done: dict[str, str] = {}
    with way(config, node, int(port)) as here:
        client = openai.OpenAI(
            base_url=f"http://127.0.0.1:{here}/v1",
            api_key="none",
            timeout=PATIENCE,
            max_retries=0,
            # The server ends an idle connection after 5 s, which may be just when it is used again.
            default_headers={"Connection": "close"},
        )
        asker = Asker(client, name, path)
        for check in [check for check in vars(Asker) if check.startswith("ask_")]:
            try:
                getattr(asker, check)()
                done[check] = "ok"
            except Exception as error:  # noqa: BLE001 - whatever it is, it is reported and fails the run
                done[check] = repr(error)
    wrong = {check: result for check, result in done.items() if result != "ok"}
    print(json.dumps(done, indent=2))
    for check, result in wrong.items():
        print(f"{check}: {result}", file=sys.stderr)
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
