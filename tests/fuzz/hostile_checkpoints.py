"""Damaged checkpoints that once ended in a traceback, without an end, or with gigabytes, and their neighbours."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from tests.fuzz.checkpoint_kinds import copied
from tests.fuzz.programs import SMALL, Command, Sound, suite

Damage = Callable[[Path], object]


def _header(text: bytes) -> Damage:
    def write(place: Path) -> None:
        (file,) = place.glob("*.safetensors")
        file.unlink()
        file.write_bytes(len(text).to_bytes(8, "little") + text + bytes(4))

    return write


def _changed(name: str, **values: Any) -> Damage:
    def write(place: Path) -> None:
        content = json.loads((place / name).read_text())
        (place / name).write_text(json.dumps(content | values))

    return write


def _text(name: str, text: str) -> Damage:
    return lambda place: (place / name).write_text(text)


def _entry(shape: str = "[1]", offsets: str = "[0,4]", dtype: str = "F32", name: str = "a") -> Damage:
    return _header(f'{{"{name}":{{"dtype":"{dtype}","shape":{shape},"data_offsets":{offsets}}}}}'.encode())


def _large(name: str) -> Damage:
    return lambda place: (place / name).write_text('{"a":[' + "[]," * 42_000_000 + "1]}")


def _rule(part: str, kind: str, **values: Any) -> Damage:
    return _changed("tokenizer.json", **{part: ({"type": kind} if kind else {}) | values})


A, ANY, LONG, TEXT = {"String": "a"}, {"Regex": "."}, "a" * 99_999, "messages[0].content"
DOUBLING = "{% set x = namespace(l=[1]) %}{% for i in range(40) %}{% set x.l = [x.l, x.l] %}{% endfor %}{{ x.l }}"
LOOP = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
TURN = "{% for m in messages %}{{ m.content }}{% endfor %}"
HOSTILE: tuple[Damage, ...] = (
    _entry(offsets="[0.5,0.5]"), _entry(shape="[Infinity]"), _entry(shape="[1e400]"),
    _entry(dtype="Q9", shape="[99,9999999999]"),
    _entry(shape="[" + "9" * 4999 + "]"), _entry(name="model.layers." + "9" * 4999 + ".x"), _entry(offsets="[-1,3]"),
    _entry(name="model.layers." + "9" * 4200 + ".x"), _header(b'{"a":' * 9_999), _header(b'{"a":[]}'), _header(b"{}"),
    _changed("config.json", num_nextn_predict_layers="x"), _changed("config.json", num_nextn_predict_layers=10**30),
    _text("config.json", '{"head_dim":' + "[" * 400 + "]" * 400 + "}"), _large("config.json"),
    _text("config.json", '{"rope_scaling":' * 900 + "{}" + "}" * 900), _large("tokenizer_config.json"),
    _text("config.json", '{"text_config":' * 900 + "{}" + "}" * 900),
    _rule("normalizer", "Prepend", prepend="a" * 50_000_000), _rule("normalizer", "Replace", pattern=ANY, content=LONG),
    _rule("normalizer", "Sequence", normalizers=[{"type": "Replace", "pattern": A, "content": "a" * 20}] * 12),
    _rule("normalizer", "Precompiled", precompiled_charsmap="AAAA"),
    _rule("normalizer", "Replace", pattern={}, content=""),
    _rule("pre_tokenizer", "Split", pattern={"Regex": "(a+)+$"}, behavior="Isolated", invert=False),
    _rule("pre_tokenizer", "Split", pattern={"Regex": "("}, behavior="Isolated", invert=False),
    _rule("post_processor", "TemplateProcessing", pair=[], special_tokens={},
        single=[{"SpecialToken": {"id": "x", "type_id": 0}}]),
    _rule("decoder", "Replace", pattern={"String": "e"}, content="e" * 50_000_000),
    _rule("truncation", "", direction="Right", max_length=0, strategy="LongestFirst", stride=9),
    _rule("padding", "", strategy={"Fixed": 10**9}, direction="Right", pad_to_multiple_of=0, pad_id=0, pad_type_id=0,
        pad_token="x"),
    _text("chat_template.jinja", f"{{% if 'needle' in messages[0].content %}}{LOOP}{{% endif %}}{TURN}"),
    _text("chat_template.jinja", f"{{% if messages[0].content | length > 1000 %}}{LOOP}{{% endif %}}{TURN}"),
    _text("chat_template.jinja", f"{{% for a in {TEXT} %}}{{% for b in {TEXT} %}}{{% endfor %}}{{% endfor %}}{TURN}"),
    _text("chat_template.jinja", DOUBLING),
    _text("chat_template.jinja", TURN + "<think>\n"), _text("chat_template.jinja", "{{ 10 ** 10 ** 8 }}" + TURN),
    lambda place: shutil.copyfile(os.devnull, place / "tokenizer.json"), _text("special_tokens_map.json", "[" * 99_999),
)  # fmt: skip


def hostile(random: Random, sound: Sound, folder: Path) -> Command:
    """Damage a checkpoint in one of these ways."""
    copy = copied(sound, folder)
    random.choice(HOSTILE)(copy)
    return suite(f"--model={copy}", *SMALL, "--plan")
