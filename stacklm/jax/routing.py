"""Which leaf goes where in JAX: the audit of a tree of parameters.

The questions and the words are those of ``stacklm.optim``, but a tree has no module
types, so names and shapes are all there is. A leaf named "kernel", "weight" or "w" is
called after what holds it. A 3-D leaf may be a stack (E, m, n) of matrices, the kernel
of a convolution or a projection cut into heads, so it is "muon" only where the route
says so. Shapes are those of JAX: a matrix is (in, out). Taught in chapter 14.
"""

from __future__ import annotations

from collections.abc import Mapping

import jax

from stacklm.optim import Route
from stacklm.optim.kinds import CONVOLUTION_WORD, EMBEDDING_WORD, GAIN_WORDS
from stacklm.optim.linears import (
    EMBED_WORDS,
    FUSED_NAMES,
    HEAD_NAMES_AT_TOP,
    HEAD_WORDS,
    INNER_WORDS,
    MLP_WORDS,
    names_several_maps,
)
from stacklm.optim.routing import _trunk, resolve
from stacklm.optim.sighting import Verdict, about_attention, words_of

MATRIX_LEAVES = {"kernel", "weight", "w"}
BIAS_LEAVES = {"b", "bias", "biases"}


def audit(params, route: Mapping[str, str] | None = None) -> list[Route]:
    """Decide for every leaf of a tree: Muon or AdamW, and why.

    Args:
        params: Any tree of arrays, or of ``jax.ShapeDtypeStruct``.
        route: {name or glob: "muon" or "adamw"}, stronger than the rules; names are
            those of the tree, joined by dots. "muon" for a 3-D leaf declares a stack
            of matrices (E, m, n).

    Returns:
        One Route for each leaf, in the tree's order.

    Raises:
        TypeError: A leaf is no float32 array, or ``route`` no mapping.
        ValueError: Some leaf is ambiguous (all are listed), or a route matches
            nothing, contradicts another, or asks for what Muon cannot take.

    Example:
        >>> import jax.numpy as jnp
        >>> tree = {"embed": jnp.ones((8, 4)), "mlp": {"w_up": jnp.ones((4, 16))}}
        >>> [(r.name, r.optimizer) for r in audit(tree)]
        [('embed', 'adamw'), ('mlp.w_up', 'muon')]
    """
    leaves = named_leaves(params)
    for name, leaf in leaves.items():
        _check_leaf(name, leaf)
    named = [[name] for name in leaves]
    words = {"kind": "leaf", "leave_out": "take it out of the tree"}
    wanted = resolve({} if route is None else route, named, **words)
    paths = [name.split(".") for name in leaves]
    trunk = _trunk(paths)  # {"params": {...}} holds a model, it is no part of it
    tables = _tables(leaves)
    routes, unclear = [], []
    for path, (name, leaf) in zip(paths, leaves.items(), strict=True):
        verdict = _classify(path[trunk:], leaf.shape, tables)
        if name in wanted:
            verdict = _as_routed(name, leaf.shape, verdict, *wanted[name])
        if verdict.optimizer == "unclear":
            unclear.append(f"  {name} {leaf.shape}: {verdict.reason}")
        routes.append(_as_route(name, leaf, verdict))
    if unclear:
        example = unclear[0].split()[0]
        raise ValueError(
            f"cannot tell Muon or AdamW for {len(unclear)} leaf(s):\n"
            + "\n".join(unclear)
            + f'\nsay which, by name or glob, "muon" or "adamw": '
            f'route={{"{example}": "adamw"}}'
        )
    return routes


def named_leaves(params) -> dict[str, jax.Array]:
    """{dotted name: leaf}, in the tree's order.

    Args:
        params: Any tree.

    Raises:
        ValueError: Two leaves have one name.
    """
    pairs, _ = jax.tree_util.tree_flatten_with_path(params)
    named = {dotted(path): leaf for path, leaf in pairs}
    if len(named) != len(pairs):
        raise ValueError(
            "names of leaves must be unique, and two of them coincide; rename keys "
            "that contain dots"
        )
    return named


def dotted(path) -> str:
    """A path of jax.tree_util as "blocks.0.mlp.w_up"."""
    return jax.tree_util.keystr(path, simple=True, separator=".")


def _check_leaf(name: str, leaf) -> None:
    dtype = getattr(leaf, "dtype", None)
    if dtype != "float32":
        got = type(leaf).__name__ if dtype is None else str(dtype)
        raise TypeError(
            f"parameters must be float32 arrays, got {name} of {got}; keep masters "
            "in float32 and cast them in the forward pass"
        )


def _tables(leaves) -> dict[int, str]:
    """{rows of an embedding: its name}; a head has as many columns."""

    def embeds(name: str) -> bool:
        last = [part for part in name.split(".") if part not in MATRIX_LEAVES][-1:]
        return any(EMBEDDING_WORD.fullmatch(w) for p in last for w in words_of(p))

    pairs = leaves.items()
    return {x.shape[0]: name for name, x in pairs if len(x.shape) == 2 and embeds(name)}


