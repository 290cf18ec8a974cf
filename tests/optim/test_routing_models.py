"""Whole models as people write them: nothing for AdamW slips onto Muon, or back."""

import pytest
from torch import nn

from stacklm.optim import audit, routing
from tests.optim.modules import Holder, linear, raw


def twice(**make):
    """Two equal blocks below a model that has something beside them, too."""
    blocks = (Holder(**{k: f() for k, f in make.items()}) for _ in range(2))
    return Holder(blocks=nn.ModuleList(blocks), stem=nn.LayerNorm(8))


def optimizers(model, route=None):
    return {r.name.split(".0.", 1)[-1]: r.optimizer for r in audit(model, route)}


def complaint(model):
    with pytest.raises(ValueError, match="cannot tell Muon or AdamW") as info:
        audit(model)
    return str(info.value)


def times(model, reason):
    """How many parameters are unclear for this reason, word for word."""
    return complaint(model).count(f": {reason}\n")


def mlp():
    return nn.Sequential(linear(16, 8), nn.ReLU(), linear(16, 16), linear(5, 16))


FLAT = [
    lambda: mlp(),
    lambda: nn.Sequential(mlp()),
    lambda: Holder(net=mlp()),
    lambda: Holder(layers=nn.ModuleList(mlp()[:1])),
    lambda: Holder(model=Holder(net=mlp())),
    lambda: Holder(module=Holder(model=Holder(fc=linear(5, 8)))),
    lambda: Holder(actor=mlp(), critic=mlp()),
    lambda: Holder(model=Holder(fc=linear(5, 8), token=raw(8))),
    lambda: Holder(model=Holder(conv=nn.Conv2d(3, 8, 3), fc=linear(5, 8))),
]


@pytest.mark.parametrize("make", FLAT)
def test_a_plain_net_has_a_head_somewhere_that_no_name_tells(make):
    """Its last layer went to Muon when it stood in a Sequential or below a wrapper."""
    model = make()
    linears = sum(isinstance(m, nn.Linear) for m in model.modules())
    message = complaint(model)
    assert f"for {linears} parameter(s)" in message
    assert message.count("at the top of the model") == linears


def test_a_lone_layer_keeps_its_name():
    layer = nn.Linear(4, 8)
    for name, where in (("lm_head", "adamw"), ("q_proj", "muon")):
        assert audit(Holder(**{name: layer}))[0].optimizer == where
        assert audit(Holder(model=Holder(**{name: layer})))[0].optimizer == where


def test_blocks_below_a_wrapper_are_no_top():
    inner = twice(up=lambda: linear(16, 8))
    assert optimizers(Holder(model=inner))["up.weight"] == "muon"
    assert optimizers(Holder(blocks=inner.blocks))["up.weight"] == "muon"


@pytest.mark.parametrize("name", ["lm_head", "classifier", "final_layer"])
def test_a_layer_in_a_head_may_be_its_last(name):
    """A RoBERTa classifier is dense, then out_proj: the second is the head."""
    model = twice(up=lambda: linear(16, 8))
    setattr(model, name, Holder(dense=linear(8, 8), out_proj=linear(2, 8)))
    assert times(model, "Linear in an output head; its last layer, or not?") == 2
    assert f"{name}.out_proj.weight (2, 8)" in complaint(model)


@pytest.mark.parametrize("name", ["head_gate", "multi_head", "heads"])
def test_heads_of_attention_are_no_output_heads(name):
    model = twice(self_attn=lambda: Holder(**{name: linear(4, 8)}))
    assert times(model, "an output head, or about the heads of attention?") == 2


def test_one_projection_per_head_of_attention():
    def attention():
        heads = (Holder(key=linear(4, 8), value=linear(4, 8)) for _ in range(2))
        return Holder(heads=nn.ModuleList(heads), proj=linear(8, 8))

    routes = audit(twice(sa=attention, attn=attention))
    assert {r.optimizer for r in routes if r.shape != (8,)} == {"muon"}


@pytest.mark.parametrize("name", ["patch_embedding", "to_patch_embed", "t_embedder"])
def test_linears_of_embeddings_are_unclear(name):
    model = twice(up=lambda: linear(16, 8))
    setattr(model, name, Holder(mlp=nn.Sequential(linear(8, 4), linear(8, 8))))
    assert times(model, "Linear in an embedding; hidden, or a look-up?") == 2


def test_routers_are_unclear():
    def moe():
        return Holder(gate=linear(4, 8), experts=nn.ModuleList([Holder()]))

    named = twice(mlp=lambda: Holder(router=linear(4, 8)))
    for model in (twice(mlp=moe), named):
        assert times(model, "router: one row per expert; hidden, or a head?") == 2
    plain = twice(mlp=lambda: Holder(gate=linear(16, 8)))  # the gate of a SwiGLU
    assert optimizers(plain)["mlp.gate.weight"] == "muon"


