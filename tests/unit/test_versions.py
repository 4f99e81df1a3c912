"""Stored results are keyed by explicit versions: no source text has a part in any key."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import msgspec
import pytest

from fixtures import versions
from plugins.journal import Heartbeat, Journal, Subject
from plugins.journal.housekeeping import subject_directories
from plugins.journal.lines import UNVERSIONED_SOURCES, sample_key
from tests.helpers.checkpoints import sound_checkpoint
from tests.helpers.journals import entry, read_journal
from tests.helpers.paths import REPOSITORY
from tests.helpers.preloaded import preloaded

COMMENT = {".py": "\n# a comment\n", ".toml": "\n# a comment\n"}
# Prints everything that names a stored result: fingerprints, a sample's key, a model's and a judge's.
KEYS = """
from fixtures.cases import samples_fingerprint
from fixtures.checkpoints.checkpoint import read_checkpoint
from fixtures.corpora import Corpora
from fixtures.engines import execution_settings
from fixtures.tokenization.prompts import PromptFormatter
from fixtures.scoring.judge import JudgedClaim, JudgeSettings, fingerprint
from fixtures.scoring.judge.client import request_of
from fixtures.scoring.judge.reply_cache import reply_key
from fixtures.tasks import TASKS
from fixtures.calibration.recipe import _recipe
from tests.helpers.tiny_tokenizers import Pieces

settings = JudgeSettings(model="judge-1")
question = JudgedClaim(premise="It sank.", claim="It sank.").questions()[0]
print(Corpora().fingerprint, PromptFormatter(Pieces()).fingerprint, _recipe(), fingerprint(settings))
print(samples_fingerprint(TASKS, Corpora(), PromptFormatter(Pieces()), scored_by=("strict",)))
print(reply_key(question.rubric, request_of(settings, question.text)))
how = {"device": "cpu", "dtype": "float32", "attention": "auto", "batch_size": 0, "prefill_chunk": "auto"}
print(execution_settings(read_checkpoint(CHECKPOINT), engine="hf", **how))
"""


def test_a_comment_in_any_source_file_changes_no_key(tmp_path: Path, tiny_checkpoint: Path) -> None:
    for name in ("fixtures", "plugins", "ci", "tests", "conftest.py"):
        source = REPOSITORY / name
        copy = shutil.copytree if source.is_dir() else shutil.copy
        copy(source, tmp_path / name)
    before = keys(tmp_path, tiny_checkpoint)
    files = [file for file in tmp_path.rglob("*") if file.suffix in COMMENT]
    assert len(files) > 200
    for file in files:
        with file.open("a", encoding="utf-8") as appended:
            appended.write(COMMENT[file.suffix])
    assert keys(tmp_path, tiny_checkpoint) == before


@pytest.fixture
def tiny_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return sound_checkpoint(tmp_path_factory.mktemp("tiny") / "checkpoint")


VERSIONED = Subject(model="m", fingerprint="f", execution={"engine": "hf", "dtype": "float32", "version": "1"})
UNVERSIONED = Subject(
    model="m", fingerprint="f", execution={"engine": "hf", "dtype": "float32", "code": UNVERSIONED_SOURCES["hf", "1"]}
)


def test_answers_from_a_journal_without_versions_are_taken_over(tmp_path: Path) -> None:
    with_heartbeat(tmp_path, UNVERSIONED).append(entry("old", prompt="b" * 32))
    assert read_journal(tmp_path, VERSIONED).entries_by_prompt.keys() == {"b" * 32}, (
        "a reader finds them where they are"
    )
    assert (tmp_path / UNVERSIONED.key).is_dir(), "a reader moves nothing"
    journal = with_heartbeat(tmp_path, VERSIONED)
    journal.refresh()
    assert journal.entries_by_prompt.keys() == {"b" * 32}
    assert [each.subject for each in subject_directories(tmp_path)] == [VERSIONED]


def test_another_source_text_or_version_takes_nothing_over(tmp_path: Path) -> None:
    changed = msgspec.structs.replace(UNVERSIONED, execution={**UNVERSIONED.execution, "code": "0" * 16})
    with_heartbeat(tmp_path, changed).append(entry("old"))
    with_heartbeat(tmp_path, UNVERSIONED).append(entry("old"))
    later = msgspec.structs.replace(VERSIONED, execution={**VERSIONED.execution, "version": "2"})
    for subject in (later, VERSIONED):
        journal = with_heartbeat(tmp_path, subject)
        journal.refresh()
        assert len(journal.entries) == (subject == VERSIONED)
    assert {each.subject.key for each in subject_directories(tmp_path)} == {changed.key, later.key, VERSIONED.key}


def test_results_of_both_journals_are_kept_apart_where_both_exist(tmp_path: Path) -> None:
    with_heartbeat(tmp_path, VERSIONED).append(entry("new"))
    with_heartbeat(tmp_path, UNVERSIONED).append(entry("old"))
    journal = with_heartbeat(tmp_path, VERSIONED)
    journal.refresh()
    assert journal.entries.keys() == {"new"}
    assert (tmp_path / UNVERSIONED.key).is_dir()


@pytest.mark.parametrize("changed", ["version", "samples", "seed", "task", "length", "index"])
def test_a_samples_key_depends_on_each_part_of_its_identity(changed: str) -> None:
    identity = {"samples": "s", "version": "1.1.1", "seed": 0, "task": "vt", "length": 4096, "index": 3}
    other = {**identity, changed: f"{identity[changed]}1" if isinstance(identity[changed], str) else 9}
    assert sample_key(**identity) != sample_key(**other)  # type: ignore[arg-type]  # the values are of mixed types


def test_a_sample_version_names_task_prompt_and_scoring(monkeypatch: pytest.MonkeyPatch) -> None:
    assert versions.sample_version("vt", "string_match_all") == "2.1.1"
    monkeypatch.setattr(versions, "SCORING", {"string_match_all": 3})
    monkeypatch.setattr(versions, "PROMPTS", 2)
    assert versions.sample_version("vt", "string_match_all") == "2.2.3"
    with pytest.raises(KeyError, match="judge"):
        versions.sample_version("vt", "judge")


def with_heartbeat(directory: Path, subject: Subject) -> Journal:
    """Return a journal that writes."""
    return Journal(directory, subject, Heartbeat(directory, "run"))


def keys(tree: Path, checkpoint: Path) -> str:
    """Return what `KEYS` prints when it runs in a copy of the sources."""
    ended = subprocess.run(
        [str(preloaded("python")), "-c", f"CHECKPOINT = {str(checkpoint)!r}\n{KEYS}"],
        cwd=tree,
        env=os.environ | {"PYTHONPATH": str(tree)},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    return ended.stdout
