"""Malformed options, files of the user's, and environment variables."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

from tests.fuzz.mutations import ODD_VALUES, mutate_bytes
from tests.fuzz.programs import SMALL, Command, Kind, Program, Sound, suite
from tests.helpers.paths import REPOSITORY

OPTIONS = (
    "--lengths", "--samples", "--seed", "--engine", "--base-url", "--thinking-budget",
    "--device", "--dtype", "--attention", "--batch-size", "--prefill-chunk", "--chat", "--length-tokenizer",
    "--data-dir",
    "--prompts", "--thresholds", "--journal", "--budget", "--baseline", "--gpus-per-worker", "--scoring", "--judge-url",
    "--report-json", "--report-html", "--step", "--suite", "--model", "--serve",
)  # fmt: skip
WORDS = (
    "8k", "0", "-1", "512,", ",", "1e3", "9" * 30, "512k", "½", "\uff11\uff12\uff18", "\u202e8k", "8k\n4k",
    "calibration:",
    "calibration:x", "calibration:9999999999k", "calibration:512-", "calibration:512-chat-chat", "/dev/null",
    "/dev/zero",
    "/proc/self/mem", "/etc/passwd", "/", ".", "~", "~nobody/x", "$HOME", "http://", "http://[", "https://x:99999",
    "http://127.0.0.1:1", "file:///etc/passwd", "unix:///x", "{model}", "{port} {x}", "%(x)s", "'", '"', "a" * 5000,
    "\x1b[31m\x07", "<script>", "=cmd", "None", "nan", "inf", "1e999", "true", "thresholds.toml::gate[x]",
)  # fmt: skip
VARIABLES = (
    "LONGCTX_API_KEY", "LONGCTX_JUDGE_KEY", "OPENAI_API_KEY", "OPENAI_BASE_URL", "CUDA_VISIBLE_DEVICES",
    "PYTEST_XDIST_WORKER_COUNT", "HF_HOME", "HF_HUB_CACHE", "XDG_CACHE_HOME", "TERM", "LC_ALL", "HTTPS_PROXY",
    "ALL_PROXY", "SSL_CERT_FILE", "NO_COLOR", "TZ", "HOME", "TMPDIR",
    "TOKENIZERS_PARALLELISM",
)  # fmt: skip


def toml_file(option: str, source: str) -> Kind:
    """Return the kind that malforms a TOML file of the user's."""

    def kind(random: Random, sound: Sound, folder: Path) -> Program:
        lines = (REPOSITORY / source).read_text(encoding="utf-8").splitlines()
        for _ in range(random.randint(1, 3)):
            at = random.randrange(len(lines))
            name, equals, _ = lines[at].partition(" = ")
            value = json.dumps(random.choice(ODD_VALUES))
            lines[at] = (
                f"{name} = {value}" if equals else random.choice(("[x]", "[[gate]]", "a = ", value, "[verdict]"))
            )
        data = "\n".join(lines).encode("utf-8", "replace")
        path = folder / "file.toml"
        path.write_bytes(mutate_bytes(random, data) if random.random() < 0.2 else data)
        return suite(f"--model={sound.checkpoint}", *SMALL, f"{option}={path}", "--plan")

    return kind


def option_values(random: Random, sound: Sound, folder: Path) -> Program:
    """Give options values that they do not take."""
    values = [str(value) for value in ODD_VALUES if isinstance(value, (str, int, float)) and "\x00" not in str(value)]
    values = [*(value.encode("utf-8", "replace").decode() for value in values), *WORDS]
    chosen = random.sample(OPTIONS, random.randint(1, 2))
    return suite(
        f"--model={sound.checkpoint}", *SMALL, "--plan", *(f"{name}={random.choice(values)}" for name in chosen)
    )


def environment(random: Random, sound: Sound, folder: Path) -> Program:
    """Set environment variables to odd values."""
    values = [word for word in WORDS if len(word) < 100]
    odd = {name: random.choice(values) for name in random.sample(VARIABLES, random.randint(1, 4))}
    options = random.choice(
        (("--plan",), ("--plan", "--base-url=http://127.0.0.1:1/v1"), ("--preflight",),
         ("--base-url=http://127.0.0.1:1/v1", f"--journal={folder / 'journal'}"))
    )  # fmt: skip
    return suite(f"--model={sound.checkpoint}", *SMALL, *options, environment=odd)


def watch_options(random: Random, sound: Sound, folder: Path) -> Program:
    """Give a watch, a bisect, the journal's command or the calibration's values that they do not take."""
    word = random.choice([word for word in WORDS if not word.startswith("/")])
    (folder / "runs").mkdir()
    out = f"--out={folder / 'out'}"
    watch = random.choice(("--every", "--order", "--on-failure", "--done-marker", "--gpus"))
    bisect = random.choice(("--case", "--gate", "--samples", "--confidence"))
    journal = random.choice(("--prune", "--model"))
    ends = ("--good", str(sound.checkpoint), "--bad", str(folder))
    return random.choice(
        (
            Command("longctx.ci.watch", (str(folder / "runs"), "--once", out, "--every=0.01s", f"{watch}={word}")),
            Command("longctx.ci.watch", (word, "--once", out, "--every=0.01s")),
            Command("longctx.ci.bisect", (*ends, f"{bisect}={word}", out)),
            Command("longctx.ci.bisect", ("--good", word, "--bad", word, out)),
            Command("longctx.plugins.journal", (str(sound.journal), f"{journal}={word}", "--dry-run")),
            Command("longctx.ci.history_command", (word,)),
            Command("longctx.ci.propose_thresholds", (word,)),
            Command("longctx.fixtures.calibration", (word, str(folder / "built"))),
        )
    )  # fmt: skip
