"""The callbacks write no checkpoint without permission; each framework is replaced by a fake."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from tests.support.fake_agent import fake_agent


def callbacks(name: str, monkeypatch: pytest.MonkeyPatch, **frameworks: dict[str, Any]) -> Any:
    """Import a module of callbacks on stand-ins for its frameworks."""
    for path, content in frameworks.items():
        module = ModuleType(path.replace("_", "."))
        module.__dict__.update(content)
        monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.delitem(sys.modules, f"elasticjob.{name}", raising=False)
    module = importlib.import_module(f"elasticjob.{name}")
    monkeypatch.setitem(sys.modules, f"elasticjob.{name}", module)  # gone after the test
    return module


@pytest.mark.parametrize("may", [True, False])
@pytest.mark.parametrize("stop", [True, False])
def test_hugging_face_skips_every_checkpoint_that_may_not_be_written(
    may: bool, stop: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = {"distributed": SimpleNamespace(is_available=lambda: False), "Tensor": object}
    callback = callbacks(
        "hf", monkeypatch, torch=torch, transformers={"TrainerCallback": object}
    ).ElasticJob()
    args = SimpleNamespace(train_batch_size=1, gradient_accumulation_steps=1, device="cpu")
    state = SimpleNamespace(global_step=5, max_steps=10)
    control = SimpleNamespace(should_save=True, should_training_stop=False, should_evaluate=True)
    with fake_agent(tmp_path, monkeypatch, may_commit=may) as agent:
        monkeypatch.setattr(f"{callback.__module__}.should_stop_together", lambda: stop)
        callback.on_step_end(args, state, control)
        assert (control.should_save, control.should_training_stop) == (may, stop)
        control.should_save = True
        callback.on_evaluate(args, state, control)
        assert control.should_save is may
        if stop and not may:
            agent.wait(lambda fake: {"stopping": True} in fake.messages)


@pytest.mark.parametrize("answers", [[True, True], [True, False], [False]])
def test_lightning_replaces_the_last_checkpoint_only_with_one_that_may_be_written(
    answers: list[bool], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = callbacks(
        "lightning", monkeypatch, lightning={}, lightning_pytorch={"Callback": object}
    )
    path = tmp_path / "model.ckpt"
    asked = iter(answers)
    path.write_text("last")
    trainer = SimpleNamespace(
        global_step=5,
        callback_metrics={},
        world_size=1,
        strategy=SimpleNamespace(reduce_boolean_decision=lambda own, **_how: own),
        fit_loop=SimpleNamespace(epoch_loop=SimpleNamespace()),
        save_checkpoint=lambda name: Path(name).write_text("new"),
        is_global_zero=True,
    )
    monkeypatch.setattr(module, "should_stop_together", lambda: True)
    monkeypatch.setattr(module, "may_commit", lambda: next(asked))
    with fake_agent(tmp_path, monkeypatch) as agent:
        module.ElasticJob(path).on_train_batch_end(trainer, None, None, None, 0)
        agent.wait(lambda fake: {"stopping": True} in fake.messages)
    assert path.read_text() == ("new" if all(answers) else "last")
    assert next(asked, None) is None


@pytest.mark.guarantee("ranks-stop-together")
@pytest.mark.parametrize("size", [2, 3])
def test_callbacks_reduce_only_where_other_processes_train_than_those_of_the_world(
    size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here the world has two processes and the training `size`; `reduced`: the all-reduces."""
    monkeypatch.setenv("ELASTICJOB_WORLD_SIZE", "2")
    reduced: list[str] = []
    torch = {
        "distributed": SimpleNamespace(
            is_available=lambda: True,
            is_initialized=lambda: True,
            get_world_size=lambda: size,
            all_reduce=lambda flag, op: reduced.append("hf"),
            ReduceOp=SimpleNamespace(MAX=None),
        ),
        "Tensor": object,
        "tensor": lambda flag, device: SimpleNamespace(item=lambda: flag),
    }
    hf = callbacks("hf", monkeypatch, torch=torch, transformers={"TrainerCallback": object})
    lightning = callbacks(
        "lightning", monkeypatch, lightning={}, lightning_pytorch={"Callback": object}
    )
    for module in (hf, lightning):
        monkeypatch.setattr(module, "can_stop_together", lambda: True)
        monkeypatch.setattr(module, "should_stop_together", lambda: True)

    def reduce_boolean_decision(own: bool, **_how: bool) -> bool:
        reduced.append("lightning")
        return own

    trainer = SimpleNamespace(
        world_size=size, strategy=SimpleNamespace(reduce_boolean_decision=reduce_boolean_decision)
    )
    stops = [hf._stop_requested("cpu"), lightning._stop_requested(trainer)]
    assert stops == [size == 2] * 2
    assert reduced == ([] if size == 2 else ["hf", "lightning"])
