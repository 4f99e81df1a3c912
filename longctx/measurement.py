"""One measurement in this process: the run that options describe, its worker, and the evaluation.

The model is a checkpoint, or a model of transformers that is in memory.
"""

import hashlib
import json
import time
from argparse import Namespace
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec

from longctx.ci.run_file import RunFile, RunFileError, run_options
from longctx.fixtures.checkpoints.checkpoint import Checkpoint, claimed_length
from longctx.fixtures.engines import Engine, EngineError, execution_settings
from longctx.fixtures.engines.hf.settings import HfSettings
from longctx.fixtures.installation import SUITE
from longctx.fixtures.records import Case
from longctx.plugins.config.invocation import Invocation
from longctx.plugins.config.materials import Materials
from longctx.plugins.config.models import load_formatter
from longctx.plugins.config.options import NOT_TAKEN, RUN_OPTIONS, Caller, run_parser
from longctx.plugins.config.resolve import check_values, describe_run, prepare
from longctx.plugins.config.run import Run
from longctx.plugins.journal import Heartbeat, Journal, JournalError
from longctx.plugins.report.document import RunSummary, document
from longctx.plugins.report.texts import sample_lines
from longctx.plugins.runner.results import CaseReport, Controller, fails, journal_subject
from longctx.plugins.runner.samples import SampleBuilder
from longctx.plugins.runner.start_worker import open_engine
from longctx.plugins.runner.worker import ModelUnderTest, Worker

# Of every weight, evenly spaced; training changes all of them.
SAMPLED_ELEMENTS = 4096


def measure_model(
    model: Any, tokenizer: Any, *, name: str, tasks: Collection[str] | None, options: Mapping[str, Any]
) -> dict[str, Any]:
    """Measure the cases of the tasks, or all that the options select, and return the fields of `longctx.Report`."""
    started, clock = datetime.now(UTC).isoformat(timespec="seconds"), time.monotonic()
    with ExitStack() as stack:
        run, materials = _prepared(model, tokenizer, name, tasks, options, stack)
        controller = Controller(run)
        controller.selected = _of_tasks(run, tasks)
        settings = run.engine_settings("model")
        engine = partial(open_engine, run, run.checkpoint, settings)
        if not isinstance(model, str | Path):
            engine = partial(_engine_in_memory, run, model, tokenizer)
            stack.callback(model.train, model.training)
            model.eval()
        controller.reports = _measure(run, materials, controller.selected, engine)
        evaluation = controller.evaluate()
        summary = RunSummary(
            run=run,
            evaluation=evaluation,
            facts=controller.facts,
            execution=execution_settings(run.checkpoint, settings),
            baseline_execution=(controller.executions or {}).get("baseline"),
            computed_samples=controller.computed_samples,
            started=started,
            seconds=time.monotonic() - clock,
        )
        samples = tuple(json.loads(line) for line in sample_lines(summary))
        data = json.loads(json.dumps(msgspec.to_builtins(document(summary))))
        return {"document": data, "samples": samples, "passed": not fails(run, evaluation)}


def check_measurement(
    model: Any, tokenizer: Any, *, name: str, tasks: Collection[str] | None, options: Mapping[str, Any]
) -> None:
    """Raise what `measure_model` would raise, and ValueError for a case that does not fit; run no model."""
    with ExitStack() as stack:
        run, _ = _prepared(model, tokenizer, name, tasks, options, stack)
        misfits = [run.misfits[case.id] for case in _of_tasks(run, tasks) if case.id in run.misfits]
        if misfits:
            raise ValueError(misfits[0])


def _prepared(
    model: Any, tokenizer: Any, name: str, tasks: Collection[str] | None, options: Mapping[str, Any], stack: ExitStack
) -> tuple[Run, Materials]:
    """Return the run of a measurement and what its samples are made from; `stack` removes its files."""
    in_memory = not isinstance(model, str | Path)
    arguments = _arguments(name if in_memory else str(model), options, in_memory=in_memory)
    if not in_memory and tokenizer is not None:
        raise TypeError("tokenizer: the checkpoint has its own; leave it out, or give a model in memory")
    scratch = Path(stack.enter_context(TemporaryDirectory(prefix="longctx-")))
    invocation = Invocation(
        arguments=arguments,
        root=SUITE,
        directory=Path.cwd(),
        local_workers=None,
        is_narrowed=tasks is not None,
        add_cleanup=stack.callback,
    )
    checkpoint, loaded = None, None
    if in_memory:
        checkpoint, loaded = _save_description(model, tokenizer, scratch / "model", name=name), _as_loaded(model)
        arguments.journal = arguments.journal or str(scratch / "journal")
    check_values(arguments)
    run, materials = describe_run(invocation, checkpoint, loaded)
    missing = sorted(set(tasks or ()) - {case.task for case in run.available})
    if missing:
        raise ValueError(f"task_names: no case of {missing[0]!r} in this run; longctx tasks lists all")
    return prepare(run, materials, invocation), materials


