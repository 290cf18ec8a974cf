"""The two ways to build optimizers take every figure from the configuration."""

from stacklm.config import TrainConfig, toy_config
from stacklm.model import Stack100M
from stacklm.train import adamw_alone, muon_and_adamw

CFG = TrainConfig(
    muon_peak_lr=0.5,
    adamw_peak_lr=0.25,
    weight_decay=0.3,
    momentum=0.8,
    betas=(0.7, 0.9),
)


def test_the_pair_is_built_as_configured():
    muon, adamw = muon_and_adamw(Stack100M(toy_config()), CFG)
    for group in muon.param_groups:
        assert (group["lr"], group["weight_decay"]) == (0.5, 0.3)
        assert group["momentum"] == 0.8
    decays = [group["weight_decay"] for group in adamw.param_groups]
    assert decays == [0.3, 0.0]
    assert {(g["lr"], g["betas"]) for g in adamw.param_groups} == {(0.25, (0.7, 0.9))}


def test_adamw_alone_takes_all_and_decays_what_muon_would_have():
    model = Stack100M(toy_config())
    nothing, adamw = adamw_alone(model, CFG)
    assert nothing is None
    decayed, others = adamw.param_groups
    assert (decayed["weight_decay"], others["weight_decay"]) == (0.3, 0.0)
    assert all(p.ndim == 2 for p in decayed["params"])
    assert all(p.ndim == 1 for p in others["params"])
    held = len(decayed["params"]) + len(others["params"])
    assert held == len(list(model.parameters()))
