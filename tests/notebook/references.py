"""Right answers to the exercises, written a third way for the tests of the checks."""

import torch

from stacklm.notebook.checks import plain


def shape_classes(shapes):
    classes = {}
    for m, n in shapes:
        key = (min(m, n), max(m, n))
        classes[key] = classes.get(key, 0) + 1
    return classes


def batched(matrices):
    classes, out = {}, [None] * len(matrices)
    for at, matrix in enumerate(matrices):
        classes.setdefault(tuple(sorted(matrix.shape)), []).append(at)
    for members in classes.values():
        wide = [matrices[i].mT if _tall(matrices[i]) else matrices[i] for i in members]
        for i, result in zip(
            members, plain.orthogonalize(torch.stack(wide)), strict=True
        ):
            out[i] = result.mT if _tall(matrices[i]) else result
    return out


def _tall(matrix):
    return matrix.shape[0] > matrix.shape[1]


def measured_rms(G):
    update = 0.2 * max(G.shape) ** 0.5 * plain.orthogonalize(G)
    return update.square().mean().sqrt()


def condition_numbers(G):
    after = plain.orthogonalize(G)
    return tuple(torch.linalg.cond(matrix) for matrix in (G, after))


def newton_schulz_flops(rows, cols, steps):
    r, c = min(rows, cols), max(rows, cols)
    return steps * (4 * r**2 * c + 2 * r**3)


def clip_shared(maxima, tau):
    factor = (tau / max(tau, *maxima)) ** 0.5
    return factor, [factor**2 * s for s in maxima]


def logit_change(m_q, m_k, c, eps):
    def logit(square):  # square: c², the factor on both mean squares
        return square / ((square * m_q + eps) * (square * m_k + eps)) ** 0.5

    return logit(c * c) / logit(1.0)


def head_bounds(q, k):
    lengths = [t.detach().norm(dim=-1).amax(dim=(0, 2)) for t in (q, k)]
    groups = q.shape[1] // k.shape[1]
    return lengths[0] * lengths[1].repeat_interleave(groups) / q.shape[-1] ** 0.5


def clip_factor(norm, limit):
    return min(1.0, limit / norm)


def adamw_step(norms, limit):
    m = v = 0.0
    for norm in norms:
        g = clip_factor(norm, limit) * norm
        m, v = 0.9 * m + 0.1 * g, 0.95 * v + 0.05 * g**2
    t = len(norms)
    return m / (1 - 0.9**t) / (v / (1 - 0.95**t)) ** 0.5


def last_share(norms, limit):
    momentum = 0.0
    for norm in norms:
        last = clip_factor(norm, limit) * norm
        momentum = 0.95 * momentum + last
    return last / momentum


def leaf_collectives(m, n, steps):
    return 1 + 2 * steps + steps * (m <= n)


def exchanges(shapes, replicas, shards):
    sides = {frozenset(shape) for shape in shapes}
    stages = ["in", "out"] * (shards > 1) + ["spread"] * (replicas > 1)
    return len(sides) * len(stages)


def row_ranges(m, ranks):
    at = [min(m, -(-m // ranks) * r) for r in range(ranks + 1)]
    return [(at[r], at[r + 1]) for r in range(ranks)]


def reads(m, old, new):
    found = []
    for first, end in row_ranges(m, new):
        both = [
            (s, max(first, a), min(end, b))
            for s, (a, b) in enumerate(row_ranges(m, old))
        ]
        found.append([each for each in both if each[1] < each[2]])
    return found


def reshard(files, ranks):
    out = [{} for _ in range(ranks)]
    for name in files[0]:
        full = torch.cat([file[name] for file in files])
        for new, (first, end) in zip(out, row_ranges(len(full), ranks), strict=True):
            new[name] = full[first:end]
    return out


def gqa_factors(s, groups, tau):
    factor = [(tau / each) ** 0.5 if each > tau else 1.0 for each in s]
    keys = [min(factor[at : at + groups]) for at in range(0, len(s), groups)]
    return factor, keys


def after_clip(s, groups, tau):
    q, k = gqa_factors(s, groups, tau)
    return [each * q[h] * k[h // groups] for h, each in enumerate(s)]


def after_wrong_clip(s, groups, tau):
    out = after_clip(s, groups, tau)
    q, k = gqa_factors(s, groups, tau)
    for at in range(0, len(s), groups):
        more = 1.0
        for factor in q[at : at + groups]:
            more *= factor
        for h in range(at, at + groups):
            out[h] *= more / k[at // groups]
    return out


def phases(total, warmup, frac):
    decay = int(frac * total)
    return warmup, total - warmup - decay, decay


def wsd_lr_branch(step, peak_lr, warmup_steps, stable_steps, decay_steps):
    done = (step - warmup_steps - stable_steps) / decay_steps
    left = 1 - min(1.0, max(0.0, done)) ** 0.5
    return peak_lr * left * min(1.0, (step + 1) / max(warmup_steps, 1))


def route(parameters):
    def of(name, kind, shape):
        if kind != "Linear" or len(shape) < 2 or name.startswith("lm_head"):
            return "adamw"
        return "split" if ".qkv." in name else "muon"

    return {name: of(name, *what) for name, what in parameters.items()}


def split_qkv(W, heads, kv_heads, width):
    return W.split([heads * width, kv_heads * width, kv_heads * width])


def fused_update(G, heads, kv_heads, width):
    return torch.cat(
        [
            0.2 * max(part.shape) ** 0.5 * plain.orthogonalize(part)
            for part in split_qkv(G, heads, kv_heads, width)
        ]
    )


ANSWERS = {
    "01a": newton_schulz_flops,
    "01b": lambda ids, vocab_size: len(set(ids.flatten().tolist())) / vocab_size,
    "02a": lambda m, n: 1 / max(m, n) ** 0.5,
    "02b": lambda m, n: 0.2 * max(m, n) ** 0.5,
    "02c": measured_rms,
    "03a": lambda tokens, b, t, a: round(tokens / (b * t * a)),
    "03b": phases,
    "03c": lambda p, muon, adamw: ((1 - p**0.5) * muon, (1 - p**0.5) * adamw),
    "03d": lambda total, frac: total - int(frac * total),
    "04a": gqa_factors,
    "04b": after_clip,
    "04c": after_wrong_clip,
    "05a": wsd_lr_branch,
    "05b": lambda w, stable, decay: w + max(stable) + sum(decay),
    "06a": condition_numbers,
    "06b": shape_classes,
    "06c": batched,
    "07a": logit_change,
    "07b": lambda q, k: len(q) ** 0.5 * q.abs().max() * k.abs().max(),
    "07c": clip_shared,
    "07d": lambda h, kv, d: (2 * d, (h + kv) * d),
    "08a": lambda B, T, H, d_h, L, accum: 2 * B * H * T * T * d_h * L * accum,
    "08b": lambda share, accum, every: (share / accum / every, 1 / 3 / accum / every),
    "08c": head_bounds,
    "09a": clip_factor,
    "09b": adamw_step,
    "09c": last_share,
    "10a": leaf_collectives,
    "10b": lambda shapes, steps: sum(leaf_collectives(*s, steps) for s in shapes),
    "10c": exchanges,
    "11a": route,
    "11b": split_qkv,
    "11c": fused_update,
    "12a": row_ranges,
    "12b": reads,
    "12c": reshard,
}
