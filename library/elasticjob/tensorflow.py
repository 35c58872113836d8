"""Loads global batches by `tf.data`; `import elasticjob` alone does not load TensorFlow."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf  # type: ignore[import-not-found, import-untyped, unused-ignore]

from elasticjob.batches import GlobalBatches


def dataset(batches: GlobalBatches, read: Callable[[Any], Any], *, prefetch: int = 2) -> Any:
    """Return a `tf.data.Dataset` of (samples, scale, last); each iteration is the rest of an epoch.

        batches = elasticjob.global_batches("images", size=1000, global_batch=100, step=0)
        for samples, scale, last in elasticjob.tensorflow.dataset(batches, read):
            train(samples, scale, apply=last)

    `scale` and `last` are those of `elasticjob.Part`.

    Args:
        batches: the global batches of this process.
        read: returns the samples of a vector of numbers, as tensors; it is traced like a function
            that is passed to `map`.
        prefetch: micro-batches that are loaded in advance. They do not count as trained; what the
            program itself prefetches from the result does, for the ledger.
    """

    def parts() -> Iterator[tuple[int, list[int], float, bool]]:
        for part in batches.parts():
            yield part.batch, part.indices, part.scale, part.last

    def deliver(batch: Any, last: Any) -> Any:
        batches.deliver(int(batch), last=bool(last))
        return last

    def ended() -> Iterator[Any]:
        batches.end_epoch()
        yield from ()

    kinds = (tf.int64, tf.int64, tf.float32, tf.bool)
    signature = tuple(map(tf.TensorSpec, ([], [None], [], []), kinds))
    loaded = (
        tf.data.Dataset.from_generator(parts, output_signature=signature)
        .map(
            lambda batch, indices, scale, last: (batch, read(indices), scale, last),
            num_parallel_calls=tf.data.AUTOTUNE,
            deterministic=True,
        )
        .prefetch(prefetch)
    )
    delivered = loaded.map(
        lambda batch, samples, scale, last: (
            samples,
            scale,
            tf.ensure_shape(tf.numpy_function(deliver, [batch, last], tf.bool), []),
        )
    )
    end = tf.data.Dataset.from_generator(ended, output_signature=delivered.element_spec)
    options = tf.data.Options()
    options.experimental_optimization.inject_prefetch = False  # what it prefetches is not trained
    return delivered.concatenate(end).with_options(options)
