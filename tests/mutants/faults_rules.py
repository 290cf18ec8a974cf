"""Faults of QK-clip, of the schedule and of the routing."""

from tests.mutants.faults import Fault

CLIP = "optim/qk_clip.py"
WSD = "optim/schedule.py"
LINEARS = "optim/linears.py"
KINDS = "optim/kinds.py"
ROUTING = "optim/routing.py"

FAULTS = [
    Fault(
        "NaN passes as a maximum",
        CLIP,
        "if math.isnan(s) or s == math.inf",
        "if s == math.inf",
    ),
    Fault(
        "no square root", CLIP, "math.sqrt(tau / s) if s > tau", "tau / s if s > tau"
    ),
    Fault(
        "K scaled by its first head alone",
        CLIP,
        "factor(max(group)) for group in grouped",
        "factor(group[0]) for group in grouped",
    ),
    Fault(
        "clip on the wrong group",
        CLIP,
        "grouped = [maxima[i : i + groups] for i in range(0, len(maxima), groups)]",
        "grouped = [maxima[i :: len(maxima) // groups] "
        "for i in range(len(maxima) // groups)]",
    ),
    Fault(
        "heads that do not fire are scaled up",
        CLIP,
        "if s > tau else 1.0",
        "if s > 0 else 1.0",
    ),
    Fault(
        "counts heads, not layers",
        CLIP,
        "return len(firing)",
        "return sum(s > tau for _, row in firing for s in row)",
    ),
    Fault("clip below tau", CLIP, "if max(row) > tau]", "if max(row) > tau / 2]"),
    Fault(
        "warmup begins at zero",
        WSD,
        "return (step + 1) / warmup",
        "return step / warmup",
    ),
    Fault(
        "schedule off by one",
        WSD,
        "first_decay = total - decay\n",
        "first_decay = total - decay + 1\n",
    ),
    Fault(
        "no clamp past the end",
        WSD,
        "if step >= total:\n        return final",
        "if step > 10 * total:\n        return final",
    ),
    Fault("square instead of square root", WSD, "math.sqrt(p)", "p * p"),
    Fault("the floor is ignored", WSD, "1 - (1 - final) * fallen", "1 - fallen"),
    Fault(
        "decay_frac wins over decay_steps", WSD, "if decay_steps is None:", "if True:"
    ),
    Fault("phases may overlap", WSD, "if warmup + decay > total:", "if decay > total:"),
    Fault(
        "branch forgets its warmup",
        WSD,
        "total = sum(_count(name, steps) for name, steps in lengths.items())",
        "total = stable_steps + decay_steps",
    ),
    Fault(
        "embeddings on Muon",
        KINDS,
        'return Verdict("adamw", "embedding: a look-up picks one row")',
        'return Verdict("muon", "embedding: a look-up picks one row")',
    ),
    Fault(
        "gains are decayed",
        KINDS,
        'f"{what} of {kind}", decay=False)',
        'f"{what} of {kind}", decay=True)',
    ),
    Fault(
        "kernels on Muon",
        KINDS,
        'return Verdict("adamw", f"kernel of {kind}: not a matrix")',
        'return Verdict("muon", f"kernel of {kind}: not a matrix")',
    ),
    Fault(
        "a stack of biases on Muon",
        KINDS,
        'return Verdict("adamw", reason, decay=False)',
        'return Verdict("muon", reason, decay=False)',
    ),
    Fault(
        "output heads on Muon",
        LINEARS,
        'return Verdict("adamw", "output head: one row per class or token")',
        "return HIDDEN",
    ),
    Fault(
        "fused maps on Muon",
        LINEARS,
        'return Verdict("adamw", "several maps fused in one matrix; split for Muon")',
        "return HIDDEN",
    ),
    Fault(
        "words are not cut at capitals",
        "optim/sighting.py",
        "(?<=[a-z0-9])(?=[A-Z])",
        "(?<=[0-9])(?=[A-Z])",
    ),
    Fault("a route is not heard", ROUTING, "keys = exact or keys", "keys = []"),
    Fault(
        "ambiguity is silent",
        ROUTING,
        "    if unclear:\n        raise",
        "    if False:\n        raise",
    ),
    Fault(
        "tied names are counted twice",
        ROUTING,
        "found.setdefault(id(p), ([], p))",
        "found.setdefault((id(p), name), ([], p))",
    ),
    Fault("AdamW's epsilon", "optim/build.py", "ADAMW_EPS = 1e-8", "ADAMW_EPS = 1e-4"),
    Fault(
        "decay on gains",
        "optim/build.py",
        "lambda r: not r.decay, weight_decay=0.0)",
        "lambda r: not r.decay, weight_decay=weight_decay)",
    ),
    Fault("one rate for both", "optim/build.py", "lr=adamw_lr,", "lr=muon_lr,"),
    Fault(
        "torch's momentum taken as ours",
        "optim/convert.py",
        "lambda B, mu: B / (1 - mu))",
        "lambda B, mu: B)",
    ),
]
