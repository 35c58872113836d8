"""Trains a linear model by a library of PyTorch, until FOLDER has a file `finish`.

    python library_training.py accelerate|trainer|lightning

The batch of a step, and with it each weight, follows from the step (`linear_model.py`): it does not
depend on the number of processes, if all of them train one model. Prints each world, and at the end
the steps and the weights.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import elasticjob
import torch  # type: ignore[import-not-found, unused-ignore]
import torch.distributed as dist  # type: ignore[import-not-found, unused-ignore]
from linear_model import BATCH, MOMENTUM, RATE, sample  # type: ignore[import-not-found, unused-ignore]

FOLDER = Path(os.environ["FOLDER"])
CHECKPOINTS = FOLDER / "checkpoints"
SAVED_EVERY = 20
PART = 1
"""Samples that a process of the Trainer trains at a time, so worlds of 1 to 4 divide a batch."""
MOST = 200_000


def any_rank(mine: bool) -> bool:
    """Return whether it is true in any process."""
    return all_ranks_sum(mine) > 0


def all_ranks_sum(mine: float) -> float:
    sums = torch.tensor([float(mine)])
    if dist.is_initialized():
        dist.all_reduce(sums)
    return float(sums)


def finished() -> bool:
    return any_rank((FOLDER / "finish").exists())


def begin(size: int, step: int) -> None:
    """Check that the world has the size that the library counts, by a sum of a one of each rank."""
    ranks = int(all_ranks_sum(1))
    assert ranks == size == elasticjob.world().size, (ranks, size, elasticjob.world())
    show("from step", step)


def show(event: str, step: int) -> None:
    world = elasticjob.world()
    if world.rank == 0:
        print(f"round {world.round} size {world.size} {event} {step}", flush=True)


def show_progress(step: int) -> None:
    if step % 5 == 0:
        show("step", step)


def show_end(step: int, model: Any, *, stopped: bool = False) -> None:
    if stopped:
        show("stopped after step", step)
    elif elasticjob.world().rank == 0:
        print(f"end: {step} steps, weights {model.weights()}", flush=True)


class Model(torch.nn.Module):  # type: ignore[misc, name-defined, unused-ignore]
    """Two weights, which begin at zero."""

    def __init__(self) -> None:
        super().__init__()
        self.line = torch.nn.Linear(1, 1, dtype=torch.float64)
        with torch.no_grad():
            for weight in self.parameters():
                weight.zero_()

    def forward(self, x: Any, labels: Any) -> dict[str, Any]:
        return {"loss": ((self.line(x) - labels) ** 2).mean()}

    def weights(self) -> list[float]:
        return [self.line.weight.item(), self.line.bias.item()]

    def optimizer(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=RATE, momentum=MOMENTUM)


class Samples(torch.utils.data.Dataset):  # type: ignore[misc, name-defined, unused-ignore]
    """The samples in their order."""

    def __len__(self) -> int:
        return int(MOST * BATCH)

    def __getitem__(self, number: int) -> dict[str, Any]:
        x, y = sample(number)
        return {"x": as_tensor([x]), "labels": as_tensor([y])}


def as_tensor(values: Any) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def accelerate() -> None:
    from accelerate import Accelerator  # type: ignore[import-not-found, unused-ignore]

    accelerator = Accelerator()
    rank = accelerator.process_index
    size = accelerator.num_processes
    plain = Model()
    model, optimizer = accelerator.prepare(plain, plain.optimizer())
    checkpointer = elasticjob.Checkpointer(CHECKPOINTS, any_rank=any_rank)
    step = 0
    if checkpointer.found:
        accelerator.load_state(f"{checkpointer.found}/accelerate")
        step = json.loads(Path(checkpointer.found, "step").read_text())
    begin(size, step)

    def save(folder: str) -> None:
        accelerator.save_state(f"{folder}/accelerate")
        if accelerator.is_main_process:
            Path(folder, "step").write_text(json.dumps(step))

    while not finished():
        numbers = range(step * BATCH + rank, (step + 1) * BATCH, size)
        x, y = as_tensor([sample(number) for number in numbers]).to(accelerator.device).T
        accelerator.backward(model(x[:, None], y[:, None])["loss"])
        optimizer.step()
        optimizer.zero_grad()
        step += 1
        show_progress(step)
        try:
            checkpointer.step(step, save, due=step % SAVED_EVERY == 0)
        except SystemExit:
            show("stopped after step", step)
            raise
    checkpointer.finish(step, save)
    show_end(step, plain)


def trainer() -> None:
    import transformers  # type: ignore[import-not-found, unused-ignore]
    from elasticjob.hf import ElasticJob

    class Finish(transformers.TrainerCallback):  # type: ignore[misc, unused-ignore]
        def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            begin(args.world_size, state.global_step)

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            control.should_training_stop = control.should_training_stop or finished()
            show_progress(state.global_step)

    size = elasticjob.world().size
    arguments = transformers.TrainingArguments(
        str(CHECKPOINTS), max_steps=MOST, train_sampling_strategy="sequential", max_grad_norm=0,
        per_device_train_batch_size=PART, gradient_accumulation_steps=BATCH // PART // size,
        save_steps=SAVED_EVERY, save_total_limit=3, report_to=[], disable_tqdm=True,
    )  # fmt: skip
    model = Model()
    optimizer = model.optimizer()
    constant = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda _: 1.0)
    callback = ElasticJob()
    found = [path.parent for path in CHECKPOINTS.glob("checkpoint-*/trainer_state.json")]
    newest = max(found, key=lambda path: int(path.name.partition("-")[2]), default=None)
    training = transformers.Trainer(
        model, arguments, train_dataset=Samples(), optimizers=(optimizer, constant),
        callbacks=[callback, Finish()],
    )  # fmt: skip
    training.train(resume_from_checkpoint=newest and str(newest))
    show_end(training.state.global_step, model, stopped=callback.stopped)


def lightning() -> None:
    import lightning.pytorch as pl  # type: ignore[import-not-found, unused-ignore]
    from elasticjob.lightning import ElasticJob

    class Module(pl.LightningModule):  # type: ignore[misc, unused-ignore]
        def __init__(self) -> None:
            super().__init__()
            self.model = Model()

        def training_step(self, batch: Any, _number: int) -> Any:
            return self.model(**batch)["loss"]

        def configure_optimizers(self) -> Any:
            return self.model.optimizer()

        def on_train_start(self) -> None:
            begin(self.trainer.world_size, self.trainer.global_step)

        def on_train_batch_end(self, *_: Any) -> None:
            self.trainer.should_stop = self.trainer.should_stop or finished()
            show_progress(self.trainer.global_step)

    world = elasticjob.world()
    mine = CHECKPOINTS / f"round-{world.round:08}"
    mine.mkdir(parents=True, exist_ok=True)
    found = CHECKPOINTS.glob("round-*/*.ckpt")
    newest = max(found, key=lambda path: (path.parent.name, path.stat().st_mtime), default=None)
    callback = ElasticJob(mine / "stop.ckpt")
    due = pl.callbacks.ModelCheckpoint(
        mine, "{step}", every_n_train_steps=SAVED_EVERY, monitor="step", mode="max"
    )
    training = pl.Trainer(
        accelerator="cpu", devices=world.local_size, num_nodes=world.size // world.local_size,
        max_steps=MOST, callbacks=[callback, due], logger=False, use_distributed_sampler=False,
        enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    module = Module()
    # Lightning's own sampler shuffles, also where the loader does not.
    mine_in_order = torch.utils.data.DistributedSampler(
        Samples(), world.size, world.rank, shuffle=False
    )
    loader = torch.utils.data.DataLoader(
        Samples(), batch_size=BATCH // world.size, sampler=mine_in_order
    )
    training.fit(module, loader, ckpt_path=newest, weights_only=False)
    show_end(training.global_step, module.model, stopped=callback.stopped)


if __name__ == "__main__":
    {"accelerate": accelerate, "trainer": trainer, "lightning": lightning}[sys.argv[1]]()
