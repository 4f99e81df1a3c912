"""The outputs that the golden tests compare, with the versions that must change with them.

`python -m tests.golden.record` writes them to `recorded/`. It refuses an output that changed without its version.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any

import msgspec

from longctx.fixtures import calibration, versions
from longctx.fixtures.calibration.tokenizer import train_tokenizer
from longctx.fixtures.records import Sample
from longctx.fixtures.scoring.judge import Judged, JudgedAnswer, JudgedClaim, JudgedSummary, JudgeSettings
from longctx.fixtures.scoring.judge.grading import UnreadableReply, read_verdict
from longctx.fixtures.scoring.judge.judge import reply_key, request_of
from longctx.fixtures.tasks import NAMED_SUITES, TASKS, load_tasks
from longctx.fixtures.tokenization.prompts import PromptFormatter
from tests.golden.engines import engine_outputs
from tests.golden.entailment import entailment_outputs
from tests.golden.output import Output, content, digest, rounded
from tests.golden.published import published_outputs, sample_digest
from tests.golden.question_scores import question_score_outputs
from tests.helpers.tiny_tokenizers import GENERATED, Pieces, formatter

# (length, index, seed) of each recorded sample. The third shares no context with the first two.
IDENTITIES = ((4096, 0, 0), (4096, 1, 0), (4096, 37, 0), (8192, 5, 7))
# A summary of a novel does not fit 4096 tokens.
LONGER = {"infbench_sum": ((8192, 0, 0), (8192, 1, 0), (8192, 37, 0), (16384, 5, 7))}
DRAWS = 48
CHAT_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}<|{{ message['role'] }}|>\n{{ message['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
)
USER_AND_ASSISTANT = "User: {{ messages[-1]['content'] }}\nAssistant:"
# Templates that end in plain text, end in a special token, demand a system prompt, or print the date.
OTHER_TEMPLATES = {
    "chat that ends in text": USER_AND_ASSISTANT,
    "chat that ends in a token": "{{ messages[-1]['content'] }}</s>",
    "chat with a system prompt": (
        "{% if messages[0]['role'] != 'system' %}{{ raise_exception('no system prompt') }}{% endif %}"
        "{{ messages[0]['content'] }}\n" + USER_AND_ASSISTANT
    ),
    "chat with a date": "{{ strftime_now('%d %b %Y') }}\n" + USER_AND_ASSISTANT,
}

REPLIES = (
    '{"fluency": 1, "correctness": 2}',
    'It agrees.\n```json\n{"fluency": 1, "correctness": 3}\n```',
    "{fluency: 0, correctness: 1,}",
    '{"fluency": 2, "correctness": 1}',
    '{"fluency": 1}',
    '{"fluency": 1, "correctness": 1} or {"fluency": 0, "correctness": 0} is my verdict',
    "no verdict",
)


@cache
def golden_sample(task: str, length: int, index: int, seed: int) -> Sample:
    """Return a sample of generated text, tokenized by a rule that never changes."""
    return TASKS[task].sample(length, index, seed=seed, tokenizer=formatter("pieces"), corpora=GENERATED)


def identities(task: str) -> tuple[tuple[int, int, int], ...]:
    """Return (length, index, seed) of the task's recorded samples."""
    return LONGER.get(task, IDENTITIES)


def sample_outputs() -> Iterator[Output]:
    """Yield samples of generated text of every task, as digests without the token ids."""
    for task, version in versions.TASKS.items():
        for length, index, seed in identities(task):
            sample = golden_sample(task, length, index, seed)
            yield Output(
                name=f"{task} {length}/{index}/{seed}",
                version_name=f'TASKS["{task}"]',
                version=version,
                value=sample_digest(sample),
            )


def draw_outputs() -> Iterator[Output]:
    """Yield the shortest forms of many samples of the frontier tasks as one digest, because few show a rare draw."""
    for task in TASKS.values():
        if task.suite == "frontier":
            made = (
                task.shortest_draft(4096, index, seed=0, tokenizer=formatter("pieces"), corpora=GENERATED)[0]
                for index in range(DRAWS)
            )
            drafts = [[draft.context, draft.question, draft.references, draft.distractors] for draft in made]
            yield Output(
                name=f"{task.name}, {DRAWS} draws",
                version_name=f'TASKS["{task.name}"]',
                version=versions.TASKS[task.name],
                value=digest(json.dumps(drafts)),
            )


def gold_outputs() -> Iterator[Output]:
    """Yield the gold answers of generated text, with their prompts as digests."""
    for task in TASKS.values():
        if task.has_gold is not None:
            gold = golden_sample(task.name, *identities(task.name)[0]).gold
            assert gold is not None
            yield Output(
                name=task.name,
                version_name=f'LIKELIHOOD or TASKS["{task.name}"]',
                version=_with_task(versions.LIKELIHOOD, task.name),
                value=[gold.text, gold.foil, digest(gold.query_text), digest(gold.evidence_text)],
            )


def score_outputs() -> Iterator[Output]:
    """Yield the scores of right, half right and wrong answers to one sample of every task, in both scoring modes."""
    for mode in ("strict", "paper"):
        for task in load_tasks(scoring=mode).values():
            if mode == "paper" and task.suite in NAMED_SUITES:
                continue  # these tasks have one mode only
            sample = golden_sample(task.name, *identities(task.name)[0])
            for kind, text in answers(sample).items():
                yield Output(
                    name=f"{task.name} {mode} {kind}",
                    version_name=f'SCORING["{task.metric}"] or TASKS["{task.name}"]',
                    version=_with_task(versions.SCORING[task.metric], task.name),
                    value=rounded(msgspec.to_builtins(task.score(sample, text))),
                )


