"""Tests the callbacks in the real frameworks.

`test_library_callbacks` runs each test in its own interpreter.
"""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from elasticjob import _agent_connection

from tests.support.fake_agent import FakeAgent, fake_agent

# Read when keras is imported; the others are not installed.
os.environ.setdefault("KERAS_BACKEND", "jax")
STOP_AT = 7
BATCH = 4
SAMPLES = 40 * BATCH

# Those frameworks warn about themselves and about each other.
pytestmark = pytest.mark.filterwarnings("default")


@pytest.fixture
def _report_every_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_agent_connection, "REPORT_SECONDS", 0.0)


def check_stop(agent: FakeAgent) -> int:
    """Return the last step after which the process has confirmed the stop."""
    agent.wait(lambda fake: {"stopping": True} in fake.messages)
    assert {"stoppable": True} in agent.messages
    last: int = agent.reports[-1]["step"]
    assert STOP_AT <= last < 40, "it continued to the end"
    return last


@pytest.mark.usefixtures("_report_every_step")
def test_keras_stops_during_an_epoch_and_continues_from_its_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keras = pytest.importorskip("keras")
    import numpy as np
    from elasticjob.keras import ElasticJob

    path = tmp_path / "model.keras"
    x = np.zeros((SAMPLES, 3), "float32")
    y = np.zeros((SAMPLES, 1), "float32")
    slow = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: time.sleep(0.01))

    def train(model: Any) -> Any:
        callback = ElasticJob(save=lambda step: model.save(path), samples=BATCH)
        model.fit(
            x, y, batch_size=BATCH, epochs=1, shuffle=False, verbose=0, callbacks=[slow, callback]
        )
        return callback

    model = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(1)])
    model.compile("adam", "mse")
    with fake_agent(tmp_path, monkeypatch, stop_at=STOP_AT) as agent:
        assert train(model).stopped
        last = check_stop(agent)
        assert agent.sum("samples") == last * BATCH
        assert agent.reports[-1]["total"] == 40
        assert "loss" in agent.reports[-1]["metrics"]
    restored = keras.models.load_model(path)
    assert int(restored.optimizer.iterations) == last
    (tmp_path / "agent.sock").unlink()
    with fake_agent(tmp_path, monkeypatch) as agent:
        assert not train(restored).stopped
        agent.wait(lambda fake: fake.reports and fake.reports[-1]["step"] == last + 40)
        assert {"stopping": True} not in agent.messages


