"""An update read off the weights is the one that the optimizer made."""

import pytest
import torch
from torch import nn

from stacklm.config import StackConfig
from stacklm.model import Stack100M
from stacklm.notebook import (
    block_matrices,
    narrow_toy,
    rms,
    spectral_excess,
    watch_updates,
)
from stacklm.optim import Muon, muon_scale, zeropower_via_newtonschulz5


@pytest.fixture
def weight():
    generator = torch.Generator().manual_seed(0)
    return nn.Parameter(torch.randn(6, 4, generator=generator, dtype=torch.float64))


def step(optimizer, weight, seed):
    generator = torch.Generator().manual_seed(seed)
    weight.grad = torch.randn(6, 4, generator=generator, dtype=torch.float64)
    optimizer.step()


def test_rms_is_the_norm_over_the_root_of_the_count(weight):
    assert rms(weight) == pytest.approx(weight.norm().item() / 24**0.5)
    assert isinstance(rms(weight), float)


def test_excess_runs_from_a_polar_factor_to_a_single_direction(weight):
    U, _, Vh = torch.linalg.svd(weight.detach(), full_matrices=False)
    assert spectral_excess(3 * U @ Vh) == pytest.approx(1.0)
    assert spectral_excess(torch.outer(U[:, 0], Vh[0])) == pytest.approx(4**0.5)
    assert 1 < spectral_excess(weight) < 2


def test_the_narrow_toy_has_the_long_sides_of_stack_100m():
    with torch.device("meta"):
        stack = Stack100M(StackConfig())
    toy = narrow_toy()
    assert {max(w.shape) for w in block_matrices(stack).values()} == {512, 1408}
    sides = {name: max(w.shape) for name, w in block_matrices(toy).items()}
    assert list(sides) == ["wq", "wk", "wv", "wo", "w_gate", "w_up", "w_down"]
    assert {sides[name] for name in ("wq", "wk", "wv", "wo")} == {512}
    assert {sides[name] for name in ("w_gate", "w_up", "w_down")} == {1408}
    first = block_matrices(narrow_toy(seed=0))["wq"]
    assert torch.equal(first, block_matrices(toy)["wq"])
    assert not torch.equal(first, block_matrices(narrow_toy(seed=1))["wq"])


def test_decay_and_rate_drop_out_of_an_update_of_muon(weight):
    muon = Muon([weight], lr=0.3, weight_decay=0.5, momentum=0.0)
    found = watch_updates(muon, {"w": weight})
    for seed in range(3):
        muon.param_groups[0]["lr"] = 0.3 / (seed + 1)  # as a schedule does
        step(muon, weight, seed)
        update = muon_scale(6, 4) * zeropower_via_newtonschulz5(weight.grad)
        assert found["w"][-1] == pytest.approx(rms(update), rel=1e-9)
    assert len(found["w"]) == 3


def test_the_first_update_of_adamw_is_the_sign_of_the_gradient(weight):
    adamw = torch.optim.AdamW([weight], lr=0.01, weight_decay=0.1)
    seen = []
    watch_updates(adamw, {"w": weight}, lambda M: seen.append(M) or 0.0)
    step(adamw, weight, 0)
    torch.testing.assert_close(seen[0], weight.grad.sign(), atol=1e-5, rtol=0)


def test_groups_keep_their_own_rates(weight):
    other = nn.Parameter(weight.detach().clone())
    groups = [{"params": [weight]}, {"params": [other], "lr": 1.0, "weight_decay": 0.0}]
    adamw = torch.optim.AdamW(groups, lr=0.01, weight_decay=0.1)
    found = watch_updates(adamw, {"a": weight, "b": other})
    other.grad = torch.ones_like(other)
    step(adamw, weight, 0)
    assert found == {"a": pytest.approx([1.0]), "b": pytest.approx([1.0])}


def test_errors_name_what_is_wrong_and_what_to_do(weight):
    stranger = nn.Parameter(torch.zeros(2, 2))
    adamw = torch.optim.AdamW([weight], lr=0.01)
    with pytest.raises(ValueError, match=r"\['x'\] is not in it; pass the optimizer"):
        watch_updates(adamw, {"w": weight, "x": stranger})
    watch_updates(adamw, {"w": weight})
    adamw.param_groups[0]["lr"] = 0.0
    with pytest.raises(ValueError, match=r"that of w is 0\.0; watch a run whose rates"):
        step(adamw, weight, 0)
