"""RULER's tasks with settings of one's own: the same rules as the 13 tasks, what the settings name, and refusals."""

import re
from collections import Counter
from pathlib import Path

import pytest

from longctx.fixtures.corpora.rows import QuestionsError
from longctx.fixtures.records import Sample
from longctx.fixtures.tasks.questions.read_tasks import SHIPPED
from longctx.fixtures.tasks.ruler.configured import RULER, read_ruler
from longctx.fixtures.tasks.task import Task
from longctx.plugins.runner.samples import FULL_FILL_LENGTH
from tests.helpers.tiny_tokenizers import GENERATED, formatter

SHIPPED_TASKS = {
    task.name: task for name in ("ruler_sweeps", "twins") for _, task in read_ruler(SHIPPED / f"{name}.toml")
}
# The settings of Table 5, which are those of the base task.
TABLE_5 = {
    "niah_single_1": 'key_type = "word"\nvalue_type = "number"\nhaystack = "noise"\nkeys = 1',
    "niah_single_2": 'key_type = "word"\nvalue_type = "number"\nhaystack = "essay"\nvalues = 1',
    "niah_single_3": 'value_type = "uuid"\nhaystack = "essay"\nqueries = 1',
    "niah_multikey_1": "keys = 4",
    "niah_multikey_2": 'keys = "full"',
    "niah_multikey_3": 'keys = "full"\nkey_type = "uuid"\nvalue_type = "uuid"',
    "niah_multivalue": "values = 4",
    "niah_multiquery": "keys = 4\nqueries = 4",
    "vt": "chains = 1\nhops = 4",
    "cwe": "words = 10\ncommon_frequency = 30\nuncommon_frequency = 3",
    "fwe": "alpha = 2.0",
    "qa_1": "context = true",
    "qa_2": "context = true",
}


def own_task(tmp_path: Path, base: str, settings: str = "", name: str = "mine") -> Task:
    path = tmp_path / "own.toml"
    path.write_text(f'[[ruler]]\nname = "{name}"\nbase = "{base}"\n{settings}\n', encoding="utf-8")
    return read_ruler(path)[0][1]


def sample_of(task: Task, length: int = 4096, index: int = 0) -> Sample:
    return task.sample(length, index, seed=0, tokenizer=formatter(), corpora=GENERATED)


@pytest.mark.parametrize("name", SHIPPED_TASKS)
def test_a_shipped_configuration_fits_is_solved_by_its_references_and_by_nothing_else(name: str) -> None:
    task = SHIPPED_TASKS[name]
    for index in range(2):
        sample = sample_of(task, index=index)
        used = sample.prompt.length_tokens + task.generation_tokens
        assert used <= sample.length
        assert sample.capped or used >= sample.length - (1 - task.least_fill) * FULL_FILL_LENGTH
        assert task.score(sample, task.perfect_answer(sample)).value == 1
        assert task.score(sample, " \n").value == 0
        assert task.score(sample, " ".join(sample.distractors)).value < 1


@pytest.mark.parametrize("base", [task.name for task in RULER])
def test_the_settings_of_table_5_make_the_same_samples(base: str, tmp_path: Path) -> None:
    configured = own_task(tmp_path, base, f"{TABLE_5[base]}\nsame_samples = true")
    usual = next(task for task in RULER if task.name == base)
    for index in (0, 33):
        mine, theirs = sample_of(configured, index=index), sample_of(usual, index=index)
        assert (mine.prompt, mine.references, mine.gold) == (theirs.prompt, theirs.references, theirs.gold)


def test_settings_are_part_of_a_samples_identity(tmp_path: Path) -> None:
    settings = (
        "",
        "keys = 2",
        "keys = 3",
        "values = 2",
        'value_type = "uuid"',
        "[ruler.prompts]\nneedle = '{key}: {value}'",
    )
    versions = [own_task(tmp_path, "niah_single_2", each).case_version(4096) for each in settings]
    assert len(set(versions)) == len(settings)


@pytest.mark.parametrize(("keys", "values", "queries"), [(8, 1, 1), (4, 1, 2), (2, 3, 1), (6, 2, 3)])
@pytest.mark.parametrize("haystack", ["noise", "essay"])
def test_the_context_has_the_keys_and_values_that_are_asked_for(
    keys: int, values: int, queries: int, haystack: str, tmp_path: Path
) -> None:
    settings = f'keys = {keys}\nvalues = {values}\nqueries = {queries}\nhaystack = "{haystack}"'
    sample = sample_of(own_task(tmp_path, "niah_single_2", settings))
    found = Counter(re.findall(r"magic numbers for ([\w-]+) is: \d+", sample.context))
    assert Counter(found.values()) == {values: keys}
    assert len(sample.references) == values * queries
    assert all(sample.context.count(reference) == 1 for reference in sample.references)
    assert own_task(tmp_path, "niah_single_2", settings).shares_haystacks == (haystack == "essay")
    is_single = values * queries == 1
    assert ("A special magic number is" in sample.prompt.text) == is_single


def test_several_needles_may_be_asked_of_a_haystack_of_needles(tmp_path: Path) -> None:
    sample = sample_of(own_task(tmp_path, "niah_multikey_3", "queries = 2\nvalues = 2"))
    assert len(sample.references) == 4
    assert all(reference in sample.context for reference in sample.references)


