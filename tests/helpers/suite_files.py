"""Files in the form of published sets, with invented content."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from longctx.fixtures.tasks.questions.read_tasks import Definition
from tests.helpers.question_files import write_rows

TEXT = "The lamp stood in the hall. Nobody had seen who put it there. "
# By set: the fields that differ from those of its suite, and an answer that is wrong in the way of a real model.
INFINITEBENCH: Mapping[str, tuple[dict[str, Any], str]] = {
    "passkey": ({"answer": ["71432"]}, "71433"),
    "number_string": ({"answer": ["7143271432"]}, "71432 71432"),
    "kv_retrieval": ({"answer": ["3c2a-11"], "input": 'Key: "6ab6":'}, '"3c2a-12"'),
    "longbook_qa_chn": ({"answer": ["上海"]}, "北京"),
    "longdialogue_qa_eng": ({"answer": ["ANNA BELL", "ANNA"]}, "Mr. Annabel"),
    "math_find": ({"answer": 7, "input": "The smallest number of the list is:"}, "8"),
    "math_calc": ({"answer": [3, 3, -5], "context": "1 + 2 + 0 - 8"}, "3, 4, -5"),
    "code_run": ({"answer": -4, "input": "What is the value of func_12(-3)?"}, "The value is 4"),
    "code_debug": ({"answer": ["load", "B"], "options": ["save", "load", "open", "close"]}, "C."),
}
LONGBENCH = {
    "trec": ({"answers": ["Other location"], "all_classes": ["Other", "location", "Other location", "Name"]}, "Name"),
    "passage_count": ({"answers": ["17"]}, "18"),
    "passage_retrieval_en": ({"answers": ["Paragraph 12"]}, "Paragraph 13"),
    "lcc": ({"answers": ["    return total"]}, "\n# sum\nqqq"),
    "repobench_p": ({"answers": ["    return total"]}, "```\nqqq"),
}  # fmt: skip
BABILONG = {
    "qa7": "none",
    "qa8": "apple,milk",
    "qa10": "maybe",
    "qa15": "wolf",
    "qa16": "gray",
    "qa19": "n,w",
    "qa20": "bored",
}


def write_suite(definitions: list[Definition], data_dir: Path, length: str = "4k") -> dict[str, str]:
    """Write the files of all sets of a shipped suite, and return by task an answer that is wrong."""
    wrong = {}
    for definition in definitions:
        dataset = definition.dataset
        suite, name = definition.file.suite, dataset.name.partition("_")[2]
        rows, answer = ROWS[suite](name)
        file = str(dataset.source.file).removeprefix("$DATA/").replace("{length}", length)
        write_rows(data_dir / file, rows * (dataset.source.rows or 1))
        prompt = dataset.prompt
        if prompt is not None and prompt.file is not None:
            _write_template(data_dir / prompt.file.removeprefix("$DATA/"), prompt.key)
        wrong[dataset.name] = answer
    return wrong


def _write_template(path: Path, key: str | None) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if key is None:
        path.write_text("Text: $DOC$\n$Q$\n(A) $C_A$ (B) $C_B$ (C) $C_C$ (D) $C_D$")
        return
    templates = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps(templates | {key: "Text: {context}\nQuestion: {input}\nAnswer:"}))


def _infinitebench(name: str) -> tuple[list[dict[str, Any]], str]:
    fields, wrong = INFINITEBENCH[name]
    return [{"id": 0, "context": TEXT * 5, "input": "Which one?", "options": [], **fields}], wrong


def _longbench(name: str) -> tuple[list[dict[str, Any]], str]:
    fields, wrong = LONGBENCH.get(name, ({"answers": ["a brass lamp", "lamp"]}, "nobody knows"))
    row = {"input": "What stood there?", "context": TEXT * 5, "length": 55, "language": "en", "all_classes": None}
    return [row | fields], wrong


def _longbench2(name: str) -> tuple[list[dict[str, Any]], str]:
    row = {"_id": "1", "question": " What stood there? ", "context": f"{TEXT * 5}$Q$ ", "answer": "B"}
    return [row | {f"choice_{letter}": f"A {letter} lamp" for letter in "ABCD"}], "The correct answer is (C)."


def _babilong(name: str) -> tuple[list[dict[str, Any]], str]:
    places = name in ("qa1", "qa2", "qa3", "qa4", "qa11", "qa12", "qa13", "qa14")
    target = BABILONG.get(name, "kitchen" if places else "milk" if name == "qa5" else "yes")
    return [{"input": TEXT * 5, "question": "Where is Mary?", "target": target}], "It is not said"


ROWS = {
    "infinitebench": _infinitebench,
    "longbench": _longbench,
    "longbench2": _longbench2,
    "babilong": _babilong,
}
