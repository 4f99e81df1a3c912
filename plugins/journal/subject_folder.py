"""The directory of a subject, which version 0.1 named in another way."""

from __future__ import annotations

import contextlib
from pathlib import Path

from fixtures.atomic_files import write_file
from plugins.journal.lines import Subject, encode_subject

SUBJECT = "subject.json"


def subject_folder(directory: Path, subject: Subject, *, rename: bool) -> Path:
    """Return the subject's directory, or the one that version 0.1 used for it.

    `rename` gives the old directory its new name first.
    """
    folder = directory / subject.key
    old = None if subject.unversioned_key is None else directory / subject.unversioned_key
    if old is None or folder.exists() or not old.is_dir():
        return folder
    if not rename:
        return old
    # Another worker may have renamed it already. A worker of version 0.1 that appends to its file keeps the same file.
    with contextlib.suppress(OSError):
        old.rename(folder)
        write_file(folder / SUBJECT, encode_subject(subject))
    return folder
