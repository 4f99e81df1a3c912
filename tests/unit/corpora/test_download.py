"""`longctx fetch`: complete files or none, from a server that may fail in the middle."""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from longctx.fixtures.corpora import download as fetch
from longctx.fixtures.corpora import load_corpora
from longctx.fixtures.corpora.__main__ import main
from longctx.fixtures.corpora.download import (
    FETCHED,
    FetchError,
    _fetch_hub_files,
    _fetch_web_file,
    _HubFiles,
    _WebFile,
    unpack,
)
from tests.helpers.archives import files_under, tar_of, zip_of
from tests.helpers.mirrors import Mirror, serving

CONTENT = bytes(range(256)) * 400
SHA256 = hashlib.sha256(CONTENT).hexdigest()
SQUAD = {"data": [{"title": "T", "paragraphs": [{"context": "The mill burned in 1903.", "qas": []}]}]}


@pytest.fixture
def mirror(monkeypatch: pytest.MonkeyPatch) -> Iterator[Mirror]:
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with serving() as running:
        yield running


def fetch_web(mirror: Mirror, directory: Path, sha256: str | None = SHA256) -> None:
    _fetch_web_file(_WebFile("big", "https://publisher.example/big", sha256), directory, mirror.url)


def fetch_hub(mirror: Mirror, directory: Path) -> None:
    _fetch_hub_files(_HubFiles("org/set", ("big",)), directory, mirror.url)


@pytest.mark.parametrize("sha256", [SHA256, None], ids=["known checksum", "no checksum"])
def test_a_torn_download_from_the_web_starts_again(sha256: str | None, mirror: Mirror, tmp_path: Path) -> None:
    mirror.files["/big"], mirror.cuts = CONTENT, [30_000, 20_000]
    fetch_web(mirror, tmp_path, sha256)
    assert (tmp_path / "big").read_bytes() == CONTENT
    assert mirror.downloads == [("/big", None)] * 3
    assert files_under(tmp_path) == ["big"]


@pytest.mark.parametrize("sha256", [SHA256, None], ids=["known checksum", "no checksum"])
def test_a_download_from_the_web_that_stays_torn_leaves_no_file(
    sha256: str | None, mirror: Mirror, tmp_path: Path
) -> None:
    mirror.files["/big"], mirror.cuts = CONTENT, [30_000] * 20
    with pytest.raises(FetchError, match=r"^big: .*; call again, or see --from$"):
        fetch_web(mirror, tmp_path, sha256)
    assert files_under(tmp_path) == []


def test_a_wrong_checksum_leaves_no_file(mirror: Mirror, tmp_path: Path) -> None:
    mirror.files["/big"] = CONTENT
    with pytest.raises(FetchError, match=f"big: .*{SHA256}.*{'0' * 64}|big: .*{'0' * 64}.*{SHA256}"):
        fetch_web(mirror, tmp_path, "0" * 64)
    assert files_under(tmp_path) == []


@pytest.mark.parametrize("fetch_big", [fetch_web, fetch_hub])
def test_a_file_that_the_server_lacks_is_one_line(fetch_big: object, mirror: Mirror, tmp_path: Path) -> None:
    assert callable(fetch_big)
    with pytest.raises(FetchError) as caught:
        fetch_big(mirror, tmp_path)
    assert "404" in str(caught.value)
    assert "\n" not in str(caught.value)


def put_ruler(mirror: Mirror, monkeypatch: pytest.MonkeyPatch) -> None:
    web = []
    for known, content in ((fetch.SQUAD, json.dumps(SQUAD).encode()), (fetch.HOTPOT, b"[]")):
        mirror.files["/" + known.url.split("/", 3)[3]] = content
        web.append(replace(known, sha256=hashlib.sha256(content).hexdigest()))
    monkeypatch.setitem(fetch.BENCHMARKS, "ruler", tuple(web))
    folder = f"repo-1/{fetch.ESSAYS_FOLDER}"
    essays = {f"{folder}/b.txt": b"Second.", f"{folder}/a.txt": b"First. ", "repo-1/README.md": b"no"}
    mirror.files["/" + fetch.ESSAYS.url.split("/", 3)[3]] = tar_of(essays)


