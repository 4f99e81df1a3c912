"""THE table of options: every option of a run, of a watch and of a bisection is one record here.

The options of pytest, the help texts, the value checks, `longctx.toml`, the refusals of a watch, of a bisection and of
`longctx.measure`, the completion and the tables of docs/command.md are made from it. The module imports neither pytest
nor torch, because pytest loads it before it knows its root directory.
"""

import math
import os
import re
from argparse import ArgumentParser
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal

from longctx.fixtures.cli import CommandParser
from longctx.fixtures.dtypes import SELECTABLE
from longctx.fixtures.shown_text import LEAST_LIKENESS, known_names
from longctx.fixtures.versions import ENGINES

Kind = Literal[
    "text", "served name", "flag", "choice", "whole number", "number", "path", "perhaps path", "file", "folder",
]  # fmt: skip
"""The type of a value. A `served name` is a text that may look like a path. A `perhaps path` is a path if the file
exists, and else a name. A run writes a `file` and a `folder`."""

Declarer = Literal["suite", "pytest", "command", "watch", "bisect"]
"""The declarer of an option: the suite, pytest, every command that reads `longctx.toml`, a watch or a bisection."""

Caller = Literal["run", "plan", "watch", "bisect", "measure", "in memory"]
"""The user of an option: a command that reads `longctx.toml`, or `longctx.measure` of a path or a model in memory."""

Section = Literal["", "What is measured", "How prompts are made and scored", "How the model runs", "What is written"]
"""A heading of docs/command.md."""

WHOLE_NUMBER = re.compile(r"[0-9]{1,18}")
PATHS: Collection[Kind] = ("path", "perhaps path", "file", "folder")
# What file systems can hold; any look at another path raises an error.
POSSIBLE_PATH = re.compile(rb"[^/,]{0,255}([/,][^/,]{0,255})*")

