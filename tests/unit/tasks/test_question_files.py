"""--tasks-file FILE: rows become samples, and a fault of a file is one line with file, line and key."""

import gzip
import json
from collections.abc import Mapping
from contextlib import nullcontext
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from longctx.fixtures.cases import fit_questions, plan
from longctx.fixtures.corpora import Corpora
from longctx.fixtures.corpora.files import CorpusError
from longctx.fixtures.corpora.rows import QuestionsError
from longctx.fixtures.tasks import load_tasks
from longctx.fixtures.tasks.task import Task
from longctx.fixtures.tokenization.prompts import PromptFormatter
from longctx.plugins.evidence.clusters import ClusteredQueue, SampleRef
from longctx.plugins.evidence.haystacks import level_interval
from longctx.plugins.runner.samples import SampleBuilder, sample_problems
from tests.helpers.question_files import (
    ROWS,
    byte_formatter,
    load_tasks_file,
    rooms,
    sample_of,
    samples_by_question,
    write_rows,
    write_tasks,
)
from tests.helpers.reports import options_of

LONG = {"doc": "word " * 200, "q": "Which color is last?", "a": "black"}


@pytest.mark.parametrize(
    "name", ["rooms.jsonl", "rooms.json", "rooms.parquet", "rooms.csv", "rooms.tsv", "rooms.ndjson"]
)
def test_every_format_gives_the_same_samples(tmp_path: Path, name: str) -> None:
    write_rows(tmp_path / name, ROWS)
    (task,) = load_tasks_file(write_tasks(tmp_path, source={"file": name}))
    samples = samples_by_question(task, 4)
    assert samples.keys() == {row["q"] for row in ROWS}
    sample = samples["Which color has room 2?"]
    assert sample.prompt.text == "Room 2 is painted blue.\nWhich color has room 2? Color:"
    assert sample.references == ("blue",)
    assert task.score(sample, " Blue.").value == 1
    assert sample_problems(sample, task, byte_formatter()) == []


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("r.json", b"\xef\xbb\xbf" + b"\n".join(json.dumps({**row, "meta": [{"q": "W"}]}).encode() for row in ROWS)),
        ("r.jsonl", b" \n" + json.dumps(ROWS, indent=1).encode()),
        ("r.json.gz", gzip.compress(json.dumps(ROWS).encode(), mtime=0)),
        (
            "r.CSV",
            b"\xef\xbb\xbfdoc,q,a\r\n"
            + b"".join(b'"%s\r\nis",%s,"a,""b"""\r\n' % (b"x" * 200_000, row["q"].encode()) for row in ROWS),
        ),
    ],
)
def test_content_decides_and_tables_may_have_long_quoted_cells(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    (task,) = load_tasks_file(write_tasks(tmp_path, source={"file": name}))
    samples = samples_by_question(task, 4, 2**20)
    assert samples.keys() == {row["q"] for row in ROWS}
    if name == "r.CSV":
        assert {(len(sample.context), sample.references) for sample in samples.values()} == {(200_004, ('a,"b"',))}


def test_only_named_columns_of_a_table_are_read(tmp_path: Path) -> None:
    """A column that is not used may hold anything, and a damaged value of a used one is named."""
    cells = {key: [row[key] for row in ROWS] for key in ROWS[0]}
    damaged = pyarrow.array([b"red", b"\xff", b"x", b"y"]).view(pyarrow.string())
    for columns, said in (
        ({**cells, "other": damaged}, ""),
        ({**cells, "a": damaged}, "row 2, column 'a': cannot be read [(]UnicodeDecodeError: "),
    ):
        pyarrow.parquet.write_table(pyarrow.table(columns), tmp_path / "r.parquet")
        with pytest.raises(QuestionsError, match=said) if said else nullcontext():
            load_tasks_file(write_tasks(tmp_path, source={"file": "r.parquet"}))


def test_a_template_shows_the_fields_of_a_row_by_their_own_names(tmp_path: Path) -> None:
    rows = [
        {**row, "reference": "Smith 2020", "shots": "two", "Full Text": "x", "meta": {"year": 1999}} for row in ROWS
    ]
    task = rooms(tmp_path, rows, prompt={"text": "{doc} {reference} {shots} {Full Text} {meta.year} {question}"})
    text = samples_by_question(task, 4)["Which color has room 2?"].prompt.text
    assert text == "Room 2 is painted blue. Smith 2020 two x 1999 Which color has room 2?"


@pytest.mark.parametrize(
    ("row", "fields", "references"),
    [
        ({"answers": {"text": ["red", "dark red", "red"], "answer_start": [0]}}, "answers.text", ("red", "dark red")),
        ({"answers": [{"text": "red"}, {"text": "rose"}]}, "answers.text", ("red", "rose")),
        ({"answers.text": "red", "answers": {"text": "no"}}, "answers.text", ("red",)),
        ({"a": '["red", "rose"]'}, "a", ("red", "rose")),
        ({"a": '["[1, 2]"]'}, "a", ("[1, 2]",)),
        ({"a": "[MASK]"}, "a", ("[MASK]",)),
    ],
)
def test_answers_may_lie_within_records_and_texts_of_lists(
    tmp_path: Path, row: Mapping[str, Any], fields: str, references: tuple[str, ...]
) -> None:
    context = {"title": ["T", "U"], "sentences": [["One.", "Two."], ["Three."]]}
    task = rooms(
        tmp_path,
        [{"context": context, "question": "Which?", **row}],
        fields={"context": "context.sentences", "question": "question", "references": fields},
    )
    sample = sample_of(task)
    assert sample.references == references
    assert sample.context == "One.\nTwo.\nThree."


def test_rows_without_an_id_are_questions_of_their_own(tmp_path: Path) -> None:
    ids = ("x", None, "", float("nan"))
    rows = [{**row, "id": name} for row, name in zip(ROWS, ids, strict=True)]
    task = rooms(tmp_path, [*rows, {**rows[0], "a": "crimson"}], source={"file": "rooms.jsonl", "merge_by": "id"})
    samples = samples_by_question(task, 4)
    assert samples.keys() == {row["q"] for row in ROWS}
    assert samples["Which color has room 0?"].references == ("red", "crimson")


def test_a_control_token_in_a_document_is_refused_and_one_of_the_template_is_not(tmp_path: Path) -> None:
    tokenizer: Any = deepcopy(byte_formatter().tokenizer)
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|end|>"]})
    formatter = PromptFormatter(tokenizer)
    rows = [*ROWS, {**ROWS[0], "doc": "A <|end|> B"}]
    for given, changes, is_refused in (
        (rows, {}, True),
        (rows, {"prompt": {"field": "doc"}}, True),
        (rows, {"prompt": {"field": "doc", "chat": "never"}}, False),
        (ROWS, {"prompt": {"text": "<|end|> {context}"}}, False),
    ):
        rooms(tmp_path, given, **changes)
        tasks = load_tasks(files=[str(tmp_path / "own.toml")])
        planned = plan(options_of(suite="tasks", lengths=(512,)), tasks, Corpora())
        said = r"rooms.jsonl, line 5: holds '<\|end\|>', a control token of this tokenizer; write it in another way"
        with pytest.raises(QuestionsError, match=said) if is_refused else nullcontext():
            fit_questions(planned, tasks, formatter, seed=0, corpora=Corpora())


def test_seeds_order_the_questions_and_lengths_share_the_order(tmp_path: Path) -> None:
    task = rooms(tmp_path, [*ROWS, *({**row, "q": row["q"] + "?"} for row in ROWS)])
    orders = {
        (seed, length): [sample_of(task, length, index, seed=seed).question for index in range(8)]
        for seed, length in ((0, 256), (0, 512), (1, 256))
    }
    assert orders[0, 256] == orders[0, 512] != orders[1, 256]
    assert sorted(orders[1, 256]) == sorted(orders[0, 256])


def test_a_question_that_does_not_fit_is_refused_or_skipped(tmp_path: Path) -> None:
    for rule, samples, left_out, said in (("as_is", 5, 0, "line 5 takes 1038"), ("skip", 4, 1, "")):
        task = rooms(tmp_path, [*ROWS, LONG], length={"rule": rule})
        assert task.fitting is not None
        found = task.fitting(128, byte_formatter())
        assert (found.questions, found.left_out) == ((0, 0) if said else (samples, left_out))
        assert said in found.reason
    assert {sample_of(task, 128, index).question for index in range(4)} == {row["q"] for row in ROWS}


@pytest.mark.parametrize(
    ("rule", "start", "end"), [("head", "0 1 2", ""), ("tail", "", "97 98 99"), ("middle", "0 1", "98 99")]
)
def test_a_long_context_is_cut_to_the_length(tmp_path: Path, rule: str, start: str, end: str) -> None:
    row = {"doc": " ".join(map(str, range(100))), "q": "Which?", "a": "7"}
    task = rooms(tmp_path, [row], length={"rule": rule})
    sample = sample_of(task, 100)
    assert sample.prompt.length_tokens + sample.prompt.generation_tokens == 100
    assert sample.context.startswith(start)
    assert sample.context.endswith(end)
    assert sample.prompt.text.endswith("\nWhich? Color:")
    share = 1 - len(sample.context) / len(row["doc"])
    assert task.score(sample, "nothing").parts == {"f1": 0.0, "cut": pytest.approx(share)}
    assert sample_problems(sample, task, byte_formatter()) == []
    assert task.score(sample_of(task, 1024), "7").parts == {"f1": 1.0}


def test_characters_at_a_cut_stay_whole(tmp_path: Path) -> None:
    task = rooms(
        tmp_path, [{"doc": "\N{GREEK SMALL LETTER ALPHA}" * 300, "q": "Which?", "a": "7"}], length={"rule": "middle"}
    )
    for length in (101, 102, 103, 104):
        assert set(sample_of(task, length).context) == {"\N{GREEK SMALL LETTER ALPHA}"}


def test_a_whole_prompt_can_be_cut_as_publishers_do(tmp_path: Path) -> None:
    rule = {"rule": "middle", "of": "prompt"}
    task = rooms(tmp_path, [LONG], length=rule, prompt={"text": "Read. {context}\n{question} Color:"})
    sample = sample_of(task, 100)
    assert sample.prompt.text.startswith("Read. word")
    assert sample.prompt.text.endswith("Which color is last? Color:")
    assert len(sample.prompt.text) == 90


def test_filling_places_the_document_at_all_depths(tmp_path: Path) -> None:
    task = rooms(tmp_path, ROWS * 10, length={"rule": "fill"})
    samples = [sample_of(task, 2048, index) for index in range(40)]
    for sample in samples:
        assert 0.93 <= (sample.prompt.length_tokens + 10) / 2048 <= 1
        assert sample_problems(sample, task, byte_formatter()) == []
        assert sample.context.count("is painted") == 1
    depths = [sample.depths[0] for sample in samples]
    assert min(depths) < 0.2
    assert max(depths) > 0.8


def test_solved_examples_come_from_rows_that_no_sample_asks(tmp_path: Path) -> None:
    shots = {"n": 2, "text": "{question} {reference}", "join": "\n"}
    task = rooms(tmp_path, shots=shots, prompt={"text": "{shots}\n{context}\n{question}"})
    assert task.question_count is not None
    assert task.question_count(Corpora(), 512) == 2
    for index in range(2):
        first, second, *_ = sample_of(task, 512, index).prompt.text.split("\n")
        solved = {f"{row['q']} {row['a']}" for row in ROWS if row["q"] != sample_of(task, 512, index).question}
        assert {first, second} <= solved


def test_turns_become_the_prompt_of_a_model_without_a_chat_template(tmp_path: Path) -> None:
    turns = [
        {"role": "system", "text": "Be brief."},
        {"role": "user", "text": "{context}"},
        {"role": "assistant", "text": "Noted."},
        {"role": "user", "text": "{question}"},
    ]
    sample = samples_by_question(rooms(tmp_path, prompt=None, turns=turns), 4)["Which color has room 0?"]
    assert sample.prompt.text == "Be brief.\n\nRoom 0 is painted red.\n\nNoted.\n\nWhich color has room 0?"


def test_rows_can_be_selected_exploded_and_merged(tmp_path: Path) -> None:
    rows = [
        {"doc": "d1", "q": ["q1", "q2"], "a": ["1", "2"], "kind": "x"},
        {"doc": "d2", "q": ["q3"], "a": ["3"], "kind": "y"},
    ]
    task = rooms(tmp_path, rows, source={"file": "rooms.jsonl", "explode": ["q", "a"], "where": {"kind": "x"}})
    assert {name: sample.references for name, sample in samples_by_question(task, 2).items()} == {
        "q1": ("1",),
        "q2": ("2",),
    }
    task = rooms(tmp_path, [*ROWS, {**ROWS[0], "a": "crimson"}], source={"file": "rooms.jsonl", "merge_by": "q"})
    assert samples_by_question(task, 4)["Which color has room 0?"].references == ("red", "crimson")


@pytest.mark.parametrize(
    ("changes", "changed"),
    [
        ({}, False),
        ({"above": 50, "category": "other"}, False),
        ({"version": 2}, True),
        ({"prompt": {"text": "{context} {question}"}}, True),
        ({"metric": {"name": "exact_match"}}, True),
        ({"length": {"rule": "fill"}}, True),
    ],
)
def test_the_version_of_a_case_holds_what_decides_its_results(
    tmp_path: Path, changes: Mapping[str, Any], changed: bool
) -> None:
    before, after = version_of(rooms(tmp_path)), version_of(rooms(tmp_path, **changes))
    assert (before != after) == changed
    (tmp_path / "rooms.jsonl").write_text((tmp_path / "rooms.jsonl").read_text() + json.dumps(LONG))
    (other,) = load_tasks_file(tmp_path / "own.toml")
    assert version_of(other) != after


def version_of(task: Task) -> str:
    assert task.version is not None
    return task.version(512)


@pytest.mark.parametrize("name", ["rooms.jsonl", "rooms.json", "rooms.parquet"])
def test_a_file_that_changes_during_a_run_is_an_error_and_gives_no_sample(tmp_path: Path, name: str) -> None:
    # More rows than stay in memory.
    rows = [{"doc": f"room {number}", "q": str(number), "a": "red"} for number in range(20)]
    write_rows(tmp_path / name, rows)
    (task,) = load_tasks_file(write_tasks(tmp_path, source={"file": name}))
    sample_of(task, 512, 0)
    write_rows(tmp_path / name, [{**row, "doc": f"Room {row['q']}"} for row in rows])
    (later,) = load_tasks_file(tmp_path / "own.toml")
    for read in (lambda: [sample_of(task, 512, index) for index in range(20)], lambda: version_of(task)):
        with pytest.raises(QuestionsError, match=rf"{name} changed while the run was reading it; leave it as it is"):
            read()
    assert sample_of(later, 512, 1).context.startswith("Room")


def test_a_worker_that_reads_other_content_than_the_run_planned_makes_no_sample(tmp_path: Path) -> None:
    rooms(tmp_path)
    tasks = load_tasks(files=[str(tmp_path / "own.toml")])
    (case,) = plan(options_of(suite="tasks", lengths=(512,)), tasks, Corpora())
    write_rows(tmp_path / "rooms.jsonl", [*ROWS, LONG])
    own = load_tasks(files=[str(tmp_path / "own.toml")])
    builder = SampleBuilder(tasks=own, load_formatters=lambda: (byte_formatter(), None), corpora=Corpora(), seed=0)
    with pytest.raises(CorpusError, match="the files of rooms changed after the run began; start it again"):
        builder.sample(case, 0)
    builder.close()


def test_questions_on_one_document_are_one_observation_of_the_model(tmp_path: Path) -> None:
    """Ten questions on each of 3 documents and 4 documents with one: 7 observations instead of 34."""
    rows = [{"doc": f"d{number}", "q": f"q{number} {ask}", "a": "red"}
            for number, asks in enumerate((10, 10, 10, 1, 1, 1, 1)) for ask in range(asks)]  # fmt: skip
    rooms(tmp_path, rows)
    tasks = load_tasks(files=[str(tmp_path / "own.toml")])
    planned = plan(options_of(suite="tasks", lengths=(512,), samples=99), tasks, Corpora())
    ((case,), _) = fit_questions(planned, tasks, byte_formatter(), seed=0, corpora=Corpora())
    contexts = [sample_of(tasks["rooms"], 512, index).context for index in range(34)]
    assert len(case.texts) == 34
    assert len(set(zip(case.texts, contexts, strict=True))) == len(set(contexts)) == 7
    refs = [SampleRef(case.id, index) for index in range(34)]
    clustered, alone = (ClusteredQueue(refs, {one.id: one}) for one in (case, replace(case, texts=())))
    assert sorted(np.bincount(clustered.units)) == [1, 1, 1, 1, 10, 10, 10]
    scores = np.array([float(text in ("d0", "d3")) for text in contexts])
    wide, narrow = (level_interval(queue.case_strata(scores), alpha=0.05) for queue in (clustered, alone))
    assert wide[1] - wide[0] > 1.5 * (narrow[1] - narrow[0])


@pytest.mark.parametrize("rule", ["as_is", "fill"])
def test_an_exact_answer_has_a_likelihood_form(tmp_path: Path, rule: str) -> None:
    options = {"fields": {"context": "doc", "question": "q", "references": "a", "options": "o"}}
    rows = [{**row, "o": ["red", "green", "blue", "white"]} for row in ROWS]
    task = rooms(tmp_path, rows, **options, metric={"name": "option"}, length={"rule": rule})
    sample = samples_by_question(task, 4)["Which color has room 2?"]
    assert task.has_gold is not None
    assert sample.gold is not None
    assert (sample.gold.text, sample.gold.foil) == ("C", "A")
    assert sample.gold.query_text == "\nWhich color has room 2?"
    assert sample.gold.evidence_text == "Room 2 is painted blue.\nWhich color has room 2?"
    assert task.score(sample, sample.gold.text).value == 1
    assert (len(sample.context) > 500) is (rule == "fill")


def test_a_summary_and_a_conversation_have_no_likelihood_form(tmp_path: Path) -> None:
    turns = [{"role": "user", "text": "{context} {question}"}]
    for changes in ({"metric": {"name": "rouge_l"}}, {"prompt": None, "turns": turns}):
        task = rooms(tmp_path, **changes)
        assert task.has_gold is None
        assert sample_of(task).gold is None


def test_cases_have_ids_and_lose_skipped_questions(tmp_path: Path) -> None:
    rooms(tmp_path, [*ROWS, LONG], length={"rule": "skip"})
    tasks = load_tasks(files=[str(tmp_path / "own.toml")])
    planned = plan(options_of(suite="tasks", lengths=(128, 2048)), tasks, Corpora())
    cases, reasons = fit_questions(planned, tasks, byte_formatter(), seed=0, corpora=Corpora())
    assert [(case.id, case.samples, case.left_out) for case in cases] == [
        ("test_questions[rooms-128]", 4, 1),
        ("test_questions[rooms-2k]", 5, 0),
    ]
    assert reasons == {}
    assert {(case.suite, case.family, case.category) for case in cases} == {("questions", "questions", "lookup")}


def test_a_set_that_is_never_asked_in_a_chat_has_no_template(tmp_path: Path) -> None:
    tokenizer = deepcopy(byte_formatter().tokenizer)
    tokenizer.chat_template = "{% for m in messages %}[{{ m['role'] }}] {{ m['content'] }}{% endfor %}[assistant] "
    wrapped = "[user] Room 0 is painted red.[assistant] Color:"
    for chat, text in (("auto", wrapped), ("never", "Room 0 is painted red. Color:")):
        prompt = {"text": "{context}", "lead_in": " Color:", "chat": chat}
        task = rooms(tmp_path, ROWS[:1], prompt=prompt)
        made = task.sample(512, 0, seed=0, tokenizer=PromptFormatter(tokenizer), corpora=Corpora())
        assert made.prompt.text == text
