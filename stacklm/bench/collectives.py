"""What a function sends to other ranks: how often, of which kind, how many bytes.

Two methods in one look. ``CommDebugMode`` counts the collectives it knows. The
dispatcher, through which all communication of torch.distributed goes, also shows what
that mode does not count: point-to-point messages, batched or not, and barriers.

Bytes are those that must pass between ranks, whatever the algorithm of the backend:

    all-to-all       what goes to others, by the splits; exact
    all-gather       (S-1) pieces
    reduce-scatter   (S-1)/S of the input
    all-reduce       2(S-1)/S of the input

Legend: S ranks in the group; m x n matrices; R replicas of S shards.
Units: bytes, as sent and as received by one rank.
Sources: Patarasuk & Yuan 2009 for the bounds of all-gather, reduce-scatter and
all-reduce, which a ring reaches. Taught in chapter 13.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor.debug import CommDebugMode

POINT_TO_POINT = ("send", "recv")


@dataclass(frozen=True)
class Traffic:
    """What one rank asked of the others."""

    counts: dict[str, int]
    """{kind: how often}: "all_to_all", "all_gather", "all_reduce", "send", ..."""
    sent: dict[str, int]
    """{kind: bytes that went to other ranks}."""
    received: dict[str, int]
    """{kind: bytes that came from other ranks}."""

    @property
    def collectives(self) -> int:
        """All but point-to-point messages."""
        return sum(n for kind, n in self.counts.items() if kind not in POINT_TO_POINT)

    @property
    def messages(self) -> int:
        """Point-to-point messages, those sent and those received."""
        return sum(self.counts.get(kind, 0) for kind in POINT_TO_POINT)

    @property
    def bytes_sent(self) -> int:
        """Of all kinds."""
        return sum(self.sent.values())

    @property
    def bytes_received(self) -> int:
        """Of all kinds."""
        return sum(self.received.values())


def count_collectives(run: Callable[[], object]) -> Traffic:
    """Count what a function asks of other ranks, on this rank.

    What is only done once, such as making groups, do before: call ``run`` first.

    Args:
        run: Called once.

    Returns:
        Counts and bytes by kind.

    Raises:
        NotImplementedError: A kind of communication whose bytes are not known here.
    """
    with _Watch() as watch:
        run()
    kinds = sorted(watch.seen)
    return Traffic(
        {kind: watch.seen[kind] for kind in kinds},
        {kind: watch.sent[kind] for kind in kinds},
        {kind: watch.received[kind] for kind in kinds},
    )


def least_bytes(
    shapes: Sequence[tuple[int, int]],
    replicas: int,
    shards: int,
    itemsize: int = 4,
    *,
    out_itemsize: int | None = None,
) -> int:
    """The fewest bytes with which sharded matrices can be orthogonalized whole.

    Somewhere a matrix must be whole, and a rank begins with at most ceil(m/S) of its
    rows: the others come in. Afterwards R*m rows of the result must lie on ranks, and
    those that its maker keeps are again at most ceil(m/S): the others go out::

        in   (m - ceil(m/S)) * n * itemsize
        out  (R*m - ceil(m/S)) * n * out_itemsize

    It holds for every algorithm that iterates on whole matrices and computes none
    twice.

    Args:
        shapes: (m, n) of every matrix.
        replicas: Replicas, R of them.
        shards: Shards, S of them; rows are cut as ``torch.chunk`` does it.
        itemsize: Bytes of an entry on its way in.
        out_itemsize: Bytes of an entry on its way out; None: as on its way in.

    Returns:
        Bytes received, over all ranks together; as many are sent.

    Example:
        >>> least_bytes([(128, 128)] * 4, replicas=1, shards=4)
        393216
    """
    out_itemsize = itemsize if out_itemsize is None else out_itemsize
    total = 0
    for m, n in shapes:
        own = -(-m // shards)
        total += (m - own) * n * itemsize + (replicas * m - own) * n * out_itemsize
    return total


class _Watch(CommDebugMode):
    """Counts what CommDebugMode counts, and what else goes through the dispatcher."""

    def __init__(self):
        super().__init__()
        self.seen, self.sent, self.received = Counter(), Counter(), Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        before = self.get_total_counts()
        out = super().__torch_dispatch__(func, types, args, kwargs)
        if out is NotImplemented:  # a DTensor; its communication comes by itself
            return out
        space, _, name = str(func).partition(".")
        name = name.partition(".")[0]
        counted = self.get_total_counts() > before
        if space in _NAMESPACES and name not in _SILENT:
            if name not in _PRICES:
                raise NotImplementedError(
                    f"count_collectives knows the bytes of {sorted(_PRICES)}, got "
                    f"{func}; add it to _PRICES"
                )
            kind, price = _PRICES[name]
            self.seen[kind] += 1
            sent, received = price(args)
            self.sent[kind] += sent
            self.received[kind] += received
        elif counted:
            raise NotImplementedError(f"CommDebugMode counted {func}, unknown here")
        return out


def _group(args) -> dist.ProcessGroup:
    """The process group among the arguments: boxed, or by its name at the end."""
    boxed = [a for a in args if type(a).__name__ == "ScriptObject"]
    if boxed:
        return dist.ProcessGroup.unbox(boxed[0])
    return dist.distributed_c10d._resolve_process_group(args[-1])


def _bytes(tensors) -> int:
    """Of a tensor, or of all in a nested list."""
    if isinstance(tensors, Tensor):
        return tensors.numel() * tensors.element_size()
    return sum(_bytes(each) for each in tensors)


def _all_to_all(output: Tensor, source: Tensor, come: list, go: list, args):
    group = _group(args)
    size, me = group.size(), group.rank()

    def others(tensor: Tensor, splits: list) -> int:
        if not splits:
            return _bytes(tensor) * (size - 1) // size
        row = _bytes(tensor) // sum(splits) if sum(splits) else 0
        return row * (sum(splits) - splits[me])

    return others(source, go), others(output, come)


def _by_all_to_all_base(args):
    return _all_to_all(args[0], args[1], args[3], args[4], args)


def _by_functional_all_to_all(args):
    source, come, go = args[:3]
    # What comes has no tensor yet: its rows are as long as those that go.
    output = source.new_empty((sum(come), *source.shape[1:])) if come else source
    return _all_to_all(output, source, come, go, args)


def _gathered(args):
    """The input is a rank's piece; pieces may differ if the output is a list."""
    size = _group(args).size()
    if isinstance(args[0], (list, tuple)):
        piece = _bytes(args[1])
        return piece * (size - 1), _bytes(args[0]) - piece
    piece = _bytes(args[0] if not isinstance(args[1], Tensor) else args[1])
    return piece * (size - 1), piece * (size - 1)


