"""Exercise 11: route a model with convolutions, a fused QKV and an untied head."""

import torch

from stacklm.notebook.checking import Check, Mistake
from stacklm.notebook.checks import plain

BLOCK = ("out", "up", "down")
"""Layers of a block that are one hidden matrix each."""


def _described(d: int, vocab: int, rows: int, layers: int) -> dict[str, tuple]:
    """Return what the exercise's ``described`` returns, for a model of these sizes."""
    found = {"embed": ("Embedding", (vocab, d)), "stem": ("Conv1d", (d, 8, 3))}
    for i in range(layers):
        at = f"blocks.{i}"
        found |= {
            f"{at}.norm": ("LayerNorm", (d,)),
            f"{at}.attn.qkv": ("Linear", (rows, d)),
            f"{at}.attn.out": ("Linear", (d, d)),
            f"{at}.conv": ("Conv1d", (d, 1, 5)),
            f"{at}.up": ("Linear", (2 * d, d)),
            f"{at}.down": ("Linear", (d, 2 * d)),
        }
    found["lm_head"] = ("Linear", (vocab, d))
    weights = {f"{name}.weight": what for name, what in found.items()}
    biases = {
        f"{name}.bias": (kind, shape[:1])
        for name, (kind, shape) in found.items()
        if kind in ("Conv1d", "LayerNorm") or name.endswith(("up", "down"))
    }
    return weights | biases


def _label(name: str) -> str:
    return name.split(".")[-2]


def _by_role(parameters: dict) -> dict:
    """Look each layer up by what it was built for; shapes and types are not asked."""
    roles = dict.fromkeys(BLOCK, "muon") | {"qkv": "split"}
    return {
        name: "adamw" if name.endswith("bias") else roles.get(_label(name), "adamw")
        for name in parameters
    }


def _rule(decide):
    """Return a route that asks ``decide(label, type, shape)`` for a yes to Muon."""

    def route(parameters: dict) -> dict:
        return {
            name: "muon" if decide(_label(name), kind, shape) else "adamw"
            for name, (kind, shape) in parameters.items()
        }

    return route


def _right_but(**changes):
    """Return the right route, but for some layers."""

    def route(parameters: dict) -> dict:
        return {
            name: role if name.endswith("bias") else changes.get(_label(name), role)
            for name, role in _by_role(parameters).items()
        }

    return route


ROUTE = Check(
    key="11a",
    task="route(parameters)",
    cases=lambda: [
        (_described(d=48, vocab=96, rows=72, layers=2),),
        (_described(d=64, vocab=64, rows=192, layers=3),),
    ],
    expected=_by_role,
    verified=(
        "Your route agrees with what each layer was built for, in two models, one of "
        "which has as many tokens as features."
    ),
    mistakes=(
        Mistake(
            "two dimensions or more",
            _rule(lambda label, kind, shape: len(shape) >= 2),
            "You send everything with two dimensions or more to Muon. An embedding "
            "and an output head are tables, a kernel is a set of filters, and qkv "
            "holds three matrices: ask for the type and the name as well.",
        ),
        Mistake(
            "two dimensions",
            _rule(lambda label, kind, shape: len(shape) == 2),
            "You send everything with two dimensions to Muon. Kernels are out, but the "
            "embedding and the head are tables of vectors, and qkv holds three "
            "matrices.",
        ),
        Mistake(
            "every Linear",
            _rule(lambda label, kind, shape: kind == "Linear" and len(shape) == 2),
            "You send every Linear to Muon. The head is one too, and so is qkv, which "
            "holds three matrices: it has to be split.",
        ),
        Mistake(
            "the head",
            _right_but(lm_head="muon"),
            "The output head is on Muon. It is not tied to the embedding here, but it "
            "is still one row per token: AdamW.",
        ),
        Mistake(
            "fused as one",
            _right_but(qkv="muon"),
            "You send qkv to Muon as it is. Orthogonalized as one, its rows of K and V "
            'follow Q: answer "split".',
        ),
        Mistake(
            "fused left out",
            _right_but(qkv="adamw"),
            "You leave qkv to AdamW. That works, and gives up Muon for three hidden "
            'matrices in every block; asked is "split".',
        ),
        Mistake(
            "kernels",
            _right_but(conv="muon", stem="muon"),
            "Kernels of convolutions are on Muon. A depthwise one has a filter per "
            "channel and no channel in common; here all kernels go to AdamW.",
        ),
    ),
)


def _numbered(rows: int, columns: int) -> torch.Tensor:
    numbers = torch.arange(1.0, rows * columns + 1, dtype=torch.float64)
    return numbers.view(rows, columns)


def _by_index(W, heads: int, kv_heads: int, width: int) -> tuple:
    """Give every row to the part that its head belongs to."""
    head = torch.arange(W.shape[0]) // width
    part = (head >= heads).long() + (head >= heads + kv_heads).long()
    return tuple(W[part == each] for each in range(3))


