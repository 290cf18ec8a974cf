"""The audit of a tree: as in torch, without module types."""

import jax.numpy as jnp
import pytest
import torch

from stacklm import optim
from stacklm.config import toy_config
from stacklm.jax import audit, from_torch
from stacklm.model import Stack100M


def tree(**leaves):
    """{"a__b": shape} as {"a": {"b": zeros}}."""
    made = {}
    for name, shape in leaves.items():
        *above, last = name.split("__")
        node = made
        for part in above:
            node = node.setdefault(part, {})
        node[last] = jnp.zeros(shape)
    return made


def routed(name, shape, **others):
    """Where one leaf goes, among others that make it no single leaf."""
    others = others or {"other__mlp__w_up": (4, 8)}
    found = audit(tree(**{name: shape}, **others))
    return next(r for r in found if r.name == name.replace("__", "."))


@pytest.mark.parametrize("tie", [True, False])
def test_the_stack_is_routed_as_in_torch(tie):
    torch.manual_seed(0)
    model = Stack100M(toy_config(tie_embeddings=tie))
    there = {r.name.removesuffix(".weight"): r for r in optim.audit(model)}
    here = {r.name: r for r in audit(from_torch(model))}
    assert set(here) == set(there)
    for name, route in here.items():
        assert route.optimizer == there[name].optimizer, name
        assert route.decay == there[name].decay, name
        assert route.numel == there[name].numel, name
    assert "Muon: 14 tensors" in optim.format_routes(list(here.values()))


@pytest.mark.parametrize(
    ("name", "shape", "optimizer", "reason"),
    [
        ("params__Embed_0__embedding", (64, 8), "adamw", "embedding"),
        ("tok_emb", (64, 8), "adamw", "embedding"),
        ("blocks__bias", (6, 16), "adamw", "stack of biases"),
        ("blocks__mlp__b", (6, 16), "adamw", "stack of biases"),
        ("blocks__attn__q_bias", (6, 16), "adamw", "stack of biases"),
        ("blocks__norm1__scale", (6, 16), "adamw", "stack of gains"),
        ("blocks__attn__q_norm", (6, 4, 8), "adamw", "stack of gains"),
        ("LayerNorm_0__scale", (16,), "adamw", "gain"),
        ("ln_f__weight", (16,), "adamw", "gain"),
        ("blocks__attn__alpha", (16,), "adamw", "vector"),
        ("blocks__attn__temperature", (16, 1), "adamw", "vector"),
        ("blocks__attn__wq", (8, 8), "muon", "hidden"),
        ("blocks__attn__out__kernel", (8, 8), "muon", "hidden"),
        ("blocks__mlp__Dense_0__kernel", (8, 32), "muon", "hidden"),
        ("blocks__w_down", (8, 32), "muon", "hidden"),
        ("encoder__Dense_3__kernel", (8, 32), "muon", "hidden"),
        ("lm_head__kernel", (8, 64), "adamw", "output head"),
        ("output__kernel", (8, 64), "adamw", "output head"),
        ("blocks__attn__qkv__kernel", (8, 24), "adamw", "fused"),
        ("blocks__mlp__gate_up", (8, 64), "adamw", "fused"),
        ("stem__Conv_0__kernel", (3, 3, 8, 16), "adamw", "convolution"),
        ("stem__conv__kernel", (3, 8, 16), "adamw", "convolution"),
    ],
)
def test_names_and_shapes_decide(name, shape, optimizer, reason):
    route = routed(name, shape)
    assert route.optimizer == optimizer
    assert reason in route.reason


def test_biases_and_gains_do_not_decay_and_tables_do():
    assert not routed("blocks__bias", (6, 16)).decay
    assert not routed("blocks__norm1__scale", (6, 16)).decay
    assert routed("tok_emb", (64, 8)).decay


