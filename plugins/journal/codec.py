"""The encoding of records in the journal's files: ASCII JSON, checked against the record's types when it is read."""

from __future__ import annotations

import json
from typing import Any, NoReturn, TypeVar

import msgspec

Record = TypeVar("Record", bound=msgspec.Struct)


def encode_record(record: msgspec.Struct, *, indent: int | None = None) -> bytes:
    """Return a record as JSON; raises ValueError for a field of the wrong type or out of range."""
    content = msgspec.to_builtins(record)
    # Construction checks nothing, and a reader would skip the record.
    msgspec.convert(content, type(record))
    separators = (",", ":") if indent is None else None
    return json.dumps(content, allow_nan=False, indent=indent, separators=separators).encode("ascii")


def decode_record(data: bytes, kind: type[Record]) -> Record | None:
    """Return the record that `encode_record` wrote; None for any other bytes."""
    if not data.isascii():
        return None
    try:
        return _decoder(kind).decode(data)
    except (msgspec.ValidationError, RecursionError):
        return None
    except msgspec.DecodeError:
        return _decode_with_json(data, kind)


def _decode_with_json(data: bytes, kind: type[Record]) -> Record | None:
    # An answer may contain half of a surrogate pair. JSON can escape that, but msgspec's parser refuses it.
    try:
        return msgspec.convert(json.loads(data, parse_constant=_refuse), kind)
    except (ValueError, RecursionError):
        return None


# Building a decoder takes longer than using it.
_DECODERS: dict[Any, msgspec.json.Decoder[Any]] = {}


def _decoder(kind: type[Record]) -> msgspec.json.Decoder[Record]:
    if kind not in _DECODERS:
        _DECODERS[kind] = msgspec.json.Decoder(kind)
    return _DECODERS[kind]


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")
