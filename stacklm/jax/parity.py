"""Do they train alike? ``python -m stacklm.jax.parity`` trains the toy and compares.

The toy Stack on Moby-Dick, with optax's own Muon, stacked in fp32 and stacked in bf16:
same weights, same batches, same schedule. As a published job was judged, every
validation loss of the constant part must lie within 2 % of the reference; the decay at
the end is left out, since there all runs move apart.

Units: losses in nats per token. Taught in chapter 14.
"""

from __future__ import annotations

import argparse
from dataclasses import replace

import jax
import jax.numpy as jnp
import optax
import torch

from stacklm.config import TrainConfig, toy_config
from stacklm.jax.build import build_optimizers
from stacklm.jax.config import MuonConfig
from stacklm.jax.model import from_torch, token_loss
from stacklm.model import Stack100M
from stacklm.optim import wsd_lr
from stacklm.train import Tokens, open_tokens

TOLERANCE = 0.02
"""Largest relative difference of a validation loss."""

FORMS = {
    "optax": MuonConfig("optax"),
    "stacked fp32": MuonConfig("stacked"),
    "stacked bf16": MuonConfig("stacked", ns_dtype="bfloat16"),
}
"""What is compared; the first is the reference."""

RUN = TrainConfig(
    muon_peak_lr=0.01,
    adamw_peak_lr=4e-3,
    warmup_steps=20,
    total_steps=200,
    decay_frac=0.2,
    micro_batch_size=16,
    seq_len=64,
    grad_accum_steps=1,
)
"""Two hundred steps, of which the last forty decay."""


def schedule(run: TrainConfig, peak: float):
    """Warmup–Stable–Decay as an optax schedule: a table of the run, looked up.

    Args:
        run: Its length and phases.
        peak: The peak learning rate.

    Returns:
        A function from the step, from 0, to the rate.
    """
    ends = {"warmup_steps": run.warmup_steps, "total_steps": run.total_steps}
    rates = [
        wsd_lr(step, peak_lr=peak, decay_frac=run.decay_frac, **ends)
        for step in range(run.total_steps)
    ]
    table = jnp.asarray(rates, jnp.float32)
    return lambda step: table[step]


def train(
    form: MuonConfig,
    run: TrainConfig = RUN,
    *,
    every: int = 20,
    data: Tokens | None = None,
    val: Tokens | None = None,
) -> list[tuple[int, float]]:
    """Train the toy Stack and validate it along the way.

    Args:
        form: The optimizer; its two rates are replaced by the run's schedules.
        run: Steps, batch, peaks and clip.
        every: Steps between validations.
        data: What to train on; None: Moby-Dick.
        val: What to validate on; None: its last part.

    Returns:
        (steps done, validation loss) in order.
    """
    data = open_tokens("moby-dick") if data is None else data
    val = open_tokens("moby-dick", "val") if val is None else val
    cfg = toy_config()
    torch.manual_seed(run.seed)
    params = from_torch(Stack100M(cfg))
    form = replace(
        form,
        learning_rate=schedule(run, run.muon_peak_lr),
        adam_learning_rate=schedule(run, run.adamw_peak_lr),
    )
    optimizer = optax.chain(
        optax.clip_by_global_norm(run.grad_clip), build_optimizers(form, params)
    )

    @jax.jit
    def step(params, state, x, y):
        grads = jax.grad(token_loss)(params, x, y, cfg)
        updates, state = optimizer.update(grads, state, params)
        return optax.apply_updates(params, updates), state

    validate = jax.jit(lambda params, x, y: token_loss(params, x, y, cfg))
    shape = {"batch_size": run.micro_batch_size, "seq_len": run.seq_len, "seed": 0}
    tests = [_arrays(val.batch(i, **shape)) for i in range(16)]
    state, curve = optimizer.init(params), []
    for i in range(run.total_steps):
        params, state = step(params, state, *_arrays(data.batch(i, **shape)))
        if (i + 1) % every == 0:
            losses = [float(validate(params, *test)) for test in tests]
            curve.append((i + 1, sum(losses) / len(losses)))
    return curve


def largest_gap(curve, reference, until: int) -> float:
    """The largest relative difference of two curves in the constant part.

    Args:
        curve: (steps done, loss), as ``train`` returns it.
        reference: The same, at the same steps.
        until: Steps after which the decay begins; later points do not count.

    Returns:
        max |loss / reference - 1|.

    Raises:
        ValueError: The curves have different steps, or none up to ``until``.
    """
    if [step for step, _ in curve] != [step for step, _ in reference]:
        raise ValueError("curves must have the same steps; validate both equally often")
    pairs = zip(curve, reference, strict=True)
    gaps = [abs(a / b - 1) for (step, a), (_, b) in pairs if step <= until]
    if not gaps:
        raise ValueError(f"no validation up to step {until}; validate more often")
    return max(gaps)


def _arrays(batch):
    return jnp.asarray(batch.x.numpy()), jnp.asarray(batch.targets.numpy())


def main(argv: list[str] | None = None) -> int:
    """Train all forms and print the curves; status 1 if one is not on a par."""
    parser = argparse.ArgumentParser(
        "python -m stacklm.jax.parity", description=__doc__
    )
    parser.add_argument(
        "--steps", type=int, default=RUN.total_steps, help="of each run"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the weights")
    args = parser.parse_args(argv)
    run = replace(RUN, total_steps=args.steps, seed=args.seed)
    every = max(1, args.steps // 10)
    curves = {name: train(form, run, every=every) for name, form in FORMS.items()}
    print("steps".ljust(8) + "".join(f"{name:>14}" for name in curves))
    for rows in zip(*curves.values(), strict=True):
        print(f"{rows[0][0]:<8}" + "".join(f"{loss:>14.4f}" for _, loss in rows))
    gaps = {
        name: largest_gap(curve, curves["optax"], run.first_decay_step)
        for name, curve in curves.items()
    }
    for name, gap in gaps.items():
        print(f"{name}: at most {gap:.2%} from optax up to step {run.first_decay_step}")
    return int(max(gaps.values()) > TOLERANCE)


if __name__ == "__main__":
    raise SystemExit(main())