NOT_TAKEN: Mapping[Caller, str] = {
    "plan": "nothing is measured",
    "watch": "not for the runs of a watch",
    "bisect": "not for the runs of a search",
    "measure": "has no meaning in longctx.measure",
    "in memory": "has no meaning in longctx.measure of a model in memory",
}
"""Why a command does not take an option for its runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """An option of the command line."""

    flag: str
    kind: Kind
    help: str
    """Its meaning, for `--help` and docs/command.md, without the default."""
    metavar: str | None = None
    aliases: tuple[str, ...] = ()
    """Other names of it, which users bring from other programs."""
    default: Any = None
    shown_default: str = ""
    """The default as help texts show it; empty for `default` itself."""
    declarer: Declarer = "suite"
    choices: tuple[str, ...] = ()
    minimum: int = 0
    is_valid: Callable[[float], bool] = math.isfinite
    pattern: str = ""
    """A regular expression of the texts that can be used; empty if any can."""
    accepted: str = ""
    """The values that can be used, in words, for an error line; may be empty."""
    is_list: bool = False
    """True if the value is a list with commas."""
    repeats: bool = False
    takes_words: bool = False
    is_required: bool = False
    is_alternative: bool = False
    """True if only one of a command's options with this mark can be given."""
    engine: Literal["", "hf", "openai"] = ""
    """The only engine for which it has a meaning; empty if it has one for both."""
    key: str | None = ""
    """Its key in longctx.toml; empty for the name without dashes, None if it has none."""
    is_report: bool = False
    """True for a report that a run writes besides its terminal and its journal."""
    watch: str = ""
    """The replacement in a watch; empty if it passes the option on to its runs or reads it."""
    bisect: str = ""
    measure: str = ""
    in_memory: str = ""
    """The replacement in `longctx.measure` of a model in memory, of an option that it has for a path."""
    writes: Literal["", "report", "shown report", "answers", "scores"] = ""
    """The content of a file or folder: the report as data, the report with all texts visible, answers, or curves."""
    section: Section = ""

    @property
    def name(self) -> str:
        return self.flag.lstrip("-")

    @property
    def attribute(self) -> str:
        return self.name.replace("-", "_")

    @property
    def place(self) -> str:
        """The key in longctx.toml, with its table, for a message; the name without a key."""
        return f"[{self.table}] {self.file_key}" if self.table else self.file_key

    @property
    def file_key(self) -> str:
        """The key in its table; the name for an option without one."""
        return self.key or self.name

    @property
    def table(self) -> str:
        """The table of longctx.toml that has the key; empty for the top."""
        if self.is_report:
            return "reports"
        return self.declarer if self.declarer in ("watch", "bisect") else ""

    @property
    def default_text(self) -> str:
        return self.shown_default or ("" if self.default in (None, []) else str(self.default))

    def instead(self, caller: Caller) -> str:
        """Return the replacement for the option in the runs of a command; empty if it takes the option."""
        remedies = {
            "plan": NOT_TAKEN["plan"] if self.is_report else "",
            "watch": self.watch,
            "bisect": self.bisect,
            "measure": self.measure,
            "in memory": self.measure or self.in_memory,
        }
        return remedies.get(caller, "")

    def problem(self, value: object) -> str:
        """Return the problem with a value, to stand after the option's name; empty if a run may use it."""
        text, accepted = str(value), self.accepted
        if self.kind in PATHS and not POSSIBLE_PATH.fullmatch(os.fsencode(text)):
            return f"{text[:40]!r}... has a name of more than 255 bytes, as no file has; give a path"
        match self.kind:
            case "choice":
                is_good, accepted = text in self.choices, ""
            case "whole number":
                is_good = bool(WHOLE_NUMBER.fullmatch(text)) and int(text) >= self.minimum and self.is_valid(int(text))
                accepted = accepted or f"a whole number of at least {self.minimum}"
            case "number":
                try:
                    is_good = self.is_valid(float(text))
                except ValueError:
                    is_good = False
            case _:
                is_good = not self.pattern or bool(re.fullmatch(self.pattern, text))
        if is_good:
            return ""
        if accepted:
            return f"{value!r}; give {accepted}"
        # One of several names is not what was meant.
        name = "" if "," in text else text
        return f"unknown {value!r}; {known_names(name, self.choices, words='use one of')}"

    @property
    def declaration(self) -> dict[str, Any]:
        """The keyword arguments that declare the option to argparse or pytest.

        The values of the suite's options stay texts, because the suite words the errors about them.
        """
        default = f" (default: {self.default_text})" if self.default_text else ""
        attributes: dict[str, Any] = {"help": self.help + default}
        if self.kind == "flag":
            return attributes | {"action": "store_true"}
        if self.metavar is not None:
            attributes["metavar"] = self.metavar
        if self.default is not None:
            attributes["default"] = self.default
        if self.repeats:
            attributes["action"] = "append"
        if self.declarer in ("watch", "bisect"):
            # Words are patterns of paths, which a Path would not keep as they are.
            path_type = str if self.takes_words else Path
            types: Mapping[str, type] = {"whole number": int, "number": float, "path": path_type}
            attributes |= {"type": types[self.kind]} if self.kind in types else {}
            attributes |= {"choices": self.choices} if self.choices else {}
            attributes |= {"nargs": "+"} if self.takes_words else {}
            attributes |= {"required": True} if self.is_required else {}
        return attributes


_ENDPOINTS = "use --good, --bad and --checkpoints"
_RESULTS = "its results are in --out"
_OUT = "use --out"
_ONE = "and write it for one checkpoint with longctx run, which finds the answers in the journal"
_RUN = "use longctx run"
SHIPPED_SUITES = ("ruler-sweeps", "twins", "longbench", "longbench2", "infinitebench", "babilong")
"""The tasks files that come with this project."""
YARDSTICK_FORMS = "auto, aligned, base, a score from 0 to 100, or a .toml file of longctx thresholds --yardstick"
CHAT_API = "server"
"""The value of --chat for the chat API of a server."""
_SERVE = "and use --serve, which starts a server for each checkpoint"
_LOADED = "the model is used as it is; change it before"


def _section(heading: Section, *options: Option) -> tuple[Option, ...]:
    return tuple(replace(option, section=heading) for option in options)


def _execution_options(command: Literal["watch", "bisect"], parallel: str) -> tuple[Option, ...]:
    return (
        Option(
            flag="--step-pattern", kind="text", declarer=command, metavar="REGEX",
            help=r"regular expression whose group is the step in a checkpoint's name, such as 'epoch-(\d+)'",
            shown_default="the number behind step, iter, checkpoint, ...",
        ),
        Option(
            flag="--launch", kind="text", declarer=command, metavar="TEMPLATE",
            help="hand each measurement to a scheduler, such as 'srun --gpus=8 {command}'",
            shown_default="a process of this machine",
        ),
        Option(
            flag="--parallel", kind="whole number", declarer=command, default=1, metavar="N",
            help=parallel, shown_default="1", minimum=1, is_valid=lambda number: number <= 256,
            accepted="a number of measurements from 1 to 256",
        ),
    )  # fmt: skip


