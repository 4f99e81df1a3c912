"""Make the pages of docs/examples by real runs: a lost setting caught on a real checkpoint, and a watched training run.

    make examples CKPT=path/to/smollm2-135m

The report is that of a copy of CKPT in which the rotary dimensions of a quarter of the heads are stored in the wrong
order, compared with CKPT on two needle tasks at 1024 tokens. The curve is that of CKPT on the same tasks from 512 to
4096 tokens. The watch measures every third of ten calibration checkpoints, of which the last five miss more keys; its
alert starts a search among the steps that it skipped. Runs continue from the journal in --work, and paths of the
machine do not appear in the pages. Pictures of the report and of the curve, light and dark, are drawn by Chromium if it
is installed.
"""

import argparse
import io
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from PIL import Image

from benchmarks.catch_matrix import share_of_two_means
from benchmarks.faults.checkpoint_faults import CHECKPOINT_FAULTS, write_faulty
from longctx.ci.suite_process import read_report
from longctx.fixtures.checkpoints.checkpoint import read_checkpoint
from longctx.fixtures.installation import SUITE as REPOSITORY

EXAMPLES = REPOSITORY / "docs" / "examples"
LONGCTX = str(Path(sys.executable).with_name("longctx"))
SOUND, FAULTY = "smollm2-135m", "converted"
TASKS = ("-k", "niah_single_2 or niah_multikey_1")
COMPARISON = (
    "run", "--model", FAULTY, "--baseline", SOUND, "--suite", "ruler", "--lengths", "1k", *TASKS,
    "--samples", "200", "--journal", "journal",
)  # fmt: skip
CURVE = (
    "run", "--model", SOUND, "--suite", "ruler", "--lengths", "512,1k,2k,4k", *TASKS, "--samples", "10",
    "--full",
    "--journal", "journal",
)  # fmt: skip
WATCH = (
    "watch", "runs/a", "--once", "--every", "1s", "--every-nth", "3", "--on-failure", "bisect", "--lengths", "512,1k",
    "--samples", "64", *TASKS, "--out", "out/watch", "--journal", "journal",
)  # fmt: skip
# Steps of the watched run, the first bad one, and the shares of keys that checkpoints miss before and after it.
STEPS, FIRST_BAD, MISSED = range(1000, 11000, 1000), 6000, ("0.1", "0.4")
# The sections of a page that its picture shows, empty for its beginning, and the size in pixels of the page.
PICTURES = {"report": ((), 1160, 414), "curve": (("depths", "failures"), 640, 640)}
# How many pixels of a picture are one pixel of the page.
SCALE = 1.5


def longctx(work: Path, *arguments: str, codes: Sequence[int] = (0,)) -> str:
    """Run the command in `work` and return its output; raise RuntimeError for another exit code."""
    ended = subprocess.run(
        [LONGCTX, *arguments], cwd=work, env=os.environ | {"COLUMNS": "100"}, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, check=False,
    )  # fmt: skip
    if ended.returncode not in codes:
        raise RuntimeError(f"longctx {' '.join(arguments)}: exit code {ended.returncode}\n{ended.stdout}")
    return ended.stdout


def compare(checkpoint: Path, work: Path) -> None:
    """Measure the faulty copy against the checkpoint, and keep its report, output and pictures."""
    prepare(checkpoint, work)
    measure(work, "report", COMPARISON, code=1)
    picture(EXAMPLES / "report.html")
    print_practice()


def curve(checkpoint: Path, work: Path) -> None:
    """Measure the checkpoint from short to long, and keep its report, output and pictures."""
    prepare(checkpoint, work)
    measure(work, "curve", CURVE, code=0)
    picture(EXAMPLES / "curve.html")


def prepare(checkpoint: Path, work: Path) -> None:
    """Name the checkpoint in `work`, and write its faulty copy."""
    if not (work / SOUND).exists():
        (work / SOUND).symlink_to(checkpoint.resolve())
    if not (work / FAULTY).exists():
        write_faulty(read_checkpoint(str(work / SOUND)), work / FAULTY, CHECKPOINT_FAULTS["rope_interleaved"], 0.25)


def measure(work: Path, name: str, command: Sequence[str], code: int) -> None:
    """Run a measurement, and keep its page, its JSON report and its summary."""
    reports = [f"--report-{form}={name}.{form}" for form in ("html", "json")]
    output = longctx(work, *command, *reports, codes=(code,))
    for form in ("html", "json"):
        copy(work / f"{name}.{form}", EXAMPLES / f"{name}.{form}", work)
    # What pytest prints before the summary names the machine and changes with its speed.
    summary = output[output.index("= long context =") :].partition("\n")[2]
    (EXAMPLES / f"{name}.txt").write_text(f"$ longctx {words(command)}\n{without_paths(summary, work)}")


