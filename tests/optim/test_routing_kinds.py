"""Every kind of parameter that public models have, and where it must go."""

import copy

import pytest
import torch
from torch import nn

from stacklm.optim import audit
from stacklm.optim.sighting import words_of
from tests.optim.modules import Holder, linear, raw


def in_blocks(**contents):
    """Two equal blocks, as a real model has many."""
    block = Holder(**contents)
    return Holder(blocks=nn.ModuleList([block, copy.deepcopy(block)]))


def one(name, **contents):
    """The route of the one parameter of that name."""
    routes = audit(Holder(**contents))
    return next(r for r in routes if r.name == name)


def custom(kind, *shape):
    """A module of that class name with one parameter, its weight."""
    return Holder(kind, weight=raw(*shape))


MUON = [
    {"proj": linear(8, 16)},
    {"attn": Holder(wq=linear(24, 8), wk=linear(4, 8))},
    {"attn": Holder(q_proj=linear(32, 8))},  # wider than the model, and says what it is
    {"mlp": Holder(fc1=linear(24, 8), fc2=linear(8, 24))},
    {"w1": linear(24, 8), "w2": linear(8, 24)},
    {"attention": Holder(output=linear(8, 8))},
    {"decoder": linear(8, 16)},
    {"experts": nn.ModuleList(linear(16, 8) for _ in range(2))},
    {"p": custom("RowParallelLinear", 4, 8)},
    {"a": nn.MultiheadAttention(8, 2, kdim=4, bias=False)},  # its Q, K, V are apart
]


@pytest.mark.parametrize("contents", MUON)
def test_hidden_matrices_go_to_muon(contents):
    for r in audit(in_blocks(**contents)):
        assert (r.optimizer, r.reason) == ("muon", "hidden matrix"), r
        assert not r.stacked


FUSED = (
    "qkv Wqkv c_attn in_proj query_key_value kv_proj to_qkv gate_up_proj qkvProj w13 "
    "QKVProj KVProj GateUpProj"
)
HEADS = (
    "value_head lm_head head classifier unembed logits mlm_head vocab_proj lmHead "
    "LMHead"
)
NOT_DECAYED = [
    ({"n": nn.LayerNorm(4, bias=False)}, "gain of LayerNorm"),
    ({"n": nn.LayerNorm((4, 6), bias=False)}, "gain of LayerNorm"),
    ({"n": nn.BatchNorm2d(4)}, "of BatchNorm2d"),
    ({"n": custom("MyRMSNorm", 4)}, "gain of MyRMSNorm"),
    ({"q_norm": custom("RMSNorm", 8, 1, 64)}, "gain of RMSNorm"),  # per head
    ({"q_gain": raw(8, 1, 64)}, "gains"),
    ({"b_bias": raw(4)}, "bias"),
    ({"expert_bias": raw(8, 4)}, "stack of biases"),
    ({"temperature": raw()}, "vector"),
    ({"cls_token": raw(1, 1, 8)}, "vector"),
]
DECAYED = [
    ({"e": nn.Embedding(9, 4)}, "embedding"),
    ({"e": nn.EmbeddingBag(9, 4)}, "embedding"),
    ({"e": custom("VocabEmbedding", 9, 4)}, "embedding"),
    ({"pos_emb": raw(1, 9, 4)}, "embedding"),
    ({"value": linear(1, 8)}, "vector: only its direction"),
    ({"lift": linear(8, 1)}, "vector: only its direction"),
    ({"c": nn.Conv1d(4, 8, 3, bias=False)}, "kernel of Conv1d"),
    ({"c": nn.Conv2d(4, 8, 3, bias=False)}, "kernel of Conv2d"),
    ({"c": nn.Conv2d(4, 8, 1, bias=False)}, "kernel of Conv2d"),
    ({"c": nn.ConvTranspose3d(4, 8, 3, bias=False)}, "kernel of ConvTranspose3d"),
    ({"c": nn.Conv2d(4, 4, 3, groups=4, bias=False)}, "depthwise Conv2d"),
    ({"c": custom("CausalConv", 4, 4, 3)}, "kernel of CausalConv"),
    ({"c": nn.GRUCell(4, 8, bias=False)}, "GRUCell: all its gates"),
    ({"c": nn.RNN(4, 8, bias=False)}, "RNN: all its gates"),
    ({"a": nn.MultiheadAttention(8, 2, bias=False)}, "Q, K, V fused"),
    ({"b": nn.Bilinear(3, 4, 5, bias=False)}, "bilinear form"),
    *[({name: linear(24, 8)}, "several maps fused") for name in FUSED.split()],
    *[({name: linear(30, 8)}, "output head") for name in HEADS.split()],
]