# fmt: off
OPTIONS: tuple[Option, ...] = (
    *_section("What is measured",
    Option(flag="--model", kind="perhaps path", metavar="PATH",
        help="required: checkpoint directory, calibration:4k, ..., or a model's name on a server",
        watch="it is every checkpoint of DIR", bisect=_ENDPOINTS, measure="give it as the first argument"),
    Option(flag="--baseline", kind="perhaps path", metavar="REPORT|PATH",
        help="JSON report, or checkpoint, to compare with by sample; at --base-url alone, hf loads it here",
        watch="use --anchor", bisect=_ENDPOINTS, measure=_RUN),
    Option(flag="--series", kind="whole number", minimum=1, metavar="N", default=1,
        help="this run is one of N, such as nightly checkpoints, that share the probability of a wrong failure",
        watch="use --horizon", bisect="use [bisect] confidence"),
    Option(flag="--chosen-from", kind="whole number", minimum=1, metavar="N", default=1,
        help="the baseline is the best of N checkpoints: so good a score is partly luck, and a failure needs more "
        "evidence", watch="it counts the candidates itself", bisect=_ENDPOINTS, measure=_RUN),
    Option(flag="--suite", kind="choice", metavar="NAME",
        choices=("ruler", "helmet", "frontier", "all", *SHIPPED_SUITES),
        help="tasks to run: ruler, helmet, all (these two), frontier, "
        f"{', '.join(SHIPPED_SUITES)}, or a suite of --tasks-file",
        shown_default="all, or the suites of --tasks-file"),
    Option(flag="--tasks", kind="text", is_list=True, metavar="NAMES",
        help="tasks, categories or suites to measure, such as niah_single_1,vt; longctx tasks lists them",
        shown_default="all", measure="use task_names"),
    Option(flag="--tasks-file", kind="perhaps path", is_list=True, metavar="FILE",
        help="TOML files with your own question sets, with commas between them, or a folder with samples that RULER's "
        "scripts or lm-eval prepared; without --suite the run has only their cases"),
    Option(flag="--lengths", kind="text", is_list=True, metavar="8k,128k",
        help="lengths in tokens of the model's tokenizer; 8k is 8192", shown_default="4k to 128k, up to the model's "
        "claim"),
    Option(flag="--samples", aliases=("--limit",), kind="whole number", minimum=1, metavar="N", default=500,
        help="most questions per case; HELMET's own have 100"),
    Option(flag="--only-samples", kind="text", repeats=True, default=[], metavar="CASE:3,17",
        help="only these samples of a case, such as 'test_ruler[niah_single_2-8k]:3,17', without gates; may be "
        "repeated"),
    Option(flag="--signal", kind="choice", metavar="NAME", choices=("answers", "likelihood", "both"), default="answers",
        help="answers, likelihood (the log-probability of gold answers, from one prefill) or both"),
    Option(flag="--seed", kind="whole number", metavar="N", default=0,
        help="seed of the samples; another seed draws others"),
    Option(flag="--thresholds", kind="path", metavar="FILE", help="TOML file with the gates",
        shown_default="thresholds.toml"),
    Option(flag="--full", kind="flag", help="measure all samples, even after the verdicts are final"),
    Option(flag="--budget", kind="number", metavar="MINUTES",
        help="start no sample after this time; open verdicts stay undecided",
        is_valid=lambda number: 0 < number < math.inf, accepted="a number of minutes above 0, such as 30 or 2.5"),
    Option(flag="--preflight", kind="flag", key=None, help="check all samples of the run without loading a model",
        watch="use longctx run --preflight", bisect="and use longctx run --preflight",
        measure="use longctx run --preflight"),
    Option(flag="--plan", kind="flag", key=None, help="print cases, tokens and memory; load no model and run nothing",
        watch="use longctx plan", bisect="and use longctx plan", measure="use longctx plan"),
    Option(flag="--invariance", kind="flag",
        help="check first that caches, chunks and batches change no answer; of a server, that its cache and other "
        "requests do not",
        bisect="and check the engine once with longctx run --model CKPT --invariance", measure=_RUN)),

    *_section("How prompts are made and scored",
    Option(flag="--chat", kind="choice", metavar="auto|on|off|server", choices=("auto", "on", "off", CHAT_API),
        default="auto", shown_default="if there is one",
        help="use the tokenizer's chat template: auto, on or off; server: the server's chat API applies its own"),
    Option(flag="--length-tokenizer", kind="path", metavar="PATH", help="tokenizer that counts lengths",
        shown_default="the model's"),
    Option(flag="--data-dir", kind="path", metavar="DIR",
        help="directory with published data sets, used instead of generated text"),
    Option(flag="--prompts", kind="perhaps path", metavar="FILE",
        help="TOML file that replaces prompts; ruler-paper: the wording of RULER's paper, and random paragraphs around "
        "published questions"),
    Option(flag="--demonstrations", kind="whole number", metavar="0|2", default=2,
        help="solved examples in HELMET's prompts; 0 is for comparison, as in its Table 8",
        is_valid=lambda number: number in (0, 2), accepted="0 or 2"),
    Option(flag="--thinking-budget", kind="whole number", metavar="N", default=0,
        help="most tokens of thought before an answer"),
    Option(flag="--scoring", kind="choice", metavar="NAME", choices=("strict", "paper"), default="strict",
        help="strict, or paper: HELMET's own scores, which are more lenient in places"),
    Option(flag="--yardstick", kind="perhaps path", metavar="NAME", default="auto",
        help="reference scores of gates: auto, aligned, base, a score or a .toml file",
        shown_default="auto, by the chat template", pattern=r"auto|aligned|base|[0-9]{1,2}(\.[0-9]*)?|.+\.toml",
        accepted=YARDSTICK_FORMS),
    Option(flag="--judge-model", kind="served name", metavar="NAME",
        help="model that judges answers on published texts, as its server names it", measure=_RUN),
    Option(flag="--judge-url", kind="text", metavar="URL",
        help="the judge's server (keys: LONGCTX_JUDGE_KEY, at OpenAI OPENAI_API_KEY)", measure=_RUN)),

    *_section("How the model runs",
    Option(flag="--base-model", kind="perhaps path", metavar="PATH", help="base model of a LoRA adapter",
        shown_default="the one that the adapter names", in_memory=_LOADED),
    Option(flag="--tokenizer", kind="path", metavar="DIR", help="tokenizer of checkpoints that have none",
        in_memory=_LOADED),
    Option(flag="--convert", kind="text", metavar="COMMAND", in_memory=_LOADED,
        help="command that makes a checkpoint of a raw one: 'convert.sh {checkpoint} {out}'"),
    Option(flag="--trust-remote-code", kind="flag", help="run Python code that comes with the checkpoint",
        in_memory=_LOADED),
    Option(flag="--engine", kind="choice", metavar="NAME", choices=("auto", *ENGINES), default="auto", measure=_RUN,
        help="hf: transformers on this machine; vllm: vLLM in the same process; openai: an OpenAI-compatible server; "
        "auto: a server if one is named, vllm on a GPU where it is installed, else hf"),
    Option(flag="--device", engine="hf", kind="text", metavar="NAME", default="auto", help="auto, cpu, cuda or cuda:1",
        shown_default="auto, one per worker", in_memory=_LOADED),
    Option(flag="--dtype", engine="hf", kind="choice", metavar="NAME", choices=("auto", *SELECTABLE), default="auto",
        help="float32, bfloat16 or float16", shown_default="as stored; float32 on a CPU", in_memory=_LOADED),
    Option(flag="--attention", engine="hf", kind="text", metavar="NAME", default="auto",
        help="attention of transformers, or of vLLM (FLASH_ATTN); the report shows the one in use",
        shown_default="flash or sdpa", in_memory=_LOADED),
    Option(flag="--batch-size", kind="whole number", metavar="N", default=0, shown_default="0, automatic",
        help="prompts decoded together (the journal keeps the answers of every size apart), or parallel requests"),
    Option(flag="--config-override", engine="hf", kind="text", repeats=True, default=[], metavar="KEY=VALUE",
        in_memory=_LOADED, help="set a key of config.json, as rope_parameters.rope_theta=1e6; may be repeated"),
    Option(flag="--prefill-chunk", engine="hf", kind="text", metavar="N", default="auto",
        help="prompt tokens per pass: auto (by the length), whole (shares no prefixes) or a number",
        pattern="auto|whole|[1-9][0-9]{0,8}", accepted="auto, whole or a number of tokens of at least 1"),
    Option(flag="--gpus-per-worker", engine="hf", kind="whole number", minimum=1, metavar="N", default=1,
        aliases=("--tensor-parallel-size",),
        help="GPUs over which one model is spread: by layers (hf) or by tensor parallelism (vllm)", measure=_RUN),
    Option(flag="--base-url", engine="openai", kind="text", metavar="URL", measure=_RUN,
        help="OpenAI-compatible server that runs the model (key: LONGCTX_API_KEY), or URL/models/NAME for one of its "
        "models"),
    Option(flag="--serve", engine="openai", kind="text", metavar="COMMAND", measure=_RUN,
        help="command that starts a server for the run: 'vllm serve {model} --port {port} --generation-config vllm'"),
    Option(flag="--baseline-url", engine="openai", kind="text", metavar="URL", measure=_RUN, watch=_SERVE,
        bisect=_SERVE, help="server that runs the baseline; with --serve alone, model and baseline are served in turn"),
    Option(flag="--journal", kind="path", metavar="DIR", help="directory of the results, which runs share",
        shown_default=".longctx/journal in the clone")),

    *_section("What is written",
    Option(flag="--step", kind="whole number", metavar="N", help="training step shown in reports",
        shown_default="from the path, as in step_1000", accepted="the training step as a whole number of at least 0",
        watch="it is the number in the checkpoint's name", bisect=_ENDPOINTS),
    Option(flag="--output", kind="folder", metavar="DIR",
        help="write every report there: report.json, .html, .md, junit.xml and samples.jsonl",
        watch=_OUT, bisect=_RESULTS, measure="use Report.write"),
    Option(flag="--report-json", kind="file", metavar="FILE", is_report=True, key="json", writes="report",
        help="write the report as JSON, described by plugins/report/schema.json",
        watch=_OUT, bisect=_RESULTS, measure="use Report.write"),
    Option(flag="--report-html", kind="file", metavar="FILE", is_report=True, key="html", writes="shown report",
        help="write the report as one HTML page that works offline", watch=_OUT, bisect=_RESULTS, measure=_RUN),
    Option(flag="--report-md", kind="file", metavar="FILE", is_report=True, key="md", writes="shown report",
        help="write a short report in Markdown, for example for a pull request",
        watch=_ONE, bisect=_RESULTS, measure=_RUN),
    Option(flag="--samples-jsonl", kind="file", metavar="FILE", is_report=True, key="samples", writes="answers",
        help="write every measured sample as one line of JSON",
        watch=_ONE, bisect=_RESULTS, measure="use Report.samples"),
    Option(flag="--tensorboard", kind="folder", metavar="DIR", is_report=True, writes="scores",
        help="write the scores as TensorBoard scalars, by training step",
        bisect=_RESULTS, measure="log Report.metrics"),
    Option(flag="--wandb", kind="text", metavar="PROJECT", is_report=True, writes="scores",
        help="log the scores to a Weights & Biases project, by training step",
        bisect=_RESULTS, measure="log Report.metrics"),
    Option(flag="--junitxml", kind="file", declarer="pytest", metavar="FILE", is_report=True, key="junit",
        help="pytest's own option: write JUnit XML with one test for every case and every gate",
        watch=_OUT, bisect=_RESULTS, measure=_RUN)),

    Option(flag="--config", kind="text", declarer="command", metavar="FILE", key=None,
        help="a file with options, in TOML", shown_default="longctx.toml, if there is one",
        measure="give its keys as keywords"),
    Option(flag="-n", kind="text", declarer="pytest", metavar="N", key="workers",
        help="number of workers, each with its own model", measure=_RUN),
    Option(flag="-k", kind="text", declarer="pytest", metavar="EXPRESSION", key="select",
        help="cases or gates to select, such as 'multikey and 32k'", measure="use task_names"),
    Option(flag="-m", kind="text", declarer="pytest", metavar="EXPRESSION", key="markers",
        help="groups of cases to select, such as ruler or 'helmet and rag'", measure="use suite or task_names"),

    Option(flag="--every", kind="text", declarer="watch", default="30s", metavar="30s",
        help="pause between two scans of DIR"),
    Option(flag="--done-marker", kind="text", declarer="watch", metavar="FILE",
        help="a file that training writes last into every checkpoint"),
    Option(flag="--gpus", kind="text", declarer="watch", is_list=True, default="", metavar="0,1",
        help="GPUs to use, one worker for a GPU", shown_default="all; pytest's -n"),
    Option(flag="--every-nth", kind="whole number", declarer="watch", minimum=1, default=1, metavar="N",
        help="measure every Nth checkpoint, from the lowest step on",
        accepted="a number of checkpoints of at least 1"),
    Option(flag="--on-failure", kind="text", declarer="watch", repeats=True, metavar="bisect|COMMAND",
        help="for a new alert, search the skipped steps before it (bisect), or run a shell command that reads the "
        "alert from LONGCTX_ALERT, LONGCTX_STEP, ...; may be given twice"),
    Option(flag="--out", kind="path", declarer="watch", default=Path("out/watch"), metavar="DIR",
        help="folder for the history and reports"),
    Option(flag="--anchor", kind="perhaps path", declarer="watch", metavar="STEP|PATH",
        help="step, checkpoint or report to compare all checkpoints with",
        shown_default="the lowest step that passed"),
    Option(flag="--horizon", kind="whole number", declarer="watch", minimum=1, default=100, metavar="N",
        help="checkpoints that share the probability of a wrong failure",
        accepted="a number of checkpoints of at least 1"),
    Option(flag="--doublings", kind="whole number", declarer="watch", minimum=0, default=2, metavar="N",
        help="times to double a checkpoint's samples while a loss is suspected, but not shown",
        accepted="a number of doublings of at least 0"),
    Option(flag="--once", kind="flag", declarer="watch",
        help="end when every complete checkpoint is measured, for cron"),

    Option(flag="--good", kind="path", declarer="bisect", is_required=True, metavar="CKPT",
        help="a checkpoint before the loss"),
    Option(flag="--bad", kind="path", declarer="bisect", is_required=True, metavar="CKPT",
        help="a checkpoint after it"),
    Option(flag="--checkpoints", kind="path", declarer="bisect", takes_words=True, default=[], metavar="PATTERN",
        help="the checkpoints between the two"),
    Option(flag="--case", kind="text", declarer="bisect", is_alternative=True, repeats=True, metavar="ID",
        help="search on this case, such as 'test_ruler[niah_single_2-8k]', or on the mean of several",
        shown_default="the worst"),
    Option(flag="--gate", kind="text", declarer="bisect", is_alternative=True, metavar="NAME",
        help="search on the mean over this gate's cases, at the length that lost most"),
    Option(flag="--samples", kind="whole number", declarer="bisect", minimum=1, default=500, metavar="N",
        help="most samples of a case"),
    Option(flag="--confidence", kind="number", declarer="bisect", default=0.99, metavar="P",
        help="probability that the step is right",
        is_valid=lambda number: 0.5 <= number <= 0.999, accepted="a probability from 0.5 to 0.999"),
    Option(flag="--thresholds", kind="path", declarer="bisect", metavar="FILE",
        help="the file that defines the gate of --gate", shown_default="thresholds.toml of the suite"),
    Option(flag="--out", kind="path", declarer="bisect", default=Path("out/bisect"), metavar="DIR",
        help="folder for reports, bisect.html and bisect.json"),

    *_execution_options("watch", "checkpoints to measure at a time; they share the GPUs of --gpus"),
    *_execution_options("bisect", "steps to measure at a time; they cut the range into N + 1 parts"),
)
# fmt: on

