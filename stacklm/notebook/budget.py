"""What the chapter on the budget needs besides the configurations.

    noise scale  =  tr(covariance of a sample's gradient) / |mean gradient|^2

Recorded and published figures are read from ``book/measured``, the only place where
the book keeps numbers that a cell cannot compute. Taught in chapter 12.
"""

from __future__ import annotations

import json
import textwrap
from dataclasses import fields
from importlib.resources import files

import torch
from torch import Tensor

from stacklm.config import TrainConfig

REASONS: dict[str, str] = {
    "muon_peak_lr": "swept on a small rung, one grid point back, times the root of the "
    "batch ratio, rounded down",
    "adamw_peak_lr": "held at a fixed ratio to Muon's during the sweep; the ratio is "
    "empirical",
    "warmup_steps": "momentum and second moments need time before full steps are safe; "
    "a twentieth of the run",
    "total_steps": "tokens over tokens per step, to the nearest step",
    "decay_frac": "most of the gain that decay brings comes within a tenth of the run",
    "micro_batch_size": "as large as memory allows; only its product with "
    "grad_accum_steps enters the result",
    "seq_len": "the context that the model is to have",
    "grad_accum_steps": "brings a step to half a million tokens; with many more too "
    "few steps would be left",
    "grad_clip": "keeps one bad batch from taking over the momentum; a factor that "
    "never changes does nothing",
    "qk_clip_tau": "far above the logits of a healthy run; 30 while debugging, to see "
    "it fire",
    "qk_clip_every": "tier 1 costs next to nothing, so every step; 200 with exact "
    "maxima",
    "weight_decay": "keeps weights from growing without bound; none on gains",
    "momentum": "averages over about twenty steps; Nesterov on top of it",
    "betas": "a second moment that forgets in twenty steps recovers soon from a spike",
    "seed": "of weights and data order; three of them where a difference is claimed",
}
"""Why each field of ``TrainConfig`` has the value it has."""


def knobs(cfg: TrainConfig) -> str:
    """List every field of a run with its value and the reason for it.

    Args:
        cfg: The run; its own values are shown.

    Returns:
        Two lines or more per field, none wider than 75 columns.

    Example:
        >>> print(knobs(TrainConfig()).splitlines()[0])
        muon_peak_lr = 0.02
    """
    lines = []
    for field in fields(cfg):
        lines.append(f"{field.name} = {getattr(cfg, field.name)}")
        indent = {"initial_indent": "    ", "subsequent_indent": "    "}
        lines += textwrap.wrap(REASONS[field.name], 75, **indent)
    return "\n".join(lines)


def noise_scale(gradients: list[Tensor], size: int) -> float:
    """Estimate the simple noise scale, from which the critical batch size is guessed.

    With G the true gradient and S the trace of the covariance of one sample's, the
    mean of |g|^2 over batches of b samples is |G|^2 + S / b. Two batch sizes give both.

    Args:
        gradients: One flat gradient per batch, (P,) each, at least two, from batches
            that share no sample.
        size: Samples in each batch (count, in whatever unit the answer is to have).

    Returns:
        S / |G|^2, in samples; infinite if |G|^2 cannot be told from zero.

    Raises:
        ValueError: Fewer than two gradients.

    References:
        McCandlish et al. 2018, arXiv:1812.06162, appendix A.1.
    """
    if len(gradients) < 2:
        raise ValueError(
            f"a noise scale needs at least two gradients, got {len(gradients)}; cut "
            f"the data into more batches"
        )
    stack = torch.stack(gradients).double()  # (n, P)
    large = size * len(gradients)
    small_norm = stack.square().sum(1).mean()
    large_norm = stack.mean(0).square().sum()
    signal = (large * large_norm - size * small_norm) / (large - size)
    noise = (small_norm - large_norm) / (1 / size - 1 / large)
    return float(noise / signal) if signal > 0 else float("inf")


def recorded(name: str) -> dict:
    """Read a file of recorded figures.

    Args:
        name: Of the file in ``book/measured``, without its ending.

    Returns:
        Its content.

    Raises:
        FileNotFoundError: There is none of this name; the message lists those that are.
    """
    folder = files("stacklm.notebook") / "measured"
    there = sorted(f.name[:-5] for f in folder.iterdir() if f.name.endswith(".json"))
    if name not in there:
        raise FileNotFoundError(
            f"there are no figures called {name!r} in book/measured, only "
            f"{', '.join(there)}"
        )
    return json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
