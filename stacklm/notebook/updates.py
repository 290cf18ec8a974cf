"""What an optimizer adds to a matrix, measured while it trains.

A step of AdamW or Muon shrinks W by 1 - lr*wd and then subtracts lr times an update.
Both are known, so the update can be had from W before and after, whatever the optimizer
does inside. Used by chapter 03.
"""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor
from torch.optim import Optimizer

from stacklm.config import toy_config
from stacklm.model import Stack100M


def rms(M: Tensor) -> float:
    """Root of the mean of the squares of all entries, in the unit of the entries.

    Args:
        M: Any shape.

    Returns:
        A float.
    """
    return M.square().mean().sqrt().item()


def spectral_excess(M: Tensor) -> float:
    """Spectral norm over the least that a matrix of its RMS can have.

    The squares of the min(m, n) singular values add up to mn * RMS**2, so the largest
    is at least RMS * sqrt(max(m, n)). Multiples of a polar factor reach that.

    Args:
        M: (m, n), not zero.

    Returns:
        A float, from 1 to sqrt(min(m, n)).
    """
    least = rms(M) * max(M.shape) ** 0.5
    return torch.linalg.matrix_norm(M, 2).item() / least


def narrow_toy(seed: int = 0) -> Stack100M:
    """Build a model of one narrow block whose matrices have Stack-100M's long sides.

    Those are 512 and 1,408, so the factor 0.2*sqrt(max(m, n)) is that of Stack-100M,
    while the short side, which costs, is 32. For a ``ToyLanguage`` of 32 tokens.

    Args:
        seed: Of the initial weights; sets torch's global seed.

    Returns:
        The model, in torch's default dtype.
    """
    torch.manual_seed(seed)
    sides = {"n_kv_heads": 4, "head_dim": 128, "intermediate": 1408}  # 4 * 128 = 512
    return Stack100M(toy_config(vocab_size=32, d_model=32, n_layers=1, **sides))


def block_matrices(model: Stack100M, index: int = 0) -> dict[str, Tensor]:
    """Return the seven hidden matrices of one block, in the order of their use.

    Args:
        model: Any Stack.
        index: Which block.

    Returns:
        {name: weight (m, n)}: wq, wk, wv, wo, w_gate, w_up, w_down.
    """
    named = model.blocks[index].named_parameters()
    return {name.split(".")[-2]: p for name, p in named if p.ndim == 2}


def watch_updates(
    optimizer: Optimizer,
    named: Mapping[str, Tensor],
    measure: Callable[[Tensor], float] = rms,
) -> dict[str, list[float]]:
    """Measure every update from now on: ((1 - lr*wd) * before - after) / lr.

    Args:
        optimizer: One with decoupled weight decay, such as AdamW and Muon. It is hooked
            and otherwise left as it is.
        named: The parameters to watch, by the name wanted in the result.
        measure: Of an update, shaped as its parameter.

    Returns:
        {name: list} to which every step appends one number; no unit.

    Raises:
        ValueError: A parameter is not in the optimizer; or, at a step, its learning
            rate is not positive, so that there is no update to be had.

    Example:
        >>> layer = torch.nn.Linear(4, 4, bias=False)
        >>> adamw = torch.optim.AdamW(layer.parameters(), lr=0.1)
        >>> sizes = watch_updates(adamw, {"layer": layer.weight})
        >>> layer(torch.ones(1, 4)).sum().backward()
        >>> adamw.step()
        >>> [round(size, 3) for size in sizes["layer"]]
        [1.0]
    """
    group_of = {
        id(p): group for group in optimizer.param_groups for p in group["params"]
    }
    if strange := [name for name, p in named.items() if id(p) not in group_of]:
        raise ValueError(
            f"watch_updates sees what its optimizer holds, and {strange} is not in it; "
            "pass the optimizer that was built with these parameters"
        )
    found: dict[str, list[float]] = {name: [] for name in named}
    before: dict[str, Tensor] = {}

    def keep(*_) -> None:
        before.update({name: p.detach().clone() for name, p in named.items()})

    def compare(*_) -> None:
        for name, p in named.items():
            lr = float(group_of[id(p)]["lr"])
            if lr <= 0:
                raise ValueError(
                    f"an update is a step divided by its learning rate, but that of "
                    f"{name} is {lr}; watch a run whose rates are positive"
                )
            kept = 1 - lr * group_of[id(p)]["weight_decay"]
            found[name].append(measure((kept * before[name] - p.detach()) / lr))

    optimizer.register_step_pre_hook(keep)
    optimizer.register_step_post_hook(compare)
    return found