OUTPUT_FILES = {
    "report_json": "report.json", "report_html": "report.html", "report_md": "report.md", "xmlpath": "junit.xml",
    "samples_jsonl": "samples.jsonl",
}  # fmt: skip
"""The files that --output writes, by the attribute of the option of each."""

REMOVED: dict[str, str] = {
    "--order": "leave it out: a watch measures the lowest step first; use --every-nth to catch up",
    "--gpu-budget": "use --budget for a run, or end the watch with a signal, as timeout 8h longctx watch does",
    "--webhook": "use --on-failure with a command that posts, as 'curl -f -d \"$LONGCTX_HEADLINE\" $URL'",
    "--test": "use longctx run --model CKPT --baseline GOOD",
    "--screen": "use --every-nth, or --samples for less; a suspected loss takes more samples by itself",
    "--api": "use --chat server for the chat API, and leave it out for completions",
    "--confidence": "set confidence in the table [verdict] of the thresholds file",
    "--inspect-log": "use --samples-jsonl, or --report-html to read the answers",
    "--nli-model": "put the model, or a link to it, into the folder nli of --data-dir",
    "--qa-fill": "use --prompts ruler-paper for random paragraphs, and leave it out for own",
    "--request-timeout": "use --budget, which ends all waits; a request may take 30 minutes, and longer with a thought",
    "--ruler-wording": "use --prompts ruler-paper for the wording of the paper, and leave it out for code",
    "--samples-from": "use --tasks-file DIR",
    "--served-model": "name the model in the address: --base-url URL/models/NAME",
}
"""The replacements for options of earlier versions, and for their keys in longctx.toml.

Each sentence begins with a verb: "use --other".
"""