@pytest.mark.parametrize("decay", [False, True])
def test_everything_else_goes_to_adamw_with_its_reason(decay):
    for contents, reason in DECAYED if decay else NOT_DECAYED:
        routes = [r for r in audit(in_blocks(**contents)) if "out_proj" not in r.name]
        assert len(routes) >= 2
        for r in routes:
            assert r.optimizer == "adamw", r
            assert reason in r.reason or "bias of" in r.reason, r
            assert r.decay is decay, r


def test_lstm_weights_and_biases():
    routes = audit(in_blocks(rnn=nn.LSTM(4, 8, 2, proj_size=3)))
    assert {r.optimizer for r in routes} == {"adamw"}
    by_decay = {
        r.decay: {q.reason for q in routes if q.decay == r.decay} for r in routes
    }
    assert by_decay[True] == {"LSTM: all its gates in one matrix; split for Muon"}
    assert by_decay[False] == {"bias"}


def test_heads_at_the_top_by_name():
    for name in ("output", "embed_out", "fc_out", "score", "decoder", "lm_head"):
        assert one(f"{name}.weight", **{name: linear(9, 4)}).optimizer == "adamw"


def test_a_head_by_the_rows_of_the_embedding():
    r = one("top.proj.weight", tok=nn.Embedding(9, 4), top=Holder(proj=linear(9, 4)))
    assert (r.optimizer, r.reason) == ("adamw", "output head: as many rows as tok")


def test_rows_that_equal_the_vocabulary_by_coincidence():
    """A byte-level model of width 256, or an MLP of 4 x 64 rows: hidden, not heads."""
    model = in_blocks(attn=Holder(wq=linear(16, 16)), mlp=Holder(lift=linear(16, 4)))
    model.tok_emb = nn.Embedding(16, 4)
    assert [r.optimizer for r in audit(model)] == ["muon"] * 4 + ["adamw"]
    single = Holder(
        blocks=nn.ModuleList([Holder(lift=linear(16, 4), wq=linear(16, 16))]),
        tok_emb=nn.Embedding(16, 4),
    )
    with pytest.raises(
        ValueError, match=r"1 parameter.*\n  blocks.0.lift.* as tok_emb"
    ):
        audit(single)


def test_a_head_of_several_layers_ends_in_the_head():
    body = nn.Sequential(
        linear(32, 8), nn.ReLU(), linear(16, 32), nn.ReLU(), linear(5, 16)
    )
    routes = audit(Holder(classifier=body))
    assert [r.optimizer for r in routes] == ["muon", "muon", "adamw"]
    many = audit(Holder(heads=nn.ModuleList(linear(5, 8) for _ in range(3))))
    assert [r.optimizer for r in many] == ["adamw"] * 3


def test_tied_weights_are_one_entry_that_knows_all_its_names():
    model = Holder(tok_emb=nn.Embedding(9, 4), lm_head=linear(9, 4))
    model.lm_head.weight = model.tok_emb.weight
    (r,) = audit(model)
    assert (r.name, r.aliases) == ("tok_emb.weight", ("lm_head.weight",))
    assert r.reason.startswith("embedding")
    # The other way round, and under a name that says nothing.
    model = Holder(first=Holder(proj=linear(9, 4)), table=nn.Embedding(9, 4))
    model.first.proj.weight = model.table.weight
    (r,) = audit(model)
    assert (r.optimizer, r.aliases) == ("adamw", ("table.weight",))
    # One role for AdamW is enough, also against one that says hidden, or nothing.
    for other in ("a", "fc"):
        inner = Holder(p=linear(9, 4)) if other == "a" else linear(9, 4)
        model = Holder(**{other: inner, "lm_head": linear(9, 4)})
        model.lm_head.weight = inner.p.weight if other == "a" else inner.weight
        (r,) = audit(model)
        assert (r.optimizer, r.reason[:11]) == ("adamw", "output head")
    # Two hidden layers that share: one matrix, one step.
    shared = Holder(a=Holder(p=linear(4, 8)), b=Holder(p=linear(4, 8)))
    shared.b.p.weight = shared.a.p.weight
    (r,) = audit(shared)
    assert (r.optimizer, r.aliases) == ("muon", ("b.p.weight",))


