"""What kind of parameter is this, and which optimizer does the kind call for?

One rule a kind, asked in the order of ``RULES``; the first that recognizes the
parameter decides. A rule goes by the module's type first, by its name second, by the
shape last, and says "unclear" rather than guess: a table on Muon or a matrix on AdamW
trains, only worse, and nobody notices. The rules for Linear layers are in
``linears.py``. Taught in chapter 01.
"""

from __future__ import annotations

import re

from torch import nn
from torch.nn.utils.parametrize import ParametrizationList

from stacklm.optim.linears import is_linear, linear, names_several_maps
from stacklm.optim.sighting import Sighting, Verdict, words_of

GAIN_WORDS = {"gain", "gains", "gamma", "scale", "scales"}
NORMS = (nn.LayerNorm, nn.RMSNorm, nn.GroupNorm, nn.modules.batchnorm._NormBase)
EMBEDDING_WORD = re.compile(r"emb.*|.*emb|.*embed(ding)?s?")
CONVOLUTION_WORD = re.compile(r".*conv(\dd|olution.*|transpose.*)?")
# A class with "norm" in its name and one of these does more than normalize.
LAYERS = ("linear", "conv", "attn", "attention", "mlp", "block", "expert")


def classify(s: Sighting) -> Verdict:
    """Ask every rule in turn.

    Args:
        s: One name of the parameter and its surroundings.

    Returns:
        The verdict of the first rule that recognizes the parameter.
    """
    return next(verdict for rule in RULES if (verdict := rule(s)))


def _flat(s: Sighting) -> Verdict | None:
    if s.leaf == "_flat_param":
        return Verdict(
            "refused",
            "flattened by FSDP, the matrices are gone; build the optimizers before "
            "wrapping, or shard with fully_shard",
        )
    return None


def _embedding(s: Sighting) -> Verdict | None:
    by_type = isinstance(s.owner, nn.Embedding | nn.EmbeddingBag)
    if by_type and getattr(s.owner, "sparse", False):
        return Verdict(
            "refused",
            "sparse=True gives gradients that neither optimizer takes; build the "
            "embedding with sparse=False",
        )
    by_class = "embedding" in type(s.owner).__name__.lower() and s.leaf == "weight"
    by_name = s.p.ndim > 1 and any(map(EMBEDDING_WORD.fullmatch, s.leaf_words))
    if by_type or by_class or by_name:
        return Verdict("adamw", "embedding: a look-up picks one row")
    return None


def _norm(s: Sighting) -> Verdict | None:
    kind = type(s.owner).__name__
    by_name = "norm" in kind.lower() and not any(w in kind.lower() for w in LAYERS)
    by_name = by_name and s.leaf_words & (GAIN_WORDS | {"weight", "bias"})
    if isinstance(s.owner, NORMS) or by_name:
        what = "bias" if "bias" in s.leaf else "gain"
        return Verdict("adamw", f"{what} of {kind}", decay=False)
    return None


def _bias(s: Sighting) -> Verdict | None:
    if not any(word.endswith(("bias", "biases")) for word in s.leaf_words):
        return None
    stack = s.p.ndim > 1 and min(s.p.shape) > 1
    reason = "stack of biases: vectors, not a matrix" if stack else "bias"
    return Verdict("adamw", reason, decay=False)


def _vector(s: Sighting) -> Verdict | None:
    """Scalars, vectors, 1 x N and N x 1; gains shared over a dimension of size 1."""
    if sum(size != 1 for size in s.p.shape) <= 1:
        matrix = s.p.ndim == 2 and is_linear(s)
        return Verdict("adamw", "vector: only its direction would be left", matrix)
    if s.leaf_words & GAIN_WORDS:
        return Verdict("adamw", "gains", decay=False)
    return None


def _convolution(s: Sighting) -> Verdict | None:
    kind = type(s.owner).__name__
    by_type = isinstance(s.owner, nn.modules.conv._ConvNd)
    by_class = any(map(CONVOLUTION_WORD.fullmatch, words_of(kind)))
    if not by_type and not (by_class and s.p.ndim > 2):
        return None
    if getattr(s.owner, "groups", 1) == getattr(s.owner, "in_channels", 0) > 1:
        return Verdict("adamw", f"depthwise {kind}: one filter per channel")
    return Verdict("adamw", f"kernel of {kind}: not a matrix")


def _recurrent(s: Sighting) -> Verdict | None:
    if isinstance(s.owner, nn.RNNBase | nn.RNNCellBase):
        kind = type(s.owner).__name__
        return Verdict("adamw", f"{kind}: all its gates in one matrix; split for Muon")
    return None


def _attention(s: Sighting) -> Verdict | None:
    if not isinstance(s.owner, nn.MultiheadAttention):
        return None
    if s.leaf == "in_proj_weight":
        return Verdict("adamw", "Q, K, V fused in one matrix; split for Muon")
    return Verdict("muon", "hidden matrix")


def _bilinear(s: Sighting) -> Verdict | None:
    if isinstance(s.owner, nn.Bilinear):
        return Verdict("adamw", "bilinear form: not a matrix")
    return None


def _bare(s: Sighting) -> Verdict:
    """Whatever no rule knows: a parameter that its module uses in a way of its own."""
    kind = type(s.owner).__name__
    if isinstance(s.owner, ParametrizationList):
        return Verdict("unclear", "the layer uses a function of it (parametrization)")
    if names_several_maps(s.parts[-1]):
        return Verdict("unclear", "several maps fused in one; split before Muon")
    if s.p.ndim == 3:
        why = f'of {kind}; a stack of matrices (E, m, n)? "muon" declares it as one'
        return Verdict("unclear", why)
    return Verdict("unclear", f"parameter of {kind}; a matrix, or a table of vectors?")


RULES = (_flat, _embedding, _norm, _bias, _vector, _convolution, _recurrent)
RULES += (_attention, _bilinear, linear, _bare)