def watch(work: Path) -> None:
    """Watch the training run, and keep the index, the reports and the search."""
    for step in STEPS:
        if not (work / f"runs/a/step-{step}").exists():
            missed = MISSED[step >= FIRST_BAD]
            longctx(work, "calibration", f"runs/a/step-{step}", "--step", str(step), "--blind", missed)
    output = longctx(work, *WATCH, codes=(1,))
    folder = EXAMPLES / "watch"
    shutil.rmtree(folder, ignore_errors=True)
    for page in (work / "out/watch").rglob("*"):
        if page.suffix == ".html" or (page.suffix == ".log" and page.parent == work / "out/watch"):
            copy(page, folder / page.relative_to(work / "out/watch"), work)
    (folder / "output.txt").write_text(without_paths(f"$ longctx {words(WATCH)}\n{output}", work))


def words(arguments: Sequence[str]) -> str:
    return " ".join(f'"{word}"' if " " in word else word for word in arguments)


def without_paths(text: str, work: Path) -> str:
    """Return a text in which paths start in the folder of the runs, of the suite, or of the checkpoint."""
    for folder, place in ((work, ""), (REPOSITORY, "longctx-gates/"), ((work / SOUND).resolve().parent, "models/")):
        text = text.replace(f"{folder}/", place).replace(str(folder), place.rstrip("/") or ".")
    return text


def copy(page: Path, target: Path, work: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(without_paths(page.read_text(encoding="utf-8"), work), encoding="utf-8")


def picture(page: Path) -> None:
    """Write a part of a page as it looks in light and in dark."""
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        print("no pictures: chromium is not installed")
        return
    sections, width, height = PICTURES[page.stem]
    text = page.read_text(encoding="utf-8")
    if sections:
        shown = "".join(f":not(#{name})" for name in sections)
        # The page allows its own styles only.
        text = re.sub(r"<meta http-equiv[^>]*>", "", text)
        text = text.replace("</head>", f"<style>body>:not(main),main>{shown}{{display:none}}</style></head>")
    part = page.with_name("part.html")
    part.write_text(text, encoding="utf-8")
    for value, scheme in enumerate(("dark", "light")):
        drawn = page.with_name("drawn.png")
        subprocess.run(
            [
                browser, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
                f"--blink-settings=preferredColorScheme={value}", f"--force-device-scale-factor={SCALE}",
                f"--window-size={width},{height}", f"--screenshot={drawn}", part.resolve().as_uri(),
            ],
            check=True, capture_output=True,
        )  # fmt: skip
        image = Image.open(io.BytesIO(drawn.read_bytes()))
        image.save(page.with_name(f"{page.stem}-{scheme}.webp"), quality=80, method=6)
        drawn.unlink()
    part.unlink()


def print_practice() -> None:
    """Print how often two means of 50 samples call the faulty and the sound checkpoint worse."""
    report = read_report(EXAMPLES / "report.json")
    if report is None or report.regression is None:
        raise RuntimeError(f"{EXAMPLES / 'report.json'} has no comparison")
    for case in report.cases:
        if case.score is not None and (pairs := report.regression.cases.get(case.id)) is not None:
            sound = case.score - (pairs.difference or 0.0)
            faulty, unchanged = share_of_two_means(sound, case.score), share_of_two_means(sound, sound)
            print(
                f"{case.id}: {sound:.1f} to {case.score:.1f}; two means of 50 call it worse in {faulty:.0%}, ", end=""
            )
            print(f"an unchanged checkpoint in {unchanged:.0%}")


PARTS = {"report": compare, "watch": lambda _, work: watch(work), "curve": curve}


def main() -> None:
    """Make all pages, or some of them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("checkpoint", type=Path, metavar="CKPT", help="SmolLM2-135M-Instruct")
    parser.add_argument("--work", type=Path, default=REPOSITORY / "out" / "examples", metavar="DIR")
    parser.add_argument("--only", choices=tuple(PARTS), help="one part")
    options = parser.parse_args()
    work = options.work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    EXAMPLES.mkdir(exist_ok=True)
    for name, make in PARTS.items():
        if options.only in (None, name):
            make(options.checkpoint, work)


if __name__ == "__main__":
    main()
