"""The rules of the house: who may import whom, and what a file's place says of it."""

import ast
import importlib
import re
import subprocess
import sys
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from conftest import PLUGINS
from tests.helpers.paths import REPOSITORY

# The folders to which longctx/ has links. The rules below name their modules without `longctx.`.
LINKED = ("fixtures", "plugins", "tests_longctx", "ci")
PLACES = (*LINKED, "longctx")
# A room is a folder, or a file that stands alone. It may import itself, the rooms that every room may import, and those
# named here. The longest name that fits a module is its room.
COMMON = ("fixtures.records", "fixtures.seeding", "fixtures.lengths", "fixtures.versions", "fixtures.cli",
    "fixtures.heavy_imports", "fixtures.dtypes", "fixtures.atomic_files", "fixtures.shown_text",
    "fixtures.outside_files", "fixtures.installation", "fixtures.interrupts", "fixtures.supervisor",
    "fixtures.thinking", "fixtures.words")  # fmt: skip
# Mathematics, thresholds and verdicts, in this order.
DECISIONS = ("plugins.evidence", "plugins.thresholds", "plugins.verdicts")
ROOMS: dict[str, tuple[str, ...]] = {
    "conftest": (),
    "fixtures.tokenization": ("fixtures.checkpoints",),
    "fixtures.checkpoints": (),
    "fixtures.conversion": ("fixtures.checkpoints", "fixtures.memory"),
    "fixtures.memory": ("fixtures.checkpoints",),
    "fixtures.corpora": (),
    "fixtures.http": (),
    "fixtures.engines": ("fixtures.checkpoints", "fixtures.http", "fixtures.memory"),
    "fixtures.scoring": ("fixtures.http",),
    "fixtures.tasks": ("fixtures.corpora", "fixtures.scoring", "fixtures.tokenization"),
    "fixtures.cases": ("fixtures.corpora", "fixtures.tasks", "fixtures.tokenization"),
    "fixtures.calibration": ("fixtures.corpora", "fixtures.tasks"),
    "fixtures.invariance": ("fixtures.checkpoints", "fixtures.engines"),
    "fixtures.diagnosis": ("fixtures.checkpoints", "fixtures.corpora", "fixtures.engines", "fixtures.tasks",
        "fixtures.tokenization"),
    "plugins.rootdir": ("plugins.config.invocation", "plugins.config.options"),
    "plugins.journal": (),
    # The mathematics, the thresholds file, and the verdicts that follow from both.
    "plugins.evidence": (),
    "plugins.thresholds": (),
    "plugins.verdicts": ("plugins.evidence", "plugins.thresholds"),
    # The table of options, from which every command takes them, and the command line that starts a run.
    "plugins.config.options": (),
    "plugins.config.invocation": ("plugins.config.options",),
    "plugins.config.run_facts": ("fixtures.checkpoints", "plugins.thresholds"),
    # The one place where options, files and checkpoints become values; all below take them from here.
    "plugins.config": ("fixtures", "plugins.evidence", "plugins.journal", "plugins.thresholds", "plugins.verdicts"),
    "plugins.runner": ("fixtures", "plugins.config", "plugins.evidence", "plugins.journal", "plugins.verdicts"),
    # From stored data only: records, verdicts and facts, never a task, a text or a model.
    "plugins.report": ("fixtures.checkpoints", "plugins.config.run_facts", *DECISIONS),
    "plugins.stash": ("fixtures", "plugins.config", *DECISIONS, "plugins.runner"),
    "plugins.collection": ("fixtures", "plugins.config", "plugins.stash", "plugins.thresholds"),
    "plugins.gate_tests": ("fixtures", "plugins.config", *DECISIONS, "plugins.collection", "plugins.report",
        "plugins.runner", "plugins.stash"),
    "plugins.controller": ("fixtures", "plugins.collection", "plugins.gate_tests", "plugins.plan", "plugins.runner",
        "plugins.stash"),
    "plugins.measure": ("fixtures", "plugins.config", *DECISIONS, "plugins.journal", "plugins.collection",
        "plugins.runner", "plugins.stash"),
    "plugins.invariance": ("fixtures", "plugins.gate_tests", "plugins.journal", "plugins.measure", "plugins.runner",
        "plugins.stash"),
    "plugins.plan": ("fixtures", "plugins.config", *DECISIONS, "plugins.journal", "plugins.collection",
        "plugins.report", "plugins.stash"),
    "plugins.progress": ("fixtures", *DECISIONS, "plugins.journal", "plugins.plan", "plugins.runner",
        "plugins.stash"),
    "plugins.reports": ("fixtures", "plugins.config", "plugins.collection", "plugins.gate_tests", "plugins.report",
        "plugins.stash"),
    "plugins.status_words": (*DECISIONS, "plugins.stash"),
    "tests_longctx": (),
    # The command `longctx`: it starts all others.
    "longctx": ("fixtures", "plugins", "ci"),
    # Drives pytest as a process of its own; reads what that wrote.
    "ci": ("fixtures.checkpoints", "fixtures.diagnosis", "fixtures.tasks", "fixtures.tokenization",
        "plugins.config.invocation", "plugins.config.options",
        "plugins.journal", "plugins.report", "plugins.thresholds", "plugins.verdicts"),
    # Reads the results of other programs, and makes the report of a run of them.
    "ci.gate": ("fixtures.checkpoints", "fixtures.scoring", "plugins.config.run_facts", "plugins.journal",
        "plugins.report", *DECISIONS),
}  # fmt: skip
# Only these rooms may import these packages. Of the network: the command that downloads data, which no run starts, and
# the client that asks servers, which times out, waits as the server says and is easy to keep keys in.
GUESTS: dict[str, tuple[str, ...]] = {
    "torch": ("fixtures.conversion", "fixtures.diagnosis", "fixtures.engines.hf",
        "fixtures.engines.vllm", "fixtures.invariance", "fixtures.memory", "longctx.measurement",
        "plugins.runner.start_worker"),
    "transformers": ("fixtures.checkpoints.checkpoint", "fixtures.conversion", "fixtures.diagnosis",
        "fixtures.engines.hf", "fixtures.engines.vllm", "fixtures.memory", "longctx.callback", "fixtures.tokenization"),
    "vllm": ("fixtures.engines.vllm.engine",),
    "peft": ("fixtures.conversion.adapter",),
    # It reads downloaded tables; `download` is the one that fetches them.
    "datasets": ("fixtures.corpora.published.layouts",),
    # A server may repeat a key as it stands in an address.
    "urllib": ("fixtures.corpora.download", "fixtures.http", "fixtures.engines.openai.endpoint"), "http": (),
    # A failing checkpoint is reported to the address the user names.
    "huggingface_hub": ("fixtures.conversion.prepare", "fixtures.corpora.download"),
    "pooch": ("fixtures.corpora.download",),
    "httpx2": ("fixtures.corpora.download", "fixtures.http", "ci.watch.notify"),
    "httpcore2": (),
    "inspect_ai": ("ci.gate.load",),
    "openai": ("fixtures.http.connection",),
    # Dashboards are written where a run asked for them, and nowhere else.
    "tensorboard": ("plugins.report.scalars",), "wandb": ("plugins.report.scalars",),
    "requests": ("fixtures.http.connection",), "httpx": (), "aiohttp": (),
    # To find a free port, and to see that the cluster of an address answers; nothing is sent.
    "socket": ("fixtures.engines.openai.server_process",),
    "nltk": ("fixtures.scoring.citations", "fixtures.scoring.rouge"), "punkt": ("fixtures.scoring.citations",),
    "rouge_score": ("fixtures.scoring.rouge",), "pytrec_eval": ("fixtures.tasks.helmet.rerank",),
    # No package of this project: who has a cluster has it.
    "ray": ("ci.ray",),
    "_pytest": ("plugins.reports",), "xdist": (), "pickle": (),
}  # fmt: skip
WORK = ("fixtures.tasks", "fixtures.corpora", "fixtures.scoring", "fixtures.tokenization", "fixtures.engines",
    "fixtures.http", "plugins.journal", "plugins.runner")  # fmt: skip
