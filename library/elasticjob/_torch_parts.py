"""Copies this rank's part of a divided state, and moves parts and pieces between the ranks.

What a rank has of a tensor is known to the planner of `torch.distributed.checkpoint`, for DTensors
of any placement. Bytes go from rank to rank by point-to-point messages of the default group.
"""

from __future__ import annotations

import io
import math
import pickle
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch  # type: ignore[import-not-found, unused-ignore]
import torch.distributed as dist  # type: ignore[import-not-found, unused-ignore]

from elasticjob import _torch_tensors as tensors
from elasticjob._sharding import Piece, Read, by_tensor, reads

_ALIGNED = 16
"""Bytes: no type of elements is larger."""
_LENGTH_BYTES = 8


@dataclass(frozen=True)
class Part:
    """A rank's part of a committed state.

    Attributes:
        head: what all ranks have in common, pickled.
        pieces: the pieces of tensors.
        data: their bytes, in memory of the host.
    """

    head: bytes
    pieces: tuple[Piece, ...]
    data: torch.Tensor

    def fields(self) -> tuple[bytes, tuple[Piece, ...], torch.Tensor]:
        """Return all attributes."""
        return self.head, self.pieces, self.data

    def dump(self) -> bytes:
        """Return the content of a file."""
        buffer = io.BytesIO()
        torch.save(self.fields(), buffer)
        return buffer.getvalue()

    @staticmethod
    def parse(content: bytes) -> Part:
        """Return the part in a file."""
        return Part(*torch.load(io.BytesIO(content), map_location="cpu", weights_only=False))


def pack(head: bytes, live: Mapping[int, torch.Tensor]) -> Part:
    """Return a copy of what this rank has of tensors."""
    found = list(local_pieces(live))
    data = torch.empty(_end(found[-1][0]) if found else 0, dtype=torch.uint8)
    for piece, local in found:
        _view(data, piece).copy_(local)
    return Part(head, tuple(piece for piece, _ in found), data)


