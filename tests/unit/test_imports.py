"""The rules of the house: who may import whom, and what a file's place says of it."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from conftest import pytest_plugins
from tests.helpers.paths import REPOSITORY

PLACES = ("fixtures", "plugins", "tests_longctx", "ci", "longctx")
# A room is a folder, or a file that stands alone. It may import itself, the rooms that every room may import, and those
# named here. The longest name that fits a module is its room.
COMMON = ("fixtures.records", "fixtures.seeding", "fixtures.lengths", "fixtures.versions", "fixtures.cli",
    "fixtures.heavy_imports", "fixtures.dtypes", "fixtures.atomic_files", "fixtures.shown_text",
    "fixtures.outside_files", "fixtures.installation")  # fmt: skip
ROOMS: dict[str, tuple[str, ...]] = {
    "conftest": (),
    "fixtures.tokenization": (),
    "fixtures.checkpoints": (),
    "fixtures.conversion": ("fixtures.checkpoints",),
    "fixtures.memory": ("fixtures.checkpoints",),
    "fixtures.corpora": ("fixtures.scoring",),
    "fixtures.engines": ("fixtures.checkpoints", "fixtures.memory"),
    "fixtures.scoring": ("fixtures.checkpoints", "fixtures.engines"),
    "fixtures.tasks": ("fixtures.corpora", "fixtures.scoring", "fixtures.tokenization"),
    "fixtures.cases": ("fixtures.corpora", "fixtures.tasks", "fixtures.tokenization"),
    "fixtures.preflight": ("fixtures.scoring", "fixtures.tasks", "fixtures.tokenization"),
    "fixtures.calibration": ("fixtures.corpora", "fixtures.tasks"),
    "fixtures.invariance": ("fixtures.checkpoints", "fixtures.engines"),
    # Breaks checkpoints and engines on purpose; nothing imports it but its own commands, benchmarks and tests.
    "fixtures.faults": ("fixtures.checkpoints", "fixtures.engines"),
    "plugins.rootdir": (),
    "plugins.journal": (),
    "plugins.gates": (),
    # The one place where options, files and checkpoints become values; all below take them from here.
    "plugins.config": ("fixtures", "plugins.gates", "plugins.journal"),
    "plugins.runner": ("fixtures", "plugins.config", "plugins.gates", "plugins.journal"),
    # From stored data only: records, verdicts and facts, never a task, a text or a model.
    "plugins.report": (
        "fixtures.checkpoints", "fixtures.engines.base", "fixtures.engines", "fixtures.invariance.finding",
        "fixtures.invariance", "fixtures.preflight", "plugins.config",
        "plugins.gates",
    ),
    "plugins.options": ("fixtures", "plugins.config"),
    "plugins.workers": ("fixtures", "plugins.config", "plugins.gates", "plugins.options"),
    "plugins.select_gates": ("plugins.gates", "plugins.options"),
    "plugins.controller": ("fixtures", "plugins.config", "plugins.gates", "plugins.journal", "plugins.options",
        "plugins.runner", "plugins.select_gates"),
    "plugins.measure": ("fixtures", "plugins.config", "plugins.controller", "plugins.gates", "plugins.journal",
        "plugins.options", "plugins.runner", "plugins.workers"),
    "plugins.invariance": ("fixtures", "plugins.config", "plugins.controller", "plugins.gate_tests", "plugins.journal",
        "plugins.measure", "plugins.options", "plugins.runner", "plugins.workers"),
    "plugins.progress": ("fixtures", "plugins.controller", "plugins.gates", "plugins.journal", "plugins.options",
        "plugins.plan", "plugins.runner"),
    "plugins.baseline_power": ("fixtures", "plugins.config", "plugins.controller", "plugins.gates", "plugins.journal",
        "plugins.options"),
    "plugins.plan": ("fixtures", "plugins.baseline_power", "plugins.config", "plugins.controller", "plugins.journal",
        "plugins.options"),
    "plugins.gate_tests": ("fixtures", "plugins.config", "plugins.controller", "plugins.gates", "plugins.options"),
    "plugins.reports": ("fixtures", "plugins.config", "plugins.controller", "plugins.options", "plugins.report"),
    "plugins.interrupted": ("plugins.controller", "plugins.options"),
    "plugins.status_words": ("plugins.controller", "plugins.gate_tests", "plugins.interrupted", "plugins.invariance",
        "plugins.options", "plugins.select_gates"),
    "tests_longctx": (),
    # The command `longctx`: it starts all others.
    "longctx": ("fixtures", "plugins", "ci"),
    # The options of the suite, for help texts and files; a run gets them from pytest.
    "ci.suite_parser": ("plugins",),
    # Drives pytest as a process of its own; reads what that wrote.
    "ci": ("fixtures.checkpoints", "fixtures.tasks", "plugins.gates", "plugins.journal", "plugins.report"),
}  # fmt: skip
# Only these rooms may import these packages. Of the network: the command that downloads data, which no run starts, and
# the client that asks servers, which times out, waits as the server says and is easy to keep keys in.
GUESTS: dict[str, tuple[str, ...]] = {
    "torch": ("fixtures.conversion", "fixtures.engines.hf", "fixtures.faults", "fixtures.invariance",
        "fixtures.scoring.nli", "longctx.in_memory", "fixtures.engines.base", "plugins.workers"),
    "transformers": ("fixtures.checkpoints.checkpoint", "fixtures.conversion.dcp", "fixtures.engines.hf",
        "longctx.callback", "fixtures.faults", "fixtures.scoring.nli", "fixtures.tokenization"),
    # It reads local copies of hub data sets; `download` is the one that fetches them.
    "datasets": ("fixtures.corpora.published.hub",),
    # The exchange reads which proxy stands before a server.
    "urllib": ("fixtures.corpora.download", "fixtures.engines.openai.exchange"), "http": (),
    # A failing checkpoint is reported to the address the user names.
    "huggingface_hub": ("fixtures.conversion.hub", "fixtures.corpora.download"),
    "pooch": ("fixtures.corpora.download",),
    "httpx2": ("fixtures.corpora.download", "fixtures.engines.openai.exchange", "ci.watch.webhook"),
    "httpcore2": ("fixtures.engines.openai.client", "fixtures.engines.openai.exchange"),
    "openai": ("fixtures.engines.openai.client",),
    # Dashboards are written where a run asked for them, and nowhere else.
    "tensorboard": ("plugins.report.scalars",), "wandb": ("plugins.report.scalars",),
    "requests": (), "httpx": (), "aiohttp": (),
    # To find a free port, and to see that the cluster of an address answers; nothing is sent.
    "socket": ("fixtures.engines.openai.server_process", "ci.ray"),
    "nltk": ("fixtures.scoring.citations",), "punkt": ("fixtures.scoring.citations",),
    "rouge_score": ("fixtures.scoring.rouge",), "pytrec_eval": ("fixtures.scoring.ranking",),
    # No package of this project: who has a cluster has it.
    "ray": ("ci.ray",),
    "_pytest": ("plugins.reports",), "xdist": (), "pickle": (),
}  # fmt: skip
PURE = (
    "fixtures.tasks", "fixtures.scoring", "fixtures.corpora", "fixtures.corpora.synthetic.archive",
    "fixtures.checkpoints.checkpoint",
    *(f"fixtures.scoring.{name}" for name in
        ("match", "parsing", "rouge", "ranking", "citations", "choice", "synthetic_citations", "synthetic_events",
         "synthetic_sentences", "synthetic_summaries", "judge")),
    *(f"plugins.gates.{name}" for name in
        ("e_process", "statistics", "effective_length", "thresholds", "toml_table", "evaluate", "panels", "sequential",
         "clusters", "hypotheses", "regression", "evidence_curves", "evaluation", "findings", "points", "power",
         "selection")),
    "plugins.journal", "plugins.config.baseline", "fixtures.shown_text", "plugins.runner.read_journals",
)  # fmt: skip


def module_name(path: Path) -> str:
    parts = path.relative_to(REPOSITORY).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = {
    module_name(path): path
    for path in (REPOSITORY / "conftest.py", *(file for place in PLACES for file in (REPOSITORY / place).rglob("*.py")))
    if path.stat().st_size
}


def within(module: str, room: str) -> bool:
    return module == room or module.startswith(f"{room}.")


def room_of(module: str) -> str:
    """The room with the longest name; raises ValueError where the table has none."""
    return max((room for room in (*ROOMS, *COMMON) if within(module, room)), key=len)


def imported(module: str) -> Iterator[str]:
    """Every import of a module, those inside functions and for type checkers included."""
    for node in ast.walk(ast.parse(FILES[module].read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}: a relative import in line {node.lineno}"
            source = node.module or ""
            inner = [f"{source}.{alias.name}" for alias in node.names if f"{source}.{alias.name}" in FILES]
            yield from inner
            if len(inner) < len(node.names):
                yield source


def is_ours(name: str) -> bool:
    return any(within(name, place) for place in (*PLACES, "conftest", "tests", "ci"))


def test_every_module_has_a_room() -> None:
    assert len(FILES) > 40
    assert [module for module in FILES if not any(within(module, room) for room in (*ROOMS, *COMMON))] == []


def test_every_room_has_a_module() -> None:
    assert [room for room in ROOMS if not any(within(module, room) for module in FILES)] == []


@pytest.mark.parametrize("module", FILES)
def test_a_module_imports_only_the_rooms_it_may_know(module: str) -> None:
    room = room_of(module)
    allowed = (room, *COMMON, *ROOMS.get(room, ()))
    ours = [name for name in imported(module) if is_ours(name)]
    assert [name for name in ours if not any(within(name, other) for other in allowed)] == []


@pytest.mark.parametrize("module", FILES)
def test_a_module_imports_only_the_packages_it_may_know(module: str) -> None:
    guests = {name.partition(".")[0] for name in imported(module)} & set(GUESTS)
    assert [guest for guest in guests if not any(within(module, room) for room in GUESTS[guest])] == []


def test_what_runs_a_model_is_imported_only_when_it_is_asked_for() -> None:
    """Wrong use is told in half a second; torch alone takes longer to import."""
    started = [module for module in FILES if within(module, "plugins") and not within(module, "plugins.gates")]
    for module in (*started, "fixtures.engines", "fixtures.tokenization.load", "fixtures.tokenization.prompts"):
        at_once = ast.parse(FILES[module].read_text(encoding="utf-8")).body
        names = [node.module or "" for node in at_once if isinstance(node, ast.ImportFrom)]
        names += [alias.name for node in at_once if isinstance(node, ast.Import) for alias in node.names]
        heavy = ("torch", "transformers", "fixtures.engines.hf.engine", "fixtures.calibration.tokenizer")
        assert [name for name in names if any(within(name, each) for each in heavy)] == []


@pytest.mark.parametrize("module", PURE)
def test_pure_modules_load_no_torch_no_pytest_and_nothing_of_the_network(module: str) -> None:
    heavy = {"torch", "transformers", "datasets", "pytest", "_pytest", "openai", "httpcore2", "httpx2"}
    script = f"import sys, {module}; print(*({heavy} & set(sys.modules)))"
    ended = subprocess.run(
        [sys.executable, "-c", script], cwd=REPOSITORY, capture_output=True, text=True, check=True, timeout=300
    )
    assert ended.stdout.strip() == ""


def test_scorers_load_what_is_slow_only_when_they_score() -> None:
    scorers = [module for module in FILES if within(module, "fixtures.scoring") and module != "fixtures.scoring.nli"]
    slow = {"nltk", "rouge_score", "pytrec_eval", "numpy", "scipy", "punkt"}
    script = f"import sys, {', '.join(scorers)}; print(*({slow} & set(sys.modules)))"
    ended = subprocess.run(
        [sys.executable, "-c", script], cwd=REPOSITORY, capture_output=True, text=True, check=True, timeout=300
    )
    assert len(scorers) > 6
    assert ended.stdout.strip() == ""


def test_fixtures_never_import_plugins() -> None:
    names = {module: list(imported(module)) for module in FILES if within(module, "fixtures")}
    outside = {
        module for module, found in names.items() for name in found if within(name, "plugins") or within(name, "ci")
    }
    assert outside == set()


def test_every_file_directly_in_plugins_is_a_pytest_plugin() -> None:
    files = {module for module, path in FILES.items() if path.parent == REPOSITORY / "plugins" and module != "plugins"}
    # rootdir is loaded by pytest itself, as an installed plugin.
    assert files - {"plugins.rootdir"} == set(pytest_plugins)
    hooks = {module: FILES[module].read_text(encoding="utf-8") for module in files}
    assert [module for module, text in hooks.items() if "def pytest_" not in text] == []


def test_folders_of_plugins_never_import_pytest() -> None:
    folders = [module for module, path in FILES.items() if REPOSITORY / "plugins" in path.parent.parents]
    assert len(folders) > 30
    importing = [
        module for module in folders if any(name.split(".")[0] in ("pytest", "_pytest") for name in imported(module))
    ]
    assert importing == []


def test_init_files_only_reexport() -> None:
    for path in (file for place in (*PLACES, "tests") for file in (REPOSITORY / place).rglob("__init__.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
            is_all = isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
            assert is_text or is_all or isinstance(node, ast.ImportFrom), f"{path}: line {node.lineno}"


def test_no_import_cycles() -> None:
    """Imports inside functions and for type checkers are left out: they run after all modules are there."""
    graph = {module: sorted(at_import(module)) for module in FILES}
    done: set[str] = set()

    def visit(module: str, path: tuple[str, ...]) -> None:
        assert module not in path, " -> ".join((*path[path.index(module) :], module))
        if module not in done:
            for other in graph[module]:
                visit(other, (*path, module))
            done.add(module)

    for module in graph:
        visit(module, ())


def at_import(module: str) -> set[str]:
    """The modules of ours that a module imports when it is itself imported."""
    found = set()
    for node in ast.parse(FILES[module].read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ImportFrom) and is_ours(node.module or ""):
            inner = {f"{node.module}.{alias.name}" for alias in node.names} & set(FILES)
            whole = {node.module} if len(inner) < len(node.names) else set()
            found |= {str(name) for name in inner | whole if name in FILES}
    return found


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("fixtures.tasks", "TASKS"),
        ("fixtures.corpora", "load_corpora"),
        ("fixtures.scoring.match", "normalize"), ("fixtures.scoring.match", "exact_match"),
        ("fixtures.scoring.match", "substring_match"), ("fixtures.scoring.match", "token_f1"),
        ("fixtures.scoring.match", "string_match_all"), ("fixtures.scoring.match", "string_match_any"),
        ("fixtures.scoring.rouge", "rouge_l"),
        ("fixtures.scoring.ranking", "parse_ranking"), ("fixtures.scoring.ranking", "ndcg"),
        ("fixtures.scoring.parsing", "after_prefix"),
        ("fixtures.scoring.choice", "choice_match"), ("fixtures.scoring.citations", "citation_scores"),
        ("plugins.gates.statistics", "interval"),
        ("plugins.gates.effective_length", "effective_length"),
        ("plugins.gates.effective_length", "contiguous_effective_length"),
        ("plugins.gates.effective_length", "weighted_average"), ("plugins.gates.effective_length", "average"),
    ],
)  # fmt: skip
def test_names_that_other_programs_rely_on_can_be_imported(module: str, name: str) -> None:
    assert hasattr(importlib.import_module(module), name)
