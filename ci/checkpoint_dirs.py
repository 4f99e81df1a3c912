"""Order the checkpoint directories of one training run by their steps, and list those that are complete.

Meanwhile training may write, replace and delete others.
"""

import glob
import itertools
import os
import re
import stat
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from longctx.fixtures.checkpoints.checkpoint import ADAPTER_CONFIG, read_checkpoint, read_source
from longctx.fixtures.checkpoints.safetensors import CheckpointError
from longctx.fixtures.checkpoints.steps import MOST_DEPTH, UNITS, models_below, named_steps, recorded_step
from longctx.fixtures.outside_files import absolute, expanded
from longctx.fixtures.records.report import ReportSource

NUMBERED = re.compile(r"\d")
# Parts of a training run, in each of which steps may begin again.
PART = re.compile(r"(?<![a-z])(epoch|ep|stage|phase|round|part|cycle)[ =_\-.]?([0-9]{1,9})(?![0-9a-z.])")
ASK = r"give --step-pattern, a regular expression such as 'epoch-(\d+)'"


# Name, size, time of change and inode of every file below a directory.
State = tuple[tuple[str, int, int, int], ...]
UNSETTLED = "it is new, or has changed since the last scan"
CHANGING = "it changed while it was read"
ABSENT = "{} is not there yet"
Loss = Literal["deleted", "replaced", "incomplete"]
"""The change of a checkpoint that is no longer on disk as it was."""