# Names of files that say which part of their folder they are.
ROLES = ("__init__.py", "__main__.py", "engine.py", "report.py", "suite.py")
# Packages whose import takes long, and those of the network: wrong use is told before any of them is imported.
HEAVY = ("torch", "transformers", "scipy", "datasets", "openai", "httpcore2", "httpx2", "fixtures.engines.hf.engine",
    "fixtures.calibration.tokenizer")  # fmt: skip
PURE = (*HEAVY, "pytest", "_pytest")
# What no module of a room may load, however many imports lie between.
LOADS_NOTHING_OF: dict[str, tuple[str, ...]] = {
    "fixtures.records": (*PURE, "fixtures.checkpoints", *WORK),
    "plugins.evidence": (*PURE, "fixtures.checkpoints", *WORK),
    "plugins.thresholds": (*PURE, "fixtures.checkpoints", *WORK),
    "plugins.verdicts": (*PURE, "fixtures.checkpoints", *WORK),
    "plugins.report": (*PURE, *WORK),
    "plugins.config": PURE,
    "plugins.journal": PURE,
    "plugins": HEAVY,
    "fixtures.checkpoints": PURE,
    "fixtures.tasks": PURE,
    # Texts do not stand on scoring, and scoring not on engines.
    "fixtures.corpora": (*PURE, "fixtures.tasks", "fixtures.scoring", "fixtures.engines", "fixtures.http"),
    "fixtures.scoring": (*PURE, "fixtures.tasks", "fixtures.corpora", "fixtures.engines", "nltk", "rouge_score",
        "pytrec_eval", "numpy", "punkt"),
    "fixtures.tokenization": PURE,
}  # fmt: skip


