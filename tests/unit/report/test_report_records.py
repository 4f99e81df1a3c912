"""The records of a report: a value of another type is an error that names its key, and the schema is theirs."""

import json
import subprocess
import sys
from random import Random
from typing import Any

import pytest

from longctx.fixtures.records.report import parse_report
from longctx.plugins.report.document import document
from tests.fuzz.mutations import mutate_json
from tests.golden.report_schema import SCHEMA_FILE, schema_text
from tests.helpers.paths import REPOSITORY
from tests.helpers.report_records import report_data
from tests.helpers.reports import run_summary

# Reads the report of standard input in several threads of a fresh process at once.
READ_IN_THREADS = """
import sys, threading
from longctx.fixtures.records.report import parse_report

def read():
    start.wait()
    parse_report(data)

sys.setswitchinterval(1e-6)
data, start = sys.stdin.buffer.read(), threading.Barrier(8)
threads = [threading.Thread(target=read) for _ in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
"""


@pytest.fixture(scope="module")
def report() -> dict[str, Any]:
    return report_data(document(run_summary(samples=4)))


def test_threads_of_a_new_process_may_read_their_first_reports_at_once(report: dict[str, Any]) -> None:
    text = json.dumps(report)
    ended = subprocess.run(
        [sys.executable, "-c", READ_IN_THREADS], cwd=REPOSITORY, input=text, text=True, capture_output=True
    )
    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.parametrize(
    ("path", "value", "key"),
    [
        (("cases", 0, "length"), "8k", r"\$\.cases\[0\]\.length"),
        (("cases", 0, "task"), "vt\n[floor]", r"\$\.cases\[0\]\.task"),
        (("cases", 0, "score"), 10**30, r"\$\.cases\[0\]\.score"),
        (("gates", 0, "blocking"), None, r"\$\.gates\[0\]\.blocking"),
        (("ruler", "scores"), {"x": 1.0}, r"\$\.ruler"),
        (("run", "options"), [], r"\$\.run\.options"),
        (("schema",), "other/1", "schema"),
        (("ruler", "effective_length"), float("nan"), "NaN"),
    ],
)
def test_a_value_of_another_type_is_named(report: dict[str, Any], path: tuple[Any, ...], value: Any, key: str) -> None:
    changed = json.loads(json.dumps(report))
    *places, last = path
    parent = changed
    for place in places:
        parent = parent[place]
    parent[last] = value
    with pytest.raises(ValueError, match=key):
        parse_report(json.dumps(changed).encode())


def test_any_mutation_is_a_report_or_a_value_error(report: dict[str, Any]) -> None:
    refused = 0
    for seed in range(200):
        try:
            parse_report(mutate_json(Random(seed), report))
        except ValueError:
            refused += 1
    assert 20 < refused < 200


def test_the_schema_is_generated_from_the_records() -> None:
    assert SCHEMA_FILE.read_text(encoding="ascii") == schema_text(), "run `python -m tests.golden.report_schema`"
