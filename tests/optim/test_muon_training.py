"""Muon as a torch optimizer: closures, groups, rates, schedulers, copies; it learns."""

import copy
import pickle

import pytest
import torch

from stacklm.optim import Muon, muon_scale
from tests.optim.steps import give_gradients, parameters, run


def test_closure_runs_with_gradients_and_its_loss_comes_back():
    params = parameters()
    muon = Muon(params)
    grad_mode = []

    def closure():
        grad_mode.append(torch.is_grad_enabled())
        muon.zero_grad()
        loss = sum((p**2).sum() for p in params)
        loss.backward()
        return loss

    first, second = muon.step(closure), muon.step(closure)
    assert grad_mode == [True, True]
    assert second < first
    with torch.no_grad():
        assert muon.step(closure) < second


def test_tensor_lr_is_the_float_lr():
    for lr in (torch.tensor(0.05), torch.tensor([0.05]), torch.tensor(0.05).double()):
        ours, plain = parameters(), parameters()
        torch.testing.assert_close(
            run(Muon(ours, lr=lr), ours), run(Muon(plain, lr=0.05), plain)
        )


def test_the_parameters_of_a_group_may_be_an_iterator():
    params = parameters()
    muon = Muon([{"params": iter(params)}])
    assert muon.param_groups[0]["params"] == params


def test_groups_keep_their_own_options():
    a, b = parameters(shapes=[(8, 8), (8, 8)])
    muon = Muon(
        [
            {"params": [a], "lr": 0.1, "momentum": 0.0, "weight_decay": 0.0},
            {"params": [b], "nesterov": False, "ns_steps": 3, "batched": False},
        ],
        lr=0.3,
        weight_decay=0.2,
    )
    x, y = parameters(shapes=[(8, 8), (8, 8)])
    alone = Muon([x], lr=0.1, momentum=0.0, weight_decay=0.0)
    other = Muon([y], lr=0.3, weight_decay=0.2, nesterov=False, ns_steps=3)
    for step in range(2):
        give_gradients([a, b], step)
        x.grad, y.grad = a.grad, b.grad
        for optimizer in (muon, alone, other):
            optimizer.step()
    assert torch.equal(a, x)
    assert torch.equal(b, y)


@pytest.mark.parametrize("as_tensor", [False, True])
def test_lr_schedulers_move_every_group_by_its_own_peak(as_tensor):
    a, b = parameters(shapes=[(8, 8), (8, 8)])
    peaks = [0.1, 0.02]
    make = torch.tensor if as_tensor else float
    muon = Muon([{"params": [a], "lr": make(peaks[0])}, {"params": [b]}], lr=make(0.02))
    scheduler = torch.optim.lr_scheduler.LambdaLR(muon, lambda t: 1 / (t + 1))
    for step in range(3):
        for group, peak in zip(muon.param_groups, peaks, strict=True):
            assert float(group["lr"]) == pytest.approx(peak / (step + 1))
        before = b.detach().clone()
        give_gradients([a, b], 0)
        muon.step()
        moved = (b - (1 - 0.02 / (step + 1) * 0.1) * before).norm().item()
        direction = moved / (0.02 / (step + 1) * muon_scale(8, 8))
        assert 1.5 < direction < 3.4  # about sqrt(8), the norm of an 8 x 8 polar factor
        scheduler.step()


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_learns_faster_than_adamw_where_the_spectrum_is_bad(seed, matrix):
    """Least squares, inputs of condition 100, 60 steps, each at its own best rate."""
    target = matrix(16, 32, torch.linspace(1, 4, 16), seed).float()
    X = matrix(32, 64, torch.logspace(0, -2, 32), seed + 9).float() * 8

    def best(make):
        return min(last_loss(make, lr) for lr in (0.1, 0.2, 0.4, 0.8))

    def last_loss(make, lr):
        W = torch.nn.Parameter(torch.zeros(16, 32))
        optimizer = make([W], lr=lr, weight_decay=0.0)
        for step in range(60):
            optimizer.param_groups[0]["lr"] = lr * (1 - step / 60)
            loss = ((W - target) @ X).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return loss.item()

    start = (target @ X).square().mean().item()
    ours = best(Muon)
    assert ours < 1e-3 * start  # measured: 4e-4 to 6e-4
    assert ours < 0.5 * best(torch.optim.AdamW)  # measured: a fifth


def test_copies_and_pickles_go_on_alike():
    params = parameters()
    muon = Muon([(f"w{i}", p) for i, p in enumerate(params)])
    run(muon, params, 2)
    params2, muon2 = copy.deepcopy((params, muon))
    params3, muon3 = pickle.loads(pickle.dumps((params, muon)))
    want = run(muon, params, 2)
    for others, optimizer in ((params2, muon2), (params3, muon3)):
        got = run(optimizer, others, 2)
        assert all(torch.equal(a, b) for a, b in zip(got, want, strict=True))
    assert "batched: None" in repr(muon3)


def test_a_pickle_from_before_an_option_existed_has_its_default():
    muon = Muon(parameters())
    option = muon.param_groups[0].pop("ns_steps")
    assert pickle.loads(pickle.dumps(muon)).param_groups[0]["ns_steps"] == option == 5
