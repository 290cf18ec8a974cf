"""The rules for Linear layers: hidden matrix, output head, fused maps, or unclear.

All of these have the same type and often the same shape, so the names decide: those of
the layer itself, of what holds it, and whether it stands at the top of the model. A
layer that says nothing of the kind and sits deeper is a hidden matrix. Shapes are those
of ``torch.nn``: a Linear weight is (out, in). Taught in chapter 01.
"""

from __future__ import annotations

from torch import nn

from stacklm.optim.sighting import Sighting, Verdict, about_attention, words_of

# Names, or words of names, as public models use them.
HEAD_WORDS = {"head", "heads", "logit", "logits", "unembed", "unembedding"}
HEAD_WORDS |= {"classifier", "vocab"}
# These are heads at the top of a model, and inner projections inside a block.
HEAD_NAMES_AT_TOP = {"output", "outputs", "output_layer", "output_projection"}
HEAD_NAMES_AT_TOP |= {"embed_out", "fc_out", "decoder", "score", "qa_outputs"}
HEAD_NAMES_AT_TOP |= {"proj_out", "final_proj", "predictor"}
EMBED_WORDS = {"emb", "embed", "embedder", "embedding", "embeddings"}
FUSED_WORDS = {"qkv", "wqkv", "kv", "wkv", "qk", "qkvz", "qkvo", "w12", "w13", "fused"}
FUSED_WORDS |= {"modulation"}
FUSED_NAMES = {"c_attn", "in_proj", "query_key_value"}
# A name with one of these words says itself that it is one map inside a block; a name
# with two of the first three, or with both "gate" and "up", says that it is not.
QKV_WORDS = ({"q", "wq", "query"}, {"k", "wk", "key"}, {"v", "wv", "value"})
INNER_WORDS = set().union(*QKV_WORDS) | {"o", "wo", "up", "gate", "down"}
MLP_WORDS = {"mlp", "ffn", "ff", "feedforward", "feed", "fc", "fc1", "fc2", "w1", "w2"}
MLP_WORDS |= {"w3", "linear1", "linear2", "lin1", "lin2", "expert", "experts"}
HIDDEN = Verdict("muon", "hidden matrix")


def is_linear(s: Sighting) -> bool:
    """Whether the parameter is the weight of a Linear, torch's or one named so."""
    by_class = "linear" in type(s.owner).__name__.lower()
    known = isinstance(s.owner, nn.Linear) or (by_class and s.p.ndim == 2)
    return known and s.leaf == "weight"


def linear(s: Sighting) -> Verdict | None:
    """Ask the rules below in turn; None for what is no Linear."""
    if not is_linear(s):
        return None
    for rule in (_head, _fused, _part_of, _at_top):
        if verdict := rule(s):
            return verdict
    return HIDDEN


def _head(s: Sighting) -> Verdict | None:
    by_word = bool(s.label_words & HEAD_WORDS)
    if by_word and any(map(about_attention, s.names)):
        return Verdict("unclear", "an output head, or about the heads of attention?")
    at_top = s.label.lower() in HEAD_NAMES_AT_TOP and not (
        s.in_block or _in_attention(s)
    )
    if by_word or at_top:
        if _before_last(s):
            return HIDDEN
        return Verdict("adamw", "output head: one row per class or token")
    rows, columns = s.p.shape
    if rows not in s.tables or s.repeated or s.label_words & INNER_WORDS:
        return None
    if s.in_block or rows == columns:
        return Verdict(
            "unclear",
            f"has as many rows as {s.tables[rows]}; an output head, or by coincidence?",
        )
    return Verdict("adamw", f"output head: as many rows as {s.tables[rows]}")


def names_several_maps(name: str) -> bool:
    """Whether a name says that one matrix holds several: "qkv_proj", "gate_up_proj"."""
    words = words_of(name)
    several = sum(bool(words & kind) for kind in QKV_WORDS) > 1
    several = several or words >= {"gate", "up"} or bool(words & FUSED_WORDS)
    return several or name.lower().removesuffix("_weight") in FUSED_NAMES


def _fused(s: Sighting) -> Verdict | None:
    words = s.label_words
    if names_several_maps(s.label):
        return Verdict("adamw", "several maps fused in one matrix; split for Muon")
    rows, columns = s.p.shape
    if words & INNER_WORDS:
        return None
    if _in_attention(s) and rows > columns:
        return Verdict("unclear", "wide projection in attention; fused Q, K, V?")
    if rows == 3 * columns and not s.path_words & MLP_WORDS:
        return Verdict("unclear", "three times as many rows as columns; fused Q, K, V?")
    return None


def _part_of(s: Sighting) -> Verdict | None:
    """What holds the layer makes it doubtful, whatever its own name says."""
    if "lora" in s.path_words:
        return Verdict("unclear", "one factor of a product (LoRA), not the matrix")
    gate = s.label.lower() == "gate" and hasattr(s.parent, "experts")
    if gate or "router" in s.label_words:
        return Verdict("unclear", "router: one row per expert; hidden, or a head?")
    if s.label_words & INNER_WORDS or any(map(about_attention, s.names)):
        return None
    if s.path_words & EMBED_WORDS:
        return Verdict("unclear", "Linear in an embedding; hidden, or a look-up?")
    if s.path_words & (HEAD_WORDS | {"final"}):
        return Verdict("unclear", "Linear in an output head; its last layer, or not?")
    return None


def _at_top(s: Sighting) -> Verdict | None:
    """Directly in the model, or in a list of layers that is all that it is made of."""
    if len(s.names) > 1 or s.label_words & INNER_WORDS:
        return None
    return Verdict("unclear", "Linear at the top of the model; hidden, or the head?")


def _in_attention(s: Sighting) -> bool:
    names = [*s.parts[:-2][-1:], type(s.parent).__name__ if s.parent else ""]
    return any(map(about_attention, names))


def _before_last(s: Sighting) -> bool:
    """Whether later Linears follow in the same Sequential: a head of several layers."""
    if not isinstance(s.parent, nn.Sequential):
        return False
    linears = [module for module in s.parent if isinstance(module, nn.Linear)]
    return any(s.owner is module for module in linears[:-1])