def _with_task(version: int, task: str) -> int:
    """Return a version that also rises with that of the task, whose samples the output is about."""
    return version + versions.TASKS[task] - 1


def answers(sample: Sample) -> dict[str, str]:
    """Return right, partly right and wrong answers to a sample, by kind."""
    perfect = TASKS[sample.task].perfect_answer(sample)
    words = perfect.split()
    references = sample.references
    return {
        "perfect": perfect,
        "perfect in capitals": perfect.upper(),
        "perfect after words": f"Here is what I found. Answer: {perfect}. I hope this helps.",
        "first half": " ".join(words[: len(words) // 2]),
        "second half": " ".join(words[len(words) // 2 :]),
        "first reference": references[0] if references else "",
        "references reversed": ", ".join(reversed(references)),
        "distractor": sample.distractors[0] if sample.distractors else "none",
        "empty": "",
        "refusal": "I'm sorry, but I cannot answer that question.",
        "copied": sample.context[:600],
        "question": sample.question,
        "numbers": "1, 2, 3, 4, 5, 6, 7, 8, 9, 10",
        "citations": f"{perfect.rstrip('.')} [1][2].",
        "json": json.dumps({"answer": perfect}),
    }


def prompt_outputs() -> Iterator[Output]:
    """Yield prompts with and without a chat template, an answer prefix and a stop string."""
    for name, made in formatters().items():
        for text, prefix in (("Read this: one two three 42.\nWhat is it?", "Answer:"), ("  Spaces  and\n\nlines ", "")):
            prompt = made.prompt(text, prefix, generation_tokens=16, stop=("\n",))
            counts = made.count(["one two", " three", "42.", "\n\nWhat is it?"], separator="\n")
            yield Output(
                name=f"{name}: {text[:9]!r} {prefix!r}",
                version_name="PROMPTS",
                version=versions.PROMPTS,
                value=[content(prompt), counts, made.fingerprint],
            )


def formatters() -> Mapping[str, PromptFormatter]:
    """Return formatters by name, with and without chat templates, and for the answer prefixes of servers."""
    plain, chat = _tokenizer(None), _tokenizer(CHAT_TEMPLATE)
    return {
        "pieces": formatter("pieces"),
        "plain": PromptFormatter(plain),
        "chat": PromptFormatter(chat),
        "chat off": PromptFormatter(chat, chat="off"),
        "instruction": PromptFormatter(chat, prefix="instruction"),
        "turns": PromptFormatter(chat, keeps_turns=True),
        "other lengths": PromptFormatter(plain, length_tokenizer=Pieces()),
        **{name: PromptFormatter(_tokenizer(template)) for name, template in OTHER_TEMPLATES.items()},
    }


def _tokenizer(chat_template: str | None) -> Any:
    from transformers import PreTrainedTokenizerFast

    tokenizer = PreTrainedTokenizerFast(tokenizer_object=train_tokenizer(), bos_token="<s>", eos_token="</s>")  # type: ignore[no-untyped-call]  # transformers leaves it untyped
    tokenizer.chat_template = chat_template
    return tokenizer


def judge_outputs() -> Iterator[Output]:
    """Yield the requests to a judge and the verdicts read from replies."""
    points = ("a ship sinks", "a man survives")
    texts: dict[str, Judged[Any]] = {
        "answer": JudgedAnswer(question="Where did she go?", references=("the North Sea",), answer="To the sea."),
        "summary": JudgedSummary(subject="a novel", key_points=points, reference="It sinks.", summary="A ship sank."),
        "claim": JudgedClaim(premise="The ship sank in 1801.", claim="It sank."),
        "long answer": JudgedAnswer(question="Who?", references=("Ann", "Anne"), answer="word " * 9000),
    }
    values: dict[str, Any] = {}
    for name, judged in texts.items():
        for number, question in enumerate(judged.questions()):
            request = request_of(JudgeSettings(model="judge-1"), question.text)
            values[f"question {name} {number}"] = digest(json.dumps([request, question.again, question.rubric]))
            values[f"key {name} {number}"] = reply_key(question.rubric, request)
            values[f"limits {name} {number}"] = dict(question.limits)
    for reply in REPLIES:
        try:
            values[f"reply {reply}"] = read_verdict(reply, {"fluency": 1, "correctness": 3})
        except UnreadableReply:
            values[f"reply {reply}"] = None
    for name, value in values.items():
        yield Output(name=name, version_name="JUDGE", version=versions.JUDGE, value=value)


def calibration_outputs() -> Iterator[Output]:
    """Yield the descriptions of calibration checkpoints, and their tokenizer."""
    for spec in ("full", "4k", "graded", "4k-blind=0.1", "full-step=3000", "full-chat"):
        yield Output(
            name=spec,
            version_name="CALIBRATION",
            version=versions.CALIBRATION,
            value=calibration.description(calibration.parse_spec(spec)),
        )
    yield Output(
        name="tokenizer",
        version_name="CALIBRATION",
        version=versions.CALIBRATION,
        value=digest(train_tokenizer().to_str()),
    )


OUTPUTS: Mapping[str, Callable[[], Iterator[Output]]] = {
    "samples": sample_outputs,
    "draws": draw_outputs,
    "gold": gold_outputs,
    "scores": score_outputs,
    "question scores": question_score_outputs,
    "prompts": prompt_outputs,
    "judge": judge_outputs,
    "calibration": calibration_outputs,
    "engines": engine_outputs,
    "published": published_outputs,
    "entailment": entailment_outputs,
}
