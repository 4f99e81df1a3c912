"""Data flows one way: each room of the house imports only the rooms it may know."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]
PLACES = ("fixtures", "plugins", "tests_longctx", "ci")
# What a room may import of ours besides itself; the longest name that fits a module is its room.
ROOMS: dict[str, tuple[str, ...]] = {
    "conftest": (),
    "fixtures.records": (),
    "fixtures.identity": (),
    "fixtures.lengths": (),
    "fixtures.versions": (),
    "fixtures.commands": (),
    "fixtures.weights": (),
    "fixtures.chunks": (),
    "fixtures.cache_size": (),
    "fixtures.memory": ("fixtures.cache_size", "fixtures.checkpoint", "fixtures.chunks"),
    "fixtures.checkpoint": ("fixtures.memory", "fixtures.weights"),
    "fixtures.seams": (),
    "fixtures.assembly": ("fixtures.seams",),
    "fixtures.plain_tokenizers": (),
    "fixtures.imports": (),
    "fixtures.prompts": (
        "fixtures.records", "fixtures.identity", "fixtures.imports", "fixtures.assembly", "fixtures.plain_tokenizers",
    ),
    "fixtures.corpora": ("fixtures.versions",
        "fixtures.records", "fixtures.identity", "fixtures.scoring"),
    "fixtures.corpora.__main__": ("fixtures.commands", "fixtures.corpora"),
    "fixtures.serving": (),
    "fixtures.scoring": ("fixtures.records",),
    "fixtures.scoring.judge": ("fixtures.versions",
        "fixtures.records", "fixtures.serving"),
    "fixtures.engines": (
        "fixtures.versions",
        "fixtures.records", "fixtures.checkpoint", "fixtures.chunks", "fixtures.identity", "fixtures.imports",
        "fixtures.serving",
    ),
    "fixtures.tasks": (
        "fixtures.records", "fixtures.corpora", "fixtures.scoring", "fixtures.prompts", "fixtures.identity",
    ),
    "fixtures.cases": (
        "fixtures.versions",
        "fixtures.records", "fixtures.tasks", "fixtures.corpora", "fixtures.prompts", "fixtures.lengths",
        "fixtures.identity",
    ),
    "fixtures.preflight": ("fixtures.records", "fixtures.tasks", "fixtures.scoring", "fixtures.prompts"),
    "fixtures.calibration": (
        "fixtures.versions",
        "fixtures.commands", "fixtures.tasks", "fixtures.corpora", "fixtures.identity", "fixtures.lengths",
    ),
    "fixtures.excerpts": ("fixtures.records",),
    "fixtures.session": ("fixtures.engines", "plugins.run", "plugins.workers"),
    "plugins.home": (),
    "plugins.journal": ("fixtures.versions",
        "fixtures.commands", "fixtures.records", "fixtures.identity"),
    "plugins.gates": ("fixtures.records", "fixtures.lengths"),
    "plugins.gates.pools": ("fixtures.records", "plugins.gates.statistics"),
    "plugins.gates.questions": ("plugins.gates.pools", "plugins.gates.statistics"),
    "plugins.gates.panels": (
        "fixtures.records", "fixtures.identity", "plugins.gates.pools", "plugins.gates.questions",
    ),
    "plugins.assistants": (
        "fixtures.versions",
        "fixtures.checkpoint", "fixtures.engines", "fixtures.records", "fixtures.scoring.judge", "fixtures.tasks",
        "plugins.journal",
    ),
    "fixtures.room": (),
    "plugins.fitting": (
        "fixtures.cache_size", "fixtures.checkpoint", "fixtures.memory", "fixtures.records", "fixtures.room",
    ),
    "plugins.baseline": ("fixtures.records", "fixtures.checkpoint", "plugins.journal"),
    # The one place where options, files and checkpoints become values; all below take it from here.
    "plugins.servers": (
        "fixtures.checkpoint", "fixtures.engines", "fixtures.identity", "fixtures.prompts", "fixtures.records",
        "fixtures.serving",
    ),
    "plugins.models": (
        "fixtures.calibration", "fixtures.cases", "fixtures.checkpoint", "fixtures.corpora", "fixtures.engines",
        "fixtures.prompts", "fixtures.records", "fixtures.tasks", "plugins.assistants", "plugins.baseline",
        "plugins.servers",
    ),
    "plugins.run": (
        "fixtures.calibration", "fixtures.cases", "fixtures.checkpoint", "fixtures.corpora", "fixtures.engines",
        "fixtures.identity", "fixtures.lengths", "fixtures.prompts", "fixtures.records", "fixtures.serving",
        "fixtures.tasks", "fixtures.scoring.judge", "plugins.assistants", "plugins.baseline", "plugins.fitting",
        "plugins.gates.panels", "plugins.gates.rules", "plugins.gates.thresholds", "plugins.journal", "plugins.models",
        "plugins.servers",
    ),
    "plugins.options": ("fixtures.engines", "fixtures.records", "fixtures.tasks", "plugins.run", "plugins.servers"),
    "plugins.workers": (
        "fixtures.checkpoint", "fixtures.engines", "fixtures.prompts", "plugins.gates.panels", "plugins.run",
    ),
    "plugins.ledger": (
        "fixtures.checkpoint", "fixtures.engines", "fixtures.records", "plugins.gates.panels", "plugins.gates.pools",
        "plugins.gates.rules", "plugins.journal", "plugins.run",
    ),
    "plugins.builder": (
        "fixtures.corpora", "fixtures.engines", "fixtures.preflight", "fixtures.prompts", "fixtures.records",
        "fixtures.scoring.failures", "fixtures.scoring.judge", "fixtures.tasks", "plugins.gates.panels",
        "plugins.gates.pools",
    ),
    "plugins.marking": ("fixtures.excerpts", "fixtures.records", "plugins.builder", "plugins.journal"),
    "plugins.claiming": (
        "fixtures.engines", "plugins.builder", "plugins.gates.panels", "plugins.gates.pools", "plugins.journal",
    ),
    "plugins.bench": (
        "fixtures.engines", "fixtures.records", "plugins.builder", "plugins.claiming", "plugins.gates.panels",
        "plugins.gates.pools", "plugins.journal", "plugins.ledger", "plugins.marking", "plugins.run",
    ),
    "plugins.evidence": (
        "fixtures", "plugins.assistants", "plugins.baseline", "plugins.bench", "plugins.builder", "plugins.claiming",
        "plugins.gates.panels", "plugins.journal", "plugins.ledger", "plugins.models", "plugins.run",
        "plugins.workers",
    ),
    "plugins.progress": (
        "fixtures.engines", "fixtures.lengths", "fixtures.records", "plugins.baseline", "plugins.evidence",
        "plugins.gates.panels", "plugins.gates.pools", "plugins.gates.rules", "plugins.gates.statistics",
        "plugins.journal", "plugins.ledger", "plugins.run",
    ),
    "plugins.plan": (
        "fixtures.cases", "fixtures.lengths", "fixtures.records", "fixtures.room", "fixtures.tasks",
        "plugins.assistants", "plugins.evidence", "plugins.fitting", "plugins.run",
    ),
    "plugins.gates.plugin": (
        "fixtures.records", "plugins.gates", "plugins.baseline", "plugins.evidence", "plugins.run",
    ),
    # From stored data only: records, verdicts and facts, never a task, a text or a model.
    "plugins.report": (
        "fixtures.commands", "fixtures.records", "fixtures.lengths", "fixtures.preflight", "fixtures.engines",
        "plugins.gates", "plugins.run",
    ),
    "plugins.report.plugin": ("plugins.report", "plugins.gates.plugin", "plugins.evidence", "plugins.run"),
    # How model text is made harmless, and what a path says of a training step, need nothing of the rest.
    "plugins.report.text": (),
    "plugins.report.steps": (),
    "tests_longctx": ("fixtures",),
    # Drives pytest as a process of its own; reads what that wrote.
    "ci": (
        "fixtures.commands", "fixtures.identity", "fixtures.records", "fixtures.checkpoint", "plugins.journal",
        "plugins.gates",
    ),
    "ci.bisect": ("ci", "fixtures.commands", "fixtures.checkpoint", "fixtures.tasks", "plugins.gates"),
    "ci.calibrate": ("ci", "fixtures.commands", "fixtures.lengths", "plugins.gates"),
}  # fmt: skip
# Who may know these at all. Of the network: the command that fetches data, which no run starts, and the module that
# asks servers, through one client that times out, waits as the server says and is easy to keep keys in.
GUESTS: dict[str, tuple[str, ...]] = {
    "pytest": (
        "fixtures.session", "plugins.models", "plugins.run", "plugins.servers", "plugins.options", "plugins.workers",
        "plugins.evidence",
        "plugins.progress", "plugins.plan", "plugins.gates.plugin", "plugins.report.plugin", "tests_longctx",
    ),
    "_pytest": ("plugins.report.plugin",),
    "xdist": (),
    "torch": ("fixtures.engines", "plugins.workers"),
    "transformers": ("fixtures.engines", "fixtures.prompts"),
    # It reads local copies of hub data sets; fetching is the one that downloads them.
    "datasets": ("fixtures.corpora.published.hub",),
    # A failing checkpoint is told to whom the user names.
    "urllib": ("fixtures.corpora.fetching", "ci.notices"), "http": ("fixtures.corpora.fetching",),
    "huggingface_hub": ("fixtures.corpora.fetching",), "httpx2": ("fixtures.corpora.fetching",),
    "openai": ("fixtures.serving.client",),
    # Dashboards are written where a run asked for them, and nowhere else.
    "tensorboard": ("plugins.report.scalars",), "wandb": ("plugins.report.scalars",),
    "requests": (), "httpx": (), "aiohttp": (),
    # To find a free port; nothing is sent.
    "socket": ("fixtures.serving.command",),
    "nltk": ("fixtures.scoring.citations",), "punkt": ("fixtures.scoring.citations",),
    "rouge_score": ("fixtures.scoring.rouge",), "pytrec_eval": ("fixtures.scoring.ranking",),
    "pickle": (),
}  # fmt: skip
PURE = (
    "fixtures.tasks", "fixtures.scoring", "fixtures.corpora", "fixtures.corpora.archive", "fixtures.checkpoint",
    *(f"fixtures.scoring.{name}" for name in ("match", "parsing", "rouge", "ranking", "citations", "choice", "facts")),
    "fixtures.scoring.judge",
    "plugins.gates.statistics", "plugins.gates.effective_length", "plugins.gates.thresholds", "plugins.gates.verdicts",
    "plugins.gates.panels", "plugins.gates.questions",
        "plugins.gates.pools", "plugins.gates.rules", "plugins.gates.regression",
    "plugins.gates.curves",
    "plugins.journal", "plugins.baseline", "plugins.report.text",
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
    return max((room for room in ROOMS if within(module, room)), key=len)


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
    assert [module for module in FILES if not any(within(module, room) for room in ROOMS)] == []


def test_every_room_has_a_module() -> None:
    assert [room for room in ROOMS if not any(within(module, room) for module in FILES)] == []


@pytest.mark.parametrize("module", FILES)
def test_a_module_imports_only_the_rooms_it_may_know(module: str) -> None:
    room = room_of(module)
    allowed = (room, *ROOMS[room])
    ours = [name for name in imported(module) if is_ours(name)]
    assert [name for name in ours if not any(within(name, other) for other in allowed)] == []


@pytest.mark.parametrize("module", FILES)
def test_a_module_imports_only_the_packages_it_may_know(module: str) -> None:
    guests = {name.partition(".")[0] for name in imported(module)} & set(GUESTS)
    assert [guest for guest in guests if not any(within(module, room) for room in GUESTS[guest])] == []


def test_what_runs_a_model_is_imported_only_when_it_is_asked_for() -> None:
    """Wrong use is told in half a second; torch alone takes longer to import."""
    started = [module for module in FILES if within(module, "plugins") and not within(module, "plugins.gates")]
    for module in (*started, "fixtures.session", "fixtures.engines", "fixtures.prompts"):
        at_once = ast.parse(FILES[module].read_text(encoding="utf-8")).body
        names = [node.module or "" for node in at_once if isinstance(node, ast.ImportFrom)]
        names += [alias.name for node in at_once if isinstance(node, ast.Import) for alias in node.names]
        heavy = ("torch", "transformers", "fixtures.engines.hf", "fixtures.calibration.tokenizer")
        assert [name for name in names if any(within(name, each) for each in heavy)] == []


@pytest.mark.parametrize("module", PURE)
def test_pure_modules_load_no_torch_no_pytest_and_nothing_of_the_network(module: str) -> None:
    heavy = {"torch", "transformers", "datasets", "pytest", "_pytest", "openai", "httpx2"}
    script = f"import sys, {module}; print(*({heavy} & set(sys.modules)))"
    ended = subprocess.run(
        [sys.executable, "-c", script], cwd=REPOSITORY, capture_output=True, text=True, check=True, timeout=60
    )
    assert ended.stdout.strip() == ""


def test_scorers_load_what_is_slow_only_when_they_score() -> None:
    scorers = [module for module in FILES if within(module, "fixtures.scoring")]
    slow = {"nltk", "rouge_score", "pytrec_eval", "numpy", "scipy", "punkt"}
    script = f"import sys, {', '.join(scorers)}; print(*({slow} & set(sys.modules)))"
    ended = subprocess.run(
        [sys.executable, "-c", script], cwd=REPOSITORY, capture_output=True, text=True, check=True, timeout=60
    )
    assert len(scorers) > 6
    assert ended.stdout.strip() == ""