def _classify(path: list[str], shape: tuple[int, ...], tables) -> Verdict:
    """The first rule that recognizes the leaf decides."""
    parts = [part for part in path if not part.isdigit()]
    leaf = parts[-1].lower() if parts else ""
    generic = leaf in MATRIX_LEAVES and len(parts) > 1
    label = parts[-2] if generic else (parts[-1] if parts else "")
    holders = parts[:-2] if generic else parts[:-1]
    for rule in (_no_matrix, _kernel):
        if verdict := rule(leaf, label, holders, shape):
            return verdict
    if len(shape) == 3:
        why = 'a stack of matrices (E, m, n)? "muon" declares it as one'
        return Verdict("unclear", f"3-D; {why}")
    if len(shape) > 3:
        return Verdict("unclear", "more than three dimensions; not a matrix")
    verdict = _matrix(label, holders, generic)
    known = words_of(label) & (INNER_WORDS | MLP_WORDS)
    if verdict.optimizer == "muon" and shape[1] in tables and not known:
        rows = tables[shape[1]]
        why = f"has as many columns as {rows} has rows; a head, or by coincidence?"
        return Verdict("unclear", why)
    return verdict


def _no_matrix(leaf, label, holders, shape) -> Verdict | None:
    """Embeddings, biases, gains and vectors, whatever their shape."""
    words = words_of(label)
    if any(map(EMBEDDING_WORD.fullmatch, words | {leaf})) and len(shape) > 1:
        return Verdict("adamw", "embedding: a look-up picks one row")
    stack = sum(size > 1 for size in shape) > 1
    if leaf in BIAS_LEAVES or words_of(leaf) & BIAS_LEAVES:
        what = "stack of biases: vectors, not a matrix" if stack else "bias"
        return Verdict("adamw", what, decay=False)
    if words_of(leaf) & GAIN_WORDS or any(map(_norms, [*holders, label])):
        what = "stack of gains: vectors, not a matrix" if stack else "gain"
        return Verdict("adamw", what, decay=False)
    if not stack:
        return Verdict("adamw", "vector: only its direction would be left", False)
    return None


def _norms(name: str) -> bool:
    """Whether a name says norm: "norm1", "q_norm", "LayerNorm_0", "ln_f"."""
    return any(
        word.rstrip("0123456789").endswith("norm") or word in ("ln", "ln1", "ln2")
        for word in words_of(name)
    )


def _kernel(leaf, label, holders, shape) -> Verdict | None:
    words = words_of(label).union(*map(words_of, holders))
    if len(shape) > 2 and any(map(CONVOLUTION_WORD.fullmatch, words)):
        return Verdict("adamw", "kernel of a convolution: not a matrix")
    return None


def _matrix(label: str, holders: list[str], generic: bool) -> Verdict:
    """What a 2-D leaf is, by its name and by what holds it."""
    words = words_of(label)
    if words & HEAD_WORDS or (not holders and label.lower() in HEAD_NAMES_AT_TOP):
        if any(map(about_attention, [*holders, label])):
            return Verdict("unclear", "an output head, or about heads of attention?")
        return Verdict("adamw", "output head: one column per class or token")
    if names_several_maps(label) or label.lower() in FUSED_NAMES:
        return Verdict("adamw", "several maps fused in one matrix; split for Muon")
    above = set().union(*map(words_of, holders))
    path = words | above
    if "lora" in path:
        return Verdict("unclear", "one factor of a product (LoRA), not the matrix")
    if "router" in path:
        return Verdict("unclear", "router: one column per expert; hidden, or a head?")
    hidden = Verdict("muon", "hidden matrix")
    if words & (INNER_WORDS | MLP_WORDS):
        return hidden
    if above & (EMBED_WORDS | HEAD_WORDS | {"final"}):
        return Verdict("unclear", "in an embedding or a head; hidden, or not?")
    if not holders:
        return Verdict("unclear", "at the top of the tree; hidden, or the head?")
    if generic or any(map(about_attention, holders)) or path & MLP_WORDS:
        return hidden
    return Verdict("unclear", "its name says nothing; a matrix, or vectors?")


def _as_routed(name, shape, ruled: Verdict, key: str, optimizer: str) -> Verdict:
    if optimizer == "muon":
        if len(shape) not in (2, 3) or min(shape[-2:]) < 2:
            raise ValueError(
                f"Muon takes matrices (m, n), or stacks (E, m, n), of at least 2 x 2, "
                f"got {name} of shape {shape}; route it to AdamW"
            )
        if ruled.reason.startswith("kernel of"):
            raise ValueError(
                f"route[{key!r}] sends {name} of shape {shape} to Muon, but the kernel "
                'of a convolution is no stack of matrices; use "adamw"'
            )
    return Verdict(optimizer, f'as route["{key}"] says', ruled.decay)


def _as_route(name: str, leaf, verdict: Verdict) -> Route:
    return Route(
        name=name,
        shape=tuple(leaf.shape),
        numel=leaf.size,
        optimizer=verdict.optimizer,
        reason=verdict.reason,
        decay=verdict.decay,
        stacked=verdict.optimizer == "muon" and len(leaf.shape) == 3,
    )