def _thirds(W, heads: int, kv_heads: int, width: int) -> tuple:
    return W.chunk(3)


def _grouped(W, heads: int, kv_heads: int, width: int) -> tuple:
    """Cut as if the rows lay group by group: queries, key, value, and again."""
    groups = W.view(kv_heads, -1, width, W.shape[1])
    parts = groups[:, :-2], groups[:, -2:-1], groups[:, -1:]
    return tuple(part.reshape(-1, W.shape[1]) for part in parts)


def _columns(W, heads: int, kv_heads: int, width: int) -> tuple:
    q, k = heads * width, (heads + kv_heads) * width
    return W[:, :q], W[:, q:k], W[:, k:]


SPLIT = Check(
    key="11b",
    task="split_qkv(W, heads, kv_heads, width)",
    cases=lambda: [
        (_numbered(72, 48), 4, 1, 12),
        (_numbered(96, 64), 4, 2, 12),
    ],
    expected=_by_index,
    verified="Your parts agree with a cut that asks each row for its head.",
    mistakes=(
        Mistake(
            "thirds",
            _thirds,
            "You cut into thirds. K and V have fewer heads than Q, so fewer rows: "
            "kv_heads · width each.",
        ),
        Mistake(
            "K and V exchanged",
            lambda *args: tuple(_by_index(*args)[i] for i in (0, 2, 1)),
            "K and V are exchanged. The rows come in the order Q, K, V.",
        ),
        Mistake(
            "group by group",
            _grouped,
            "You cut as if each group of heads had its queries, its key and its value "
            "together. Some models store them so; here all of Q come first.",
        ),
        Mistake(
            "columns",
            _columns,
            "You cut the columns. A Linear weight is (out, in): heads are rows.",
        ),
        Mistake(
            "one head each",
            lambda W, heads, kv, width: W.split([W.shape[0] - 2 * width, width, width]),
            "Your K and V have the rows of one head each. They have kv_heads of them.",
        ),
    ),
)


def _by_svd(part: torch.Tensor) -> torch.Tensor:
    """Send singular values through the quintic; no matrix is iterated on."""
    U, sigma, Vh = torch.linalg.svd(part / part.norm(), full_matrices=False)
    return (U * plain.quintic_iterates(sigma, 5)) @ Vh


def _scale(part: torch.Tensor) -> float:
    return 0.2 * max(part.shape) ** 0.5


def _put_together(cut, each):
    """Return an update: cut the gradient, treat each part, put them together."""

    def update(G, heads: int, kv_heads: int, width: int) -> torch.Tensor:
        parts = cut(G, heads, kv_heads, width)
        return torch.cat([each(part, G) for part in parts])

    return update


UPDATE = Check(
    key="11c",
    task="fused_update(G, heads, kv_heads, width)",
    cases=lambda: [
        (plain.gaussian(72, 48, seed=0, dtype=torch.float64), 4, 1, 12),
        (plain.gaussian(96, 64, seed=1, dtype=torch.float64), 4, 2, 12),
    ],
    expected=_put_together(_by_index, lambda p, G: _scale(p) * _by_svd(p)),
    verified=(
        "Your update agrees with singular values sent through the quintic, part by "
        "part, for two numbers of KV heads."
    ),
    mistakes=(
        Mistake(
            "as one matrix",
            lambda G, *_: _scale(G) * plain.orthogonalize(G),
            "You orthogonalize all three as one matrix. Split first, then "
            "orthogonalize each.",
        ),
        Mistake(
            "thirds",
            _put_together(_thirds, lambda p, G: _scale(p) * plain.orthogonalize(p)),
            "You cut into thirds, so the last rows of Q are orthogonalized together "
            "with K and V. Use your split_qkv.",
        ),
        Mistake(
            "no scale",
            _put_together(_by_index, lambda p, G: plain.orthogonalize(p)),
            "The directions are right. The factor 0.2·√max(m, n) is missing, which "
            "makes the step as large as one of AdamW.",
        ),
        Mistake(
            "scale of the whole",
            _put_together(_by_index, lambda p, G: _scale(G) * plain.orthogonalize(p)),
            "You take the factor from the fused shape. Each part has its own m and n.",
        ),
        Mistake(
            "head by head",
            lambda G, heads, kv, width: torch.cat(
                [_scale(p) * plain.orthogonalize(p) for p in G.split(width)]
            ),
            "You orthogonalize every head by itself. That is a variant of its own; "
            "asked is one orthogonal matrix for each of Q, K and V.",
        ),
        Mistake(
            "scaled twice",
            _put_together(
                _by_index, lambda p, G: _scale(p) ** 2 * plain.orthogonalize(p)
            ),
            "The factor 0.2·√max(m, n) comes in twice.",
        ),
    ),
)

CHECKS = (ROUTE, SPLIT, UPDATE)