@pytest.mark.parametrize(
    ("name", "shape", "why"),
    [
        ("experts__w_up", (4, 8, 16), "a stack of matrices"),
        ("blocks__attn__query__kernel", (8, 4, 2), "a stack of matrices"),
        ("blocks__table", (8, 16), "its name says nothing"),
        ("blocks__lora__a__kernel", (8, 2), "LoRA"),
        ("blocks__router__kernel", (8, 4), "router"),
        ("proj__kernel", (8, 16), "top of the tree"),
        ("patch_embed__proj__kernel", (8, 16), "embedding or a head"),
        ("attn__heads__kernel", (8, 16), "heads of attention"),
        ("blocks__mixer", (2, 2, 2, 2), "more than three"),
    ],
)
def test_what_cannot_be_told_is_an_error_with_a_remedy(name, shape, why):
    with pytest.raises(ValueError, match=why) as raised:
        routed(name, shape)
    dotted = name.replace("__", ".")
    assert f'route={{"{dotted}": "adamw"}}' in str(raised.value)
    assert str(shape) in str(raised.value)


def test_all_unclear_leaves_are_listed():
    leaves = tree(a__table=(4, 4), b__table=(4, 4), c__mlp__w_up=(4, 4))
    with pytest.raises(ValueError, match=r"for 2 leaf\(s\)") as raised:
        audit(leaves)
    assert "a.table" in str(raised.value)
    assert "b.table" in str(raised.value)


def test_as_many_columns_as_the_embedding_has_rows_is_suspicious():
    names = {"tok_emb": (64, 8), "decoder__last__kernel": (8, 64)}
    with pytest.raises(ValueError, match="has as many columns as tok_emb"):
        audit(tree(**names))
    assert audit(tree(tok_emb=(64, 8), decoder__w_up=(8, 64)))[0].optimizer == "muon"


def test_what_wraps_the_whole_tree_is_no_part_of_it():
    leaves = tree(params__Dense_0__kernel=(8, 4), params__mlp__w_up=(8, 4))
    with pytest.raises(ValueError, match="top of the tree"):
        audit(leaves)


def test_a_route_is_stronger_and_declares_stacks():
    leaves = tree(experts__w_up=(4, 8, 16), experts__wq=(8, 8), tok_emb=(9, 8))
    route = {"experts.*": "adamw", "experts.w_up": "muon"}
    found = {r.name: r for r in audit(leaves, route)}
    assert found["experts.w_up"].optimizer == "muon"
    assert found["experts.w_up"].stacked
    assert found["experts.wq"].optimizer == "adamw"
    assert found["experts.w_up"].reason == 'as route["experts.w_up"] says'


@pytest.mark.parametrize(
    ("route", "error", "words"),
    [
        ({"mlp.w_up": "sgd"}, ValueError, 'must be "muon" or "adamw", got'),
        ({"mlp.w_upp": "muon"}, ValueError, "match no leaf; there are"),
        ({"mlp.*": "muon", "*.w_up": "adamw"}, ValueError, "disagree on mlp.w_up"),
        ({"mlp.norm": "muon"}, ValueError, r"got mlp.norm of shape \(8,\)"),
        ({"mlp.conv.kernel": "muon"}, ValueError, "kernel of a convolution|of a conv"),
        (["mlp.w_up"], TypeError, "must be a dict"),
    ],
)
def test_a_wrong_route_is_refused(route, error, words):
    leaves = tree(mlp__w_up=(8, 8), mlp__norm=(8,), mlp__conv__kernel=(3, 8, 8))
    with pytest.raises(error, match=words):
        audit(leaves, route)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "int32"])
def test_masters_are_float32(dtype):
    leaves = {"mlp": {"w_up": jnp.zeros((4, 4), dtype)}}
    with pytest.raises(TypeError, match=f"got mlp.w_up of {dtype}; keep masters"):
        audit(leaves)


def test_what_is_no_array_and_names_that_coincide_are_refused():
    with pytest.raises(TypeError, match=r"got mlp\.w_up of float"):
        audit({"mlp": {"w_up": 1.0}})
    twice = {"mlp.w_up": jnp.zeros((4, 4)), "mlp": {"w_up": jnp.zeros((4, 4))}}
    with pytest.raises(ValueError, match="names of leaves must be unique"):
        audit(twice)
