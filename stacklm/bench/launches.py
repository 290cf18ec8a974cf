"""What a function asks the device to do, counted with torch's profiler.

On a GPU each operation that touches data is a launch of a kernel. A CPU runs the same
operations, so the count can be taken there.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

PRODUCTS = frozenset({"aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm"})
# Operations that read and write whole tensors. Views, shapes and allocation are left
# out, and so is aten::copy_, which on a CPU also counts numbers made into tensors.
PASSES = frozenset(
    {
        "aten::abs",
        "aten::add",
        "aten::add_",
        "aten::amax",
        "aten::cat",
        "aten::clamp",
        "aten::clone",
        "aten::div",
        "aten::eq",
        "aten::linalg_vector_norm",
        "aten::masked_fill_",
        "aten::mul",
    }
)


def launches(run: Callable[[], object]) -> dict[str, int]:
    """Count the operations of Newton–Schulz that a GPU would launch kernels for.

    Args:
        run: Called once.

    Returns:
        {"products": of matrices, "passes": other operations over whole tensors}.
    """
    # On the CPU, where operations of aten are, whatever they launch. Without
    # acc_events, torch 2.11 warns.
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities, acc_events=True) as profile:
        run()
    # Some operations call themselves once more, with a place for the result.
    names = [
        event.name
        for event in profile.events()
        if event.cpu_parent is None or event.cpu_parent.name != event.name
    ]
    return {
        "products": sum(name in PRODUCTS for name in names),
        "passes": sum(name in PASSES for name in names),
    }