def test_keras_with_several_processes_requires_an_agreement(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("keras")
    from elasticjob.keras import ElasticJob

    monkeypatch.setenv("ELASTICJOB_WORLD_SIZE", "2")
    with pytest.raises(ValueError, match="agree is not given: 2 processes"):
        ElasticJob(save=lambda step: None)


@pytest.mark.usefixtures("_report_every_step")
def test_a_hugging_face_trainer_saves_stops_and_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    from elasticjob.hf import ElasticJob

    class Model(torch.nn.Module):  # type: ignore[misc, name-defined, unused-ignore]
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(3, 1)

        def forward(self, x: Any, labels: Any = None) -> Any:
            time.sleep(0.01)
            return {"loss": ((self.layer(x) - labels) ** 2).mean()}

    data = [{"x": torch.zeros(3), "labels": torch.zeros(1)} for _ in range(SAMPLES)]
    arguments = transformers.TrainingArguments(
        str(tmp_path / "run"), per_device_train_batch_size=BATCH, num_train_epochs=1, report_to=[],
        use_cpu=True,
        logging_steps=2, disable_tqdm=True,
    )  # fmt: skip

    def train(resume: bool) -> Any:
        callback = ElasticJob()
        trainer = transformers.Trainer(Model(), arguments, train_dataset=data, callbacks=[callback])
        trainer.train(resume_from_checkpoint=resume)
        return callback, trainer.state.global_step

    with fake_agent(tmp_path, monkeypatch, stop_at=STOP_AT) as agent:
        callback, step = train(resume=False)
        assert callback.stopped
        assert check_stop(agent) == step
        assert agent.sum("samples") == step * BATCH
        assert any("loss" in report["metrics"] for report in agent.reports)
    assert (tmp_path / "run" / f"checkpoint-{step}").is_dir()
    (tmp_path / "agent.sock").unlink()
    with fake_agent(tmp_path, monkeypatch) as agent:
        callback, end = train(resume=True)
        assert (callback.stopped, end) == (False, 40)
        agent.wait(lambda fake: fake.reports and fake.reports[-1]["step"] == 40)
        assert agent.sum("samples") == (40 - step) * BATCH
        assert agent.reports[-1]["total"] == 40


@pytest.mark.parametrize("reads_count", [True, False])
@pytest.mark.parametrize("declared", [True, False])
def test_hugging_face_refuses_a_loss_that_would_grow_with_the_world(
    reads_count: bool, declared: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers", minversion="5")
    from elasticjob.hf import ElasticJob

    class Model(torch.nn.Linear):  # type: ignore[misc, name-defined, unused-ignore]
        def forward(self, x: Any, labels: Any, **more: Any) -> Any:
            squares = (super().forward(x) - labels) ** 2
            return {
                "loss": squares.sum() / more["num_items_in_batch"]
                if reads_count
                else squares.mean()
            }

    model = Model(3, 1)
    if declared:
        model.accepts_loss_kwargs = reads_count
    data = [{"x": torch.zeros(3), "labels": torch.zeros(1)} for _ in range(2 * BATCH)]
    arguments = transformers.TrainingArguments(
        str(tmp_path), max_steps=2, report_to=[], use_cpu=True, save_strategy="no"
    )
    with fake_agent(tmp_path, monkeypatch):
        trainer = transformers.Trainer(
            model, arguments, train_dataset=data, callbacks=[ElasticJob()]
        )
        if reads_count or declared:
            assert trainer.train().global_step == 2
        else:
            with pytest.raises(RuntimeError, match=r"set model\.accepts_loss_kwargs"):
                trainer.train()


def test_lightning_trains_the_rest_of_an_epoch_after_a_checkpoint_in_it(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    lightning = pytest.importorskip("lightning.pytorch")
    from elasticjob.lightning import ElasticJob

    numbers: list[int] = []

    class Model(lightning.LightningModule):  # type: ignore[misc, name-defined, unused-ignore]
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(1, 1)

        def training_step(self, batch: Any, index: int) -> Any:
            numbers.append(int(batch))
            return self.layer(batch).sum()

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    def train(steps: int, resume_from: Path | None = None) -> list[int]:
        numbers.clear()
        trainer = lightning.Trainer(
            default_root_dir=tmp_path, accelerator="cpu", max_steps=steps, logger=False,
            enable_progress_bar=False, enable_model_summary=False,
            callbacks=[
                ElasticJob(tmp_path / "stop.ckpt"),
                lightning.callbacks.ModelCheckpoint(
                    tmp_path, "{step}", every_n_train_steps=1, save_top_k=-1
                ),
            ],
        )  # fmt: skip
        loader = torch.utils.data.DataLoader(torch.arange(8.0)[:, None], batch_size=1)
        trainer.fit(Model(), loader, ckpt_path=resume_from, weights_only=False)
        return list(numbers)

    assert train(10) == [0, 1, 2, 3, 4, 5, 6, 7, 0, 1]
    for step in (1, 5, 9):
        rest = [number % 8 for number in range(step, 12)]
        assert train(12, tmp_path / f"step={step}.ckpt") == rest


@pytest.mark.usefixtures("_report_every_step")
def test_lightning_saves_and_stops_despite_min_epochs_and_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = pytest.importorskip("torch")
    lightning = pytest.importorskip("lightning.pytorch")
    from elasticjob.lightning import ElasticJob

    class Model(lightning.LightningModule):  # type: ignore[misc, name-defined, unused-ignore]
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(3, 1)

        def training_step(self, batch: Any, index: int) -> Any:
            time.sleep(0.01)
            loss = (self.layer(batch) ** 2).mean()
            self.log("loss", loss)
            return loss

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    loader = torch.utils.data.DataLoader(torch.zeros(SAMPLES, 3), batch_size=BATCH)
    checkpoint = tmp_path / "stop.ckpt"

    def train(resume_from: Path | None) -> Any:
        callback = ElasticJob(checkpoint, samples=BATCH)
        trainer = lightning.Trainer(
            default_root_dir=tmp_path, accelerator="cpu", max_epochs=2, min_epochs=2, logger=False,
            enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
            callbacks=[callback],
        )  # fmt: skip
        trainer.fit(Model(), loader, ckpt_path=resume_from)
        return callback, trainer.global_step

    with fake_agent(tmp_path, monkeypatch, stop_at=STOP_AT) as agent:
        callback, step = train(None)
        assert callback.stopped
        assert check_stop(agent) == step
        assert agent.sum("samples") == step * BATCH
        assert "loss" in agent.reports[-1]["metrics"]
    assert checkpoint.is_file()
    (tmp_path / "agent.sock").unlink()
    with fake_agent(tmp_path, monkeypatch) as agent:
        callback, end = train(checkpoint)
        assert (callback.stopped, end) == (False, 80)
        agent.wait(lambda fake: fake.reports and fake.reports[-1]["step"] == 80)
        assert agent.sum("samples") == (80 - step) * BATCH
        assert agent.reports[-1]["total"] == 80


def test_the_lines_of_the_docs_restore_the_moments_of_adam(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    dcp = pytest.importorskip("torch.distributed.checkpoint")
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

    def made() -> tuple[Any, Any]:
        model = torch.nn.Linear(3, 1)
        return model, torch.optim.Adam(model.parameters())

    trained, its_optimizer = made()
    trained(torch.ones(1, 3)).sum().backward()
    its_optimizer.step()
    model_state, optimizer_state = get_state_dict(trained, its_optimizer)
    dcp.save({"model": model_state, "optimizer": optimizer_state}, checkpoint_id=tmp_path)
    page = Path(__file__).parents[2] / "docs" / "frameworks" / "pytorch.md"
    (lines,) = re.findall(r"```python\n(model_state, .*?)```", page.read_text(), re.DOTALL)
    model, optimizer = made()
    names = {"dcp": dcp, "get_state_dict": get_state_dict, "set_state_dict": set_state_dict}
    names |= {"model": model, "optimizer": optimizer}
    exec(lines, names | {"checkpointer": SimpleNamespace(found=tmp_path)})
    torch.testing.assert_close(optimizer.state_dict()["state"], its_optimizer.state_dict()["state"])
    torch.testing.assert_close(model.state_dict(), trained.state_dict())
