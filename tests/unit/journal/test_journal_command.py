"""`longctx journal` lists the contents of a journal, and deletes only old and unused files of its own."""

import json
import os
import subprocess
import time
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from longctx.plugins.journal import Heartbeat, Journal, Subject
from longctx.plugins.journal.__main__ import main
from longctx.plugins.journal.heartbeat import worker_file
from longctx.plugins.journal.lines import encode_record
from longctx.plugins.journal.subjects import delete_subject, subject_directories
from tests.helpers.journals import SUBJECT, entry, kill_worker, read_journal, write_journal
from tests.helpers.paths import REPOSITORY
from tests.helpers.preloaded import preloaded

DAY_SECONDS = 86_400
OLD = msgspec.structs.replace(SUBJECT, model="models/old", fingerprint="0123456789abcdef")


def old_subject(directory: Path, subject: Subject = OLD, days: float = 40) -> Path:
    """Write a subject with one result that is so many days old, and return its directory."""
    write_journal(directory, entry("aa"), subject=subject)
    folder = directory / subject.key
    then = time.time() - days * DAY_SECONDS
    for file in folder.iterdir():
        os.utime(file, (then, then))
    return folder


def tree(directory: Path) -> dict[str, bytes | None]:
    return {
        str(path.relative_to(directory)): None if path.is_dir() else path.read_bytes() for path in directory.rglob("*")
    }


