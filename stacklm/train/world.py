"""The ranks that train one model together, and what they tell each other.

A rank is a process with a device of its own. Weights, gradients and optimizer states
are cut over ranks by FSDP2; here is the rest, two small exchanges per step::

    n  = sum of n_r                     before the backward passes (8 bytes)
    loss = sum of loss_r,   |g| = sqrt(sum of |g_r|^2),   the largest of each maximum
                                        after them, one all-gather

Legend: R ranks; n_r targets that count on rank r; g_r the part of the gradient that
rank r holds, and where c ranks hold the same part, 1/sqrt(c) of it. The all-gather
brings 8 * (3 + n_layers * n_heads) bytes from each rank and is read in one transfer.
Source: ``torch.distributed.fsdp.fully_shard``. Taught in chapter 13.
"""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.utils import get_total_norm

from stacklm.optim.layout import is_dtensor, like_parameter, local_part

if TYPE_CHECKING:  # loading it costs every import half a second
    from torch.distributed.device_mesh import DeviceMesh

T = TypeVar("T")
CPU = torch.device("cpu")


@dataclass
class World:
    """This process among the ranks of a run; ``World()`` is one process alone.

    Every method is collective, unless it says otherwise: all ranks must call it. On one
    rank each gives back what it was given.

    Example:
        >>> World().first(lambda: "done")
        'done'
    """

    device: torch.device = CPU
    """Where this rank computes."""
    mesh: DeviceMesh | None = None
    """The ranks: (shard,) or (replicate, shard); None for one process."""
    group: dist.ProcessGroup | None = None
    """All of them; None for one process."""
    rank: int = 0
    """Of this process, from 0."""
    size: int = 1
    """R (count)."""
    asked: Callable[[], bool] = bool
    """Whether this rank was asked to stop."""
    stop: bool = False
    """Whether any rank was, when the ranks last agreed."""

    def shard(self, model: nn.Module) -> nn.Module:
        """Move a model to the device, cut over the ranks by FSDP2, block by block.

        Args:
            model: With ``blocks``, and the same weights on every rank.

        Returns:
            The model itself; its parameters are DTensors if there are ranks.
        """
        if self.size == 1:
            return model.to(self.device)
        from torch.distributed.fsdp import fully_shard

        for block in model.blocks:
            fully_shard(block, mesh=self.mesh)
        return fully_shard(model, mesh=self.mesh)

    def parameters(self, model: nn.Module) -> list[nn.Parameter]:
        """The parameters of a model, as optimizers know them; not collective.

        Raises:
            ValueError: They are cut over ranks, and this is one process.
        """
        params = settled_parameters(model)
        cut = params[0].device_mesh.size() if is_dtensor(params[0]) else 1
        if self.size == 1 < cut:
            raise ValueError(
                f"the model is cut over {cut} ranks, which must act together; pass "
                f"world=world_of()"
            )
        return params

    def sum(self, value: Tensor) -> Tensor:
        """Add up a tensor over ranks, on its device."""
        if self.size == 1:
            return value
        value = value.clone()
        dist.all_reduce(value, group=self.group)
        return value

    def norm(self, gradients: list[Tensor]) -> Tensor:
        """This rank's part of the L2 norm of all gradients; not collective.

        Args:
            gradients: DTensors, or plain tensors of which every rank has a copy.

        Returns:
            A scalar; the root of the sum of its squares over ranks is the norm.
        """
        if self.size == 1:
            return get_total_norm(gradients)
        parts: dict[int, list[Tensor]] = {}
        for gradient in gradients:
            copies = self.size // _shards(gradient)
            parts.setdefault(copies, []).append(local_part(gradient))
        norms = [get_total_norm(own) / copies**0.5 for copies, own in parts.items()]
        return get_total_norm(norms)

    def read(self, own: Tensor) -> Tensor:
        """Agree on the figures of a step, and fetch them in one transfer.

        Also settles ``stop``, from what every rank was asked by now.

        Args:
            own: This rank's [loss, norm, maxima …], its loss a share of the sum, its
                norm as ``norm`` gives it; (2 + k), on the device.

        Returns:
            The same of all ranks together, equal on every rank, on the CPU. NaN on one
            rank is NaN on all.
        """
        if self.size == 1:
            return own.cpu()
        wide = own.double()
        asked = wide.new_full((1,), float(self.asked()))
        own = torch.cat([wide, asked])
        rows = [torch.empty_like(own) for _ in range(self.size)]
        dist.all_gather(rows, own, group=self.group)
        table = torch.stack(rows)  # (R, 2 + k + 1)
        loss, norms, most = table[:, :1].sum(0), table[:, 1], table[:, 2:].amax(0)
        norm = torch.linalg.vector_norm(norms).reshape(1)
        *figures, stop = (
            torch.cat([loss, norm, most]).cpu().split([2, own.numel() - 3, 1])
        )
        self.stop = bool(stop)
        return torch.cat(figures)

    def first(self, work: Callable[[], T]) -> T:
        """Let rank 0 do something; its result, or its error, is everyone's.

        Args:
            work: Called on rank 0 only; what it returns must pickle.

        Returns:
            What it returned.

        Raises:
            Exception: What it raised, on every rank; ``is_told`` knows the copies.
        """
        if self.size == 1:
            return work()
        result = failed = None
        if self.rank == 0:
            try:
                result = work()
            except Exception as error:
                failed = error
        box = [result, None if failed is None else _portable(failed)]
        dist.broadcast_object_list(box, group=self.group, group_src=0)
        if failed is not None:
            raise failed
        if box[1] is not None:
            box[1].told = True
            raise box[1]
        return result if self.rank == 0 else box[0]

    def spread(self, value: Tensor, like: Tensor) -> Tensor:
        """Send a tensor of rank 0 to all, each of which keeps its part.

        Args:
            value: On the CPU; only its shape and dtype count on other ranks.
            like: A DTensor of the same shape, which says who keeps what; or any plain
                tensor, of which all keep a copy.

        Returns:
            The value, laid out as ``like`` is.
        """
        if self.size == 1:
            return value
        wire = "cpu" if "cpu" in dist.get_backend_config(self.group) else self.device
        whole = torch.empty_like(value, device=wire)
        if self.rank == 0:
            whole.copy_(value)
        if whole.numel():  # as bytes, which every backend sends
            flat = whole.view(-1).view(torch.uint8)
            dist.broadcast(flat, group=self.group, group_src=0)
        if not is_dtensor(like):
            return whole.cpu()
        return like_parameter(whole, like).clone()  # a view would keep the whole


