"""The reason of every rule, word for word, and where each rule begins and ends."""

import pytest
from torch import nn

from stacklm.optim import audit
from tests.optim.modules import Holder, linear, raw


class Patchify(nn.Conv2d):
    """A convolution that its name does not give away."""


LOOK_UP = "embedding: a look-up picks one row"
ONE_WAY = "vector: only its direction would be left"
STACK = "stack of biases: vectors, not a matrix"
FUSED = "several maps fused in one matrix; split for Muon"
ADAMW = [  # contents, reason, whether it decays
    ({"e": nn.Embedding(9, 4)}, LOOK_UP, True),
    ({"norm": nn.LayerNorm(4, bias=False)}, "gain of LayerNorm", False),
    ({"norm": Holder("MyNorm", bias=raw(4))}, "bias of MyNorm", False),
    ({"norm": Holder("MyNorm", gamma=raw(4))}, "gain of MyNorm", False),
    ({"bias": raw(8)}, "bias", False),
    ({"biases": raw(1, 8)}, "bias", False),
    ({"biases": raw(2, 8)}, STACK, False),
    ({"query": raw(1, 8)}, ONE_WAY, False),
    ({"score": raw(8)}, ONE_WAY, False),
    ({"pos_emb": raw(8)}, ONE_WAY, False),
    ({"up": linear(1, 8)}, ONE_WAY, True),
    ({"scale": raw(2, 8)}, "gains", False),
    ({"c": nn.Conv2d(1, 8, 3, bias=False)}, "kernel of Conv2d: not a matrix", True),
    ({"c": Patchify(3, 8, 4, bias=False)}, "kernel of Patchify: not a matrix", True),
    (
        {"c": nn.Conv2d(2, 2, 3, groups=2, bias=False)},
        "depthwise Conv2d: one filter per channel",
        True,
    ),
    (
        {"c": Holder("CausalConv", weight=raw(4, 2, 3), in_channels=2)},
        "kernel of CausalConv: not a matrix",
        True,
    ),
    (
        {"r": nn.RNNCell(4, 8, bias=False)},
        "RNNCell: all its gates in one matrix; split for Muon",
        True,
    ),
    ({"b": nn.Bilinear(3, 4, 5, bias=False)}, "bilinear form: not a matrix", True),
    ({"gate_up": linear(24, 8)}, FUSED, True),
    ({"qkv": linear(24, 8)}, FUSED, True),
    ({"lm_head": linear(9, 8)}, "output head: one row per class or token", True),
]


@pytest.mark.parametrize(("contents", "reason", "decay"), ADAMW)
def test_what_goes_to_adamw_says_why(contents, reason, decay):
    routes = audit(Holder(**contents))
    assert {(r.optimizer, r.reason, r.decay) for r in routes} == {
        ("adamw", reason, decay)
    }


def test_projections_of_torchs_attention_are_fused_and_what_comes_out_is_a_matrix():
    blocks = nn.ModuleList([nn.MultiheadAttention(8, 2, bias=False)])
    assert [(r.optimizer, r.reason) for r in audit(Holder(blocks=blocks))] == [
        ("adamw", "Q, K, V fused in one matrix; split for Muon"),
        ("muon", "hidden matrix"),
    ]


def test_a_head_is_known_by_the_rows_of_its_embedding():
    routes = audit(Holder(tok=nn.Embedding(20, 8), out=linear(20, 8)))
    assert routes[1].reason == "output head: as many rows as tok"
    model = nn.Embedding(20, 8)  # is itself the embedding, and has no name
    model.out = linear(20, 8)
    assert audit(model)[1].reason == "output head: as many rows as the embedding"


class AttnLinear(nn.Linear):
    """A class that names attention."""


def test_a_model_of_one_layer_has_nothing_that_holds_it():
    with pytest.raises(ValueError, match=r"\(32, 8\): Linear at the top of the model;"):
        audit(AttnLinear(8, 32, bias=False))


UNCLEAR = [
    ({"norm": Holder("MyNorm", table=raw(4, 8))}, "parameter of MyNorm; {}"),
    ({"c": Holder("CausalConv", weight=raw(4, 8))}, "parameter of CausalConv; {}"),
    (
        {"part": Holder(w=raw(2, 4, 8))},
        'of Holder; a stack of matrices (E, m, n)? "muon" declares it as one',
    ),
    (
        {"blocks": nn.ModuleList([Holder(attn=Holder(wide=linear(32, 8)))])},
        "wide projection in attention; fused Q, K, V?",
    ),
    (
        {"blocks": nn.ModuleList([Holder(mix=linear(24, 8))])},
        "three times as many rows as columns; fused Q, K, V?",
    ),
    (
        {"e": nn.Embedding(9, 4, sparse=True)},
        "sparse=True gives gradients that neither optimizer takes; build the embedding "
        "with sparse=False",
    ),
    (
        {"_flat_param": raw(99)},
        "flattened by FSDP, the matrices are gone; build the optimizers before "
        "wrapping, or shard with fully_shard",
    ),
    ({"net": linear(8, 8)}, "Linear at the top of the model; hidden, or the head?"),
]


@pytest.mark.parametrize(("contents", "reason"), UNCLEAR)
def test_what_cannot_be_told_says_why(contents, reason):
    reason = reason.format("a matrix, or a table of vectors?")
    with pytest.raises(ValueError, match="for 1 parameter") as info:
        audit(Holder(**contents))
    assert f": {reason}\n" in str(info.value)