def local_pieces(live: Mapping[int, torch.Tensor]) -> Iterator[tuple[Piece, torch.Tensor]]:
    """Yield the pieces of tensors that this rank has, with their memory."""
    from torch.distributed.checkpoint import DefaultSavePlanner

    planner = DefaultSavePlanner(flatten_state_dict=False, flatten_sharded_tensors=False)
    planner.set_up_planner({str(number): tensor for number, tensor in live.items()})
    start = 0
    meshes = {id(mesh): mesh for each in live.values() if (mesh := _mesh_of(each)) is not None}
    for mesh in meshes.values():
        _check_mesh(mesh)
    for item in planner.create_local_plan().items:
        number = int(item.index.fqn)
        local = planner.resolve_data(item).detach()
        chunk = item.tensor_data.chunk
        piece = Piece(
            number,
            tuple(live[number].shape),
            str(local.dtype).removeprefix("torch."),
            tuple(chunk.offsets),
            tuple(chunk.sizes),
            start,
        )
        if local.numel():
            yield piece, local
            start = -(-_end(piece) // _ALIGNED) * _ALIGNED


def _mesh_of(tensor: torch.Tensor) -> Any:
    return getattr(tensor, "device_mesh", None)


def _check_mesh(mesh: Any) -> None:
    """Raise ValueError if a mesh is of an earlier world, where this process had another rank."""
    place = (mesh.mesh == dist.get_rank()).nonzero().flatten().tolist()
    if list(mesh.get_coordinate() or []) != place:
        raise ValueError(
            f"{mesh}: PyTorch has taken it for that of an earlier world: use the mesh that `build` "
            "gets, or give its dimensions names that no other world has had, such as with its round"
        )


def _end(piece: Piece) -> int:
    return piece.start + math.prod(piece.sizes) * int(getattr(torch, piece.dtype).itemsize)


def _view(data: torch.Tensor, piece: Piece) -> torch.Tensor:
    dtype = getattr(torch, piece.dtype)
    return data[piece.start : _end(piece)].view(dtype).reshape(piece.sizes)


def _box(memory: torch.Tensor, piece: Piece, read: Read) -> torch.Tensor:
    """Return the view of a box in the memory of a piece."""
    for dimension, (offset, size) in enumerate(zip(read.offsets, read.sizes, strict=True)):
        memory = memory.narrow(dimension, offset - piece.offsets[dimension], size)
    return memory


# --- between ranks


def give(mine: Part, targets: Mapping[int, int], device: torch.device) -> dict[int, Part]:
    """Send this rank's part to the target of this rank; return the parts of those it is for."""
    rank = dist.get_rank()
    sources = [source for source, target in targets.items() if target == rank]
    to = [targets[rank]] if rank in targets else []
    heads = swap(dict.fromkeys(to, _pickled((mine.head, mine.pieces))), sources, device)
    data = swap(dict.fromkeys(to, mine.data), sources, device)
    found = {}
    for source in sources:
        head, pieces = pickle.loads(heads[source].numpy())  # noqa: S301 (of a rank)
        found[source] = Part(head, pieces, data[source])
    return found


def reshard(
    parts: Mapping[int, Part],
    layouts: Mapping[int, Sequence[Piece]],
    sources: Sequence[int],
    live: Mapping[int, torch.Tensor],
    device: torch.device,
) -> None:
    """Fill what this rank has of tensors from the parts of all ranks. All ranks call it.

    Args:
        parts: the parts that this rank holds.
        layouts: the pieces of all parts.
        sources: the rank that gives the pieces of each part.
        live: the tensors to fill.
        device: the device of the tensors that the group communicates.
    """
    rank = dist.get_rank()
    held = by_tensor(layouts)
    wanted: dict[int, list[tuple[Read, torch.Tensor]]] = {each: [] for each in _everyone()}
    for piece, memory in local_pieces(live):
        for read in reads(piece, held.get(piece.tensor, [])):
            wanted[sources[read.part]].append((read, _box(memory, piece, read)))
    others = [each for each in wanted if each != rank]
    asked = {each: _pickled([read for read, _ in wanted[each]]) for each in others}
    for_others = swap(asked, others, device)
    given = {
        each: _bytes_of(parts, pickle.loads(requests.numpy()))  # noqa: S301 (of a rank)
        for each, requests in for_others.items()
    }
    received = swap(given, others, device)
    received[rank] = _bytes_of(parts, [read for read, _ in wanted[rank]])
    for each, boxes in wanted.items():
        _fill(boxes, received[each])


def _everyone() -> range:
    return range(dist.get_world_size())


def _bytes_of(parts: Mapping[int, Part], requested: Sequence[Read]) -> torch.Tensor:
    boxes = (_box(_view(parts[r.part].data, r.source), r.source, r) for r in requested)
    flat = [box.contiguous().reshape(-1).view(torch.uint8) for box in boxes]
    return torch.cat(flat) if flat else torch.empty(0, dtype=torch.uint8)


def _fill(boxes: Sequence[tuple[Read, torch.Tensor]], received: torch.Tensor) -> None:
    start = 0
    for _, box in boxes:
        size = box.numel() * box.element_size()
        content = received[start : start + size].clone()  # its memory is aligned for its type
        box.copy_(content.view(box.dtype).reshape(box.shape))
        start += size


def _pickled(content: Any) -> torch.Tensor:
    return torch.frombuffer(bytearray(pickle.dumps(content)), dtype=torch.uint8)


def swap(
    outgoing: Mapping[int, torch.Tensor], sources: Sequence[int], device: torch.device
) -> dict[int, torch.Tensor]:
    """Send bytes to other ranks, and return those from the sources, in memory of the host."""
    lengths = {to: torch.tensor([data.numel()]).view(torch.uint8) for to, data in outgoing.items()}
    announced = {source: torch.empty(_LENGTH_BYTES, dtype=torch.uint8) for source in sources}
    _transfer(lengths, announced, device)
    incoming = {
        source: torch.empty(int(length.view(torch.int64)), dtype=torch.uint8)
        for source, length in announced.items()
    }
    _transfer(outgoing, incoming, device)
    return incoming


def _transfer(
    outgoing: Mapping[int, torch.Tensor], incoming: Mapping[int, torch.Tensor], device: torch.device
) -> None:
    """Exchange messages whose lengths both sides know, piece by piece through the device."""
    longest = max((data.numel() for data in (*outgoing.values(), *incoming.values())), default=0)
    for start in range(0, longest, tensors.CHUNK_BYTES):
        chunk = slice(start, start + tensors.CHUNK_BYTES)
        sent = {to: data[chunk].to(device) for to, data in outgoing.items()}
        received = {source: data[chunk].to(device) for source, data in incoming.items()}
        operations = [
            *(dist.P2POp(dist.isend, data, to) for to, data in sent.items() if data.numel()),
            *(dist.P2POp(dist.irecv, data, of) for of, data in received.items() if data.numel()),
        ]
        for work in dist.batch_isend_irecv(operations) if operations else ():
            work.wait()
        if device.type != "cpu":  # else they were received where they belong
            for source, data in received.items():
                incoming[source][chunk].copy_(data)
