"""Golden outputs of both engines: answers of the hf engine, and requests and parsed replies of the openai engine.

The hf engine runs calibration checkpoints. The openai engine talks to a real HTTP server that gives scripted replies.
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any
from unittest import mock

import msgspec

from longctx.fixtures import versions
from longctx.fixtures.checkpoints.checkpoint import read_checkpoint
from longctx.fixtures.engines import execution_settings
from longctx.fixtures.engines.hf.settings import HfSettings
from longctx.fixtures.engines.openai.endpoint import Endpoint, ServerSettings, TokenCounting
from longctx.fixtures.records import Generation, Prompt
from longctx.fixtures.tokenization.load import load_tokenizer
from tests.golden.output import Output
from tests.helpers.runs import calibration_checkpoint
from tests.helpers.servers import ChatServer, Request, Response, chat_completion, in_json, text_completion

NEEDLES = {"amber": "1234567", "birch": "7654321", "coral": "1029384"}
FILLER = "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again. "
CONTEXT = "".join(
    f"{FILLER}One of the special magic numbers for key-{key} is: {value}. " for key, value in NEEDLES.items()
)
# (settings of the engine, names of the prompts of one call).
HF_RUNS: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "alone": ({}, ("amber", "stop", "two stops", "settled", "settled by either", "short", "unrelated", "opening")),
    "shared prefixes": ({}, ("unrelated", "amber", "birch", "coral", "short context", "amber")),
    "batches": ({"batch_size": 3}, ("amber", "unrelated", "settled", "birch", "stop", "coral", "short context")),
    "chunks": ({"prefill_chunk": "64"}, ("amber", "stop", "settled", "unrelated", "coral")),
    "chunks in batches": ({"prefill_chunk": "64", "batch_size": 2}, ("amber", "settled", "unrelated", "short context")),
    "windows": ({}, ("amber", "short context", "birch", "coral", "unrelated", "amber", "stop")),
    "windows in chunks": ({"prefill_chunk": "48"}, ("amber", "short context", "coral")),
    "thinking": ({"thinking_tokens": 4}, ("amber", "stop", "short", "opened thought", "opening", "unrelated")),
}
# Texts that reach the engine's stop rules character by character.
WRITTEN = {
    "words": "one two three",
    "a stop string": "one\ntwo",
    "a stop string in parts": "one END two",
    "settled at once": "42 and more",
    "settled in capitals": "The Answer Is SEVEN now",
    "a thought": "<think>so</think>\n\n42",
    "a blank before the thought": "\n<think>so</think>42",
    "an empty thought": "<think></think>42",
    "a thought that does not end": "<think>so and so",
    "a stop string in the thought": "<think>a\nb</think>42\n43",
    "a closing mark alone": "4 </think>2",
    "an opening": "It is 42",
    "nothing": "",
}
LETTER_PROMPTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "stop": {"stop": ("\n", "END")},
    "settled": {"settled_by": (("4", "2"), ("seven",)), "stop": ("\n",)},
    "opened thought": {"text": "Q<think>\n", "stop": ("\n",)},
    "opening": {"opening": "It is"},
}

# Facts of the machine, and notes for the reader.
NO_SETTINGS = ("hardware", "notes", "thought")


def engine_outputs() -> Iterator[Output]:
    """Yield the outputs of both engines, and the settings that are part of the keys of stored answers."""
    for name, value in (*_hf_values(), *_stop_rule_values()):
        yield Output(name=f"hf {name}", version_name='ENGINES["hf"]', version=versions.ENGINES["hf"], value=value)
    for name, value in _openai_values():
        yield Output(
            name=f"openai {name}", version_name='ENGINES["openai"]', version=versions.ENGINES["openai"], value=value
        )


def _hf_values() -> Iterator[tuple[str, Any]]:
    import torch

    from longctx.fixtures.engines.hf.engine import load_hf_engine

    torch.set_num_threads(1)
    # The first checkpoint has full attention, the second a window of 64 tokens.
    paths = {name: str(calibration_checkpoint("64" if "window" in name else "full")) for name in HF_RUNS}
    checkpoints = {path: read_checkpoint(path) for path in paths.values()}
    tokenizer: Any = load_tokenizer(paths["alone"])
    prompts = _needle_prompts(tokenizer)
    for name, (settings, chosen) in HF_RUNS.items():
        checkpoint = checkpoints[paths[name]]
        engine = load_hf_engine(checkpoint, HfSettings(device="cpu", **settings), tokenizer=tokenizer)
        generations = engine.generate([prompts[key] for key in chosen])
        yield name, [[key, _shown(generation)] for key, generation in zip(chosen, generations, strict=True)]
        facts = msgspec.to_builtins(engine.facts)
        yield f"{name}: facts", {key: value for key, value in facts.items() if key not in NO_SETTINGS}
    keyed = execution_settings(checkpoints[paths["alone"]], HfSettings(device="cpu"))
    yield "execution settings", {key: value for key, value in keyed.items() if key != "versions"}


def _needle_prompts(tokenizer: Any) -> dict[str, Prompt]:
    """Return questions on one context, and prompts that share little or nothing with them."""
    amber = _tokenized(tokenizer, CONTEXT + _question("amber"))
    return {
        **{key: _tokenized(tokenizer, CONTEXT + _question(key)) for key in NEEDLES},
        "stop": replace(amber, stop=("5", "456")),
        "two stops": replace(amber, stop=("7", "234")),
        "settled": replace(amber, settled_by=(("123", "45"),)),
        "settled by either": replace(amber, settled_by=(("9",), ("2",)), stop=("23",)),
        "short": replace(amber, generation_tokens=3),
        "opening": replace(amber, opening="12"),
        "opened thought": _tokenized(tokenizer, CONTEXT + "<think>"),
        "short context": _tokenized(tokenizer, f"The special magic number for key-x is: 5. {_question('x')}"),
        "unrelated": _tokenized(tokenizer, f"{FILLER}{FILLER} Where are we?"),
    }


def _question(key: str) -> str:
    subject = f"the special magic number for key-{key} mentioned in the provided text"
    return f"What is {subject}? T{subject[1:]} is"


def _tokenized(tokenizer: Any, text: str) -> Prompt:
    ids = tuple(tokenizer(text)["input_ids"])
    return Prompt(text=text, token_ids=ids, length_tokens=len(ids), generation_tokens=12)


def _stop_rule_values() -> Iterator[tuple[str, Any]]:
    """Yield text, finish reason and token count of scripted answers with one token per letter."""
    from longctx.fixtures.engines.answers import StopTracker

    end_id = 0
    for thinking_tokens in (0, 14):
        for kind, changes in LETTER_PROMPTS.items():
            results = {}
            for name, written in WRITTEN.items():
                tracker = StopTracker(_letters(**changes), Letters(), {end_id}, thinking_tokens=thinking_tokens)
                for token in (*map(ord, written), end_id):
                    tracker.add_token(token)
                results[name] = [tracker.text, tracker.finish, len(tracker.tokens)]
            yield f"stop rules, {kind}, {thinking_tokens} tokens for a thought", results


def _letters(text: str = "Q", generation_tokens: int = 10, **changes: Any) -> Prompt:
    ids = tuple(map(ord, text))
    return Prompt(text=text, token_ids=ids, length_tokens=len(ids), generation_tokens=generation_tokens, **changes)


def _openai_values() -> Iterator[tuple[str, Any]]:
    """Yield request bodies for servers of every kind, and generations for every scripted reply."""
    # A proxy set in the environment must not intercept requests to the test server.
    with mock.patch.dict(os.environ, NO_PROXY="127.0.0.1"), ChatServer().serving() as server:
        plain = Endpoint(
            url=server.url, model="m", api="completions", prompts="text", prefix="continued",
            counting=TokenCounting(ratio=1.0, overhead=0.0, exact=True),
        )  # fmt: skip
        endpoints = {
            "completions": plain,
            "completions of ids": replace(plain, prompts="ids"),
            "completions, sampled": replace(plain, greedy=False),
            "chat": replace(plain, api="chat"),
            "chat, sampled": replace(plain, api="chat", greedy=False),
        }
        for name, endpoint in endpoints.items():
            for thinking_tokens in (0, 14):
                client = Client(server, endpoint, thinking_tokens)
                label = f"{name}, {thinking_tokens} tokens for a thought"
                yield from ((f"request, {label}, {kind}", value) for kind, value in _requests(client))
                if name == "completions":
                    yield from ((f"reply, {label}, {kind}", value) for kind, value in _completions_read(client))
                if name == "chat":
                    yield from ((f"reply, {label}, {kind}", value) for kind, value in _chats_read(client))
            yield (
                f"execution settings, {name}",
                execution_settings(NO_CHECKPOINT, ServerSettings(endpoint=endpoint, thinking_tokens=14)),
            )


class Client:
    """The openai engine, connected to a server that gives scripted replies."""

    def __init__(self, server: ChatServer, endpoint: Endpoint, thinking_tokens: int):
        from longctx.fixtures.engines.openai.engine import OpenAIEngine

        self.server = server
        self.endpoint = endpoint
        self.engine = OpenAIEngine(ServerSettings(endpoint=endpoint, thinking_tokens=thinking_tokens), Letters())

    def generations(self, prompts: Mapping[str, Prompt], replies: Mapping[str, Response]) -> dict[str, Generation]:
        """Return the generations by name; a prompt and its user turn begin with the name of their reply."""

        def reply(request: Request) -> Response:
            prompt = request.body["prompt"] if "prompt" in request.body else request.body["messages"][0]["content"]
            text = prompt if isinstance(prompt, str) else "".join(map(chr, prompt))
            return replies[text.removeprefix("<s>").partition(":")[0]]

        self.server.requests.clear()
        self.server.answer = reply
        return dict(zip(prompts, self.engine.generate(list(prompts.values())), strict=True))


def _requests(client: Client) -> Iterator[tuple[str, Any]]:
    """Yield the path and body of the request for every kind of prompt."""
    prompts = {
        "plain": _letters("plain:", turns=("plain:", "")),
        "prefix": _letters("<s>prefix: It is", turns=("prefix:", "It is"), generation_tokens=3),
        "stops": _letters("stops:", turns=("stops:", ""), stop=("\n", "A", "B", "C", "D")),
    }
    reply = chat_completion if client.endpoint.api == "chat" else text_completion
    client.generations(prompts, {name: reply("ok", read=len(prompts[name].token_ids)) for name in prompts})
    requests = sorted(client.server.requests, key=lambda request: str(request.body.get("messages") or request.prompt))
    yield from ((str(number), [request.path, request.body]) for number, request in enumerate(requests))


def _completions_read(client: Client) -> Iterator[tuple[str, Any]]:
    """Yield the generations of scripted completions for every kind of prompt."""
    for kind, changes in LETTER_PROMPTS.items():
        own = {name: value for name, value in changes.items() if name != "text"}
        prompts = {name: _letters(f"{name}:{changes.get('text', 'Q')}", **own) for name in WRITTEN}
        replies = {
            name: text_completion(
                written, read=len(prompts[name].token_ids), cached=3,
                **({"finish": "length"} if len(written) > 12 else {"written": 9}),
            )
            for name, written in WRITTEN.items()
        }  # fmt: skip
        generations = client.generations(prompts, replies)
        yield kind, {name: [generation.text, generation.finish] for name, generation in generations.items()}
        if kind == "plain":
            yield "counts", _shown(generations["words"])


def _chats_read(client: Client) -> Iterator[tuple[str, Any]]:
    """Yield the generations of chat replies with and without a thought."""
    counted = {"prompt_tokens": 1, "completion_tokens": 0, "completion_tokens_details": {"reasoning_tokens": 24}}
    replies = {
        "plain": chat_completion("42", read=1),
        "reasoning shown": chat_completion("42", read=1, reasoning_content="so"),
        "reasoning alone": chat_completion("", read=1, finish="length", reasoning="so"),
        "no content": chat_completion(None, read=1, finish="length", reasoning_content="so"),
        "reasoning counted": in_json(
            {"choices": [{"message": {"content": " \n"}, "finish_reason": "length"}], "usage": counted}
        ),
        "tokens of the template": chat_completion("42", read=4),
    }
    prompts = {name: _letters(turns=(f"{name}:", ""), stop=("\n",)) for name in replies}
    generations = client.generations(prompts, replies)
    yield from ((name, _shown(generation)) for name, generation in generations.items())


def _shown(generation: Generation) -> Any:
    return {name: value for name, value in msgspec.to_builtins(generation).items() if name != "seconds"}


NO_CHECKPOINT: Any = None


class Letters:
    """A tokenizer with one token per letter that puts "<s>" before every text."""

    eos_token_id = 0
    bos_token_id = 0
    bos_token = "<s>"

    def __call__(self, text: str, *, add_special_tokens: bool = True) -> dict[str, list[int]]:
        """Return the letters' code points, after the id of "<s>" with `add_special_tokens`."""
        return {"input_ids": [0] * add_special_tokens + [*map(ord, text)]}

    def decode(self, token_ids: list[int], *, skip_special_tokens: bool, clean_up_tokenization_spaces: bool) -> str:
        """Return the text of the ids without special tokens."""
        return "".join(chr(token) for token in token_ids if token)