@pytest.mark.parametrize(("chains", "hops"), [(1, 1), (4, 4), (2, 12)])
def test_chains_have_the_number_and_the_hops_that_are_asked_for(chains: int, hops: int, tmp_path: Path) -> None:
    sample = sample_of(own_task(tmp_path, "vt", f"chains = {chains}\nhops = {hops}"))
    assert len(re.findall(r"VAR [A-Z]{5} = \d{5}", sample.context)) == chains
    assert len(re.findall(r"VAR [A-Z]{5} = VAR", sample.context)) == chains * hops
    assert len(sample.references) == hops + 1
    assert f" {hops + 1} variables are assigned" in sample.answer_prefix


def test_common_words_have_the_number_and_the_counts_that_are_asked_for(tmp_path: Path) -> None:
    settings = "words = 5\ncommon_frequency = 20\nuncommon_frequency = 2"
    sample = sample_of(own_task(tmp_path, "cwe", settings))
    counts = Counter(re.findall(r"\d+\. (\S+)", sample.context))
    assert {word for word, count in counts.items() if count == 20} == set(sample.references)
    assert set(counts.values()) == {20, 2}
    assert len(sample.references) == 5
    assert "What are the 5 most common words" in sample.prompt.text


@pytest.mark.parametrize("alpha", [1.1, 1.5, 3.0, 4.0])
def test_the_counts_of_coded_words_fall_with_alpha_and_never_tie_at_the_top(alpha: float, tmp_path: Path) -> None:
    sample = sample_of(own_task(tmp_path, "fwe", f"alpha = {alpha}"))
    counts = Counter(sample.context.split()).most_common(5)
    assert [word for word, _ in counts[1:4]] == list(sample.references)
    assert len({count for _, count in counts}) == 5
    assert counts[0][1] / counts[1][1] == pytest.approx(2**alpha, rel=0.1)


def test_a_question_alone_is_the_base_tasks_question(tmp_path: Path) -> None:
    usual = next(task for task in RULER if task.name == "qa_2")
    alone = own_task(tmp_path, "qa_2", "context = false")
    for length, index in ((1024, 3), (4096, 40)):
        with_text, without = (sample_of(task, length, index) for task in (usual, alone))
        assert (without.question, without.references) == (with_text.question, with_text.references)
        assert without.context == ""
        assert without.prompt.length_tokens < 100


def test_a_configuration_works_at_any_length(tmp_path: Path) -> None:
    task = own_task(tmp_path, "niah_single_2", 'keys = 3\nvalue_type = "word"\nabove = 50\nlengths = ["3k"]')
    assert task.lengths == (3072,)
    for length in (600, 1500, 9000):
        assert 0.9 * length < sample_of(task, length).prompt.length_tokens + task.generation_tokens <= length


@pytest.mark.parametrize(
    ("base", "settings", "error"),
    [
        ("niah", "", "base: unknown task 'niah'; use one of niah_single_1, "),
        ("vt", "keys = 2", "keys: a setting of niah, but base is 'vt'; it has chains, hops"),
        ("niah_single_2", "alpha = 2.0", "alpha: a setting of fwe, but base is 'niah_single_2'; it has keys, values"),
        ("niah_single_2", "keys = 41", "keys: 41 needles, but essays have 40 places; use fewer"),
        ("niah_single_2", "keys = 5\nvalues = 9", "keys: 45 needles, but essays have 40 places"),
        ("niah_single_2", "keys = 2\nqueries = 3", "queries: 3 keys are asked for, but keys is 2; use at most 2"),
        ("niah_multiquery", "keys = 2", "queries: 4 keys are asked for, but keys is 2"),
        ("niah_single_2", 'keys = "all"', "keys: "),
        ("niah_single_2", "keys = 0", "keys: "),
        ("niah_single_2", 'keys = "full"\nhaystack = "noise"', 'keys: "full" fills the context with needles'),
        ("niah_single_2", 'keys = 8\nhaystack = "needles"', "keys: a haystack of needles has as many as fit"),
        ("niah_single_2", 'haystack = "essays"', "haystack: "),
        ("niah_single_2", "key = 2", "key: unknown key 'key'; did you mean 'keys'?"),
        ("cwe", "common_frequency = 3", "common_frequency: common words occur 3 times and others 3 times"),
        ("fwe", "alpha = 1.0", "alpha: "),
        ("vt", "[ruler.prompts]\ntemplate = '{context}'", "prompts: template must use these placeholders: {context}"),
        ("vt", "[ruler.prompts]\nneedle = '{key}'", "prompts: unknown part 'needle'; use one of "),
        ("vt", 'lengths = ["4q"]', "lengths: "),
        ("vt", 'category = "skip"', "category: Expected 'str' matching regex '^(?!(filterwarnings|parametrize|skip|"),
    ],
)
def test_settings_that_no_sample_can_have_are_named(base: str, settings: str, error: str, tmp_path: Path) -> None:
    pattern = rf"^--tasks-file: .*own.toml, ruler 'mine'[,:] {re.escape(error)}"
    with pytest.raises(QuestionsError, match=pattern):
        own_task(tmp_path, base, settings)


def test_a_name_that_is_taken_is_refused_at_its_table(tmp_path: Path) -> None:
    from longctx.fixtures.tasks import load_tasks

    path = tmp_path / "own.toml"
    path.write_text('[[ruler]]\nname = "vt"\nbase = "vt"\n', encoding="utf-8")
    with pytest.raises(QuestionsError, match=r"ruler 'vt', name: this project has a task of that name"):
        load_tasks(files=[str(path)])
