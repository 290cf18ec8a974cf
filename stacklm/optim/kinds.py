"""What kind of parameter is this, and which optimizer does the kind call for?

One rule a kind, asked in the order of ``RULES``; the first that recognizes the
parameter decides. A rule goes by the module's type first, by its name second, by the
shape last, and says "unclear" rather than guess: a table on Muon or a matrix on AdamW
trains, only worse, and nobody notices. Shapes are those of ``torch.nn``: a Linear
weight is (out, in). Taught in chapter 01.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from torch import Tensor, nn
from torch.nn.utils.parametrize import ParametrizationList

# Names, or words of names, as public models use them.
HEAD_WORDS = {"head", "heads", "logit", "logits", "unembed", "unembedding"}
HEAD_WORDS |= {"classifier", "vocab"}
# These are heads at the top of a model, and inner projections inside a block.
HEAD_NAMES_AT_TOP = {"output", "outputs", "output_layer", "output_projection"}
HEAD_NAMES_AT_TOP |= {"embed_out", "fc_out", "decoder", "score", "qa_outputs"}
FUSED_WORDS = {"qkv", "wqkv", "kv", "wkv", "qk", "qkvz", "w13", "fused"}
FUSED_NAMES = {"c_attn", "in_proj", "query_key_value", "gate_up", "gate_up_proj"}
FUSED_NAMES |= {"up_gate", "up_gate_proj"}
# A name with one of these words says itself that it is one map inside a block.
INNER_WORDS = {"q", "k", "v", "o", "wq", "wk", "wv", "wo", "query", "key", "value"}
INNER_WORDS |= {"up", "gate", "down"}
MLP_WORDS = {"mlp", "ffn", "ff", "feedforward", "feed", "fc", "fc1", "fc2", "w1", "w2"}
MLP_WORDS |= {"w3", "linear1", "linear2", "lin1", "lin2", "expert", "experts"}
GAIN_WORDS = {"gain", "gains", "gamma", "scale", "scales"}


@dataclass(frozen=True)
class Verdict:
    """Where a parameter belongs.

    Attributes:
        optimizer: "muon", "adamw", "unclear" (the user must say), or "refused" (neither
            can take it, whatever the user says).
        reason: Why, in a few words.
        decay: Whether AdamW applies weight decay.
    """

    optimizer: str
    reason: str
    decay: bool = True


@dataclass(frozen=True)
class Sighting:
    """One name of a parameter, and what the rules may look at.

    Attributes:
        parts: The dotted name in parts, without those that wrappers add.
        p: The parameter; only its shape is read.
        owner: The module that holds it.
        parent: The module that holds the owner, or None.
        repeated: Whether numbered siblings hold a parameter of this name and shape.
        tables: {rows of an embedding: its name}, of the whole model.
    """

    parts: tuple[str, ...]
    p: Tensor
    owner: nn.Module
    parent: nn.Module | None
    repeated: bool
    tables: dict[int, str]

    @property
    def leaf(self) -> str:
        return self.parts[-1].lower()

    @property
    def label(self) -> str:
        """The owner's name, or its container's where the owner is only a number."""
        words = [part for part in self.parts[:-1] if not part.isdigit()]
        return words[-1] if words else ""

    @property
    def in_block(self) -> bool:
        """Whether a container above the owner is numbered, as in blocks.3.mlp.w_up."""
        return any(part.isdigit() for part in self.parts[:-2])

    @property
    def path_words(self) -> set[str]:
        return set().union(*(words_of(part) for part in self.parts[:-1]))


def words_of(name: str) -> set[str]:
    """``"in_projQKV"`` to {"in", "proj", "qkv"}: at underscores and at capitals."""
    return set(re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower().split("_"))


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
    by_name = s.p.ndim > 1 and s.leaf != "weight" and "emb" in s.leaf
    if by_type or by_class or by_name:
        return Verdict("adamw", "embedding: a look-up picks one row")
    return None


def _norm(s: Sighting) -> Verdict | None:
    kind = type(s.owner).__name__
    if "norm" in kind.lower() and not isinstance(s.owner, ParametrizationList):
        what = "bias" if "bias" in s.leaf else "gain"
        return Verdict("adamw", f"{what} of {kind}", decay=False)
    return None


def _bias(s: Sighting) -> Verdict | None:
    if "bias" not in s.leaf:
        return None
    stack = s.p.ndim > 1 and min(s.p.shape) > 1
    reason = "stack of biases: vectors, not a matrix" if stack else "bias"
    return Verdict("adamw", reason, decay=False)


def _vector(s: Sighting) -> Verdict | None:
    """Scalars, vectors, 1 x N and N x 1; gains shared over a dimension of size 1."""
    if sum(size != 1 for size in s.p.shape) <= 1:
        matrix = s.p.ndim == 2 and _is_linear(s)
        return Verdict("adamw", "vector: only its direction would be left", matrix)
    if words_of(s.parts[-1]) & GAIN_WORDS:
        return Verdict("adamw", "gains", decay=False)
    return None


def _convolution(s: Sighting) -> Verdict | None:
    kind = type(s.owner).__name__
    by_type = isinstance(s.owner, nn.modules.conv._ConvNd)
    if not by_type and not ("conv" in kind.lower() and s.p.ndim > 2):
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


def _linear(s: Sighting) -> Verdict | None:
    if not _is_linear(s):
        return None
    return _head(s) or _fused(s) or _at_root(s) or Verdict("muon", "hidden matrix")


def _head(s: Sighting) -> Verdict | None:
    inner = bool(words_of(s.label) & INNER_WORDS)
    by_word = bool(words_of(s.label) & HEAD_WORDS)
    at_top = s.label.lower() in HEAD_NAMES_AT_TOP and not (
        s.in_block or _in_attention(s)
    )
    if by_word or at_top:
        if _before_last(s):
            return Verdict("muon", "hidden matrix")
        return Verdict("adamw", "output head: one row per class or token")
    rows, columns = s.p.shape
    if rows not in s.tables or s.repeated or inner:
        return None
    if s.in_block or rows == columns:
        return Verdict(
            "unclear",
            f"has as many rows as {s.tables[rows]}; an output head, or by coincidence?",
        )
    return Verdict("adamw", f"output head: as many rows as {s.tables[rows]}")


def _fused(s: Sighting) -> Verdict | None:
    words = words_of(s.label)
    if s.label.lower() in FUSED_NAMES or words & FUSED_WORDS:
        return Verdict("adamw", "several maps fused in one matrix; split for Muon")
    rows, columns = s.p.shape
    if words & INNER_WORDS:
        return None
    if _in_attention(s) and rows > columns:
        return Verdict("unclear", "wide projection in attention; fused Q, K, V?")
    if rows == 3 * columns and not s.path_words & MLP_WORDS:
        return Verdict("unclear", "three times as many rows as columns; fused Q, K, V?")
    return None


def _at_root(s: Sighting) -> Verdict | None:
    if len(s.parts) > 2 or words_of(s.label) & INNER_WORDS:
        return None
    return Verdict("unclear", "Linear at the top of the model; hidden, or the head?")


def _bare(s: Sighting) -> Verdict:
    """Whatever no rule knows: a parameter that its module uses in a way of its own."""
    kind = type(s.owner).__name__
    if isinstance(s.owner, ParametrizationList):
        return Verdict("unclear", "the layer uses a function of it (parametrization)")
    if s.p.ndim == 3:
        why = f'of {kind}; a stack of matrices (E, m, n)? "muon" declares it as one'
        return Verdict("unclear", why)
    return Verdict("unclear", f"parameter of {kind}; a matrix, or a table of vectors?")


RULES = (_flat, _embedding, _norm, _bias, _vector, _convolution, _recurrent)
RULES += (_attention, _bilinear, _linear, _bare)


def _is_linear(s: Sighting) -> bool:
    by_class = "linear" in type(s.owner).__name__.lower()
    known = isinstance(s.owner, nn.Linear) or (by_class and s.p.ndim == 2)
    return known and s.leaf == "weight"


def _in_attention(s: Sighting) -> bool:
    names = [*s.parts[:-2][-1:], type(s.parent).__name__ if s.parent else ""]
    return any("attn" in name.lower() or "attention" in name.lower() for name in names)


def _before_last(s: Sighting) -> bool:
    """Whether later Linears follow in the same Sequential: a head of several layers."""
    if not isinstance(s.parent, nn.Sequential):
        return False
    linear = [module for module in s.parent if isinstance(module, nn.Linear)]
    return any(s.owner is module for module in linear[:-1])