def module_name(path: Path) -> str:
    parts = path.relative_to(REPOSITORY).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = {
    module_name(path): path
    for path in (REPOSITORY / "conftest.py", *(file for place in PLACES for file in (REPOSITORY / place).rglob("*.py")))
    if path.stat().st_size and not any(parent.is_symlink() for parent in (path, *path.parents))
}


def short(name: str) -> str:
    """Return a module's name without `longctx.` if longctx/ only has a link to its file."""
    inner = name.removeprefix("longctx.")
    return inner if inner.partition(".")[0] in LINKED else name


def within(module: str, room: str) -> bool:
    return module == room or module.startswith(f"{room}.")


def room_of(module: str) -> str:
    """The room with the longest name; raises ValueError where the table has none."""
    return max((room for room in (*ROOMS, *COMMON) if within(module, room)), key=len)


@cache
def tree(module: str) -> ast.Module:
    return ast.parse(FILES[module].read_text(encoding="utf-8"))


@cache
def imported(module: str) -> frozenset[str]:
    """Return every import of a module, those inside functions and for type checkers included."""
    names: set[str] = set()
    for node in ast.walk(tree(module)):
        if isinstance(node, ast.Import):
            names |= {short(alias.name) for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}: a relative import in line {node.lineno}"
            source = short(node.module or "")
            inner = {name for alias in node.names if (name := f"{source}.{alias.name}") in FILES}
            names |= inner if len(inner) == len(node.names) else {*inner, source}
    return frozenset(names)


def is_ours(name: str) -> bool:
    return any(within(name, place) for place in (*PLACES, "conftest", "tests", "ci"))


def test_every_module_has_a_room() -> None:
    assert len(FILES) > 40
    assert [module for module in FILES if not any(within(module, room) for room in (*ROOMS, *COMMON))] == []


def test_every_room_has_a_module() -> None:
    assert [room for room in ROOMS if not any(within(module, room) for module in FILES)] == []


def test_a_module_imports_only_the_rooms_it_may_know() -> None:
    wrong = set()
    for module in FILES:
        room = room_of(module)
        allowed = (room, *COMMON, *ROOMS.get(room, ()))
        ours = [name for name in imported(module) if is_ours(name)]
        wrong |= {(module, name) for name in ours if not any(within(name, other) for other in allowed)}
    assert wrong == set()


def test_a_module_imports_only_the_packages_it_may_know() -> None:
    wrong = set()
    for module in FILES:
        guests = {name.partition(".")[0] for name in imported(module)} & set(GUESTS)
        wrong |= {(module, guest) for guest in guests if not any(within(module, room) for room in GUESTS[guest])}
    assert wrong == set()


@pytest.mark.parametrize("room", LOADS_NOTHING_OF)
def test_what_a_room_loads_in_the_end(room: str) -> None:
    """A process imports all modules of the room and lists what came with them."""
    modules = ", ".join(f"longctx.{module}" for module in FILES if within(module, room))
    ended = subprocess.run(
        [sys.executable, "-c", f"import sys, {modules}; print(*sys.modules)"],
        cwd=REPOSITORY, capture_output=True, text=True, check=True, timeout=300,
    )  # fmt: skip
    loaded = [short(name) for name in ended.stdout.split()]
    assert [name for name in loaded if any(within(name, other) for other in LOADS_NOTHING_OF[room])] == []


def test_every_file_directly_in_plugins_is_a_pytest_plugin() -> None:
    files = {module for module, path in FILES.items() if path.parent == REPOSITORY / "plugins" and module != "plugins"}
    # rootdir is loaded by pytest itself, as an installed plugin.
    assert files - {"plugins.rootdir"} == {short(plugin) for plugin in PLUGINS}
    hooks = {module: FILES[module].read_text(encoding="utf-8") for module in files}
    assert [module for module, text in hooks.items() if "def pytest_" not in text] == []


def test_no_two_files_below_one_top_folder_have_one_name() -> None:
    """Roles are the exception: files that every folder of a kind may have."""
    files = [path.relative_to(REPOSITORY) for path in FILES.values() if path.name not in ROLES]
    assert len(files) > 200
    counts = Counter((path.parts[0], path.name) for path in files)
    assert [place for place, count in counts.items() if count > 1] == []