NORM = nn.LayerNorm(8, bias=False)
COMPLEX = nn.Linear(4, 8, bias=False, dtype=torch.complex64)
AMBIGUOUS = [
    ({"fc": linear(4, 8)}, "at the top of the model; hidden, or the head?"),
    ({"a": Holder(p=linear(24, 8))}, "three times as many rows"),
    ({"n": NORM, "attn": Holder(proj=linear(12, 8))}, "wide projection in attention"),
    ({"x": Holder("SelfAttention", p=linear(12, 8))}, "wide projection in attention"),
    ({"a": Holder("Mixer", w=raw(4, 8))}, "of Mixer; a matrix, or a table"),
    ({"a": Holder("MoE", w=raw(3, 4, 8))}, '"muon" declares it as one'),
    ({"a": Holder("Odd", w=raw(2, 3, 4, 8))}, "parameter of Odd"),
    ({"a": nn.ParameterList([raw(4, 8)])}, "of ParameterList; a matrix"),
    ({"a": custom("Conv1D", 4, 8)}, "of Conv1D"),  # a Linear, transposed, in GPT-2
    ({"e": nn.Embedding(8, 8), "a": Holder(p=linear(8, 8))}, "or by coincidence?"),
    ({"a": Holder(up=COMPLEX)}, ": complex; Muon takes real matrices\n"),
    ({"e": nn.Embedding(9, 4, sparse=True)}, "with sparse=False"),
    ({"_flat_param": raw(99)}, "shard with fully_shard"),
]


@pytest.mark.parametrize(("contents", "why"), AMBIGUOUS)
def test_what_cannot_be_told_is_an_error(contents, why):
    with pytest.raises(
        ValueError, match="cannot tell Muon or AdamW for 1 param"
    ) as info:
        audit(Holder(**contents))
    message = str(info.value)
    assert why in message
    name, p = list(Holder(**contents).named_parameters())[-1]
    assert f"{name} {tuple(p.shape)}: " in message
    assert f'route={{"{name}": "adamw"}}' in message


NORMS = nn.utils.parametrizations


@pytest.mark.parametrize("norm", [NORMS.weight_norm, NORMS.spectral_norm])
def test_parametrized_weights_are_ambiguous(norm):
    why = r"\(4, 8\): the layer uses a function of it \(parametrization\)\n"
    with pytest.raises(ValueError, match=r"original\d? " + why):
        audit(Holder(a=Holder(p=norm(linear(4, 8)))))


def test_all_ambiguous_parameters_are_listed_at_once():
    model = Holder(fc1=linear(4, 8), moe=Holder(w=raw(3, 4, 8)), up=linear(8, 4))
    with pytest.raises(ValueError, match="for 2 parameter") as info:
        audit(model)
    assert "\n  fc1.weight (4, 8): " in str(info.value)
    assert "\n  moe.w (3, 4, 8): " in str(info.value)


def test_frozen_parameters_are_left_out_with_the_reason():
    model = Holder(fc=linear(4, 8).requires_grad_(False), up=linear(4, 8))
    frozen, up = audit(model)
    assert frozen.optimizer == "frozen"
    assert frozen.reason == "frozen: requires_grad is False"
    assert up.optimizer == "muon"


def test_lazy_parameters_have_no_shape_yet():
    with pytest.raises(ValueError, match=r"p\.weight is not initialized.*forward pass"):
        audit(Holder(p=nn.LazyLinear(4, bias=False)))


def test_wrappers_do_not_change_the_verdict():
    class Wrapper(nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.module = inner

    with pytest.raises(ValueError, match="at the top of the model"):
        audit(Wrapper(Holder(fc=linear(4, 8))))
    routes = audit(Wrapper(in_blocks(up=linear(4, 8))))
    assert routes[0].name == "module.blocks.0.up.weight"  # the name as the model has it
    assert {r.optimizer for r in routes} == {"muon"}


def test_a_transformer_layer_of_torch():
    encoder = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(8, 2, 24), 2, enable_nested_tensor=False
    )
    by_name = {r.name.split("layers.0.")[-1]: r.optimizer for r in audit(encoder)}
    assert by_name["self_attn.in_proj_weight"] == "adamw"
    for name in ("self_attn.out_proj", "linear1", "linear2"):
        assert by_name[f"{name}.weight"] == "muon"
        assert by_name[f"{name}.bias"] == "adamw"


def test_a_residual_network_has_no_matrix_for_muon():
    """2,048 kernels on Muon is what happens where the number of dimensions decides."""
    net = nn.Sequential(
        nn.Sequential(nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU()),
        nn.Sequential(nn.Conv2d(8, 8, 3, groups=8, bias=False), nn.BatchNorm2d(8)),
        nn.Flatten(),
        Holder(classifier=linear(10, 8)),
    )
    assert {r.optimizer for r in audit(net)} == {"adamw"}


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("lmHead", {"lm", "head"}),
        ("in_projQKV", {"in", "proj", "qkv"}),
        ("w1Up", {"w1", "up"}),
    ],
)
def test_names_are_cut_at_underscores_and_capitals(name, words):
    assert words_of(name) == words