class CheckpointsError(ValueError):
    """Checkpoints that are missing or have no order; the message is one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A checkpoint's directory and its training step."""

    number: int
    path: Path
    outer: str = ""
    """The name of the step's directory if the checkpoint is deeper in it, such as in actor/huggingface."""

    @property
    def name(self) -> str:
        return self.outer or self.path.name


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundSteps:
    """The checkpoints in the directory of a training run, complete or not."""

    steps: tuple[Step, ...]
    """By step; every directory is there once."""
    unclear: Mapping[Path, str]
    """The directories without a step of their own, with the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepReader:
    """The way from the directories of a training run to its steps."""

    pattern: str | None = None
    """A regular expression whose group is the step in a name; None for the words of the known trainers."""
    converts: bool = False
    """True if a directory is converted as a whole, with any content."""

    def __post_init__(self) -> None:
        try:
            groups = 1 if self.pattern is None else re.compile(self.pattern).groups
        except (re.error, RecursionError, OverflowError) as error:
            raise CheckpointsError(f"--step-pattern: {self.pattern!r} is no regular expression ({error})") from None
        if groups != 1:
            raise CheckpointsError(f"--step-pattern: {self.pattern!r} has {groups} groups; put ( ) around the step")

    @property
    def words(self) -> list[str]:
        return [] if self.pattern is None else ["--step-pattern", self.pattern]

    def read(self, path: Path, *, option: str) -> Step:
        """Return the checkpoint in a directory with its step; raise CheckpointsError if it has no clear one.

        The pattern decides, or else the trainer's record, or else the name. A link stands for the directory that
        it leads to, and so does that directory's name. Only where that has no step, such as the hash of a store, the
        link's name gives it.
        """
        directory = absolute(path)
        if re.search("[\udc80-\udcff]", str(directory)):
            raise CheckpointsError(f"{option}: {path} has a name that is no UTF-8; rename it")
        place = directory if self.converts else _model_in(directory, option)
        # The name of a checkpoint that is deeper in its step's directory says nothing.
        names = [directory.name, path.name]
        if not NUMBERED.search(directory.name):
            names += [parent.name for parent in (*directory.parents,)[:MOST_DEPTH]]
        recorded = recorded_step(place) if self.pattern is None else None
        for steps in [[recorded]] if recorded is not None else map(self._steps, names):
            if len(steps) > 1:
                raise CheckpointsError(f"{option}: {path} may be step {' or '.join(map(str, steps))}; {ASK}")
            if steps:
                return Step(number=steps[0], path=place, outer="" if place == directory else directory.name)
        raise CheckpointsError(f"{option}: {path} has no clear step in its name; name it like step-3000, or {ASK}")

    def _steps(self, name: str) -> list[int]:
        if self.pattern is None:
            return named_steps(name, is_step=True)
        match = re.search(self.pattern, name)
        number = re.fullmatch(r"([0-9]{1,18})([kmb]?)", (match[1] or "").lower()) if match else None
        return [int(number[1]) * UNITS[number[2]]] if number else []

    def find(self, directory: Path) -> FoundSteps:
        """Return the checkpoints of a training run; raises OSError.

        They are the directories with a number in their name, and those elsewhere to which links with a number lead.
        Left out are hidden names, because some writers use one until they rename the finished directory, and those that
        a pattern does not match.
        """
        around = absolute(directory)
        by_path: dict[Path, Step] = {}
        unclear: dict[Path, str] = {}
        # A directory's own name comes before those of links to it.
        for path in sorted(directory.iterdir(), key=lambda path: (path.is_symlink(), path.name)):
            if not NUMBERED.search(path.name) or path.name.startswith(".") or not os.path.isdir(path):
                continue
            target = absolute(path)
            is_left_out = self.pattern is not None and not (self._steps(target.name) or self._steps(path.name))
            if target in (around, *around.parents) or is_left_out:
                continue
            try:
                step = self.read(path, option="DIR")
                by_path.setdefault(step.path, step)
            except (CheckpointsError, OSError) as error:
                unclear[target] = str(error)
        ordered = sorted(by_path.values(), key=lambda step: step.number)
        others = {path: reason for path, reason in unclear.items() if path not in by_path}
        without_order = self.without_order(ordered)
        clear = tuple(step for step in ordered if step.path not in without_order)
        return FoundSteps(steps=clear, unclear=others | without_order)

    def without_order(self, steps: Sequence[Step]) -> dict[Path, str]:
        """Return the checkpoints that have no place among the others, which are by step, each with a line why."""
        unclear = {} if self.pattern is not None else _restarts(steps)
        for one, other in itertools.pairwise(steps):
            if one.number == other.number:
                for path, twin in ((one.path, other.path), (other.path, one.path)):
                    unclear[path] = f"is step {one.number} like {twin}; move one away, or {ASK}"
        return unclear


def _restarts(steps: Iterable[Step]) -> dict[Path, str]:
    """Return the checkpoints of parts of a run, such as epochs, if steps begin again with a part; with a line why."""
    by_word: dict[str, list[tuple[int, Step]]] = {}
    for step in steps:
        if match := PART.search(step.name.lower()):
            by_word.setdefault(match[1], []).append((int(match[2]), step))
    unclear: dict[Path, str] = {}
    for word, places in by_word.items():
        places.sort(key=lambda place: (place[1].number, place[0]))
        for (part, step), (next_part, next_step) in itertools.pairwise(places):
            if part > next_part:
                low, high = f"step {step.number} of {word} {part}", f"step {next_step.number} of {word} {next_part}"
                line = (
                    f"the steps of each {word} begin again: {low} is lower than {high}; {ASK}, for those of one {word}"
                )
                unclear |= {of_word.path: line for _, of_word in places}
    return unclear


def _model_in(directory: Path, option: str) -> Path:
    """Return the directory of a checkpoint that is deeper in the directory of its step; raise CheckpointsError."""
    names = ("config.json", ADAPTER_CONFIG)
    models = [] if any((directory / name).is_file() for name in names) else models_below(directory, names)
    if len(models) > 1:
        shown = ", ".join(str(model.relative_to(directory)) for model in models[:3])
        raise CheckpointsError(f"{option}: {directory} holds several checkpoints ({shown}); keep the one to measure")
    return models[0] if models else directory


def fingerprint_of(path: Path, *, option: str, options: Sequence[str]) -> str:
    """Return the fingerprint of a checkpoint, adapter or raw checkpoint, as a run with `options` reads it."""
    source = source_in(path, options)
    if source is not None:
        return source.fingerprint
    return read_checkpoint(str(path), option=option, trust_remote_code="--trust-remote-code" in options).fingerprint


def source_in(path: Path, options: Sequence[str]) -> ReportSource | None:
    """Return the adapter or raw checkpoint in a directory, as a run with `options` reads it; None for all others."""
    names = [word.partition("=")[0] for word in options]
    tokenizer = None
    if "--tokenizer" in names:
        at = names.index("--tokenizer")
        _, _, value = options[at].partition("=")
        tokenizer = value or "".join(options[at + 1 : at + 2])
    try:
        return read_source(
            path,
            converts="--convert" in names,
            tokenizer=tokenizer,
            trust_remote_code="--trust-remote-code" in names,
        )
    except OSError as error:
        raise CheckpointError(f"{error.filename or path}: cannot be read ({error.strerror})") from error


def between(patterns: Sequence[str], good: Path, bad: Path, reader: StepReader) -> tuple[Step, ...]:
    """Return `good`, all directories that match a pattern and lie between the two, and `bad`, ordered by step.

    Raises CheckpointsError if `good` does not come before `bad`, or if two checkpoints have the same step.
    """
    first, last = _read_endpoint(reader, good, "--good"), _read_endpoint(reader, bad, "--bad")
    if first.number >= last.number:
        raise CheckpointsError(
            f"--good is step {first.number} and --bad step {last.number}; give a good one that came before the bad one"
        )
    matching: dict[Path, Step] = {}
    for pattern in patterns:
        paths = [Path(name) for name in glob.glob(str(expanded(pattern)))]
        if not paths:
            raise CheckpointsError(
                f"--checkpoints: nothing matches {pattern!r}; quote a pattern such as 'runs/a/step-*'"
            )
        given = [reader.read(path, option="--checkpoints") for path in paths if path.is_dir()]
        matching |= {step.path: step for step in given}
    steps = [step for step in matching.values() if first.number < step.number < last.number]
    ordered = (first, *sorted(steps, key=lambda step: step.number), last)
    for path, line in reader.without_order(ordered).items():
        raise CheckpointsError(f"--checkpoints: {path} {line}")
    return ordered


def _read_endpoint(reader: StepReader, path: Path, option: str) -> Step:
    if not os.path.isdir(expanded(path)):
        raise CheckpointsError(f"{option}: no such directory {str(path)!r}; give a checkpoint of the run")
    return reader.read(path, option=option)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompleteCheckpoint:
    """A checkpoint that can be read; one with another fingerprint is another checkpoint, even under the same name."""

    step: Step
    fingerprint: str


@dataclass(slots=True)
class CheckpointWatcher:
    """Scan a directory repeatedly for complete checkpoints.

    Without a marker, a checkpoint is complete if its weights match their index and headers, and if no file in it has
    changed since the last scan.
    """

    directory: Path
    marker: str | None = None
    """Name of a file that training writes last into every checkpoint."""
    options: Sequence[str] = ()
    """The options of the suite, which decide what a run can make a checkpoint of."""
    reader: StepReader = field(default_factory=StepReader)
    waiting: dict[Path, str] = field(default_factory=dict)
    """Reasons why the other checkpoints are not complete, by directory, as of the last scan."""
    steps: Sequence[Step] = ()
    """All checkpoints of the last scan, complete or not."""
    _unclear: Collection[Path] = ()
    """The directories without a step of their own, as of the last scan."""
    _states: dict[Path, State] = field(default_factory=dict)
    _fingerprints: dict[Path, tuple[State, str]] = field(default_factory=dict)
    _complete: dict[Path, CompleteCheckpoint] = field(default_factory=dict)
    """The complete checkpoints of the last scan, by directory."""

    def scan(self) -> list[CompleteCheckpoint]:
        """Return the complete checkpoints by step; raise OSError if the directory itself cannot be read."""
        directories = self.reader.find(self.directory)
        self.steps, self._unclear = directories.steps, directories.unclear
        self.waiting = dict(directories.unclear)
        self._complete.clear()
        for step in self.steps:
            try:
                reason = self._check(step)
            except (OSError, CheckpointError) as error:
                # Training may write or delete the files during the scan.
                reason = str(error)
            if reason is not None:
                self.waiting[step.path] = reason
        return list(self._complete.values())

    def find_loss(self, checkpoint: Path, fingerprint: str) -> Loss | None:
        """Return how a known checkpoint has changed until the last scan; None if no change is known."""
        if (complete := self._complete.get(checkpoint)) is not None:
            return None if complete.fingerprint == fingerprint else "replaced"
        if not _exists(checkpoint):
            return "deleted"
        if checkpoint in self._unclear:
            # Another checkpoint of the same step does not change it.
            return None
        return "incomplete" if self.waiting.get(checkpoint, UNSETTLED) not in (UNSETTLED, CHANGING) else None

    @property
    def refused(self) -> bool:
        """True if a checkpoint of the last scan will not become complete by waiting."""
        return any(reason not in (UNSETTLED, CHANGING, ABSENT.format(self.marker)) for reason in self.waiting.values())

    def read_loss(self, checkpoint: Path, fingerprint: str) -> Loss | None:
        """Read a known checkpoint, and return how it has changed until now; None if it is as it was."""
        try:
            now = fingerprint_of(checkpoint, option="DIR", options=self.options)
        except CheckpointError:
            return "incomplete" if _exists(checkpoint) else "deleted"
        return None if now == fingerprint else "replaced"

    def _check(self, step: Step) -> str | None:
        state = _state(step.path)
        last_state, self._states[step.path] = self._states.get(step.path), state
        if self.marker is not None and not (step.path / self.marker).exists():
            return ABSENT.format(self.marker)
        known_state, fingerprint = self._fingerprints.get(step.path, (None, ""))
        if known_state != state:
            if self.marker is None and last_state != state:
                return UNSETTLED
            fingerprint = fingerprint_of(step.path, option="DIR", options=self.options)
            if _state(step.path) != state:
                return CHANGING
            self._fingerprints[step.path] = (state, fingerprint)
        self._complete[step.path] = CompleteCheckpoint(step=step, fingerprint=fingerprint)
        return None


def _state(folder: Path) -> State:
    files = []
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            facts = path.stat()
            files.append((str(path), facts.st_size, facts.st_ctime_ns, facts.st_ino))
    return tuple(files)


def _exists(directory: Path) -> bool:
    """Return False if it is certain that there is no such directory; a file system that does not answer is no proof."""
    try:
        return stat.S_ISDIR(directory.stat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
