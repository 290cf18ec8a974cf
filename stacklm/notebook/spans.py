"""When a rank exchanges and when it multiplies, by torch's profiler.

Units: milliseconds since the step began. Taught in chapter 13.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import torch.distributed as dist
from torch.profiler import ProfilerActivity, profile

from stacklm.bench import mesh_of, prepare_step
from stacklm.notebook.sharding import Shapes, quiet

PRODUCTS = ("aten::mm", "aten::bmm", "aten::addmm", "aten::baddbmm")
"""What the profiler calls products of matrices."""


@dataclass(frozen=True)
class Span:
    """A part of a step."""

    kind: str
    """"exchange" or "product"."""
    begin: float
    """Since the step began (milliseconds)."""
    end: float
    """Likewise."""


def watch_step(name: str, shapes: Shapes, warmup: int = 2) -> list[Span]:
    """Profile a step: when this rank exchanges, and when it multiplies.

    Args:
        name: One of ``stacklm.bench.steps.OPTIMIZERS``.
        shapes: (m, n) of each weight.
        warmup: Steps before it.

    Returns:
        Spans in order of their begin. An exchange lasts until its data are there, so it
        includes waiting for ranks that come later.
    """
    step, _ = prepare_step(name, shapes, mesh_of())
    for _ in range(warmup):
        step()
    dist.barrier()
    kinds = [ProfilerActivity.CPU]
    with quiet(), profile(activities=kinds, acc_events=True) as seen:
        step()
    spans = []
    for event in seen.events():
        gloo, product = event.name.startswith("gloo:"), event.name in PRODUCTS
        if gloo or product:
            at = event.time_range
            kind = "exchange" if gloo else "product"
            spans.append(Span(kind, at.start / 1e3, at.end / 1e3))
    return _innermost(sorted(spans, key=lambda span: span.begin))


def _innermost(spans: list[Span]) -> list[Span]:
    """Leave out a product around another: DTensor's, which includes its waiting."""
    products = [span for span in spans if span.kind == "product"]
    outer = {
        id(span)
        for span, after in pairwise(products)
        if after.begin < span.end  # one thread, so it lies inside
    }
    return [span for span in spans if id(span) not in outer]
