"""Loads samples by the processes of PyTorch's DataLoader; the training process chooses them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

import torch.utils.data  # type: ignore[import-not-found, unused-ignore]

from elasticjob._division import Part
from elasticjob.batches import GlobalBatches


class _Indices:
    """The batch sampler: gives the samples of parts, and keeps the parts until they are loaded."""

    def __init__(self, batches: GlobalBatches) -> None:
        self._batches = batches
        self.loading: deque[Part] = deque()

    def __len__(self) -> int:
        return len(self._batches)

    def __iter__(self) -> Iterator[list[int]]:
        self.loading.clear()
        for part in self._batches.parts():
            self.loading.append(part)
            yield part.indices


class DataLoader(torch.utils.data.DataLoader):  # type: ignore[misc, unused-ignore]
    """PyTorch's DataLoader for global batches. An iteration is the rest of an epoch.

        loader = elasticjob.torch.DataLoader(dataset, batches, num_workers=4)
        for samples in loader:
            train(samples, scale=loader.part.scale, apply=loader.part.last)

    Attributes:
        part: the part whose samples were returned last.
    """

    part: Part

    def __init__(self, dataset: Any, batches: GlobalBatches, **options: Any) -> None:
        """Load the samples of `batches`.

        Args:
            dataset: returns the sample of a number, such as a map-style data set of PyTorch or a
                `datasets.Dataset` of Hugging Face.
            batches: the global batches of this process.
            options: arguments for PyTorch's DataLoader, without those of its batches and their
                order.
        """
        indices = _Indices(batches)
        super().__init__(dataset, batch_sampler=indices, **options)
        if not options.get("in_order", True):
            raise ValueError("in_order is False; the order of the batches is that of all processes")
        self.batches = batches
        self._loading = indices.loading

    def __iter__(self) -> Iterator[Any]:
        """Yield the samples of each part, as collated."""
        for samples in super().__iter__():
            self.part = self._loading.popleft()
            self.batches.deliver(self.part.batch, last=self.part.last)
            yield samples
        self.batches.end_epoch()
