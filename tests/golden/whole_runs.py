"""Whole runs on calibration checkpoints, with every file that they write, in their normal form."""

import hashlib
import json
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from tests.golden.commands import OWN_QUESTIONS, RECORDED, ROOMS, normal, run, write_files

JOURNAL = RECORDED.parent / "journal"
GATES = """[[gate]]
name = "needles at 512"
kind = "level"
tasks = ["niah_single_2", "niah_multikey_1"]
lengths = ["512"]
above = 10

[[gate]]
name = "needles at 1k"
kind = "level"
tasks = ["niah_single_2", "niah_multikey_1"]
lengths = ["1k"]
above = 95

[[gate]]
name = "effective length"
kind = "effective_length"
above = 80
at_least = "512"
blocking = false

[floor]
vt = 0
"""
NEEDLE = """[[gate]]
name = "needle"
kind = "level"
tasks = ["niah_single_2"]
above = 30
"""
FILES = {
    "gates.toml": GATES, "needle.toml": NEEDLE, "own.toml": f"{OWN_QUESTIONS}above = 20\n", "rooms.jsonl": ROOMS,
}  # fmt: skip
REPORTS = (
    "--report-json report.json --report-html report.html --report-md report.md --junitxml junit.xml "
    "--samples-jsonl samples.jsonl"
)
MODEL = "--model calibration:512 --suite ruler --device cpu --dtype float32 --journal journal"
TINY_RUN = f"longctx run {MODEL} --lengths 512 --samples 2 -k single_2 --thresholds needle.toml"


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeRun:
    """Commands that run one after the other in a directory, and the files to record."""

    commands: tuple[str, ...]
    files: tuple[str, ...] = ("report.*", "junit.xml", "samples.jsonl")


def _run(text: str) -> WholeRun:
    return WholeRun(commands=(f"longctx run {text} {REPORTS}",))


def _checkpoint(step: int) -> str:
    """Return the command that writes a checkpoint of a training run, which forgets most keys after its second step."""
    blind = " --blind 0.9" if step > 2 else ""
    return f"longctx calibration runs/step-{step}000 --window 512 --step {step}000{blind}"


RUNS = {
    "ruler": _run(f"{MODEL} --lengths 512,1k --samples 6 -k 'single_2 or multikey_1 or cwe' --thresholds gates.toml"),
    "helmet": _run(f"{MODEL.replace('ruler', 'helmet')} --lengths 2k --samples 2 -k 'json_kv or trec_coarse'"),
    "baseline": _run(
        f"{MODEL} --baseline calibration:full --lengths 1k --samples 6 -k single_2 --thresholds needle.toml"
    ),
    "likelihood": _run(f"{MODEL} --signal both --lengths 512,1k --samples 2 -k single_2 --thresholds needle.toml"),
    "frontier": _run(f"{MODEL.replace('ruler', 'frontier')} --lengths 4k --samples 2 -k 'mrcr_2 or not_in_text'"),
    "questions": _run(f"{MODEL.replace('--suite ruler ', '')} --tasks-file own.toml --lengths 512 --samples 4"),
    "invariance": _run(f"{MODEL} --invariance --lengths 512 --samples 2 -k single_2 --thresholds needle.toml"),
    "only samples": _run(f"{MODEL} --lengths 512 --samples 6 --only-samples 'test_ruler[niah_single_2-512]:1,4'"),
    "error": _run(f"{MODEL} --lengths 512 --samples 2 -k 'single_2 or vt' --thresholds gates.toml"),
    "plan and preflight": WholeRun(
        commands=(
            f"longctx plan {MODEL} --lengths 4k,8k --samples 3",
            f"longctx run --preflight {MODEL} --lengths 1k --samples 2 -k 'single or multikey'",
        ),
        files=(),
    ),
    "journal": WholeRun(
        commands=(TINY_RUN, TINY_RUN, "longctx journal journal"), files=("journal/*/*.json", "journal/*/*.jsonl")
    ),
    "checkpoints": WholeRun(
        commands=(
            *(_checkpoint(step) for step in (1, 2, 3)),
            "longctx checkpoint runs/step-1000",
            "longctx watch runs --once --every 1s --suite ruler --device cpu --lengths 512 --samples 6 -k single_2 "
            "--thresholds needle.toml --journal journal",
            "longctx bisect --good runs/step-1000 --bad runs/step-3000 --checkpoints runs/step-* --suite ruler "
            "--device cpu --lengths 512 --samples 16 -k single_2 --case test_ruler[niah_single_2-512] "
            "--journal journal",
            "longctx history out/watch --out history.html",
        ),
        files=(
            "history.html", "out/watch/*.jsonl", "out/watch/*.html", "out/watch/*.md",
            "out/watch/*.json", "out/bisect/bisect.*",
        ),
    ),
}  # fmt: skip


def run_records(name: str, folder: Path) -> dict[str, str]:
    """Return the records of a whole run: what its commands print, and the files that they write."""
    write_files(folder, FILES)
    printed = []
    for text in RUNS[name].commands:
        ended = run(text, folder)
        lines = [f"$ {text}", f"exit {ended.returncode}"]
        for stream, shown in (("out", ended.stdout), ("err", ended.stderr)):
            text_shown = AT_ONE_TIME.sub(_in_order, DOTS.sub("", stable(shown, folder)))
            lines += [f"{stream}| {line}".rstrip() for line in text_shown.splitlines()]
        printed.append("\n".join(lines) + "\n")
    records = {f"runs/{name}/terminal.txt": "\n".join(printed)}
    for pattern in RUNS[name].files:
        for path in sorted(folder.glob(pattern)):
            if path.suffix == ".svg":
                continue
            text = stable(path.read_text(encoding="utf-8"), folder)
            shown = without_bodies(text) if path.suffix == ".html" else text
            place = _file_name(path.relative_to(folder).as_posix())
            records[f"runs/{name}/{place}.txt"] = shown
    return records


