"""Every number that defines the model and its run, and the arithmetic on them.

``StackConfig()`` is Stack-100M itself and ``TrainConfig()`` its run over 20 billion
tokens. ``toy_config()`` is small enough for every test, and ``LADDER`` holds four sizes
between the two. The classes are frozen: derive a variant with ``dataclasses.replace``.

Legend: V = vocab_size, d = d_model, L = n_layers, H = n_heads, d_h = head_dim. Sizes
are counts, learning rates are per step; the unit stands below every field.
Taught in chapters 01 (the parameters), 05 (the ladder) and 12 (the budget).

Nothing beyond the standard library is needed: reading a configuration loads no torch.
"""

from dataclasses import dataclass, fields, replace

from stacklm._checks import check_at_least, check_kinds, check_positive
from stacklm._counts import ParamCount, count_params, flops_per_token

__all__ = [
    "LADDER",
    "ParamCount",
    "StackConfig",
    "TrainConfig",
    "count_params",
    "flops_per_token",
    "toy_config",
]


@dataclass(frozen=True)
class StackConfig:
    """The shape of a model; the defaults are Stack-100M.

    Raises:
        TypeError: if a value is of the wrong kind (a bool is not a count,
            nor is 8.0).
        ValueError: if the values cannot make a model together.

    Example:
        >>> StackConfig().n_layers
        30
        >>> StackConfig(n_heads=8, n_kv_heads=8).groups
        1
    """

    vocab_size: int = 32_768
    """Rows of the embedding: ids run from 0 to vocab_size - 1 (count)."""
    d_model: int = 512
    """Width of the residual stream (count of features)."""
    n_layers: int = 30
    """Blocks, each one attention and one MLP (count)."""
    n_heads: int = 8
    """Query heads per layer (count)."""
    n_kv_heads: int = 2
    """KV heads per layer; each serves n_heads / n_kv_heads (count)."""
    head_dim: int = 64
    """Width of one head; even, as RoPE turns pairs (count of features)."""
    intermediate: int = 1_408
    """Hidden width of the SwiGLU MLP (count of features)."""
    max_seq_len: int = 2_048
    """Longest sequence that the model accepts (tokens)."""
    rope_theta: float = 10_000.0
    """Pair i turns by rope_theta**(-2i / head_dim) (radians per token)."""
    tie_embeddings: bool = True
    """Whether the output head is the embedding itself (yes or no)."""
    qk_norm: bool = True
    """Whether queries and keys pass an RMSNorm before RoPE (yes or no)."""
    per_head_gains: bool = False
    """Whether every head has QK-norm gains of its own (yes or no)."""
    attn_soft_cap: float = 0.0
    """Cap c in c * tanh(s / c) on each logit; 0 for none (logit units)."""
    norm_eps: float = 1e-5
    """Added to the mean square in RMSNorm (squared activation units)."""

    def __post_init__(self):
        """Reject wrong kinds first, then single values, then combinations."""
        check_kinds(self)
        check_at_least(self, 1, [f.name for f in fields(self) if f.type is int])
        check_positive(self, ["rope_theta", "norm_eps"])
        check_at_least(self, 0, ["attn_soft_cap"], remedy="0 turns it off")
        if self.n_heads % self.n_kv_heads:
            raise ValueError(
                f"n_heads must be a multiple of n_kv_heads, got {self.n_heads} and "
                f"{self.n_kv_heads}; each KV head serves the same number of query heads"
            )
        if self.head_dim % 2:
            raise ValueError(
                f"head_dim must be even, got {self.head_dim}; RoPE rotates features "
                f"in pairs, so use {self.head_dim + 1}"
            )
        if self.per_head_gains and not self.qk_norm:
            raise ValueError(
                "per_head_gains=True needs qk_norm=True, got qk_norm=False; the gains "
                "belong to QK-norm, so turn it on or leave per_head_gains out"
            )

    @property
    def groups(self) -> int:
        """Query heads that share one key and value head (count)."""
        return self.n_heads // self.n_kv_heads


