"""A linear model whose weights after any number of steps are known, without any framework."""

from __future__ import annotations

BATCH = 12
"""Samples of a step: of all ranks together."""
RATE = 0.01
MOMENTUM = 0.9


def sample(number: int) -> tuple[float, float]:
    """Return input and target of a sample; no two batches that follow each other are alike."""
    x = number * 37 % 101 / 101
    return x, 3 * x - 1 + (number * 53 % 97 / 97 - 0.5)


def weights(steps: int) -> list[float]:
    """Return slope and offset after a number of steps by SGD with momentum, from zero."""
    slope = offset = slope_velocity = offset_velocity = 0.0
    for step in range(steps):
        samples = [sample(number) for number in range(step * BATCH, (step + 1) * BATCH)]
        errors = [slope * x + offset - y for x, y in samples]
        of_slope = sum(2 * e * x for e, (x, _) in zip(errors, samples, strict=True)) / BATCH
        of_offset = sum(2 * e for e in errors) / BATCH
        slope_velocity = MOMENTUM * slope_velocity + of_slope
        offset_velocity = MOMENTUM * offset_velocity + of_offset
        slope -= RATE * slope_velocity
        offset -= RATE * offset_velocity
    return [slope, offset]
