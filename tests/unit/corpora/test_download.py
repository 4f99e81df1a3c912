"""`python -m fixtures.corpora fetch`: whole files or none, from a server that may fail in the middle."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from fixtures.corpora import load_corpora
from fixtures.corpora.__main__ import main
from fixtures.corpora.download import command
from fixtures.corpora.download.command import FetchError, Resource
from fixtures.corpora.download.files import MANIFEST, Manifest, unpack
from fixtures.corpora.download.transfer import download
from tests.helpers.mirrors import Mirror, serving

FILE = bytes(range(256)) * 400
SQUAD = {"data": [{"title": "T", "paragraphs": [{"context": "The mill burned in 1903.", "qas": []}]}]}


@pytest.fixture
def mirror(monkeypatch: pytest.MonkeyPatch) -> Iterator[Mirror]:
    monkeypatch.setattr("fixtures.corpora.download.transfer.WAIT_SECONDS", 0.0)
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with serving() as running:
        yield running


def silent(line: str) -> None:
    """Says nothing."""


def tar_of(files: dict[str, bytes], links: dict[str, str] | None = None) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
        for name, target in (links or {}).items():
            member = tarfile.TarInfo(name)
            member.type, member.linkname = tarfile.SYMTYPE, target
            tar.addfile(member)
    return packed.getvalue()


def test_a_cut_connection_is_continued_where_it_broke(mirror: Mirror, tmp_path: Path) -> None:
    mirror.files["/big"], mirror.cuts = FILE, [30_000, 20_000]
    download(f"{mirror.url}/big", tmp_path / "big", None, silent)
    assert (tmp_path / "big").read_bytes() == FILE
    assert [asked for _, asked in mirror.asked] == [None, "bytes=30000-", "bytes=50000-"]
    assert [path.name for path in tmp_path.iterdir()] == ["big"]


def test_a_later_call_continues_what_an_earlier_one_left(mirror: Mirror, tmp_path: Path) -> None:
    mirror.files["/big"], mirror.cuts = FILE, [40_000, *[0] * 5]
    with pytest.raises(FetchError, match="40000 bytes are kept, call again"):
        download(f"{mirror.url}/big", tmp_path / "big", None, silent)
    assert not (tmp_path / "big").exists()
    mirror.asked.clear()
    download(f"{mirror.url}/big", tmp_path / "big", None, silent)
    assert mirror.asked == [("/big", "bytes=40000-")]
    assert (tmp_path / "big").read_bytes() == FILE


def test_what_was_left_of_another_version_is_not_continued(mirror: Mirror, tmp_path: Path) -> None:
    mirror.files["/big"], mirror.cuts = FILE, [40_000, *[0] * 5]
    with pytest.raises(FetchError):
        download(f"{mirror.url}/big", tmp_path / "big", None, silent)
    mirror.files["/big"] = FILE[::-1]
    download(f"{mirror.url}/big", tmp_path / "big", None, silent)
    assert (tmp_path / "big").read_bytes() == FILE[::-1]


def test_a_server_without_ranges_sends_the_whole_again(mirror: Mirror, tmp_path: Path) -> None:
    mirror.files["/big"], mirror.cuts, mirror.ranges = FILE, [30_000], False
    download(f"{mirror.url}/big", tmp_path / "big", None, silent)
    assert (tmp_path / "big").read_bytes() == FILE


def test_a_whole_file_that_was_not_yet_renamed_is_not_fetched_again(mirror: Mirror, tmp_path: Path) -> None:
    mirror.files["/big"] = FILE
    (tmp_path / "big.part").write_bytes(FILE)
    download(f"{mirror.url}/big", tmp_path / "big", hashlib.sha256(FILE).hexdigest(), silent)
    assert mirror.asked == [("/big", f"bytes={len(FILE)}-")]
    assert (tmp_path / "big").read_bytes() == FILE


def test_a_wrong_checksum_leaves_no_file(mirror: Mirror, tmp_path: Path) -> None:
    mirror.files["/big"] = FILE
    with pytest.raises(FetchError, match=f"not {'0' * 64}; it was removed"):
        download(f"{mirror.url}/big", tmp_path / "big", "0" * 64, silent)
    assert list(tmp_path.iterdir()) == []


def test_a_missing_file_is_told_at_once(mirror: Mirror, tmp_path: Path) -> None:
    with pytest.raises(FetchError, match="answers 404"):
        download(f"{mirror.url}/none", tmp_path / "none", None, silent)
    assert len(mirror.asked) == 1


@pytest.mark.parametrize("name", ["../outside.jsonl", "data/../../outside.jsonl"])
def test_an_archive_writes_nothing_outside_the_directory(name: str, tmp_path: Path) -> None:
    (tmp_path / "to").mkdir()
    archive = tmp_path / "to" / "a.tar.gz"
    archive.write_bytes(tar_of({name: b"x"}))
    with pytest.raises(FetchError, match="outside"):
        unpack(archive, tmp_path / "to", Manifest(tmp_path / "to"), silent)
    assert not (tmp_path / "outside.jsonl").exists()


def test_links_of_an_archive_are_not_followed(tmp_path: Path) -> None:
    archive = tmp_path / "a.tar.gz"
    archive.write_bytes(tar_of({"data/one": b"1"}, links={"data/two": "one"}))
    unpack(archive, tmp_path, Manifest(tmp_path), silent)
    assert (tmp_path / "one").read_bytes() == b"1"
    assert not (tmp_path / "two").exists()


def test_a_cut_archive_is_an_error_and_what_was_unpacked_is_kept(tmp_path: Path) -> None:
    content = tar_of({f"data/kilt/{n}": Random(n).randbytes(60_000) for n in range(4)})
    archive = tmp_path / "a.tar.gz"
    archive.write_bytes(content[: len(content) // 2])
    with pytest.raises(FetchError, match="cannot be unpacked"):
        unpack(archive, tmp_path, Manifest(tmp_path), silent)
    kept = {path.name for path in (tmp_path / "kilt").iterdir()}
    assert kept == {"0"}
    archive.write_bytes(content)
    said: list[str] = []
    unpack(archive, tmp_path, Manifest(tmp_path), said.append)
    assert sorted(path.name for path in (tmp_path / "kilt").iterdir()) == ["0", "1", "2", "3"]
    assert said == [f"kilt/{n}: unpacked" for n in (1, 2, 3)]


def put_ruler(mirror: Mirror, monkeypatch: pytest.MonkeyPatch) -> None:
    squad = json.dumps(SQUAD).encode()
    for known, content in ((command.SQUAD, squad), (command.HOTPOT, b"[]")):
        mirror.files["/" + known.url.split("/", 3)[3]] = content
        changed = Resource(path=known.path, url=known.url, sha256=hashlib.sha256(content).hexdigest())
        monkeypatch.setattr(command, "SQUAD" if known is command.SQUAD else "HOTPOT", changed)
    folder = f"repo-1/{command.ESSAYS_FOLDER}"
    essays = {f"{folder}/b.txt": b"Second.", f"{folder}/a.txt": b"First. ", "repo-1/README.md": b"no"}
    mirror.files["/" + command.ESSAYS.url.split("/", 3)[3]] = tar_of(essays)


def test_fetch_ruler_makes_a_data_directory(mirror: Mirror, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    put_ruler(mirror, monkeypatch)
    assert main(["fetch", "ruler", "--to", str(tmp_path / "d"), "--from", mirror.url]) == 0
    corpora = load_corpora(tmp_path / "d")
    assert set(corpora.sources.values()) == {"published"}
    assert [corpora.haystack.sentence(n) for n in range(2)] == ["First.", "Second."]
    asked = len(mirror.asked)
    assert main(["fetch", "ruler", "--to", str(tmp_path / "d"), "--from", mirror.url]) == 0
    assert len(mirror.asked) == asked


def test_a_file_that_changed_since_is_told(
    mirror: Mirror, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put_ruler(mirror, monkeypatch)
    arguments = ["fetch", "ruler", "--to", str(tmp_path), "--from", mirror.url]
    assert main(arguments) == 0
    path = tmp_path / command.SQUAD.path
    path.write_bytes(path.read_bytes().replace(b"mill", b"barn"))
    assert main(arguments) == 1
    assert f"{path}: is not what was fetched" in capsys.readouterr().err.splitlines()[-1]


def test_a_file_of_the_user_is_not_overwritten(
    mirror: Mirror, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put_ruler(mirror, monkeypatch)
    path = tmp_path / command.SQUAD.path
    path.parent.mkdir()
    path.write_bytes(b"mine")
    assert main(["fetch", "ruler", "--to", str(tmp_path), "--from", mirror.url]) == 1
    assert "was not fetched by this command" in capsys.readouterr().err
    assert path.read_bytes() == b"mine"


def put_helmet(mirror: Mirror) -> None:
    line = json.dumps({"id": "1", "query": "q", "input": "The key.", "outputs": ["7"]}).encode()
    archive = tar_of({"data/ruler/niah_multivalue/validation_4096.jsonl": line + b"\n"})
    mirror.put_set("princeton-nlp/HELMET", {"data.tar.gz": archive, "README.md": b"."})
    for files in command.HELMET_SETS:
        names = [pattern.replace("*", "one/train/0") for pattern in files.patterns]
        mirror.put_set(files.name, {name: name.encode() for name in names} | {"other.txt": b"unwanted"})


def test_fetch_helmet_unpacks_and_takes_the_hub_sets(mirror: Mirror, tmp_path: Path) -> None:
    put_helmet(mirror)
    mirror.cuts = [60]
    assert main(["fetch", "helmet", "--to", str(tmp_path), "--from", mirror.url]) == 0
    found = load_corpora(tmp_path).collection("ruler/niah_multivalue/4096")
    assert found is not None
    assert found[0].references == ("7",)
    assert (tmp_path / "CogComp/trec/one/train/0.parquet").read_bytes() == b"one/train/0.parquet"
    assert (tmp_path / "xinrongzhang2022/infinitebench/longbook_sum_eng.jsonl").is_file()
    assert not list(tmp_path.rglob("other.txt"))
    assert not list(tmp_path.glob("*.tar.gz"))
    recorded = json.loads((tmp_path / MANIFEST).read_text())
    entry = recorded["CogComp/trec/one/train/0.parquet"]
    assert entry["sha256"] == hashlib.sha256(b"one/train/0.parquet").hexdigest()


def test_a_second_call_downloads_nothing_again(mirror: Mirror, tmp_path: Path) -> None:
    put_helmet(mirror)
    arguments = ["fetch", "helmet", "--to", str(tmp_path), "--from", mirror.url]
    assert main(arguments) == 0
    mirror.asked.clear()
    assert main(arguments) == 0
    assert [path for path, _ in mirror.asked if not path.startswith("/api/")] == []


def test_a_hub_file_with_another_checksum_is_refused(
    mirror: Mirror, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put_helmet(mirror)
    archive = mirror.files["/datasets/princeton-nlp/HELMET/resolve/" + "0" * 39 + "1/data.tar.gz"]
    mirror.put_set("princeton-nlp/HELMET", {"data.tar.gz": archive}, {"data.tar.gz": "a" * 64})
    assert main(["fetch", "helmet", "--to", str(tmp_path), "--from", mirror.url]) == 1
    assert "has SHA-256" in capsys.readouterr().err
    assert not list(tmp_path.rglob("*.jsonl"))


def test_no_answer_from_the_hub_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fetch", "helmet", "--to", str(tmp_path), "--from", "http://127.0.0.1:9"]) == 1
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 1
    assert "princeton-nlp/HELMET: the hub does not list its files" in said[0]


@pytest.mark.parametrize("arguments", [["fetch", "squad", "--to", "d"], ["fetch", "ruler"], []])
def test_wrong_use_exits_with_2(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == 4


def test_a_mirror_without_a_scheme_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["fetch", "ruler", "--to", str(tmp_path), "--from", "mirror.example"])
    assert "write https://mirror.example" in capsys.readouterr().err
