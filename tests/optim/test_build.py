"""build_optimizers: groups, names, decay, and that the pair trains."""

import pytest
import torch
from torch import nn

from stacklm.config import StackConfig
from stacklm.model import Stack100M
from stacklm.optim import Muon, build_optimizers


def names(optimizer):
    return [group["param_names"] for group in optimizer.param_groups]


def test_stack_100m():
    with torch.device("meta"):
        model = Stack100M(StackConfig())
    muon, adamw = build_optimizers(model)
    assert [len(g) for g in names(muon)] == [210]
    assert [len(g) for g in names(adamw)] == [1, 121]
    assert names(adamw)[0] == ["tok_emb.weight"]
    assert isinstance(muon, Muon)
    assert isinstance(adamw, torch.optim.AdamW)
    (g,) = muon.param_groups
    assert (g["lr"], g["weight_decay"], g["momentum"]) == (0.02, 0.1, 0.95)
    assert (g["nesterov"], g["ns_steps"], g["batched"]) == (True, 5, None)
    for g, decay in zip(adamw.param_groups, (0.1, 0.0), strict=True):
        assert (g["lr"], g["betas"], g["eps"]) == (3e-3, (0.9, 0.95), 1e-8)
        assert g["weight_decay"] == decay


def test_a_group_that_is_added_later_decays_as_asked(tiny_model):
    for optimizer in build_optimizers(tiny_model, weight_decay=0.3):
        added = [("later.weight", nn.Parameter(torch.ones(2, 2)))]
        optimizer.add_param_group({"params": added})
        assert optimizer.param_groups[-1]["weight_decay"] == 0.3


def test_a_mesh_reaches_muon(tiny_model):
    with pytest.raises(TypeError, match="mesh must be a DeviceMesh, got str"):
        build_optimizers(tiny_model, mesh="four ranks")


def test_every_parameter_is_in_exactly_one_group(tiny_model):
    muon, adamw = build_optimizers(tiny_model)
    held = [p for o in (muon, adamw) for g in o.param_groups for p in g["params"]]
    assert sorted(map(id, held)) == sorted(map(id, tiny_model.parameters()))
    assert names(muon) == [
        [f"blocks.{i}.{w}.weight" for i in range(2) for w in ("w_up", "w_down")]
    ]
    assert names(adamw)[0] == ["tok_emb.weight", "lm_head.weight"]


def test_options_reach_the_optimizers(tiny_model):
    muon, adamw = build_optimizers(
        tiny_model,
        0.5,
        torch.tensor(0.25),
        0.3,
        (0.8, 0.9),
        True,
        route={"lm_head.weight": "muon"},
        ns_dtype=torch.float64,
        ns_method="direct",
    )
    (g,) = muon.param_groups
    assert (g["lr"], g["weight_decay"], g["batched"]) == (0.5, 0.3, True)
    assert (g["ns_dtype"], g["ns_method"]) == (torch.float64, "direct")
    assert "lm_head.weight" in g["param_names"]
    assert adamw.param_groups[0]["betas"] == (0.8, 0.9)
    assert float(adamw.param_groups[0]["lr"]) == 0.25


def test_the_pair_trains_and_only_decays_what_it_should(tiny_model):
    muon, adamw = build_optimizers(tiny_model, weight_decay=0.1)
    tokens = torch.randint(0, 11, (16, 7), generator=torch.Generator().manual_seed(0))
    losses = []
    for _ in range(60):
        logits = tiny_model(tokens[:, :-1])
        loss = nn.functional.cross_entropy(
            logits.flatten(0, 1), tokens[:, 1:].flatten()
        )
        for optimizer in (muon, adamw):
            optimizer.zero_grad()
        loss.backward()
        for optimizer in (muon, adamw):
            optimizer.step()
        losses.append(loss.item())
    assert losses[0] > 2.3  # about ln 11, before it has learned anything
    assert losses[-1] < 0.8 * losses[0]
    gains = tiny_model.blocks[0].norm.weight.detach().clone()
    for p in tiny_model.parameters():
        p.grad = torch.zeros_like(p)
    adamw.state.clear()
    adamw.step()
    assert torch.equal(tiny_model.blocks[0].norm.weight, gains)


def test_declared_stacks_get_a_group_of_their_own():
    model = nn.Module()
    model.up = nn.Linear(4, 8)
    model.experts = nn.Parameter(torch.ones(3, 4, 8))
    muon, adamw = build_optimizers(model, route={"experts": "muon"})
    assert names(muon) == [["up.weight"], ["experts"]]
    assert [g["stacked"] for g in muon.param_groups] == [False, True]
    assert names(adamw) == [["up.bias"]]


def test_frozen_parameters_are_in_neither(tiny_model):
    tiny_model.tok_emb.requires_grad_(False)
    tiny_model.blocks[0].w_up.requires_grad_(False)
    muon, adamw = build_optimizers(tiny_model)
    held = [name for o in (muon, adamw) for group in names(o) for name in group]
    assert "tok_emb.weight" not in held
    assert "blocks.0.w_up.weight" not in held


def test_nothing_for_one_of_the_two():
    layer = nn.ModuleDict({"up": nn.Linear(4, 8, bias=False)})
    with pytest.raises(ValueError, match=r'for AdamW; build Muon alone.*"adamw"'):
        build_optimizers(layer)
    with pytest.raises(ValueError, match=r'for Muon; build AdamW alone.*"muon"'):
        build_optimizers(nn.ModuleDict({"norm": nn.LayerNorm(4)}))


def test_what_is_ambiguous_or_out_of_range_is_an_error(tiny_model):
    with pytest.raises(ValueError, match=r"weight \(8, 4\): Linear at the top"):
        build_optimizers(nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8)))
    with pytest.raises(ValueError, match="lr must be finite and at least 0, got -1"):
        build_optimizers(tiny_model, -1.0)
    with pytest.raises(ValueError, match="ns_method must be"):
        build_optimizers(tiny_model, ns_method="svd")
    with pytest.raises(ValueError, match=r"match no parameter"):
        build_optimizers(tiny_model, route={"nope": "muon"})


def test_errors_name_the_parameter(tiny_model):
    muon, _ = build_optimizers(tiny_model)
    p = tiny_model.blocks[1].w_up.weight
    p.grad = torch.ones_like(p).to_sparse()
    with pytest.raises(TypeError, match=r"blocks\.1\.w_up\.weight"):
        muon.step()
