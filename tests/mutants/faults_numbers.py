"""Faults of Newton–Schulz and of the Muon step, alone and over ranks."""

from tests.mutants.faults import Fault

NS = "optim/newton_schulz.py"
MUON = "optim/muon.py"
PIECES = "optim/pieces.py"

FAULTS = [
    Fault("a wrong coefficient", NS, "-4.7750", "-4.7550"),
    Fault(
        "missing transpose of tall matrices",
        NS,
        "return G.mT if _is_tall(G) else G",
        "return G",
    ),
    Fault(
        "tall results stay lying",
        NS,
        "o.copy_(x.mT if _is_tall(o) else x)",
        "o.copy_(x.reshape(o.shape))",
    ),
    Fault(
        "A without its transpose",
        NS,
        "A = X @ X.mT  # (K, r, r)",
        "A = X.mT @ X  # (K, r, r)",
    ),
    Fault(
        "b and c exchanged", NS, "beta=b, alpha=c)  # b*A", "beta=c, alpha=b)  # b*A"
    ),
    Fault(
        "one step too few",
        NS,
        "for _ in range(steps):\n        X = (_mirrored",
        "for _ in range(steps - 1):\n        X = (_mirrored",
    ),
    Fault("zero is divided by zero", NS, "peak.masked_fill(peak == 0, 1)", "peak"),
    Fault(
        "norm of the whole stack",
        NS,
        "vector_norm(X, dim=(-2, -1), keepdim=True)",
        "vector_norm(X)",
    ),
    Fault(
        "the scale is not divided out first",
        NS,
        "X = torch.div(G, peak.masked_fill(peak == 0, 1), out=out)",
        "X = G",
    ),
    Fault(
        "stack order permuted",
        NS,
        "[out[i] for i in some]",
        "[out[i] for i in reversed(some)]",
    ),
    Fault(
        "half precision by default",
        NS,
        "return torch.promote_types(dtype, torch.float32)",
        "return dtype",
    ),
    Fault("restart never", "optim/gram.py", "RESTART = 3", "RESTART = 9"),
    Fault(
        "identity left out of q",
        "optim/gram.py",
        "q.diagonal(dim1=-2, dim2=-1).add_(a)",
        "q.diagonal(dim1=-2, dim2=-1).add_(0)",
    ),
    Fault(
        "upper blocks not transposed",
        "optim/symmetric.py",
        "column[..., end - start :, :].mT",
        "column[..., end - start :, :].flip(-2).mT",
    ),
    Fault(
        "diagonal blocks not counted",
        "optim/symmetric.py",
        "min(BLOCK, r - j) for j",
        "min(BLOCK, r - j - BLOCK) for j",
    ),
    Fault(
        "Gram form for square matrices",
        "optim/plan.py",
        "single and c > BREAK_EVEN * r",
        "single and c >= r",
    ),
    Fault(
        "shapes not sorted: four classes",
        "optim/plan.py",
        "key = (*sorted(G.shape), G.dtype",
        "key = (*G.shape, G.dtype",
    ),
    Fault(
        "FLOPs of half the products",
        "optim/plan.py",
        "apply = 2 * r * r * c",
        "apply = r * r * c",
    ),
    Fault(
        "stack cap ignored",
        "optim/plan.py",
        "max(1, most // max(1, r * c * itemsize))",
        "10**6",
    ),
    Fault(
        "scale by the short side", MUON, "math.sqrt(max(m, n))", "math.sqrt(min(m, n))"
    ),
    Fault("scale left out", MUON, "torch._foreach_mul_(D, scales)", "pass"),
    Fault(
        "decay coupled to the gradient",
        MUON,
        "1 - lr * wd)  # decay, then step",
        "1 - wd)  # decay, then step",
    ),
    Fault(
        "decay after the step",
        MUON,
        "torch._foreach_sub_(W, D)",
        "torch._foreach_sub_(W, torch._foreach_mul(D, 1 - lr * wd))",
    ),
    Fault(
        "a step uphill", MUON, "torch._foreach_sub_(W, D)", "torch._foreach_add_(W, D)"
    ),
    Fault(
        "gradients not checked before the step",
        MUON,
        "check_muon_gradient(name_of(group, i), p, B)",
        "pass",
    ),
    Fault("Nesterov off", PIECES, 'if not group["nesterov"]:', "if True:"),
    Fault(
        "look-ahead without the gradient",
        PIECES,
        "torch._foreach_add(G, B, alpha=mu)",
        "torch._foreach_mul(B, 1 + mu)",
    ),
    Fault(
        "momentum as torch keeps it",
        PIECES,
        "torch._foreach_add_(B, G)",
        "torch._foreach_add_(B, G, alpha=1 - mu)",
    ),
    Fault(
        "momentum forgotten",
        PIECES,
        "torch._foreach_mul_(B, mu)",
        "torch._foreach_mul_(B, 0)",
    ),
    Fault(
        "a missing gradient moves the weight",
        PIECES,
        "if p.grad is None:\n            continue",
        "if p.grad is None:\n            p.grad = torch.zeros_like(p)",
    ),
    Fault(
        "batched=False stacks",
        PIECES,
        "True: MAX_STACK_BYTES, False: 0}",
        "True: MAX_STACK_BYTES, False: MAX_STACK_BYTES}",
    ),
    Fault(
        "the result written over the momentum",
        PIECES,
        "None if looks is some.momentum else looks",
        "looks",
    ),
    Fault(
        "momentum in half precision",
        "optim/state.py",
        "return torch.promote_types(p.dtype, torch.float32)",
        "return p.dtype",
    ),
    Fault(
        "momentum not loaded",
        "optim/state.py",
        "            if entry:\n",
        "            if False:\n",
    ),
    Fault(
        "momentum shared with the checkpoint",
        "optim/state.py",
        "copy=True",
        "copy=False",
    ),
    Fault(
        "vectors are taken for matrices",
        "optim/checks.py",
        "min(shape[-2:]) < 2",
        "min(shape[-2:]) < 1",
    ),
    Fault(
        "negative learning rates pass",
        "optim/checks.py",
        "math.isfinite(value) and value >= 0",
        "math.isfinite(value)",
    ),
    Fault(
        "pieces in another order",
        "optim/sharded.py",
        "torch.cat([part.view(-1, m.cols) for part in parts if part.numel()])",
        "torch.cat([part.view(-1, m.cols) for part in parts if part.numel()][::-1])",
    ),
    Fault(
        "the way out is skipped",
        "optim/sharded.py",
        "to = [[parts[t] for parts in cut] for t in range(layout.shards)]",
        "to = [[parts[t] * 0 for parts in cut] for t in range(layout.shards)]",
    ),
    Fault(
        "all work on the first ranks",
        "optim/sharded.py",
        "key=lambda rank: (work[rank], rank)",
        "key=lambda rank: rank",
    ),
    Fault(
        "ranks do not compare", "optim/agree.py", "if largest != smallest:", "if False:"
    ),
    Fault(
        "ranks make their group apart",
        "optim/agree.py",
        "use_local_synchronization=len(ranks) < dist.get_world_size()",
        "use_local_synchronization=True",
    ),
    Fault(
        "rows cut evenly only",
        "optim/layout.py",
        "size = -(-length // parts)",
        "size = length // parts",
    ),
]