def test_folders_of_plugins_never_import_pytest() -> None:
    folders = [module for module, path in FILES.items() if REPOSITORY / "plugins" in path.parent.parents]
    assert len(folders) > 30
    importing = [
        module for module in folders if any(name.split(".")[0] in ("pytest", "_pytest") for name in imported(module))
    ]
    assert importing == []


def test_every_module_is_imported_by_its_one_name() -> None:
    """Imported as `fixtures.records`, a module of a clone would be there twice, and absent from the wheel."""
    folders = (REPOSITORY / place for place in (*LINKED, "longctx", "tests", "benchmarks"))
    files = [path for folder in folders for path in folder.rglob("*.py")]
    bare = re.compile(rf"^ *(?:from|import) (?:{'|'.join(LINKED)})\b", re.MULTILINE)
    assert len(files) > 600
    assert [path for path in files if bare.search(path.read_text(encoding="utf-8"))] == []


def test_init_files_only_reexport() -> None:
    for path in (file for place in (*PLACES, "tests") for file in (REPOSITORY / place).rglob("__init__.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
            is_all = isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
            assert is_text or is_all or isinstance(node, ast.ImportFrom), f"{path}: line {node.lineno}"


def test_imports_have_no_circle_and_no_chain_of_more_than_24_files() -> None:
    """Imports inside functions and for type checkers count: each module can be read after those that it imports."""
    left, floors = {module: imported(module) - {module} for module in FILES}, 0
    while ready := [module for module, names in left.items() if not names & left.keys()]:
        floors += 1
        for module in ready:
            del left[module]
    assert (left, floors <= 24) == ({}, True)


def imported_files(module: str) -> set[str]:
    """Return the modules of this project that a module imports, a package that only re-exports among them."""
    return {name for name in imported(module) if name in FILES and name != module}


def test_no_circle_of_folders() -> None:
    """At every level, the files and folders of a folder can be read one after another."""
    levels: dict[tuple[str, ...], dict[str, set[str]]] = {}
    for module in FILES:
        parts = module.split(".")
        for other in (name.split(".") for name in imported_files(module)):
            same = 0
            while same < min(len(parts), len(other)) and parts[same] == other[same]:
                same += 1
            # A package and its own files are no two folders.
            if same < min(len(parts), len(other)):
                level = levels.setdefault(tuple(parts[:same]), {})
                level.setdefault(parts[same], set()).add(other[same])
                level.setdefault(other[same], set())
    for level in levels.values():
        while ready := [folder for folder, names in level.items() if not names & level.keys()]:
            for folder in ready:
                del level[folder]
    assert {place: sorted(level) for place, level in levels.items() if level} == {}


def test_files_and_functions_are_short() -> None:
    texts = {module: path.read_text(encoding="utf-8") for module, path in FILES.items()}
    assert [module for module, text in texts.items() if text.count("\n") > 600] == []
    functions = [
        (module, node)
        for module in FILES
        for node in ast.walk(tree(module))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    long = [(module, node.name) for module, node in functions if (node.end_lineno or 0) - node.lineno >= 60]
    assert (long, len(functions) > 2500) == ([], True)


def test_unit_tests_are_in_the_folder_of_their_room() -> None:
    rooms = {path.name for place in (".", *LINKED[:2], "tests") for path in (REPOSITORY / place).iterdir()}
    folders = {path.name for path in (REPOSITORY / "tests" / "unit").iterdir() if path.is_dir()} - {"__pycache__"}
    assert (folders - rooms, len(folders) > 15) == (set(), True)


@pytest.mark.parametrize(
    ("module", "names"),
    [
        ("fixtures.tasks", "TASKS"), ("fixtures.corpora", "load_corpora"), ("fixtures.scoring.rouge", "rouge_l"),
        ("fixtures.scoring.match",
         "normalize exact_match substring_match token_f1 string_match_all string_match_any"),
        ("fixtures.tasks.helmet.rerank", "parse_ranking ndcg"), ("fixtures.scoring.parsing", "after_prefix"),
        ("fixtures.scoring.choice", "choice_match"), ("fixtures.scoring.citations", "citation_scores"),
        ("plugins.evidence.statistics", "interval"),
        ("plugins.evidence.effective_length", "effective_length contiguous_effective_length weighted_average average"),
    ],
)  # fmt: skip
def test_names_that_other_programs_rely_on_can_be_imported(module: str, names: str) -> None:
    loaded = importlib.import_module(f"longctx.{module}")
    assert [name for name in names.split() if not hasattr(loaded, name)] == []


def test_a_clone_has_every_file_once_and_links_to_it() -> None:
    names = ("ci", "conftest.py", "docs", "fixtures", "plugins", "pyproject.toml", "tests_longctx", "thresholds.toml")
    assert [name for name in names if not (REPOSITORY / "longctx" / name).is_symlink()] == []
