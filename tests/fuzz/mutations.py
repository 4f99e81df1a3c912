"""Seeded mutations of JSON and bytes."""

import copy
import json
import pickle
from itertools import islice
from random import Random
from typing import Any

# Values that no field of ours expects everywhere.
ODD_VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 5, 10**6, 10**9, 2**31, 10**30, -(10**30), 0.5, -0.0, 1e308, float("nan"),
    float("inf"), "", "x", "5", "\x00", "\ud800", "\x1b[31mred\x1b[0m", "<script>", "a" * 10_000, "../..", "/", [], {},
    [[]], [None], {"": ""}, [1, "a"], {"a": {"b": []}}, [0] * 1000, "{{1//0}}", "1e999", "NaN", "%s%n", "=1+1",
    "8k\n4k", "http://[", "/dev/zero", "\u202e8k", "½",
)  # fmt: skip
ODD_TEXTS: tuple[bytes, ...] = (
    b"", b"\x00", b"null", b"[]", b"{}", b"5", b'"x"', b"{", b"[" * 100_000, b"{\"a\":" * 5_000, b"\xff\xfe",
    b"\xef\xbb\xbf{}", b"NaN", b"true", b"<html></html>", b"\r\n", b'{"a": 1, "a": 2}', b"1" * 5_000,
)  # fmt: skip


def mutate_json(random: Random, data: Any) -> bytes:
    """Return the JSON text of `data` with one to three mutations of its structure or its bytes."""
    text = json.dumps(mutated(random, data)).encode()
    return mutate_bytes(random, text) if random.random() < 0.25 else text


def mutate_bytes(random: Random, data: bytes) -> bytes:
    """Return the bytes with one cut, insertion, change or repetition, or an odd text instead of all of them."""
    if not data or random.random() < 0.1:
        return random.choice(ODD_TEXTS)
    start = random.randrange(len(data))
    end = min(len(data), start + random.choice((1, 1, 2, 8, 64, 1024)))
    kind = random.choice(("cut", "insert", "change", "repeat", "end"))
    if kind == "end":
        return data[:start]
    middle = {
        "cut": b"",
        "insert": random.randbytes(random.randint(1, 8)) + data[start:end],
        "change": random.randbytes(end - start),
        "repeat": data[start:end] * random.choice((2, 100)),
    }[kind]
    return data[:start] + middle + data[end:]


def mutated(random: Random, data: Any) -> Any:
    """Return a copy of nested dicts and lists with one to three members replaced, deleted, repeated or nested."""
    # copy.deepcopy of a whole report takes ten times as long.
    data = pickle.loads(pickle.dumps(data))
    for _ in range(random.randint(1, 3)):
        places = list(_places(data, ()))
        if not places or random.random() < 0.03:
            return random.choice(ODD_VALUES)
        _change(random, data, random.choice(places))
    return data


def _change(random: Random, data: Any, place: tuple[Any, ...]) -> None:
    *path, last = place
    parent = data
    for key in path:
        parent = parent[key]
    kind = random.choice(("replace", "replace", "replace", "delete", "duplicate", "nest"))
    if kind == "delete":
        del parent[last]
    elif kind == "duplicate" and isinstance(parent, list):
        parent.extend(copy.deepcopy(parent[last]) for _ in range(random.choice((1, 100))))
    elif kind == "duplicate":
        parent[random.choice(("", "x", "__class__", f"{last} "))] = copy.deepcopy(parent[last])
    elif kind == "nest":
        parent[last] = random.choice(([parent[last]], {str(last): parent[last]}))
    else:
        parent[last] = copy.deepcopy(random.choice(ODD_VALUES))


def _places(data: Any, path: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    """Return the paths of all members of nested dicts and lists, at most 20 of each, as a vocabulary has thousands."""
    members = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    found: list[tuple[Any, ...]] = []
    for key, value in islice(members, 20):
        found.append((*path, key))
        found.extend(_places(value, (*path, key)))
    return found