@dataclass(frozen=True)
class TrainConfig:
    """The run of a model; the defaults are Stack-100M's 20 billion tokens.

    Raises:
        TypeError: if a value is of the wrong kind.
        ValueError: if a value is out of range or the schedule exceeds the
            run.

    Example:
        >>> TrainConfig().tokens_per_step
        524288
        >>> TrainConfig().steps_for(20e9)
        38147
    """

    muon_peak_lr: float = 0.02
    """Peak learning rate of Muon, before its shape scale (per step)."""
    adamw_peak_lr: float = 3e-3
    """Peak learning rate of AdamW (per step)."""
    warmup_steps: int = 2_000
    """Steps while learning rates rise; 0 for none (optimizer steps)."""
    total_steps: int = 38_147
    """Length of the run, round(tokens / batch) (optimizer steps)."""
    decay_frac: float = 0.10
    """Last part, where learning rates fall (fraction of total_steps)."""
    micro_batch_size: int = 32
    """Sequences per forward pass (count)."""
    seq_len: int = 2_048
    """Length of one sequence (tokens)."""
    grad_accum_steps: int = 8
    """Micro-batches whose gradients are averaged into one step (count)."""
    grad_clip: float = 1.0
    """Largest global gradient norm; 0 turns clipping off (L2 norm)."""
    qk_clip_tau: float = 100.0
    """Largest attention logit that QK-clip leaves alone (logit units)."""
    qk_clip_every: int = 1
    """Steps from QK-clip to QK-clip; 0 turns it off (optimizer steps)."""
    weight_decay: float = 0.1
    """Decoupled decay, times learning rate; none on gains (per step)."""
    momentum: float = 0.95
    """Muon's momentum mu in B <- mu * B + g (fraction kept per step)."""
    betas: tuple[float, float] = (0.9, 0.95)
    """AdamW's first and second moment decay (fractions kept per step)."""
    seed: int = 0
    """Seed of weights and data order (any integer from 0)."""

    def __post_init__(self):
        """Reject wrong kinds first, then single values, then a schedule too long."""
        check_kinds(self)
        check_positive(self, ["muon_peak_lr", "adamw_peak_lr", "qk_clip_tau"])
        check_at_least(self, 1, ["total_steps", "micro_batch_size", "seq_len"])
        check_at_least(self, 1, ["grad_accum_steps"])
        check_at_least(self, 0, ["warmup_steps", "weight_decay", "seed"])
        off = "0 turns it off"
        check_at_least(self, 0, ["grad_clip", "qk_clip_every"], remedy=off)
        if not 0 <= self.decay_frac <= 1:
            raise ValueError(
                f"decay_frac is a fraction of the run, from 0 to 1, got "
                f"{self.decay_frac}; divide the decay steps by total_steps"
            )
        for name, decays in (
            ("momentum", (self.momentum,)),
            ("betas", self.betas),
        ):
            if not all(0 <= decay < 1 for decay in decays):
                raise ValueError(
                    f"{name} must lie in [0, 1), got {getattr(self, name)}; 1 would "
                    f"never forget, and 0 keeps no memory"
                )
        if self.stable_steps < 0:
            raise ValueError(
                f"warmup and decay must fit into the run: {self.warmup_steps} + "
                f"{self.decay_steps} steps are more than total_steps = "
                f"{self.total_steps}; shorten warmup_steps or lower decay_frac"
            )

    @property
    def tokens_per_step(self) -> int:
        """Tokens behind one optimizer step: micro-batch x length x accumulation."""
        return self.micro_batch_size * self.seq_len * self.grad_accum_steps

    @property
    def decay_steps(self) -> int:
        """Steps of the decay phase: int(decay_frac * total_steps)."""
        return int(self.decay_frac * self.total_steps)

    @property
    def stable_steps(self) -> int:
        """Steps between warmup and decay."""
        return self.total_steps - self.warmup_steps - self.decay_steps

    @property
    def first_decay_step(self) -> int:
        """Index of the first step of the decay phase, counting from 0."""
        return self.total_steps - self.decay_steps

    def steps_for(self, tokens: float) -> int:
        """Optimizer steps that a budget of `tokens` pays for, to the nearest step."""
        return round(tokens / self.tokens_per_step)


def toy_config(**overrides) -> StackConfig:
    """Make the small model of the tests and chapters; it trains in seconds on a CPU.

    Args:
        **overrides: fields of `StackConfig` to set otherwise.

    Returns:
        A configuration with a vocabulary of bytes, two layers and 4:2
        heads of 16.

    Raises:
        TypeError: if an override is not a field of `StackConfig`.

    Example:
        >>> toy_config(n_layers=4).n_layers
        4
    """
    toy = StackConfig(
        vocab_size=256,
        d_model=64,
        n_layers=2,
        n_heads=4,
        n_kv_heads=2,
        head_dim=16,
        intermediate=64,
        max_seq_len=256,
    )
    return replace(toy, **overrides)


def _rung(d_model: int, n_layers: int) -> StackConfig:
    """Fill in a rung of the ladder: heads of 64, one KV head, an MLP 2.75 d wide."""
    return StackConfig(
        d_model=d_model,
        n_layers=n_layers,
        n_heads=d_model // 64,
        n_kv_heads=1,
        intermediate=64 * round(2.75 * d_model / 64),
    )


LADDER: dict[str, StackConfig] = {
    "S1": _rung(d_model=192, n_layers=10),
    "S2": _rung(d_model=256, n_layers=13),
    "S3": _rung(d_model=320, n_layers=17),
    "S4": _rung(d_model=448, n_layers=21),
}
"""Four models below Stack-100M, for learning-rate sweeps (chapter 05)."""
