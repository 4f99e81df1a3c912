"""Stored results are keyed by explicit versions: no source text has a part in any key."""

import os
import shutil
import subprocess
from pathlib import Path

import msgspec
import pytest

from longctx.fixtures import versions
from longctx.plugins.journal import Heartbeat, Journal, Subject
from longctx.plugins.journal.lines import sample_key
from longctx.plugins.journal.subjects import subject_directories
from tests.helpers.checkpoints import sound_checkpoint
from tests.helpers.journals import entry
from tests.helpers.paths import REPOSITORY
from tests.helpers.preloaded import preloaded

COMMENT = {".py": "\n# a comment\n", ".toml": "\n# a comment\n"}
# Prints everything that names a stored result: fingerprints, a sample's key, a model's and a judge's.
KEYS = """
from longctx.fixtures.cases import samples_fingerprint
from longctx.fixtures.checkpoints.checkpoint import read_checkpoint
from longctx.fixtures.corpora import Corpora
from longctx.fixtures.engines import execution_settings
from longctx.fixtures.engines.hf.settings import HfSettings
from longctx.fixtures.tokenization.prompts import PromptFormatter
from longctx.fixtures.scoring.judge import JudgedClaim, JudgeSettings, fingerprint
from longctx.fixtures.scoring.judge.judge import request_of
from longctx.fixtures.scoring.judge.judge import reply_key
from longctx.fixtures.tasks import TASKS
from longctx.fixtures.calibration.recipe import _recipe
from tests.helpers.tiny_tokenizers import Pieces

settings = JudgeSettings(model="judge-1")
question = JudgedClaim(premise="It sank.", claim="It sank.").questions()[0]
print(Corpora().fingerprint, PromptFormatter(Pieces()).fingerprint, _recipe(), fingerprint(settings))
print(samples_fingerprint(TASKS, Corpora(), PromptFormatter(Pieces()), scored_by=("strict",)))
print(reply_key(question.rubric, request_of(settings, question.text)))
print(execution_settings(read_checkpoint(CHECKPOINT), HfSettings(device="cpu", dtype="float32")))
"""


def test_a_comment_in_any_source_file_changes_no_key(tmp_path: Path, tiny_checkpoint: Path) -> None:
    for name in ("longctx", "fixtures", "plugins", "ci", "tests"):
        shutil.copytree(REPOSITORY / name, tmp_path / name, symlinks=True)
    shutil.copy(REPOSITORY / "conftest.py", tmp_path)
    files = [file for file in tmp_path.rglob("*") if file.suffix in COMMENT]
    assert len(files) > 200
    for file in files:
        with file.open("a", encoding="utf-8") as appended:
            appended.write(COMMENT[file.suffix])
    assert keys(tmp_path, tiny_checkpoint) == keys(REPOSITORY, tiny_checkpoint)


@pytest.fixture
def tiny_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return sound_checkpoint(tmp_path_factory.mktemp("tiny") / "checkpoint")


def test_another_version_of_an_engine_has_results_of_its_own(tmp_path: Path) -> None:
    subject = Subject(model="m", fingerprint="f", execution={"engine": "hf", "dtype": "float32", "version": "1"})
    later = msgspec.structs.replace(subject, execution={**subject.execution, "version": "2"})
    Journal(tmp_path, subject, Heartbeat(tmp_path, "run")).append(entry("old"))
    journal = Journal(tmp_path, later, Heartbeat(tmp_path, "run"))
    journal.refresh()
    assert not journal.entries
    assert {each.subject.key for each in subject_directories(tmp_path)} == {subject.key, later.key}


@pytest.mark.parametrize("changed", ["version", "samples", "seed", "task", "length", "index"])
def test_a_samples_key_depends_on_each_part_of_its_identity(changed: str) -> None:
    identity = {"samples": "s", "version": "1.1.1", "seed": 0, "task": "vt", "length": 4096, "index": 3}
    other = {**identity, changed: f"{identity[changed]}1" if isinstance(identity[changed], str) else 9}
    assert sample_key(**identity) != sample_key(**other)  # type: ignore[arg-type]  # the values are of mixed types


def test_a_sample_version_names_task_prompt_and_scoring(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "SCORING", {"string_match_all": 4})
    monkeypatch.setattr(versions, "PROMPTS", 2)
    assert versions.sample_version("vt", "string_match_all") == "3.2.4"
    with pytest.raises(KeyError, match="judge"):
        versions.sample_version("vt", "judge")


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