def test_factors_of_lora_are_unclear_and_what_they_adapt_is_frozen():
    def adapted():
        base = linear(8, 8).requires_grad_(False)
        a, b = (nn.ModuleDict({"default": linear(*s)}) for s in ((2, 8), (8, 2)))
        return Holder(base_layer=base, lora_A=a, lora_B=b)

    model = twice(q_proj=adapted)
    assert times(model, "one factor of a product (LoRA), not the matrix") == 4
    assert optimizers(model, {"*lora*": "adamw"})["q_proj.base_layer.weight"] == (
        "frozen"
    )


FUSED = ["query_key", "key_value", "gate_and_up", "w12", "adaLN_modulation"]


@pytest.mark.parametrize("name", FUSED)
def test_two_maps_in_one_name_are_fused(name):
    routes = audit(twice(**{name: lambda: linear(24, 8)}))
    assert "several maps fused" in routes[0].reason
    one = ["q_up", "k_up", "v_up", "q_gate", "wo_down"]  # latent attention: one each
    for name in one:
        assert optimizers(twice(**{name: lambda: linear(24, 8)}))[f"{name}.weight"] == (
            "muon"
        )


@pytest.mark.parametrize("name", ["gate_up_proj", "w_qkv", "in_proj_weight"])
def test_fused_parameters_are_not_offered_to_muon(name):
    model = Holder(moe=Holder(**{name: raw(3, 8, 16)}))
    assert times(model, "several maps fused in one; split before Muon") == 1


def test_what_holds_a_layer_makes_it_a_projection_of_attention_and_nothing_above():
    wide = "attention_block.mlp.wide.weight"
    model = twice(attention_block=lambda: Holder(mlp=Holder(wide=linear(32, 8))))
    assert optimizers(model)[wide] == "muon"
    model = twice(attention_block=lambda: Holder(wide=linear(32, 8)))
    assert times(model, "wide projection in attention; fused Q, K, V?") == 2


class NormLinear(nn.Linear):
    """Keeps its rows at norm 1; a matrix for all that."""


def test_a_class_named_after_a_norm_is_not_always_one():
    model = twice(up=lambda: NormLinear(8, 16, bias=False))
    assert optimizers(model)["up.weight"] == "muon"
    message = complaint(twice(a=lambda: Holder("PreNormAttention", w=raw(8, 16))))
    assert message.count("parameter of PreNormAttention") == 2


PARTS = [
    (Holder(member_weight=raw(3, 4, 8)), "a stack of matrices"),  # "emb" in member
    (Holder(ensemble=raw(4, 8)), "a matrix, or a table"),
    (Holder(debiased=raw(4, 8)), "a matrix, or a table"),
    (Holder("Converter", experts=raw(3, 4, 8)), "a stack of matrices"),
]


@pytest.mark.parametrize(("holder", "why"), PARTS)
def test_names_are_read_by_words_not_by_letters(holder, why):
    assert why in complaint(Holder(part=holder))


@pytest.mark.parametrize("kind", ["CausalConv", "DeConv2d", "Conv3d", "Convolution"])
def test_convolutions_by_the_words_of_their_class(kind):
    assert "kernel of" in audit(Holder(c=Holder(kind, weight=raw(4, 4, 3))))[0].reason


def test_embeddings_by_the_words_of_their_name():
    for name in ("pos_emb", "posemb", "pos_embed", "embeddings", "embed_table"):
        (r,) = audit(Holder(**{name: raw(9, 4)}))
        assert r.reason.startswith("embedding"), name


def test_a_block_that_runs_twice_is_repeated_like_two_blocks():
    block = Holder(mix=linear(20, 8))  # as many rows as the embedding
    table = nn.Embedding(20, 8)
    for blocks in ([block, block], [block, Holder(mix=linear(20, 8))]):
        model = Holder(tok_emb=table, blocks=nn.ModuleList(blocks))
        assert {r.optimizer for r in audit(model) if "mix" in r.name} == {"muon"}
    alone = Holder(tok_emb=table, blocks=nn.ModuleList([block]))
    assert "tok_emb" in complaint(alone)


def test_what_wraps_a_model_is_no_part_of_its_names():
    wrapped = "module.blocks.0._orig_mod.fc._checkpoint_wrapped_module.weight"
    assert routing._core(wrapped) == "blocks.0.fc.weight"
    ends = (["fc", "weight"], ["conv", "bias"])
    for depth in range(4):
        above = ["outer", "model", "net", "body"][:depth]
        assert routing._trunk([above + end for end in ends]) == depth
    assert routing._trunk([]) == 0
