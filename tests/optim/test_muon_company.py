"""Muon beside what else torch offers: schedulers of momentum, scalers, other dtypes."""

import copy

import pytest
import torch
from torch import nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_optimizer_state_dict,
    set_optimizer_state_dict,
)

from stacklm.optim import Muon, build_optimizers

SHAPES = [(8, 24), (24, 8), (16, 16), (8, 24), (16, 16), (24, 8)]


def draw(shape, seed):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def trained(order, batched):
    params = [nn.Parameter(draw(shape, i)) for i, shape in enumerate(SHAPES)]
    muon = Muon([params[i] for i in order], batched=batched)
    for step in range(3):
        for i, p in enumerate(params):
            p.grad = draw(p.shape, 100 * step + i)
        muon.step()
    return [p.detach() for p in params]


@pytest.mark.parametrize("batched", [True, False, None])
def test_the_order_of_the_parameters_does_not_matter(batched):
    want = trained(range(6), batched)
    for order in ((5, 4, 3, 2, 1, 0), (3, 0, 5, 1, 4, 2)):
        torch.testing.assert_close(trained(order, batched), want, atol=1e-6, rtol=0)


def test_schedulers_that_move_the_momentum():
    schedulers = torch.optim.lr_scheduler
    p = nn.Parameter(draw((4, 6), 0))
    for make, momenta in (
        (lambda o: schedulers.OneCycleLR(o, 0.1, total_steps=4), [0.95, 0.85, 0.95]),
        (lambda o: schedulers.CyclicLR(o, 0.0, 0.1, 1), [0.9, 0.8, 0.9]),
    ):
        muon = Muon([p])
        scheduler = make(muon)
        B, seen = torch.zeros(4, 6), []
        for step in range(3):
            mu = muon.param_groups[0]["momentum"]
            seen.append(mu)
            p.grad = draw((4, 6), step)
            muon.step()
            B = mu * B + p.grad
            scheduler.step()
        torch.testing.assert_close(muon.state[p]["momentum_buffer"], B)
        assert seen[0] == momenta[0]
        assert min(seen) < momenta[0]
        other = Muon([p])
        other.load_state_dict(muon.state_dict())  # with the scheduler's own entries


def test_scaled_and_clipped_gradients_give_the_step_of_plain_ones():
    plain = nn.Linear(8, 8, bias=False)
    scaled = copy.deepcopy(plain)
    reference, muon = Muon(plain.parameters()), Muon(scaled.parameters())
    scaler = torch.amp.GradScaler("cpu")
    for step in range(3):
        x = draw((4, 8), step)
        for model, optimizer in ((plain, reference), (scaled, muon)):
            optimizer.zero_grad(set_to_none=False)
            loss = model(x).square().mean()
            (scaler.scale(loss) if optimizer is muon else loss).backward()
        scaler.unscale_(muon)
        scaler.step(muon)
        scaler.update()
        reference.step()
    torch.testing.assert_close(scaled.weight, plain.weight, atol=1e-6, rtol=0)


def test_gradients_wider_than_their_parameter():
    """An fp32 gradient of a bf16 weight keeps its bits up to the momentum."""
    p, q = (nn.Parameter(draw((4, 6), 0).bfloat16()) for _ in range(2))
    p.grad_dtype = torch.float32
    p.grad, q.grad = draw((4, 6), 1), draw((4, 6), 1).bfloat16()
    muon = Muon([p, q])
    muon.step()
    assert torch.equal(muon.state[p]["momentum_buffer"], p.grad)
    assert not torch.equal(p.grad, q.grad.float())
    assert p.dtype == q.dtype == torch.bfloat16


def test_expanded_gradients_and_strided_parameters():
    flat = draw((10, 12), 0)
    view, plain = nn.Parameter(flat[::2, ::2]), nn.Parameter(flat[::2, ::2].clone())
    rest = flat[1::2].clone()
    view.grad = draw((1, 6), 1).expand(5, 6)  # one row in memory, five to read
    plain.grad = view.grad.contiguous()
    for p in (view, plain):
        Muon([p]).step()
    assert torch.equal(view, plain)
    assert torch.equal(flat[1::2], rest)  # what lies between is not ours


def test_groups_may_join_later():
    first = nn.Parameter(draw((4, 6), 0))
    muon = Muon([first])
    first.grad = draw((4, 6), 1)
    muon.step()
    stack = nn.Parameter(draw((2, 4, 6), 2))
    muon.add_param_group({"params": [stack], "stacked": True, "momentum": 0.5})
    first.grad, stack.grad = None, draw((2, 4, 6), 3)
    muon.step()
    assert torch.equal(muon.state[stack]["momentum_buffer"], stack.grad)
    muon.load_state_dict(copy.deepcopy(muon.state_dict()))
    assert torch.equal(muon.state[stack]["momentum_buffer"], stack.grad)


@pytest.mark.parametrize("flat", [False, True])
def test_both_optimizers_through_a_distributed_checkpoint(flat, tiny_model):
    """Saved by name, as torch.distributed.checkpoint does; the run goes on alike."""
    options = StateDictOptions(flatten_optimizer_state_dict=flat)

    def advance(model, pair, step):
        for i, p in enumerate(model.parameters()):
            p.grad = draw(p.shape, 100 * step + i)
        for optimizer in pair:
            optimizer.step()

    pair = build_optimizers(tiny_model)
    advance(tiny_model, pair, 0)
    saved = get_optimizer_state_dict(tiny_model, pair, options=options)
    saved = copy.deepcopy(saved)  # as a file would; AdamW shares what it loads
    other = copy.deepcopy(tiny_model)
    other.zero_grad()  # torch makes the empty state by a step, where no gradient is
    other_pair = build_optimizers(other)
    set_optimizer_state_dict(other, other_pair, saved, options=options)
    assert other_pair[0].param_groups[0]["lr"] == 0.02
    advance(tiny_model, pair, 1)
    advance(other, other_pair, 1)
    for p, q in zip(tiny_model.parameters(), other.parameters(), strict=True):
        assert torch.equal(p, q)
