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
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.optim import Optimizer

from stacklm.optim.agree import check_agreement
from stacklm.optim.checks import (
    check_muon_gradient,
    check_muon_group,
    check_muon_parameter,
)
from stacklm.optim.layout import Layout, check_mesh, is_dtensor, layout_of
from stacklm.optim.pieces import facts_of, look_ahead, orthogonalize, pieces_of, rate_on
from stacklm.optim.state import (
    check_muon_state,
    groups_to_load,
    momentum_to_load,
    name_of,
)

if TYPE_CHECKING:  # loading it costs every import half a second
    from torch.distributed.device_mesh import DeviceMesh

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
        mesh: The ranks that all have a copy of the plain parameters and the same
            gradients, as under DDP; they share the work. DTensors, as FSDP2 makes
            them, need no mesh: they bring their own.

    Ranks agree on a step in a group of their own, made in the first. If they are a part
    of all ranks, each must be in as many groups as the others by then (torch up to
    2.14), and your other groups must be made before it (from 2.15, where the ranks
    outside do not count this one): torch names groups by counting.

    State per parameter: ``momentum_buffer``, B above, in at least float32 whatever the
    dtype of the parameter, also after ``load_state_dict``; a DTensor if that is one.

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
        mesh: DeviceMesh | None = None,
    ) -> None:
        if mesh is not None:
            check_mesh(mesh)
        self._mesh, self._layouts = mesh, {}
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
        """Update every matrix that has a gradient. Collective if there are ranks.

        Args:
            closure: Computes and returns the loss; run with gradients on.

        Returns:
            What ``closure`` returned, or None.

        Raises:
            TypeError: A gradient is sparse or complex; nothing changed.
            ValueError: A parameter got another shape or device since, or ranks differ
                in what they are about to do; nothing changed.
            RuntimeError: A rank did not come within its group's timeout.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self._check_step()  # all of it, before the first change
        for group in self.param_groups:
            wd = group["weight_decay"]
            for some in pieces_of(group, self.state, self._layout):
                look = look_ahead(some, group)  # B <- mu*B + g; g + mu*B
                D = orthogonalize(look, some, group)
                scales = [muon_scale(*shape) for shape in some.shapes()]
                W, D, scales = some.held(some.weights, D, scales)
                if not W:
                    continue  # this rank has no rows of any of them
                lr = rate_on(group["lr"], W[0].device)
                torch._foreach_mul_(D, scales)
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
                self._layout(p, name)
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
        self._mesh, self._layouts = None, {}  # process groups do not travel
        for group in self.param_groups:  # pickles from before an option existed
            for option, value in self.defaults.items():
                group.setdefault(option, value)

    def _layout(self, p: Tensor, name: str = "a parameter") -> Layout | None:
        """How a parameter lies over ranks, found once per mesh and placement."""
        key = (p.device_mesh, p.placements) if is_dtensor(p) else None
        if key not in self._layouts:
            self._layouts[key] = layout_of(name, p, self._mesh)
        return self._layouts[key]

    def _check_step(self) -> None:
        """Look at all gradients, then make sure that other ranks saw the same."""
        failed = None
        try:
            for group in self.param_groups:
                for i, p in enumerate(group["params"]):
                    if p.grad is not None:
                        B = self.state.get(p, {}).get("momentum_buffer")
                        check_muon_gradient(name_of(group, i), p, B)
        except (TypeError, ValueError) as error:
            failed = error  # the other ranks must hear of it before it is raised
        layouts = [
            self._layout(p) for group in self.param_groups for p in group["params"]
        ]
        company = {(each.ranks, each.device) for each in layouts if each is not None}
        for ranks, device in sorted(company):
            check_agreement(ranks, device, facts_of(self.param_groups), failed)
        if failed is not None:
            raise failed