def declared_by(*declarers: Declarer) -> tuple[Option, ...]:
    return tuple(option for option in OPTIONS if option.declarer in declarers)


# Other names of options, those that pytest has among them.
_ALIASES = {"--junit-xml": "--junitxml", "--numprocesses": "-n"}
_ALIASES |= {alias: option.flag for option in OPTIONS for alias in option.aliases}
SUITE_OPTIONS = declared_by("suite")
RUN_OPTIONS: Mapping[str, Option] = {option.flag: option for option in declared_by("suite", "command", "pytest")}
"""The options of a run by their flags."""

REPORT_OPTIONS = tuple(option for option in RUN_OPTIONS.values() if option.is_report)
PATH_OPTIONS = tuple(option.flag for option in SUITE_OPTIONS if option.kind in (*PATHS, "served name"))
"""The options of the suite whose value may look like a path; pytest would take an existing one for a test."""


def declare(add: Callable[..., Any], options: Iterable[Option]) -> None:
    """Declare options with a function such as `add_argument` of a parser or `addoption` of a group of pytest."""
    for option in options:
        add(option.flag, *option.aliases, **option.declaration)


def run_parser(prog: str, description: str = "") -> CommandParser:
    """Return a parser with all options of a run, for help texts and for keywords; pytest parses command lines."""
    parser = CommandParser(prog=prog, description=description, allow_abbrev=False)
    declare(parser.add_argument_group("options of the suite").add_argument, SUITE_OPTIONS)
    declare(parser.add_argument, declared_by("command"))
    ours = parser.add_argument_group("options of pytest", "pytest's other options work too.")
    declare(ours.add_argument, declared_by("pytest"))
    return parser