def _share(factor: int, position: int):
    """factor*(S-1)/S of the argument at a position, rounded up to bytes."""

    def price(args):
        size = _group(args).size()
        moved = -(-factor * _bytes(args[position]) * (size - 1) // size)
        return moved, moved

    return price


def _broadcast(args):
    group, moved = _group(args), _bytes(args[0])
    root = args[2] if type(args[1]).__name__ == "ScriptObject" else args[1]
    return (moved, 0) if group.rank() == root else (0, moved)


def _scattered(args):
    group, piece = _group(args), _bytes(args[0])
    root = args[3]
    return (piece * (group.size() - 1), 0) if group.rank() == root else (0, piece)


# Of the dispatcher: eager calls, what DTensor calls, and DTensor's own.
_NAMESPACES = ("c10d", "_c10d_functional", "_dtensor")
# Nothing passes between ranks.
_SILENT = ("wait_tensor", "check_for_nan", "_wrap_tensor_autograd")
_PRICES = {
    "alltoall_base_": ("all_to_all", _by_all_to_all_base),
    "all_to_all_single": ("all_to_all", _by_functional_all_to_all),
    "shard_dim_alltoall": ("all_to_all", _share(1, 0)),
    "allgather_": ("all_gather", _gathered),
    "_allgather_base_": ("all_gather", _gathered),
    "all_gather_into_tensor": ("all_gather", _gathered),
    "allreduce_": ("all_reduce", _share(2, 0)),
    "all_reduce": ("all_reduce", _share(2, 0)),
    "all_reduce_": ("all_reduce", _share(2, 0)),
    "_reduce_scatter_base_": ("reduce_scatter", _share(1, 1)),
    "reduce_scatter_tensor": ("reduce_scatter", _share(1, 0)),
    "broadcast_": ("broadcast", _broadcast),
    "broadcast": ("broadcast", _broadcast),
    "scatter_": ("scatter", _scattered),
    "send": ("send", lambda args: (_bytes(args[0]), 0)),
    "recv_": ("recv", lambda args: (0, _bytes(args[0]))),
    "recv_any_source_": ("recv", lambda args: (0, _bytes(args[0]))),
    "barrier": ("barrier", lambda args: (0, 0)),
    "monitored_barrier_": ("barrier", lambda args: (0, 0)),
}
