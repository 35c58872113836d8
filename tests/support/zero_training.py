"""Trains as launched_training.py, and a small model with DeepSpeed's ZeRO, of stage STAGE.

At the end it has the weights of a single process that has trained the same batches undisturbed.
DeepSpeed's own checkpoints are for worlds of one size. So each world converts the one at which it
begins to DeepSpeed's universal form, which a world of any size reads.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import deepspeed  # type: ignore[import-not-found, unused-ignore]
import elasticjob
import launched_training  # type: ignore[import-not-found, unused-ignore]
import torch  # type: ignore[import-not-found, unused-ignore]
import torch.distributed as dist  # type: ignore[import-not-found, unused-ignore]
from deepspeed import utils  # type: ignore[import-not-found, unused-ignore]

# On CPUs DeepSpeed would compile this extension at the start of the first program.
deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
CONVERTER = (sys.executable, "-m", "deepspeed.checkpoint.ds_to_universal", "--inject_missing_state")


def network_and_optimizer() -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    """Return both as they are before the first step."""
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.Tanh(), torch.nn.Linear(7, 1))
    return network, torch.optim.Adam(network.parameters(), lr=0.01)


def error(network: torch.nn.Module, numbers: Sequence[int]) -> torch.Tensor:
    """Return the sum of the squared errors of samples."""
    inputs = torch.sin(torch.tensor(numbers).reshape(-1, 1) * torch.arange(1.0, 6.0))
    return (network(inputs) - inputs.sum(dim=1, keepdim=True)).square().sum()


class Model:
    """A model of which each rank has a part of the optimizer. All ranks call each method."""

    def __init__(self, found: str | None) -> None:
        """Make it, or read it from a checkpoint of any number of ranks."""
        network, optimizer = network_and_optimizer()
        config = {
            "train_micro_batch_size_per_gpu": 1,
            "zero_optimization": {"stage": int(os.environ["STAGE"])},
            "gradient_clipping": 0.0,  # its default clips to a norm of 1
            "checkpoint": {"load_universal": found is not None},
        }
        self._engine, *_ = deepspeed.initialize(model=network, optimizer=optimizer, config=config)
        if found:
            self._restore(Path(found, "zero"))
        self._moments: tuple[str, ...] = ("exp_avg", "exp_avg_sq") if found else ()

    def _restore(self, found: Path) -> None:
        universal = launched_training.FOLDER / f"universal-{elasticjob.world().round}"
        if dist.get_rank() == 0:
            folders = (f"--input_folder={found}", f"--output_folder={universal}/zero")
            subprocess.run([*CONVERTER, *folders], check=True)
        dist.barrier()
        self._engine.load_checkpoint(str(universal), tag="zero")
        dist.barrier()
        if dist.get_rank() == 0:
            shutil.rmtree(universal)

    def save(self, folder: str) -> None:
        """Write this rank's part."""
        self._engine.save_checkpoint(folder, tag="zero")

    def train(self, numbers: Sequence[int], batch: int) -> None:
        """Train this rank's part of a batch."""
        # ZeRO averages over the ranks.
        self._engine.backward(error(self._engine, numbers) * dist.get_world_size() / batch)
        self._engine.step()
        self._moments = ("exp_avg", "exp_avg_sq")

    def check(self, steps: int, batch: int) -> None:
        """Compare the weights with those of a single process after the same steps."""
        network, optimizer = network_and_optimizer()
        for step in range(steps):
            optimizer.zero_grad()
            (error(network, range(step * batch, (step + 1) * batch)) / batch).backward()
            optimizer.step()
        for mine, alone in zip(self._engine.module.parameters(), network.parameters(), strict=True):
            torch.testing.assert_close(mine, alone, rtol=1e-5, atol=1e-5)

    def digest(self) -> str:
        """Return a digest of model and optimizer, which the number of ranks does not change."""
        adam = self._engine.optimizer.optimizer.state.values()
        steps = sorted({int(each["step"]) for each in adam if self._moments})
        found = hashlib.sha256(repr(steps).encode())
        for parameter in self._engine.module.parameters():
            parts = [utils.safe_get_full_fp32_param(parameter), parameter.detach()]
            for name in self._moments:
                parts.append(utils.safe_get_full_optimizer_state(parameter, name))
            for part in parts:
                found.update(part.numpy().tobytes())
        return found.hexdigest()[:16]


if __name__ == "__main__":
    launched_training.main(Model)