def test_fetch_ruler_fills_a_data_directory(mirror: Mirror, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    put_ruler(mirror, monkeypatch)
    arguments = ["ruler", "--to", str(tmp_path / "d"), "--from", mirror.url]
    assert main(arguments) == 0
    corpora = load_corpora(tmp_path / "d")
    assert set(corpora.sources.values()) == {"published"}
    assert [corpora.collection("haystack")[number] for number in range(2)] == ["First.", "Second."]
    assert files_under(tmp_path / "d") == sorted((fetch.SQUAD.path, fetch.HOTPOT.path, fetch.JOINED_ESSAYS))
    mirror.requests.clear()
    assert main(arguments) == 0
    assert mirror.requests == []


def test_torn_essays_are_downloaded_again(mirror: Mirror, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A torn archive that an earlier version left behind is not taken for the whole one."""
    put_ruler(mirror, monkeypatch)
    (tmp_path / "essays").mkdir()
    (tmp_path / "essays/essays.tar.gz").write_bytes(b"torn")
    assert main(["ruler", "--to", str(tmp_path), "--from", mirror.url]) == 0
    assert json.loads((tmp_path / fetch.JOINED_ESSAYS).read_text()) == {"text": "First. Second."}


def test_a_file_of_the_user_is_not_overwritten(
    mirror: Mirror, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put_ruler(mirror, monkeypatch)
    path = tmp_path / fetch.SQUAD.path
    path.parent.mkdir()
    path.write_bytes(b"mine")
    assert main(["ruler", "--to", str(tmp_path), "--from", mirror.url]) == 1
    assert f"{path}: is not the published file; remove it" in capsys.readouterr().err
    assert path.read_bytes() == b"mine"


def put_helmet(mirror: Mirror) -> None:
    line = json.dumps({"id": "1", "query": "q", "input": "The key.", "outputs": ["7"]}).encode()
    archive = tar_of({"data/ruler/niah_multivalue/validation_4096.jsonl": line + b"\n"})
    mirror.put_set("princeton-nlp/HELMET", {"data.tar.gz": archive, "README.md": b"."})
    for files in fetch.HELMET_SETS:
        names = [pattern.replace("*", "one/train/0") for pattern in files.patterns]
        mirror.put_set(files.name, {name: name.encode() for name in names} | {"other.txt": b"unwanted"})


def test_fetch_helmet_unpacks_the_archive_and_downloads_the_hub_sets(mirror: Mirror, tmp_path: Path) -> None:
    put_helmet(mirror)
    mirror.cuts = [60]
    assert main(["helmet", "--to", str(tmp_path), "--from", mirror.url]) == 0
    samples = load_corpora(tmp_path).collection("ruler/niah_multivalue/4096")
    assert samples[0].references == ("7",)
    assert (tmp_path / "CogComp/trec/one/train/0.parquet").read_bytes() == b"one/train/0.parquet"
    assert (tmp_path / "xinrongzhang2022/infinitebench/longbook_sum_eng.jsonl").is_file()
    assert not list(tmp_path.rglob("other.txt"))
    assert not list(tmp_path.rglob("*.tar.gz"))
    (members,) = json.loads((tmp_path / FETCHED).read_text()).values()
    assert list(members) == ["data/ruler/niah_multivalue/validation_4096.jsonl"]


def test_an_archive_is_fetched_again_only_if_one_of_its_files_is_gone(mirror: Mirror, tmp_path: Path) -> None:
    put_helmet(mirror)
    arguments = ["helmet", "--to", str(tmp_path), "--from", mirror.url]
    assert main(arguments) == 0
    mirror.requests.clear()
    assert main(arguments) == 0
    assert mirror.downloads == []
    (sample,) = tmp_path.rglob("validation_4096.jsonl")
    sample.unlink()
    assert main(arguments) == 0
    assert sample.is_file()


def test_a_hub_that_does_not_answer_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["helmet", "--to", str(tmp_path), "--from", "http://127.0.0.1:9"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "princeton-nlp/HELMET: " in line
    assert line.endswith("call again, or see --from")


@pytest.mark.parametrize("arguments", [["squad", "--to", "d"], ["fetch", "ruler"], []])
def test_wrong_use_exits_with_4(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == 4


def test_a_mirror_without_a_scheme_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["ruler", "--to", str(tmp_path), "--from", "mirror.example"])
    assert "write https://mirror.example" in capsys.readouterr().err


def test_fetch_of_a_suite_unpacks_its_archives_and_gets_its_wording(mirror: Mirror, tmp_path: Path) -> None:
    mirror.put_set(
        "THUDM/LongBench",
        {"data.zip": zip_of({"data/trec.jsonl": b"{}", "../out.jsonl": b"{}"}), "other.py": b""},
    )
    commit = "f6227eb7a25cacbd96310aea2c59af003f8d8925"
    mirror.files[f"/THUDM/LongBench/{commit}/config/dataset2prompt.json"] = b'{"trec": "{context}"}'
    arguments = ["longbench", "--to", str(tmp_path / "d"), "--from", mirror.url]
    for _ in range(2):
        assert main(arguments) == 0
        assert files_under(tmp_path / "d") == [
            "THUDM/LongBench/config/dataset2prompt.json",
            "THUDM/LongBench/data/trec.jsonl",
        ]
    assert not (tmp_path / "out.jsonl").exists()
    downloads = [path for path, _ in mirror.downloads]
    assert len(downloads) == len(set(downloads))


@pytest.mark.parametrize("name", ["../outside.jsonl", "data/../../outside.jsonl"])
def test_an_archive_writes_nothing_outside_the_directory(name: str, tmp_path: Path) -> None:
    directory = tmp_path / "to"
    directory.mkdir()
    archive = directory / "a.tar.gz"
    archive.write_bytes(tar_of({"data/one": b"1", name: b"x"}))
    with pytest.raises(FetchError, match="outside"):
        unpack(archive, directory)
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["a.tar.gz"]


def test_a_torn_archive_is_an_error_and_leaves_no_file(tmp_path: Path) -> None:
    content = tar_of({f"data/kilt/{number}": CONTENT for number in range(4)})
    archive = tmp_path / "a.tar.gz"
    archive.write_bytes(content[: len(content) // 2])
    with pytest.raises(FetchError, match="cannot be unpacked"):
        unpack(archive, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["a.tar.gz"]
