"""RULER's own prepared samples are used exactly as in their files."""

import json
from pathlib import Path

import pytest

from longctx.fixtures.corpora import Corpora, CorpusError, load_corpora, with_prepared
from longctx.fixtures.tasks import TASKS
from longctx.fixtures.tasks.task import CannotFit
from longctx.plugins.runner.samples import sample_problems
from tests.helpers.tiny_tokenizers import formatter

LENGTH = 1024
NEEDLE = "One of the special magic numbers for calm-river is: 4812207."
TEXT = f"A special magic number is hidden.\n{NEEDLE}\nWhat is it?"
PREFIX = " The special magic number for calm-river is"


def corpora_of(folder: Path, task: str, record: dict[str, object]) -> Corpora:
    file = folder / "ruler" / task / f"validation_{LENGTH}.jsonl"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps({"index": 0, "outputs": ["4812207"], "length": 99} | record) + "\n", encoding="utf-8")
    return load_corpora(folder)


@pytest.mark.parametrize(
    ("record", "prompt"),
    [
        ({"input": TEXT + PREFIX}, TEXT + PREFIX),
        ({"input": TEXT, "answer_prefix": PREFIX}, TEXT + PREFIX),
        ({"input": TEXT + PREFIX, "answer_prefix": PREFIX}, TEXT + PREFIX),
    ],
    ids=["one text", "prefix apart", "prefix in both"],
)
def test_a_prepared_sample_is_used_byte_for_byte(tmp_path: Path, record: dict[str, object], prompt: str) -> None:
    corpora, task = corpora_of(tmp_path, "niah_single_2", record), TASKS["niah_single_2"]
    sample = task.sample(LENGTH, 0, seed=0, tokenizer=formatter(), corpora=corpora)
    assert sample.prompt.text == prompt
    assert sample.source == task.source(corpora, LENGTH) == "published"
    assert sample_problems(sample, task, formatter()) == []
    assert task.score(sample, " 4812207").value == 1
    assert task.question_count is not None
    assert task.question_count(corpora, LENGTH) == 1


def test_other_lengths_and_tasks_are_drawn(tmp_path: Path) -> None:
    corpora = corpora_of(tmp_path, "niah_single_2", {"input": TEXT})
    other = TASKS["niah_single_2"].sample(2048, 0, seed=0, tokenizer=formatter(), corpora=corpora)
    assert other.source == "archive"
    assert NEEDLE not in other.prompt.text


def write_lines(path: Path, records: list[dict[str, object]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")


def logged(length: int) -> dict[str, object]:
    """Return a line of lm-eval's --log_samples."""
    doc = {"input": TEXT, "outputs": ["4812207"], "gen_prefix": PREFIX.strip(), "max_length": length, "length": 99}
    return {"doc_id": 0, "doc": doc, "target": "['4812207']", "resps": [["4812207"]], "filter": "none"}


@pytest.fixture
def prepared(tmp_path: Path) -> Corpora:
    """Samples as RULER's scripts, its package, HELMET and lm-eval leave them in a folder."""
    record: dict[str, object] = {"index": 0, "outputs": ["4812207"], "length": 99}
    folder = tmp_path / "llama3.1-8b"
    write_lines(folder / "synthetic/4096/data/vt/validation.jsonl", [record | {"input": TEXT, "answer_prefix": PREFIX}])
    write_lines(folder / "8k/cwe/validation.jsonl", [record | {"input": TEXT + PREFIX}])
    write_lines(folder / "fwe/validation_16384.jsonl", [record | {"input": TEXT + PREFIX}])
    write_lines(folder / "samples_ruler_qa_squad_2026-11-01T10-00-00.123456.jsonl", [logged(4096), logged(8192)])
    write_lines(folder / "samples_niah_single_2_2026-11-02T10-00-00.1.jsonl", [logged(4096), logged(4096)])
    write_lines(folder / "samples_niah_single_2_2026-11-01T10-00-00.1.jsonl", [logged(32768)])
    write_lines(folder / "samples_gsm8k_2026-11-01T10-00-00.1.jsonl", [{"doc": {"question": "?"}}])
    write_lines(folder / "predictions/4096/vt.jsonl", [{"pred": "x"}])
    tasks = [name for name, task in TASKS.items() if task.suite == "ruler"]
    return with_prepared(load_corpora(None), folder, tasks)


def test_every_form_of_prepared_samples_is_found(prepared: Corpora) -> None:
    assert set(prepared.published) == {
        "ruler/vt/4096", "ruler/cwe/8192", "ruler/fwe/16384", "ruler/qa_1/4096", "ruler/qa_1/8192",
        "ruler/niah_single_2/4096", "ruler/niah_single_2/32768",
    }  # fmt: skip
    latest = prepared.prepared("niah_single_2", 4096)
    assert latest is not None
    assert len(latest) == 2


def test_a_logged_sample_has_lm_evals_prompt(prepared: Corpora) -> None:
    sample = TASKS["niah_single_2"].sample(4096, 0, seed=0, tokenizer=formatter(), corpora=prepared)
    assert sample.prompt.text == TEXT + PREFIX
    assert sample_problems(sample, TASKS["niah_single_2"], formatter()) == []


def test_a_prepared_prompt_may_exceed_its_length_by_a_chat_template_only(tmp_path: Path) -> None:
    """At 1024 tokens, of which the answer may take 128, an eighth is 128."""
    task = TASKS["niah_single_2"]
    for words, fits in ((880, True), (2000, False)):
        folder = tmp_path / str(words)
        corpora = corpora_of(folder, "niah_single_2", {"input": f"{'is ' * words}{TEXT}{PREFIX}"})
        if not fits:
            with pytest.raises(CannotFit, match="prepare it with this model's tokenizer"):
                task.sample(LENGTH, 0, seed=0, tokenizer=formatter("pieces"), corpora=corpora)
            continue
        sample = task.sample(LENGTH, 0, seed=0, tokenizer=formatter("pieces"), corpora=corpora)
        assert LENGTH < sample.prompt.length_tokens + 128 <= LENGTH * 9 // 8
        assert sample_problems(sample, task, formatter("pieces")) == []


def test_a_folder_without_prepared_samples_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match=r"--tasks-file: .*: no such folder"):
        with_prepared(Corpora(), tmp_path / "none", ["vt"])
    write_lines(tmp_path / "vt/validation.jsonl", [{"input": TEXT, "outputs": ["1"]}])
    with pytest.raises(CorpusError, match="no prepared samples of RULER's tasks"):
        with_prepared(Corpora(), tmp_path, ["vt"])


def test_a_yes_or_no_question_of_hotpotqa_is_measured_as_prepared(tmp_path: Path) -> None:
    corpora = corpora_of(tmp_path, "qa_2", {"input": "Both rowed in Oslo. Did they? Answer:", "outputs": ["yes"]})
    sample = TASKS["qa_2"].sample(LENGTH, 0, seed=0, tokenizer=formatter(), corpora=corpora)
    assert sample_problems(sample, TASKS["qa_2"], formatter()) == []
