"""--prompts FILE: a team's own wording, and the errors for unusable files."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from longctx.fixtures.tasks import TASKS, load_tasks
from longctx.fixtures.tasks.prompt_files import PromptsError, placeholders
from longctx.fixtures.tasks.ruler.suite import PROMPTS
from tests.helpers.paths import REPOSITORY
from tests.helpers.tiny_tokenizers import GENERATED, RULER, formatter, make_sample

Write = Callable[[str | bytes], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def put(content: str | bytes) -> Path:
        path = tmp_path / "own.toml"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return put


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("[vtx]\nthen = 'x'", "has a table [vtx]; did you mean 'vt'? `longctx tasks` lists all"),
        ("vt = 'x'", "vt is 'x'; write a table [vt]"),
        ("[vt]\nneedle = 'x'", "[vt] has 'needle'; known are noise, first, then, template, answer_prefix"),
        ("[vt]\nnoise = 3", "[vt] noise is 3; write a string"),
        ("[vt]\nnoise = ' '", "[vt] noise is empty; write some text, or leave the line out"),
        ("[vt]\nthen = 'SET {name}'", "[vt] then must use these placeholders: {name}, {previous}"),
        ("[vt]\nfirst = '{name} {value} {query}'", "[vt] first must use these placeholders: {name}, {value}"),
        ("[vt]\nfirst = '{name} {value} {}'", "[vt] first must use these placeholders: {name}, {value}"),
        ("[vt]\nfirst = '{name} {value:d}'", "[vt] first must use these placeholders: {name}, {value}"),
        ("[vt]\nfirst = '{name!x} {value}'", "[vt] first must use these placeholders: {name}, {value}"),
        ("[vt]\nfirst = '{name.upper} {value}'", "[vt] first must use these placeholders: {name}, {value}"),
        ("[vt]\nnoise = 'a {blank}'", "[vt] noise must use these placeholders: none"),
        ("[vt]\nfirst = '{name} {value'", "[vt] first: expected '}' before end of string; write {{ or }}"),
        ("[vt]\nfirst = '{name} value}'", "[vt] first: Single '}' encountered in format string; write {{ or }}"),
        ("[vt", "is not TOML (Expected ']'"),
        (b"[vt]\nnoise = '\xff'", "is not TOML ('utf-8' codec can't decode"),
    ],
)
def test_a_file_that_cannot_be_used_is_an_error_of_one_line(write: Write, content: str | bytes, said: str) -> None:
    path = write(content)
    with pytest.raises(PromptsError) as caught:
        load_tasks(str(path))
    message = str(caught.value)
    assert message.startswith(f"--prompts: {path}")
    assert said in message
    assert "\n" not in message


@pytest.mark.parametrize("missing", ["none.toml", "."])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, missing: str) -> None:
    with pytest.raises(PromptsError, match=r"^--prompts: cannot read .*; give a TOML file$") as caught:
        load_tasks(str(tmp_path / missing))
    assert str(tmp_path / missing) in str(caught.value)


def test_an_override_changes_the_prompt_of_its_task_alone(write: Write) -> None:
    tasks = load_tasks(str(write("[niah_single_2]\nanswer_prefix = 'For {query} it is'\n[cwe]\n")))
    for name in RULER:
        task = tasks[name]
        own = task.sample(1024, 0, seed=0, tokenizer=formatter(), corpora=GENERATED)
        if name == "niah_single_2":
            assert own.prompt.text.endswith(f" For {own.question} it is")
            assert own.references == make_sample(name, 1024).references
            assert task.prompts == {**TASKS[name].prompts, "answer_prefix": "For {query} it is"}
        else:
            assert own == make_sample(name, 1024)


def test_braces_of_the_text_are_written_double_everywhere(write: Write) -> None:
    places = (
        ("niah_single_1", "noise"),
        ("niah_single_1", "template"),
        ("niah_multikey_2", "needle"),
        ("vt", "noise"),
        ("vt", "first"),
        ("cwe", "answer_prefix"),
        ("fwe", "answer_prefix"),
        ("qa_1", "answer_prefix"),
        ("qa_1", "document"),
    )
    for name, part in places:
        path = write(f"[{name}]\n{part} = {json.dumps(PROMPTS[name][part] + ' {{x}}')}")
        sample = load_tasks(str(path))[name].sample(1024, 0, seed=0, tokenizer=formatter(), corpora=GENERATED)
        assert " {x}" in sample.prompt.text
        assert "{{" not in sample.prompt.text


def test_an_answer_prefix_may_be_left_empty(write: Write) -> None:
    tasks = load_tasks(str(write("[fwe]\nanswer_prefix = ''")))
    sample = tasks["fwe"].sample(1024, 0, seed=0, tokenizer=formatter(), corpora=GENERATED)
    assert sample.prompt.text.rstrip().endswith("in the above coded text?")


def test_the_files_own_tables_are_accepted() -> None:
    path = REPOSITORY / "fixtures" / "tasks" / "ruler" / "prompts.toml"
    assert load_tasks(str(path)) == TASKS
    assert list(PROMPTS) == list(RULER)


def test_placeholders_are_the_names_in_braces() -> None:
    assert placeholders("{a} {{b}} {c!r} {d:>8} {}") == {"a", "c!r", "d:>8", ""}