def stable(text: str, folder: Path) -> str:
    """Return the normal form of an output or a report."""
    text = normal(text, folder)
    for pattern, replacement in PATTERNS:
        text = pattern.sub(replacement, text)
    return LONG_NUMBER.sub(lambda match: f"{round(float(match[0]), 5):g}", text)


def without_bodies(page: str) -> str:
    """Return a page with digests in place of its styles, programs and drawings."""
    return BODY.sub(lambda match: f"{match[1]}{_digest(match[3])}</{match[2]}>", page)


def continued(folder: Path) -> str:
    """Return what a run prints that finds all its answers in the journal of the records."""
    shutil.copytree(JOURNAL, folder / "journal")
    write_files(folder, FILES)
    return run(TINY_RUN, folder).stdout


def keep_journal(folder: Path) -> None:
    """Write the journal of a tiny run as the one that later versions must be able to continue."""
    write_files(folder, FILES)
    run(TINY_RUN, folder)
    shutil.rmtree(JOURNAL, ignore_errors=True)
    for path in (*folder.glob("journal/*/*.json"), *folder.glob("journal/*/*.jsonl")):
        name = "answers.jsonl" if path.suffix == ".jsonl" else path.name
        write_files(JOURNAL / path.parent.name, {name: path.read_text(encoding="utf-8")})


def versions_of_journal() -> str:
    """Return the versions of packages for which the journal of the records has answers."""
    (subject,) = JOURNAL.glob("*/subject.json")
    return str(json.loads(subject.read_text(encoding="utf-8"))["execution"]["versions"])


def _file_name(place: str) -> str:
    return re.sub(r"journal/[0-9a-f]{24}/", "journal/subject/", re.sub(r"[^/]+\.jsonl$", _worker, place))


def _worker(match: re.Match[str]) -> str:
    return match[0] if match[0] in ("samples.jsonl", "history.jsonl") else "answers.jsonl"


def _in_order(match: re.Match[str]) -> str:
    return "".join(sorted(match[0].splitlines(keepends=True)))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


# pytest's dots and blank lines stand before or after a line of progress, as time has it.
DOTS = re.compile(r"^(?:<clone>/tests_longctx/\S+\.py ?)?[.EFsx]*(?: +\[\d+%\])?\n", re.MULTILINE)
# Workers measure the categories of a length at the same time, and a search the two steps that confirm its result.
AT_ONE_TIME = re.compile(r"(?:^[a-z]+ \d+k  \d+ of \d+.*\n)+|(?:^step \d+ +\w+ +[-+]\d.*\n)+", re.MULTILINE)
BODY = re.compile(r"(<(style|script|svg)\b[^>]*>)(.*?)</\2>", re.DOTALL)
LONG_NUMBER = re.compile(r"(?<![\w.-])-?\d+\.\d{6,}(?:e-?\d+)?\b")
PATTERNS = tuple(
    (re.compile(pattern, re.MULTILINE), replacement)
    for pattern, replacement in (
        (r'("\w*seconds(?:_\w+)?": ?)-?[\d.]+(?:e-?\d+)?', r"\1<seconds>"),
        (r'("worker_seconds": ?)\{[^}]*\}', r"\1<seconds>"),
        # A run of more than a minute says that it still loads.
        (r"^\d+ (?:s|min)  loading .*\n", ""),
        (r'("(?:total_|working_)?time": ?)[\d.e-]+', r"\1<seconds>"),
        (r'( time|timestamp|hostname)="[^"]*"', r'\1="<\1>"'),
        (r'(name="seconds" value=)"[^"]*"', r'\1"<seconds>"'),
        (r'("(?:python|pytest|pytest-xdist|transformers|torch|tokenizers|numpy)": )"[^"]*"', r'\1"<version>"'),
        (r"torch \d[\w.+]*, transformers \d[\w.]*", "<versions>"),
        (r'("hardware": ?)"[^"]*"', r'\1"<hardware>"'),
        (r"\w+ cpu, \d+ cores?, \d+ threads?", "<hardware>"),
        (r"<td data-unit=\"(.*?)\">[\d.]+</td>", r'<td data-unit="\1"><number></td>'),
        (r"[\d.]+ ((?:GPU )?minutes) a checkpoint", r"<number> \1 a checkpoint"),
        # A line may be broken at any of its spaces.
        (r"(answered\s+now(?:,\s+the\s+baseline(?:'|&#39;)s\s+too,)?\s+in)\s+[\d,]+\s+s\b", r"\1 <seconds>"),
        (r",\s+[^,]*?\s+at\s+the\s+last\s+rate", ", <seconds> at the last rate"),
        (r'("(?:uuid|event_id|span_id|id)": ?)"[0-9A-Za-z]{20,}"', r'\1"<id>"'),
        (r'("(?:run_id|eval_id|task_id|crc32|run)": ?)"[0-9a-f]+"', r'\1"<id>"'),
        (r"<time>_[\w-]+?_[0-9a-z]+\.json", "<log>.json"),
        (r"\b\d\d:\d\d(?::\d\d)?\b", "<clock>"),
        (r"\b20\d\d-\d\d-\d\d\b", "<date>"),
    )
)
