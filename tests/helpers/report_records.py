"""Reports of which a test states only what it is about."""

import json
from collections.abc import Mapping
from functools import cache
from typing import Any

import msgspec
from msgspec import inspect

from longctx.fixtures.records.report import JsonReport


def report_data(report: JsonReport) -> dict[str, Any]:
    """Return a report as plain dicts and lists, as JSON has them."""
    data: dict[str, Any] = json.loads(json.dumps(msgspec.to_builtins(report)))
    return data


def report_of(parts: Mapping[str, Any]) -> JsonReport:
    """Return a report with these parts, as plain data; all other required fields have the least value of their type."""
    return msgspec.convert(_completed(parts, _report_type()), JsonReport)


@cache
def _report_type() -> inspect.Type:
    """Return the description of a report's type, which takes much longer than a report of it."""
    return inspect.type_info(JsonReport)


def _completed(value: Any, kind: inspect.Type) -> Any:
    if isinstance(kind, inspect.Metadata):
        return _completed(value, kind.type)
    if isinstance(kind, inspect.UnionType):
        (other,) = (each for each in kind.types if not isinstance(each, inspect.NoneType))
        return value if value is None else _completed(value, other)
    if isinstance(kind, inspect.StructType) and isinstance(value, Mapping):
        missing = {field.encode_name: _least(field.type) for field in kind.fields if field.required}
        missing = {name: least for name, least in missing.items() if name not in value}
        types = {field.encode_name: field.type for field in kind.fields}
        return missing | {name: _completed(part, types[name]) for name, part in value.items() if name in types}
    if isinstance(kind, inspect.VarTupleType):
        return [_completed(part, kind.item_type) for part in value]
    if isinstance(kind, inspect.DictType):
        return {str(name): _completed(part, kind.value_type) for name, part in value.items()}
    return value


def _least(kind: inspect.Type) -> Any:
    """Return None where the type allows it, else an empty or the smallest value."""
    if isinstance(kind, inspect.Metadata):
        return _least(kind.type)
    if isinstance(kind, inspect.UnionType):
        return None if kind.includes_none else _least(kind.types[0])
    if isinstance(kind, inspect.LiteralType):
        return kind.values[0]
    if isinstance(kind, inspect.StructType):
        return _completed({}, kind)
    if isinstance(kind, inspect.TupleType):
        return [_least(each) for each in kind.item_types]
    if isinstance(kind, inspect.IntType | inspect.FloatType):
        return kind.ge or 0
    if isinstance(kind, inspect.StrType):
        return "x"
    if isinstance(kind, inspect.BoolType):
        return False
    return {} if isinstance(kind, inspect.DictType) else []
