"""Trains hand-written digits with FSDP: each process has a part of the model and of the optimizer.

The processes write their parts by torch.distributed.checkpoint, side by side. Another number of
processes reads them: each one reads what its own part covers. So the job changes its size as one
with DistributedDataParallel does: train.py, beside this file, of which this is a variant.

Needs PyTorch 2.6 or later. Runs as `python fsdp.py`, once for each process. Environment: EPOCHS,
CHECKPOINT_DIR and DIGITS, as train.py.
"""

from __future__ import annotations

import hashlib
import os
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch  # type: ignore[import-not-found, unused-ignore]
import torch.distributed as dist  # type: ignore[import-not-found, unused-ignore]
import torch.distributed.checkpoint as dcp  # type: ignore[import-not-found, unused-ignore]
from torch import nn
from torch.distributed.checkpoint.state_dict import (  # type: ignore[import-not-found, unused-ignore]
    StateDictOptions,
    get_state_dict,
    set_state_dict,
)
from torch.distributed.device_mesh import (  # type: ignore[import-not-found, unused-ignore]
    init_device_mesh,
)
from torch.distributed.fsdp import fully_shard  # type: ignore[import-not-found, unused-ignore]
from train import Training, main  # type: ignore[import-not-found, unused-ignore]


class ShardedTraining(Training):  # type: ignore[misc, unused-ignore]
    """The training of train.py, but each rank has a part of the state."""

    def __init__(self, device: torch.device) -> None:
        super().__init__(device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.002)

    def distributed(self, network: nn.Module) -> nn.Module:
        """Divide each layer among the ranks."""
        device = next(network.parameters()).device
        mesh = init_device_mesh(device.type, (dist.get_world_size(),))
        for layer in network.children():
            if isinstance(layer, nn.Linear):
                fully_shard(layer, mesh=mesh)
        return fully_shard(network, mesh=mesh)

    def place(self) -> str:
        """Add a digest of the state, which the number of ranks does not change.

        Before the first step there is none: `get_state_dict` would make one, of a rate of zero, and
        Adam's count of steps would be one too high from then on.
        """
        if not self.optimizer.state:
            return str(super().place())
        return f"{super().place()} state {self._digest()}"

    def restore(self, folder: str) -> None:
        """Continue from a checkpoint of any number of ranks. All ranks call it."""
        saved = self._state()
        dcp.load(saved, checkpoint_id=folder)
        set_state_dict(
            self.model,
            self.optimizer,
            model_state_dict=saved["model"],
            optim_state_dict=saved["optimizer"],
        )
        self.step = int(saved["counts"][0])
        self.samples = int(saved["counts"][1])

    def save(self, folder: str) -> None:
        """Write this rank's part of a checkpoint."""
        dcp.save(self._state(), checkpoint_id=folder)

    def _state(self) -> dict[str, Any]:
        model, optimizer = get_state_dict(self.model, self.optimizer)
        counts = torch.tensor([self.step, self.samples])
        return {"model": model, "optimizer": optimizer, "counts": counts}

    def _digest(self) -> str:
        whole = StateDictOptions(full_state_dict=True, cpu_offload=True)
        model, optimizer = get_state_dict(self.model, self.optimizer, options=whole)
        digest = hashlib.sha256()
        for name, values in [*sorted(model.items()), *sorted(optimizer.get("state", {}).items())]:
            digest.update(name.encode())
            parts = values if isinstance(values, dict) else {"": values}
            for _, part in sorted(parts.items()):
                digest.update(part.numpy().tobytes())
        return digest.hexdigest()[:16]


if __name__ == "__main__":
    main(ShardedTraining)
