"""Copies the tensors of a training's state, and sends them to other ranks without pickling them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch  # type: ignore[import-not-found, unused-ignore]
import torch.distributed as dist  # type: ignore[import-not-found, unused-ignore]

CHUNK_BYTES = 32 << 20
"""Tensors are broadcast together up to this size."""

Tree = Any
"""A state_dict, or several of them: dictionaries, lists and tuples of tensors and other values."""


@dataclass(frozen=True)
class _Place:
    """Stands for a tensor in a tree without tensors."""

    number: int
    shape: tuple[int, ...]
    dtype: torch.dtype


def copy(tree: Tree) -> Tree:
    """Return a copy, whose tensors are on the same devices."""
    return _map(tree, lambda tensor: tensor.detach().clone())


def broadcast(tree: Tree | None, source: int, device: torch.device) -> Tree:
    """Send the source's tree to all ranks; return it.

    Tensors are not pickled. They arrive on a `device`.
    """
    mine = bool(dist.get_rank() == source)
    tensors: list[torch.Tensor] = []
    skeleton = _map(tree, lambda tensor: _take(tensor, tensors)) if mine else None
    header = [skeleton]
    dist.broadcast_object_list(header, src=source)
    places = list(_places(header[0]))
    received: list[torch.Tensor] = []
    for chunk in _chunks(places):
        size = sum(_bytes_of(place) for place in chunk)
        if mine:
            flat = [_as_bytes(tensors[place.number], device) for place in chunk]
            buffer = torch.cat(flat) if flat else torch.empty(0, dtype=torch.uint8, device=device)
        else:
            buffer = torch.empty(size, dtype=torch.uint8, device=device)
        if size:
            dist.broadcast(buffer, src=source)
        if not mine:
            received += _split(buffer, chunk)
    if mine:
        return tree
    return _map(header[0], lambda place: received[place.number], leaf=_Place)


def _take(tensor: torch.Tensor, into: list[torch.Tensor]) -> _Place:
    into.append(tensor)
    return _Place(len(into) - 1, tuple(tensor.shape), tensor.dtype)


def _as_bytes(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    return tensor.detach().to(device).contiguous().reshape(-1).view(torch.uint8)


def _split(buffer: torch.Tensor, chunk: list[_Place]) -> Iterator[torch.Tensor]:
    start = 0
    for place in chunk:
        size = _bytes_of(place)
        part = buffer[start : start + size].clone()  # its memory is aligned for its type
        yield part.view(place.dtype).reshape(place.shape)
        start += size


def _bytes_of(place: _Place) -> int:
    count = 1
    for length in place.shape:
        count *= length
    return count * int(torch.empty(0, dtype=place.dtype).element_size())


def _chunks(places: list[_Place]) -> Iterator[list[_Place]]:
    chunk: list[_Place] = []
    size = 0
    for place in places:
        chunk.append(place)
        size += _bytes_of(place)
        if size >= CHUNK_BYTES:
            yield chunk
            chunk = []
            size = 0
    if chunk:
        yield chunk


def _places(tree: Tree) -> Iterator[_Place]:
    if isinstance(tree, _Place):
        yield tree
    elif isinstance(tree, dict):
        for value in tree.values():
            yield from _places(value)
    elif isinstance(tree, list | tuple):
        for value in tree:
            yield from _places(value)


def _map(tree: Tree, change: Callable[[Any], Any], leaf: type = torch.Tensor) -> Tree:
    """Return a tree with its leaves of a type changed, in the order of the tree."""
    if isinstance(tree, leaf):
        return change(tree)
    if isinstance(tree, dict):
        mapped: dict[Any, Any] = OrderedDict() if isinstance(tree, OrderedDict) else {}
        mapped.update((key, _map(value, change, leaf)) for key, value in tree.items())
        if hasattr(tree, "_metadata"):  # the versions of a module's classes
            mapped._metadata = tree._metadata  # type: ignore[attr-defined]
        return mapped
    if isinstance(tree, list):
        return [_map(value, change, leaf) for value in tree]
    if isinstance(tree, tuple) and not hasattr(tree, "_fields"):
        return tuple(_map(value, change, leaf) for value in tree)
    return tree
