"""What stacklm.optim refuses, each with the rule, the value and the remedy.

Every check runs before anything is changed. Legend: K or E matrices of m x n.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.parameter import is_lazy

NS_METHODS = ("auto", "direct", "direct-mirrored", "gram", "gram-mirrored")
HALVES = (torch.float16, torch.bfloat16)
FLOATS = (*HALVES, torch.float32, torch.float64)


def check_matrices(G, ndim: int, steps: int, ns_dtype, ns_method: str) -> None:
    """Refuse what Newton–Schulz cannot take.

    Raises:
        TypeError: ``G`` is no tensor, or not of a real floating dtype.
        ValueError: ``G`` is sparse or has not ``ndim`` dimensions, or an option is
            unknown (see ``check_ns_options``).
    """
    form = {2: "one (m, n) matrix", 3: "a (K, m, n) stack of matrices"}[ndim]
    if not isinstance(G, Tensor):
        raise TypeError(
            f"Newton–Schulz takes {form} as a tensor, got {type(G).__name__}"
        )
    if G.layout is not torch.strided:
        raise ValueError(
            f"Newton–Schulz takes dense tensors, got layout {G.layout}; "
            "call .to_dense() first"
        )
    if G.dtype not in FLOATS:
        raise TypeError(
            f"Newton–Schulz takes real floating-point tensors, got {G.dtype}; "
            "cast it first"
        )
    if G.ndim != ndim:
        remedy = {2: "zeropower_via_newtonschulz5", 3: "zeropower_batched"}.get(G.ndim)
        raise ValueError(
            f"Newton–Schulz takes {form} here, got shape {tuple(G.shape)}; "
            + (f"use {remedy}" if remedy else "reshape it to matrices first")
        )
    check_ns_options(steps, ns_dtype, ns_method, least_steps=0)


def check_out(dirs: Sequence[Tensor], out: Sequence[Tensor]) -> None:
    """Refuse places for results that do not fit the matrices.

    Raises:
        ValueError: There is not one for each matrix, or one has another shape, dtype
            or device.
    """
    if len(out) != len(dirs):
        raise ValueError(
            f"out must have a tensor for each of {len(dirs)} matrices, got {len(out)}"
        )
    for i, (G, place) in enumerate(zip(dirs, out, strict=True)):
        want, got = ((tuple(x.shape), x.dtype, x.device) for x in (G, place))
        if want != got:
            raise ValueError(
                f"out[{i}] must have shape, dtype and device of its matrix, "
                f"{', '.join(map(str, want))}, got {', '.join(map(str, got))}"
            )


def check_ns_options(steps, ns_dtype, ns_method, *, least_steps: int = 1) -> None:
    """Refuse a number of steps, a dtype or a method that the iteration cannot use.

    Raises:
        TypeError: ``steps`` is no int, or ``ns_dtype`` no torch dtype.
        ValueError: ``steps`` is below ``least_steps``, ``ns_dtype`` is not a real
            floating dtype or too coarse for ``ns_method``, or ``ns_method`` is not one
            of ``NS_METHODS``.
    """
    if isinstance(steps, bool) or not isinstance(steps, int):
        raise TypeError(f"ns_steps must be an int, got {steps!r}")
    if steps < least_steps:
        raise ValueError(f"ns_steps must be at least {least_steps}, got {steps}")
    if ns_dtype is not None and not isinstance(ns_dtype, torch.dtype):
        raise TypeError(f"ns_dtype must be a torch dtype or None, got {ns_dtype!r}")
    if ns_dtype is not None and ns_dtype not in FLOATS:
        names = ", ".join(str(dtype) for dtype in FLOATS)
        raise ValueError(f"ns_dtype must be None or one of {names}, got {ns_dtype}")
    if ns_method not in NS_METHODS:
        *most, last = (f'"{name}"' for name in NS_METHODS)
        allowed = f"{', '.join(most)} or {last}"
        raise ValueError(f"ns_method must be {allowed}, got {ns_method!r}")
    if ns_method.startswith("gram") and ns_dtype in HALVES:
        raise ValueError(
            f'ns_method "{ns_method}" needs at least float32, because its squares of '
            f"singular values drown in the rounding of {ns_dtype}; take "
            '"direct" or leave ns_dtype out'
        )


def check_lr(lr) -> None:
    """Refuse a learning rate that is not one finite number >= 0, or a tensor of one.

    A tensor on an accelerator is not read, for that would wait for the device.

    Raises:
        TypeError: ``lr`` is neither a number nor a floating-point tensor.
        ValueError: ``lr`` is negative or not finite, or a tensor of several elements.
    """
    if isinstance(lr, Tensor):
        if not lr.is_floating_point():
            raise TypeError(f"a tensor lr must be floating point, got {lr.dtype}")
        if lr.numel() != 1:
            raise ValueError(
                f"a tensor lr must have one element, got shape {tuple(lr.shape)}; "
                "for several rates use several parameter groups"
            )
        if lr.device.type != "cpu":
            return
        lr = lr.item()
    _check_number("lr", lr)


def check_muon_group(group: dict) -> None:
    """Refuse hyperparameters that Muon cannot use.

    Raises:
        TypeError: A value is of the wrong type.
        ValueError: A value is out of range.
    """
    check_lr(group["lr"])
    _check_number("weight_decay", group["weight_decay"])
    _check_number("momentum", group["momentum"])
    if group["momentum"] >= 1:
        raise ValueError(f"momentum must be in [0, 1), got {group['momentum']}")
    for option, allowed in (
        ("nesterov", (True, False)),
        ("stacked", (True, False)),
        ("batched", (True, False, None)),
    ):
        if not any(group[option] is value for value in allowed):
            raise TypeError(f"{option} must be one of {allowed}, got {group[option]!r}")
    check_ns_options(group["ns_steps"], group["ns_dtype"], group["ns_method"])
    if group.get("maximize"):
        raise ValueError("Muon minimizes, got maximize=True; negate the loss instead")


def check_muon_parameter(name: str, p: Tensor, stacked: bool) -> None:
    """Refuse a parameter that is no matrix, or no declared stack of matrices.

    Raises:
        TypeError: The parameter is no tensor, complex, integer or sparse.
        ValueError: It is not initialized yet, or its shape is not what was declared.
    """
    if not isinstance(p, Tensor):
        raise TypeError(f"Muon takes tensors, got {name} of type {type(p).__name__}")
    if is_lazy(p):
        raise ValueError(f"Muon got {name} not initialized; run one forward pass first")
    if p.layout is not torch.strided:
        raise TypeError(
            f"Muon takes dense matrices, got {name} of layout {p.layout}; "
            "route it to another optimizer"
        )
    if p.dtype not in FLOATS:
        raise TypeError(
            f"Muon takes real floating-point matrices, got {name} of dtype {p.dtype}; "
            "route it to AdamW or freeze it"
        )
    shape = tuple(p.shape)
    if stacked and p.ndim != 3:
        raise ValueError(
            f"a stacked group takes (E, m, n) parameters, got {name} of shape "
            f'{shape}; put it in a group without "stacked"'
        )
    if not stacked and p.ndim != 2:
        stack = '{"params": [...], "stacked": True}'
        raise ValueError(
            f"Muon takes 2-D matrices, got {name} of shape {shape}; route it to AdamW"
            + (f", or declare a stack of matrices with {stack}" if p.ndim == 3 else "")
        )
    if p.numel() and min(shape[-2:]) < 2:
        raise ValueError(
            f"Muon takes matrices of at least 2 x 2, got {name} of shape {shape}, "
            "a vector, of which only the direction would be left; route it to AdamW"
        )


def check_muon_gradient(name: str, p: Tensor, B: Tensor | None) -> None:
    """Refuse a gradient that is not a dense real tensor, or fits its parameter no more.

    The values are not looked at. ``B`` is the momentum so far.

    Raises:
        TypeError: The gradient is sparse or complex.
        ValueError: Gradient or momentum has another shape or device than the parameter.
    """
    g = p.grad
    if g.layout is not torch.strided:
        raise TypeError(
            f"Muon takes dense gradients, got one of layout {g.layout} for {name}; "
            "build its module with sparse=False or route it to SparseAdam"
        )
    if g.is_complex():
        raise TypeError(
            f"Muon takes real gradients, got {g.dtype} for {name}; route it to AdamW"
        )
    for what, t in (("gradient", g), ("momentum", p if B is None else B)):
        if (t.shape, t.device) != (p.shape, p.device):
            raise ValueError(
                f"{name} is of shape {tuple(p.shape)} on {p.device}, its {what} of "
                f"shape {tuple(t.shape)} on {t.device}; build Muon after moving or "
                "reshaping the model, and call zero_grad() first"
            )
        if getattr(t, "placements", None) != getattr(p, "placements", None):
            raise ValueError(
                f"{name} is laid out as {getattr(p, 'placements', 'a plain tensor')}, "
                f"its {what} as {getattr(t, 'placements', 'a plain tensor')}; call "
                "redistribute on it first, or build Muon after fully_shard"
            )


def _check_number(name: str, value) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name} must be a number, got {value!r}")
    if not (math.isfinite(value) and value >= 0):
        raise ValueError(f"{name} must be finite and at least 0, got {value}")