def world_of(
    mesh: DeviceMesh | None = None, device: str | torch.device | None = None
) -> World:
    """Where this process stands: on a mesh, in the default group, or alone.

    Args:
        mesh: (shard,) or (replicate, shard). None means all ranks of the default
            process group, or one process if there is no group or only one rank in it.
        device: Where to compute; None means the mesh's kind of device, otherwise CUDA
            if there is one, otherwise the CPU. On CUDA, each rank takes its current
            device.

    Returns:
        The world; one rank counts as one process.

    Raises:
        ValueError: The mesh has three dimensions, is two-dimensional over a part of
            the ranks, lacks this one, or is not of the kind of `device`.
    """
    found = "cuda" if torch.cuda.is_available() else "cpu"
    device = torch.device(device or (found if mesh is None else mesh.device_type))
    if mesh is None:
        if not dist.is_available() or not dist.is_initialized():
            return World(device)
        if dist.get_world_size() == 1:
            return World(device)
        from torch.distributed.device_mesh import init_device_mesh

        mesh = init_device_mesh(device.type, (dist.get_world_size(),))
    _check_mesh(mesh, device)
    if mesh.size() == 1:
        return World(device)
    if device.type == "cuda":
        device = torch.device("cuda", torch.cuda.current_device())
    group = mesh.get_group() if mesh.ndim == 1 else dist.group.WORLD
    return World(device, mesh, group, dist.get_rank(group), mesh.size())


def settled_parameters(model: nn.Module) -> list[nn.Parameter]:
    """The parameters that optimizers know, in the order of ``model.parameters()``.

    After a pass without a backward pass, as validation is, FSDP2 leaves the root's
    weights whole, and the model shows copies in their place; here they are put back.
    """
    if hasattr(model, "reshard"):
        model.reshard()
    return list(model.parameters())


def is_told(error: BaseException) -> bool:
    """Whether an error is a copy of one that rank 0 has, and reports."""
    return getattr(error, "told", False)


def _check_mesh(mesh: DeviceMesh, device: torch.device) -> None:
    if mesh.device_type != device.type:
        raise ValueError(
            f"device must be of the mesh's kind, {mesh.device_type}, got {device}; "
            f"leave it out"
        )
    if mesh.get_coordinate() is None:
        raise ValueError(
            f"rank {dist.get_rank()} is not among the ranks of the mesh, "
            f"{mesh.mesh.tolist()}; call this on those only"
        )
    whole = mesh.size() == dist.get_world_size()
    if mesh.ndim > 2 or (mesh.ndim == 2 and not whole):
        raise ValueError(
            f"a run takes a mesh (shard,), or (replicate, shard) over all "
            f"{dist.get_world_size()} ranks, got {tuple(mesh.shape)}; build it with "
            f'init_device_mesh("{mesh.device_type}", (replicas, shards))'
        )


def _shards(tensor: Tensor) -> int:
    """How many ranks hold different parts of a tensor (count)."""
    if not is_dtensor(tensor):
        return 1
    mesh, placements = tensor.device_mesh, tensor.placements
    return math.prod(mesh.size(i) for i, p in enumerate(placements) if p.is_shard())


def _portable(error: Exception) -> Exception:
    """The error, or where it does not pickle, one with its words."""
    try:
        return pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
