"""Muon: momentum, made orthogonal, and scaled so that one rate serves all shapes.

    B <- mu*B + g                               momentum
    O  = NewtonSchulz(g + mu*B)                 Nesterov look-ahead
    W <- (1 - lr*wd)*W - lr*0.2*sqrt(max(m, n))*O

Legend: W, g, B, O are m x n matrices; a declared stack (E, m, n) is E of them.
Units: lr is the root mean square of a step divided by about 0.2 (the size of an AdamW
step), so it can be compared with an AdamW learning rate.
Sources: Jordan 2024 for the step; Liu et al. 2025, arXiv:2502.16982, section 2.2 for
weight decay and the factor 0.2*sqrt(max(m, n)). Taught in chapter 03.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.optim import Optimizer

from stacklm.optim.checks import (
    check_muon_gradient,
    check_muon_group,
    check_muon_parameter,
)
from stacklm.optim.newton_schulz import orthogonalize_bucketed
from stacklm.optim.plan import CPU_STACK_BYTES, MAX_STACK_BYTES
from stacklm.optim.state import (
    check_muon_state,
    groups_to_load,
    momentum_dtype,
    momentum_to_load,
    name_of,
)

# Liu et al. 2025, section 2.2: the low end of the band, 0.2 to 0.4, that they measured
# for the root mean square of AdamW's update.
RMS_OF_ADAMW = 0.2


def muon_scale(m: int, n: int) -> float:
    """Makes the step of an m x n matrix as large as one of AdamW.

    The entries of a semi-orthogonal m x n matrix have a root mean square
    of 1/sqrt(max(m, n)), which this undoes.

    Args:
        m: Rows.
        n: Columns.

    Returns:
        0.2 * sqrt(max(m, n)).

    References:
        Liu et al. 2025, arXiv:2502.16982, equation 4.
    """
    return RMS_OF_ADAMW * math.sqrt(max(m, n))


class Muon(Optimizer):
    """Muon for the hidden matrices of a network; the rest belongs on AdamW.

    ``step()`` never waits for the device, so it cannot look for NaN or infinities: a
    gradient with one makes its whole matrix NaN, and its momentum for good. Check
    before the step, with ``torch.nn.utils.clip_grad_norm_(...,
    error_if_nonfinite=True)``, or skip it with ``torch.amp.GradScaler``.

    Args:
        params: Matrices (m, n); or (name, matrix) pairs, such as
            ``model.named_parameters()`` gives, so that errors can name them; or dicts
            of them with options of their own. ``{"params": [...], "stacked": True}``
            declares stacks (E, m, n), E independent matrices in one parameter.
        lr: Learning rate, a number or a tensor of one element.
        momentum: mu, in [0, 1).
        nesterov: Look ahead, g + mu*B; otherwise B alone is orthogonalized.
        weight_decay: wd, decoupled: W shrinks by 1 - lr*wd before the step.
        ns_steps: Number of Newton–Schulz steps.
        batched: True for one stack per shape, False for one matrix at a time, None for
            what is faster on the device: stacks, small ones on a CPU.
        ns_dtype: Dtype of Newton–Schulz; None means at least float32. On CUDA, float32
            is TF32 if ``torch.set_float32_matmul_precision`` says so.
        ns_method: "auto", or a form by name: see ``stacklm.optim.plan``.

    State per parameter: ``momentum_buffer``, B above, in at least float32 whatever the
    dtype of the parameter, also after ``load_state_dict``.

    Raises:
        TypeError: A parameter or option of the wrong type.
        ValueError: A parameter that is no matrix, or an option out of range.

    Example:
        >>> layer = torch.nn.Linear(64, 64, bias=False)
        >>> muon = Muon(layer.named_parameters(), lr=0.02)
        >>> layer(torch.ones(1, 64)).sum().backward()
        >>> muon.step()

    References:
        Jordan 2024, https://kellerjordan.github.io/posts/muon/
        Liu et al. 2025, arXiv:2502.16982
    """

    def __init__(
        self,
        params,
        lr: float | Tensor = 0.02,
        momentum: float = 0.95,
        nesterov: bool = True,
        weight_decay: float = 0.1,
        ns_steps: int = 5,
        batched: bool | None = None,
        *,
        ns_dtype: torch.dtype | None = None,
        ns_method: str = "auto",
    ) -> None:
        defaults = {
            "lr": lr,
            "momentum": momentum,
            "nesterov": nesterov,
            "weight_decay": weight_decay,
            "ns_steps": ns_steps,
            "batched": batched,
            "stacked": False,
            "ns_dtype": ns_dtype,
            "ns_method": ns_method,
        }
        check_muon_group(defaults)
        super().__init__(params, defaults)

    @torch.no_grad()
    def step(self, closure=None):
        """Update every matrix that has a gradient.

        Args:
            closure: Computes and returns the loss; run with gradients on.

        Returns:
            What ``closure`` returned, or None.

        Raises:
            TypeError: A gradient is sparse or complex; nothing changed.
            ValueError: A parameter got another shape or device since; nothing changed.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self._check_gradients()  # all of them, before the first change
        for group in self.param_groups:
            mu, wd = group["momentum"], group["weight_decay"]
            for W, G, B in self._matrices(group):  # lists of (m, n)
                lr = _rate(group["lr"], W[0].device)
                torch._foreach_mul_(B, mu)
                torch._foreach_add_(B, G)  # B <- mu*B + g
                look = B
                if group["nesterov"]:
                    look = torch._foreach_add(G, B, alpha=mu)  # g + mu*B
                D = _orthogonalize(look, group)
                torch._foreach_mul_(D, [muon_scale(*d.shape) for d in D])
                torch._foreach_mul_(D, lr)
                torch._foreach_mul_(W, 1 - lr * wd)  # decay, then step
                torch._foreach_sub_(W, D)
        return loss

    def add_param_group(self, param_group: dict) -> None:
        """Add a group; called for each group at construction too.

        Args:
            param_group: ``{"params": ..., **options}``, as for ``params`` of the class.

        Raises:
            TypeError: A parameter or option of the wrong type.
            ValueError: A parameter that is no matrix or is given twice, or an option
                out of range. The optimizer is as it was before.
        """
        if not isinstance(param_group, dict):
            raise TypeError(f"a parameter group is a dict, got {param_group!r}")
        if "params" not in param_group:
            raise ValueError(
                f'a parameter group needs "params", got only {sorted(param_group)}'
            )
        group = {**self.defaults, **param_group}
        params = group["params"]
        if not isinstance(params, set):  # sets have no order; torch says so
            params = [params] if isinstance(params, Tensor) else list(params)
            group["params"] = params
            check_muon_group(group)
            seen: set[int] = set()
            for i, item in enumerate(params):
                name, p = item if isinstance(item, tuple) else (f"parameter {i}", item)
                check_muon_parameter(name, p, group["stacked"])
                if id(p) in seen:
                    raise ValueError(f"Muon got {name} twice; give it once")
                seen.add(id(p))
        super().add_param_group(group)

    def load_state_dict(self, state_dict: dict) -> None:
        """Load what ``state_dict`` returned, on any device, looped or batched.

        Momentum keeps its dtype (torch's own loading casts it to the parameter's) and
        is copied. ``batched`` and ``stacked`` stay as this optimizer was built.

        Args:
            state_dict: Of a ``Muon``; for ``torch.optim.Muon`` see
                ``from_torch_muon_state``.

        Raises:
            TypeError: An option is of the wrong type. Nothing changed.
            ValueError: The state is of another optimizer or has its parameters in
                another order, or a momentum buffer has not the shape of its parameter.
                Nothing changed.
        """
        buffers: dict[Tensor, Tensor] = {}

        def before(_, saved):
            check_muon_state(saved)
            buffers.update(momentum_to_load(saved, self.param_groups))
            groups = groups_to_load(saved, self.param_groups)
            return {**saved, "param_groups": groups}

        def after(_):
            for p, buffer in buffers.items():
                self.state[p]["momentum_buffer"] = buffer

        # As hooks, so that hooks of others still run, before and after these.
        handles = (
            self.register_load_state_dict_pre_hook(before),
            self.register_load_state_dict_post_hook(after, prepend=True),
        )
        try:
            super().load_state_dict(state_dict)
        finally:
            for handle in handles:
                handle.remove()

    def __setstate__(self, state: dict) -> None:
        super().__setstate__(state)
        for group in self.param_groups:  # pickles from before an option existed
            for option, value in self.defaults.items():
                group.setdefault(option, value)

    def _check_gradients(self) -> None:
        for group in self.param_groups:
            for i, p in enumerate(group["params"]):
                if p.grad is not None:
                    B = self.state.get(p, {}).get("momentum_buffer")
                    check_muon_gradient(name_of(group, i), p, B)

    def _matrices(self, group: dict):
        """Weights, gradients and momentum of a group as lists of 2-D views.

        One triple of lists per device and dtype: what one foreach call can take.
        """
        sets: dict[tuple, tuple[list, list, list]] = {}
        for p in group["params"]:
            if p.grad is None:
                continue
            state = self.state[p]
            if "momentum_buffer" not in state:
                zeros = torch.zeros_like(p, dtype=momentum_dtype(p))
                state["momentum_buffer"] = zeros
            tensors = (p.detach(), p.grad.detach(), state["momentum_buffer"])
            lists = sets.setdefault((p.device, p.dtype), ([], [], []))
            for matrices, tensor in zip(lists, tensors, strict=True):
                matrices.extend(tensor.unbind() if group["stacked"] else [tensor])
        return [lists for lists in sets.values() if lists[0]]


def _orthogonalize(dirs: list[Tensor], group: dict) -> list[Tensor]:
    """Newton–Schulz on every matrix, in stacks as ``batched`` says."""
    fastest = CPU_STACK_BYTES if dirs[0].device.type == "cpu" else MAX_STACK_BYTES
    return orthogonalize_bucketed(
        dirs,
        group["ns_steps"],
        ns_dtype=group["ns_dtype"],
        ns_method=group["ns_method"],
        max_stack_bytes={None: fastest, True: MAX_STACK_BYTES, False: 0}[
            group["batched"]
        ],
    )


def _rate(lr: float | Tensor, device: torch.device) -> float | Tensor:
    """The learning rate where foreach can use it; reads no accelerator's memory."""
    if isinstance(lr, Tensor) and lr.device.type != "cpu":
        return lr.detach().reshape(()).to(device, non_blocking=True)
    return float(lr)