def _of_tasks(run: Run, tasks: Collection[str] | None) -> tuple[Case, ...]:
    return tuple(case for case in run.available if tasks is None or case.task in tasks)


def _measure(
    run: Run, materials: Materials, selected: Sequence[Case], engine: Callable[[], Engine]
) -> dict[str, CaseReport]:
    directory = Path(run.options.journal)
    journal = Journal(directory, journal_subject(run), Heartbeat(directory, run.id), run=run.id)
    worker = Worker(
        run,
        selected,
        builder=SampleBuilder(
            tasks=materials.tasks,
            load_formatters=lambda: (load_formatter(run.options, run.options.model_path), None),
            corpora=materials.corpora,
            seed=run.options.seed,
        ),
        models={"model": ModelUnderTest(journal=journal, engine=engine)},
    )
    reports = {}
    try:
        for case in sorted(selected, key=lambda case: case.length):
            try:
                misfit = run.misfits.get(case.id)
                reports[case.id] = worker.measure(case) if misfit is None else CaseReport(error=misfit)
            except (EngineError, JournalError) as error:
                reports[case.id] = CaseReport(error=str(error))
    finally:
        worker.close()
    return reports


def _engine_in_memory(run: Run, model: Any, tokenizer: Any) -> Engine:
    from longctx.fixtures.engines.hf.engine import HfEngine
    from longctx.fixtures.engines.hf.loading import Loaded

    settings, described = run.engine_settings("model"), _as_loaded(model)
    assert isinstance(settings, HfSettings)
    loaded = Loaded(model=model, device=model.device, dtype=described["dtype"], attention=described["attention"])
    return HfEngine(loaded, run.checkpoint, tokenizer=tokenizer, settings=settings)


def _arguments(model: str, options: Mapping[str, Any], *, in_memory: bool) -> Namespace:
    """Return the options as pytest would parse them; raise TypeError for one that is unknown or has no meaning here."""
    given = {name.replace("_", "-"): value for name, value in options.items() if value is not None}
    # Reports have keys of their own in a file.
    by_key = {option.name if option.is_report else option.file_key: option for option in RUN_OPTIONS.values()}
    caller: Caller = "in memory" if in_memory else "measure"
    for name in sorted(given.keys() & by_key.keys()):
        if instead := by_key[name].instead(caller):
            raise TypeError(f"{name}: {NOT_TAKEN[caller]}; {instead}")
    try:
        words = run_options(RunFile(path=Path.cwd() / "longctx.measure", tables={"": given}))
    except RunFileError as error:
        raise TypeError(str(error).partition(": ")[2]) from None
    parsed = run_parser("longctx.measure").parse_args(words)
    parsed.model, parsed.collectonly = model, False
    if parsed.engine == "auto":
        # vLLM would take the memory of the process that calls.
        parsed.engine = "hf"
    return parsed


def _save_description(model: Any, tokenizer: Any, folder: Path, *, name: str) -> Checkpoint:
    """Save config and tokenizer of a model, and return its checkpoint record; raise TypeError for any other object."""
    if not hasattr(model, "config") or not hasattr(model, "generate"):
        raise TypeError(f"model: {type(model).__name__} is no causal language model of transformers, and no path")
    if not hasattr(tokenizer, "save_pretrained"):
        raise TypeError("tokenizer: a model in memory needs its tokenizer, as AutoTokenizer returns it")
    folder.mkdir()
    model.config.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    # A hash of config, tokenizer and a sample of every weight.
    digest = hashlib.blake2b(digest_size=16)
    for file in sorted(folder.iterdir()):
        digest.update(f"{file.name}\n".encode() + file.read_bytes())
    for weight_name, weight in model.named_parameters():
        flat = weight.detach().flatten()
        sample = flat[:: max(1, flat.numel() // SAMPLED_ELEMENTS)].float().cpu()
        digest.update(f"{weight_name} {[*weight.shape]}\n".encode() + sample.numpy().tobytes())
    weights = list(model.parameters())
    config = model.config.to_dict()
    return Checkpoint(
        name=name,
        path=str(folder),
        architecture=type(model).__name__,
        model_type=str(config.get("model_type", "unknown")),
        claimed_length=claimed_length(config),
        dtype=str(model.dtype).removeprefix("torch."),
        parameters=sum(weight.numel() for weight in weights),
        weight_bytes=sum(weight.numel() * weight.element_size() for weight in weights),
        fingerprint=digest.hexdigest(),
        config=config,
        calibration=None,
    )


def _as_loaded(model: Any) -> dict[str, str]:
    attention = getattr(model.config.get_text_config(decoder=True), "_attn_implementation", None)
    dtype = str(model.dtype).removeprefix("torch.")
    return {"device": str(model.device), "dtype": dtype, "attention": attention or "auto"}