def add_own_options(parser: ArgumentParser, command: Literal["watch", "bisect"]) -> None:
    """Declare a command's own options and --config."""
    options = (*declared_by(command), *declared_by("command"))
    has_alternatives = any(option.is_alternative for option in options)
    alternatives = parser.add_mutually_exclusive_group() if has_alternatives else parser
    for option in options:
        declare((alternatives if option.is_alternative else parser).add_argument, [option])


def check_own_values(arguments: Any, command: Literal["watch", "bisect"]) -> None:
    """Raise ValueError with one line for the first of a command's own options whose value cannot be used."""
    for option in declared_by(command):
        value = getattr(arguments, option.attribute)
        if value is not None and option.kind in ("whole number", "number") and (problem := option.problem(value)):
            raise ValueError(f"{option.flag}: {problem}")


def unknown_option(message: str) -> str:
    """Return one line for the message of a parser that does not understand a command line."""
    name = message.removeprefix("unrecognized arguments: ").split(" ")[0].partition("=")[0]
    if not message.startswith("unrecognized arguments: "):
        return f"{message}; longctx run --help lists all options"
    near = get_close_matches(name, RUN_OPTIONS, n=1, cutoff=LEAST_LIKENESS)
    meant = f"did you mean {near[0]}? " if near else ""
    return f"{name}: no such option; {meant}longctx run --help lists all"


def removed_option(name: str) -> str:
    """Return one line about a flag or a key of longctx.toml that earlier versions had; empty for any other."""
    instead = REMOVED.get(f"--{name.removeprefix('--')}")
    return f"{name}: gone; {instead}" if instead else ""


def refused_option(words: Iterable[str], caller: Caller) -> str:
    """Return one line about the first option of a command line that a command does not pass on; empty without one."""
    for word in words:
        name = word.partition("=")[0]
        if name.startswith("-") and (gone := removed_option(name)):
            return gone
        option = RUN_OPTIONS.get(_ALIASES.get(name, name))
        if option is not None and (instead := option.instead(caller)):
            return f"{name}: {NOT_TAKEN[caller]}; leave it out, {instead}"
    return ""
