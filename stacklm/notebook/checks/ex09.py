"""Exercise 9: what a tighter gradient clip does to AdamW and to Muon's momentum."""

import torch

from stacklm.notebook.checking import Check, Mistake

RUNS = (
    [0.5, 0.5, 0.5],
    [2.0, 1.0, 0.5, 0.25],
    [0.5] * 9 + [5.0],
    [3.0, 0.1, 0.7, 1.5, 0.2],
)
LIMITS = (1.0, 0.25)


def _cases():
    return [(norms, limit) for norms in RUNS for limit in LIMITS]


def _by_torch(norm: float, limit: float) -> float:
    """Clip a vector of this norm with torch, and compare lengths."""
    w = torch.nn.Parameter(torch.zeros(4, dtype=torch.float64))
    w.grad = torch.full_like(w, norm / 2)
    torch.nn.utils.clip_grad_norm_([w], limit)
    return w.grad.norm().item() / norm


FACTOR = Check(
    key="09a",
    task="clip_factor(norm, limit)",
    cases=lambda: [(0.5, 1.0), (0.5, 0.25), (4.0, 1.0), (4.0, 0.25), (1.0, 1.0)],
    expected=_by_torch,
    rtol=1e-5,  # torch adds 1e-6 to the norm
    verified="A vector of each norm, clipped by torch, is shortened by your factor.",
    mistakes=(
        Mistake(
            "no min",
            lambda norm, limit: limit / norm,
            "You also lengthen gradients that are shorter than the limit. The factor "
            "is at most 1.",
        ),
        Mistake(
            "upside down",
            lambda norm, limit: min(1.0, norm / limit),
            "Your fraction is upside down: a longer gradient needs a smaller factor.",
        ),
        Mistake(
            "clipped norm",
            min,
            "That is the norm after clipping. Asked is what the gradient is multiplied "
            "by to get there.",
        ),
        Mistake(
            "limit alone",
            lambda norm, limit: limit if norm > limit else 1.0,
            "You multiply by the limit itself; then a gradient of norm 4 comes out at "
            "4 times the limit.",
        ),
    ),
)


def _clipped(norms, limit):
    return [min(norm, limit) for norm in norms]


def _adamw_by_torch(norms, limit, betas=(0.9, 0.95)):
    """Take the steps with torch's AdamW on a single number."""
    w = torch.nn.Parameter(torch.zeros(1, dtype=torch.float64))
    adamw = torch.optim.AdamW([w], 1.0, betas, eps=1e-30, weight_decay=0.0)
    for norm in _clipped(norms, limit):
        before, w.grad = w.item(), torch.full_like(w, norm)
        adamw.step()
    return before - w.item()


def _adamw(norms, betas=(0.9, 0.95), corrected=True, root=True):
    m = v = 0.0
    for g in norms:
        m = betas[0] * m + (1 - betas[0]) * g
        v = betas[1] * v + (1 - betas[1]) * g * g
    if corrected:
        m, v = (x / (1 - b ** len(norms)) for x, b in zip((m, v), betas, strict=True))
    return m / (v**0.5 if root else v)


ADAMW = Check(
    key="09b",
    task="adamw_step(norms, limit)",
    cases=_cases,
    expected=_adamw_by_torch,
    verified="The AdamW of torch takes the same last step on clipped gradients.",
    mistakes=(
        Mistake(
            "not clipped",
            lambda norms, limit: _adamw(norms),
            "The gradients must be clipped before they enter the means; you leave them "
            "as they are.",
        ),
        Mistake(
            "update clipped",
            lambda norms, limit: min(limit, _adamw(norms)),
            "You clip the step that comes out. The clip is on the gradient that goes "
            "in.",
        ),
        Mistake(
            "no bias correction",
            lambda norms, limit: _adamw(_clipped(norms, limit), corrected=False),
            "The means start at zero; divide them by 1 - beta**t before you take the "
            "ratio.",
        ),
        Mistake(
            "betas exchanged",
            lambda norms, limit: _adamw(_clipped(norms, limit), (0.95, 0.9)),
            "The two betas are exchanged: the first is for m, the second for v.",
        ),
        Mistake(
            "no root",
            lambda norms, limit: _adamw(_clipped(norms, limit), root=False),
            "You divide by v. AdamW divides by its root, so that the scale of the "
            "gradient drops out.",
        ),
    ),
)


def _share(norms, mu):
    ages = range(len(norms) - 1, -1, -1)
    return norms[-1] / sum(mu**age * g for age, g in zip(ages, norms, strict=True))


SHARE = Check(
    key="09c",
    task="last_share(norms, limit)",
    cases=_cases,
    expected=lambda norms, limit, mu=0.95: _share(_clipped(norms, limit), mu),
    verified="Your share is that of the sum written out, each gradient times mu**age.",
    mistakes=(
        Mistake(
            "not clipped",
            lambda norms, limit: _share(norms, 0.95),
            "The gradients in the sum are the clipped ones; you leave them as they "
            "are.",
        ),
        Mistake(
            "no memory",
            lambda norms, limit: _share(_clipped(norms, limit), 1.0),
            "You weigh all ages alike. A gradient of age a counts mu**a.",
        ),
        Mistake(
            "mean, not sum",
            lambda norms, limit: 0.05 * _share(_clipped(norms, limit), 0.95),
            "Muon's momentum is the sum mu * B + g; the new gradient is not multiplied "
            "by 1 - mu.",
        ),
        Mistake(
            "ages reversed",
            lambda norms, limit: (
                _clipped(norms, limit)[-1]
                / sum(0.95**t * g for t, g in enumerate(_clipped(norms, limit)))
            ),
            "You give the oldest gradient the largest weight. The newest has age 0.",
        ),
    ),
)

CHECKS = (FACTOR, ADAMW, SHARE)
