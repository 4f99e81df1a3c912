"""Archives for tests, and the files that they become."""

import io
import tarfile
import zipfile
from pathlib import Path

from longctx.fixtures.corpora.download import FETCHED


def files_under(directory: Path) -> list[str]:
    """The names of all files but the manifest and huggingface_hub's own records."""
    paths = (path.relative_to(directory) for path in directory.rglob("*") if path.is_file())
    return sorted(str(path) for path in paths if path.name != FETCHED and ".cache" not in path.parts)


def zip_of(files: dict[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return packed.getvalue()


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