def test_the_list_has_every_subject_and_the_totals(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old_subject(tmp_path)
    write_journal(tmp_path, entry("aa"), entry("bb"), entry("cc", case="other"))
    long_name = msgspec.structs.replace(
        SUBJECT, model="a/long/path/to/\x1b[31m/é/checkpoints/of/a/model/step_1000", fingerprint="e" * 64
    )
    with closing(Heartbeat(tmp_path, "run")) as heartbeat:
        journal = Journal(tmp_path, long_name, heartbeat)
        journal.claim(["aa"], 1)
        assert main([str(tmp_path)]) == 0
        journal.close()
    lines = capsys.readouterr().out.splitlines()
    assert all(line.isprintable() for line in lines)
    assert lines[0].split() == ["checkpoint", "engine", "cases", "samples", "size", "written", "model"]
    by_checkpoint = {line.split()[0]: line.split() for line in lines[1:-1]}
    assert by_checkpoint["0123456789"][1:] == ["hf/bfloat16", "1", "1", "0.00", "MB", "40.0", "d", "models/old"]
    assert by_checkpoint["ffffffffff"][2:4] == ["2", "3"]
    assert by_checkpoint["eeeeeeeeee"][-3].endswith("checkpoints/of/a/model/step_1000")
    assert by_checkpoint["eeeeeeeeee"][-2:] == ["(in", "use)"]
    # So may be the one that was written a moment ago.
    assert sum(line.endswith("(in use)") for line in lines) == 2
    assert lines[-1].startswith("subjects: 3, samples: 4, ")


def test_the_list_names_files_with_unreadable_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write_journal(tmp_path, entry("aa"))
    file.write_bytes(b"=======\n" + file.read_bytes())
    assert main([str(tmp_path)]) == 0
    _, row, damage, _ = capsys.readouterr().out.splitlines()
    assert row.endswith("models/step_1000")
    assert damage.startswith(f"  {file}: 1 of 2 lines cannot be read, first line 1; ")


def test_pruning_deletes_older_subjects_and_reports_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = old_subject(tmp_path)
    newer = old_subject(tmp_path, SUBJECT, days=29)
    assert main([str(tmp_path), "--prune", "30d"]) == 0
    assert not folder.exists()
    assert set(read_journal(tmp_path).entries) == {"aa"}
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([newer.name, "workers"])
    deleted, freed = capsys.readouterr().out.splitlines()
    assert deleted.startswith("deleted       0123456789  hf/bfloat16 ")
    assert deleted.endswith(" 40.0 d  models/old")
    assert freed == "freed 0.00 MB"
    assert main([str(tmp_path), "--prune", f"{28 * 24}h"]) == 0
    assert list(tmp_path.iterdir()) == [tmp_path / "workers"]
    assert main([str(tmp_path)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "subjects: 0, samples: 0, 0.00 MB"


def test_a_dry_run_without_deletions_is_wrong_use(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path), "--dry-run"]) == 4
    assert "--dry-run: has no effect without --prune" in capsys.readouterr().err


def test_a_dry_run_reports_deletions_and_changes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old_subject(tmp_path)
    kill_worker(tmp_path, "run", ["bb"])
    before = tree(tmp_path)
    assert main([str(tmp_path), "--prune", "30d", "--dry-run"]) == 0
    assert tree(tmp_path) == before
    out = capsys.readouterr().out.splitlines()
    assert out[0].startswith("would delete  0123456789 ")
    assert out[-1] == "would free 0.00 MB"


def test_only_the_given_model_is_deleted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old_subject(tmp_path)
    old_subject(tmp_path, SUBJECT)
    assert main([str(tmp_path), "--prune", "0d", "--model", "step_1000"]) == 0
    assert not (tmp_path / SUBJECT.key).exists()
    assert (tmp_path / OLD.key).exists()
    capsys.readouterr()
    assert main([str(tmp_path), "--prune", "0d", "--model", "step"]) == 4
    assert capsys.readouterr().err == "error: --model: no results of 'step' here; the journal has: models/old\n"


@pytest.mark.parametrize("use", ["claim", "file", "claim of another machine"])
def test_a_subject_in_use_is_kept(tmp_path: Path, use: str, capsys: pytest.CaptureFixture[str]) -> None:
    folder = old_subject(tmp_path)
    remote = worker_file(tmp_path, "far-7-0123abcd")
    with closing(Heartbeat(tmp_path, "run")) as heartbeat:
        if use == "claim":
            Journal(tmp_path, OLD, heartbeat).claim(["bb"], 1)
        elif use == "file":
            # Between two claims, only its file shows that a worker uses the subject.
            (folder / f"{heartbeat.name}.jsonl").touch()
        else:
            remote.write_text(json.dumps({"host": "far", "run": "run"}))
            (folder / "claims" / "bb").write_text("far-7-0123abcd\n")
        assert main([str(tmp_path), "--prune", "0d"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("kept  ")
    assert "models/old (in use)\nfreed 0.00 MB\n" in out
    assert set(read_journal(tmp_path, OLD).entries) == {"aa"}
    if remote.exists():
        os.utime(remote, (time.time() - 7200,) * 2)
    assert main([str(tmp_path), "--prune", "0d"]) == 0
    assert not folder.exists()


def test_a_worker_that_starts_while_its_subject_is_deleted_keeps_it(tmp_path: Path) -> None:
    folder = old_subject(tmp_path)
    (listed,) = subject_directories(tmp_path)
    (folder / "claims" / "bb").touch()
    assert not delete_subject(listed)
    assert set(read_journal(tmp_path, OLD).entries) == {"aa"}


def test_the_last_worker_deletes_the_files_of_killed_ones(tmp_path: Path) -> None:
    name = kill_worker(tmp_path, "run", ["aa"])
    foreign = tmp_path / "workers" / "notes.json"
    foreign.write_text("{}")
    with closing(Heartbeat(tmp_path, "run")):
        Heartbeat(tmp_path, "run").close()
        assert worker_file(tmp_path, name).exists()
    assert not worker_file(tmp_path, name).exists()
    assert foreign.exists()


def test_an_interrupted_deletion_is_completed(tmp_path: Path) -> None:
    old_subject(tmp_path).rename(tmp_path / ".pruned-0123abcd")
    assert main([str(tmp_path), "--prune", "30d"]) == 0
    assert list(tmp_path.iterdir()) == [tmp_path / "workers"]


def test_foreign_folders_are_never_deleted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    outside = tmp_path / "outside"
    old_subject(outside)
    directory = tmp_path / "journal"
    (directory / "workers").mkdir(parents=True)
    (directory / OLD.key).symlink_to(outside / OLD.key)
    (directory / "data").mkdir()
    (directory / "data" / "subject.json").write_bytes(encode_record(OLD))
    (directory / "school").mkdir()
    (directory / "school" / "subject.json").write_text('{"title": "biology"}')
    before = tree(tmp_path)
    assert main([str(directory), "--prune", "0d"]) == 0
    assert tree(tmp_path) == before
    assert capsys.readouterr().out == "freed 0.00 MB\n"


def test_wrong_use_is_an_error_of_one_line(tmp_path: Path) -> None:
    old_subject(tmp_path)
    before = tree(tmp_path)
    ended = subprocess.run(
        [str(preloaded("longctx")), "journal", str(tmp_path), "--prune=-1d"],
        cwd=REPOSITORY, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert ended.stdout == ""
    assert tree(tmp_path) == before
    message = "--prune: cannot read '-1d'; write 30d or 12h, or 0d for everything"
    assert (ended.returncode, ended.stderr) == (4, f"error: {message}\n")
