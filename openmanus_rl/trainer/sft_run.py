"""`openmanus-rl sft`: a model fine-tuned on conversations, in a run directory of its own."""

from collections.abc import Sequence
from pathlib import Path

import torch
from transformers import PreTrainedModel

from openmanus_rl.config.schema import RunConfig
from openmanus_rl.files import written_aside
from openmanus_rl.models import lora
from openmanus_rl.models.load import load_causal_lm, load_tokenizer, save_model
from openmanus_rl.tracking.console import RunConsole, StepReport
from openmanus_rl.tracking.metrics import MetricsLog
from openmanus_rl.trainer.agents import make_renderer
from openmanus_rl.trainer.examples import Example, conversation_example
from openmanus_rl.trainer.inputs import prepare_base, prepare_demonstrations
from openmanus_rl.trainer.sft import FineTuning, fitting, split
from openmanus_rl.trainer.side_run import MODEL, side_run

BASE = "initial_model"
"""The model that fine-tuning started from; adapters name it as the model they belong to."""
DEMONSTRATIONS = "demonstrations.parquet"
STATE = "state.pt"
"""What a stopped run goes on from, written after each epoch."""


def run_sft(config: RunConfig, output: Path) -> Path:
    """Fine-tune the config's model on its conversations; the directory of what came of it."""
    torch.set_num_threads(config.trainer.threads)
    torch.manual_seed(config.trainer.seed)
    with side_run("sft", output, config) as run, RunConsole(config.warm_start.epochs) as console:
        demonstrations = prepare_demonstrations(config, run.path / DEMONSTRATIONS, console.note)
        prepare_base(config, demonstrations, run.path / BASE, console.note)
        renderer = make_renderer(config, load_tokenizer(run.path / BASE))
        examples = [conversation_example(each, renderer) for each in demonstrations]
        kept = fitting(examples, config.model.max_context, console.note)
        summary = fine_tune_in(run.path, config, run.path / BASE, kept, console)
        run.write_summary(
            {"model": str(run.path / MODEL), "conversations": len(kept), "seed": config.trainer.seed, **summary}
        )
        console.note(f"model: {run.path / MODEL}")
    return output / MODEL


def fine_tune_in(
    directory: Path, config: RunConfig, base: Path, examples: Sequence[Example], console: RunConsole
) -> dict[str, float | int | None]:
    """Fine-tune `base` into `directory`, with its metrics, going on from the last whole epoch there; a summary."""
    directory.mkdir(parents=True, exist_ok=True)
    model = load_causal_lm(base)
    has_adapters = config.model.lora.rank > 0
    if has_adapters:
        lora.add_adapters(model, config.model.lora, config.trainer.seed)
    train, held_out = split(examples, config.warm_start.validation_share, config.trainer.seed)
    tuning = FineTuning(
        model,
        train,
        held_out,
        config.warm_start,
        micro_batch_tokens=config.actor.micro_batch_tokens,
        seed=config.trainer.seed,
    )
    state = directory / STATE
    if state.exists():
        tuning.load_state_dict(torch.load(state, weights_only=True))
        console.note(f"resumed after epoch {tuning.epoch} of {config.warm_start.epochs}")
    _run_epochs(tuning, directory, console)
    tuning.take_best()
    save_tuned(model, base, directory / MODEL)
    state.unlink(missing_ok=True)
    return {"epochs": tuning.epoch, "validation_loss": tuning.best_loss}


def save_tuned(model: PreTrainedModel, base: Path, directory: Path) -> None:
    """Write a model that was trained from `base`: its adapters, if it has any, else all of it."""
    tokenizer = load_tokenizer(base)
    adapters = lora.named_for_files(model.state_dict())
    if adapters:
        lora.save_adapters(model, adapters, str(base), tokenizer, directory)
    else:
        save_model(model, tokenizer, directory)


def _run_epochs(tuning: FineTuning, directory: Path, console: RunConsole) -> None:
    log = MetricsLog(directory / "metrics.jsonl")
    done = sum(len(batches) for batches in tuning.order[: tuning.epoch])
    log.truncate_after(done)
    console.begin_training(done, tuning.steps)
    pending: tuple[int, dict[str, float]] | None = None

    def on_step(step: int, steps: int, metrics: dict[str, float]) -> None:
        nonlocal pending
        if pending is not None:
            log.append(*pending)
        pending = step, metrics
        console.step(StepReport(step, loss=metrics["train/loss"]))

    while tuning.is_due:
        loss = tuning.run_epoch(on_step)
        if pending is not None:
            step, metrics = pending
            log.append(step, metrics if loss is None else {**metrics, "val/loss": loss})
            pending = None
        if loss is not None:
            console.note(f"epoch {tuning.epoch}: validation loss {loss:.4f}")
        with written_aside(directory / STATE) as aside:
            torch.save(tuning.state_dict(), aside)
    console.end_training()
    log.close()
