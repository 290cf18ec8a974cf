"""The small runs of Part I: the language is what it says, and the loop learns it."""

import math

import pytest
import torch

from stacklm.config import toy_config
from stacklm.model import Stack100M
from stacklm.notebook import ToyLanguage, adamw_alone, train, untied


@pytest.fixture
def language():
    return ToyLanguage(vocab_size=4, length=6, seed=3)


def test_batches_repeat_by_seed_and_follow_the_odds(language):
    x = language.batches(steps=50, seed=1, sequences=40)
    assert x.shape == (50, 40, 7)
    assert torch.equal(x, language.batches(50, 1, 40))
    assert not torch.equal(x, language.batches(50, 2, 40))
    flat = x.flatten(0, 1)
    windows = flat.unfold(1, 3, 1).flatten(0, 1)  # (before, last, next)
    counts = torch.zeros(4, 4, 4)
    for before, last, following in windows.tolist():
        counts[last, before, following] += 1
    seen = counts.sum(-1, keepdim=True)
    gap = (counts / seen - language.odds).abs() * seen.sqrt()
    assert gap.max() < 2.5  # five standard deviations of the widest binomial


def test_entropy_is_that_of_the_odds(language):
    x = language.batches(steps=500, seed=1, sequences=40).flatten(0, 1)
    per_pair = -(language.odds * language.odds.log()).sum(-1)  # (last, before)
    pairs = per_pair[x[:, 1:-1], x[:, :-2]].mean().item()
    expected = (math.log(4) + 5 * pairs) / 6
    assert language.entropy(x) == pytest.approx(expected, abs=0.01)


def test_odds_do_not_depend_on_the_default_dtype():
    assert ToyLanguage().odds.dtype == torch.float64
    assert ToyLanguage().odds.sum(-1).sub(1).abs().max() < 1e-12


def test_training_lowers_the_loss_and_warms_up(language):
    torch.manual_seed(0)
    model = Stack100M(toy_config(vocab_size=4))
    start = model.blocks[0].mlp.w_up.weight.detach().clone()
    optimizers = adamw_alone(model, lr=1e-2)
    losses = train(model, optimizers, language.batches(1, seed=0), warmup_steps=20)
    moved = (model.blocks[0].mlp.w_up.weight - start).abs().max().item()
    assert moved == pytest.approx(1e-2 / 20, rel=0.05)  # a first AdamW step is ±lr
    losses = train(model, optimizers, language.batches(40, seed=5))
    assert losses[-5:].mean() < losses[0] - 0.1


def test_adamw_alone_decays_matrices_only():
    model = Stack100M(toy_config())
    (optimizer,) = adamw_alone(model, lr=1e-3)
    decayed, others = optimizer.param_groups
    assert {p.ndim for p in decayed["params"]} == {2}
    assert {p.ndim for p in others["params"]} == {1}
    assert (decayed["weight_decay"], others["weight_decay"]) == (0.1, 0.0)
    held = sum(len(group["params"]) for group in optimizer.param_groups)
    assert held == len(list(model.parameters()))


def test_untied_computes_the_same_and_parts_the_gradient():
    model = Stack100M(toy_config())
    copy = untied(model)
    x = torch.randint(256, (2, 9), generator=torch.Generator().manual_seed(0))
    losses = [m(x[:, :-1], x[:, 1:])[1] for m in (model, copy)]
    assert losses[0].item() == pytest.approx(losses[1].item(), rel=1e-6)
    for loss in losses:
        loss.backward()
    parts = copy.tok_emb.weight.grad + copy.lm_head.weight.grad
    torch.testing.assert_close(parts, model.tok_emb.weight.grad)
    assert copy.lm_head.weight is not copy.tok_emb.weight
