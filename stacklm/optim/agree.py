"""Ranks agree on a step before they take it, so that none waits for another in vain.

    each rank:  digest of what it is about to do  ->  one all-reduce of two integers

Only if the digests differ do the ranks tell each other what they had, and every rank
raises. A gradient that is None on some ranks would otherwise leave the others waiting
in an exchange that never comes.

The two integers travel between hosts, by gloo, so that no accelerator is waited for.
Taught in chapter 13.
"""

from __future__ import annotations

import hashlib

import torch
import torch.distributed as dist

from stacklm.optim.layout import control_timeout

# By ranks: the default group that they were made under, and the group.
_GROUPS: dict[tuple[int, ...], tuple[dist.ProcessGroup, dist.ProcessGroup]] = {}


def check_agreement(
    ranks: tuple[int, ...],
    device: str,
    facts: list[str],
    failed: Exception | None = None,
) -> None:
    """Compare what every rank is about to do.

    Args:
        ranks: Who takes part; all of them must call this.
        device: Type of device of the default group's collectives.
        facts: What must be the same everywhere, a line each.
        failed: What already stops this rank; the others are told.

    Raises:
        Exception: ``failed``, if others did not fail in the same way.
        ValueError: They differ; on every rank, naming the first difference.
        RuntimeError: A rank did not come within the timeout of the default group, or
            its process ended.
    """
    if len(ranks) == 1:
        return
    if failed is not None:
        facts = [f"{type(failed).__name__}: {failed}"]
    digest = hashlib.sha256("\n".join(facts).encode()).digest()
    number = int.from_bytes(digest[:7], "big")
    both = torch.tensor([number, -number])
    try:
        group = _control_group(ranks, device)
        dist.all_reduce(both, dist.ReduceOp.MAX, group=group)
    except RuntimeError as error:
        raise RuntimeError(
            f"rank {dist.get_rank()} waited for the others before a step of Muon, and "
            f"one did not come ({_first_line(error)}); every rank must call step() as "
            "often as the others: look for the first error in their output, then "
            "start all of them again"
        ) from error
    largest, smallest = both[0].item(), -both[1].item()
    if largest != smallest:
        everyone: list = [None] * len(ranks)
        dist.all_gather_object(everyone, facts, group=group)
        if failed is not None:
            raise failed
        raise ValueError(_difference(dict(zip(ranks, everyone, strict=True))))


def _control_group(ranks: tuple[int, ...], device: str):
    """A gloo group of these ranks, made once per default group.

    Made by its members alone, a group gets a name that differs between ranks which
    have other numbers of groups, and they wait in vain (pytorch/pytorch 173608). So
    all ranks make theirs together; a part of them has no other way.
    """
    world, group = _GROUPS.get(ranks, (None, None))
    if world is not dist.group.WORLD:
        group = dist.new_group(
            list(ranks),
            timeout=control_timeout(device),
            backend="gloo",
            use_local_synchronization=len(ranks) < dist.get_world_size(),
        )
        _GROUPS[ranks] = (dist.group.WORLD, group)
    return group


def _difference(facts: dict[int, list[str]]) -> str:
    """Name the first line that is not the same everywhere, and who has what."""
    longest = max(map(len, facts.values()))
    for i in range(longest):
        found: dict[str, list[int]] = {}
        for rank, lines in facts.items():
            line = lines[i] if i < len(lines) else "nothing"
            found.setdefault(line, []).append(rank)
        if len(found) > 1:
            break
    who = "; ".join(f"{line} on {_named(ranks)}" for line, ranks in found.items())
    return (
        f"all ranks must take the same step of Muon, got {who}; nothing was changed. "
        "Give every rank the same parameters, options and gradients: a parameter "
        "that only some ranks used needs p.grad = torch.zeros_like(p) on the others"
    )


def _named(ranks: list[int]) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0].rstrip(". ") if str(error) else "no text"
