"""The material of chapter 08: loud toys are as loud as asked, runs are logged."""

import pytest
import torch

from stacklm.config import toy_config
from stacklm.model import exact_maxima
from stacklm.notebook.clipping import heated_run, largest_logits, loud_toy

FORMS = [{}, {"per_head_gains": True}, {"qk_norm": False}]


@pytest.fixture(autouse=True)
def float64():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("form", FORMS)
def test_a_loud_toy_is_as_loud_as_asked_and_always_the_same(form):
    model, again = loud_toy(250.0, **form), loud_toy(250.0, **form)
    assert largest_logits(model).max().item() == pytest.approx(250, rel=1e-9)
    assert torch.equal(largest_logits(model), largest_logits(again))
    assert not largest_logits(model).requires_grad


def test_the_largest_logits_are_exact_and_per_layer():
    torch.manual_seed(0)
    seen = []
    model = loud_toy(qk_norm=False)
    attn = model.blocks[0].attn
    attn.register_forward_hook(lambda module, args, out: seen.append(args[:2]))
    found = largest_logits(model)
    q, k = attn.queries_keys(*seen[0])
    assert torch.equal(found, exact_maxima(q, k))
    with pytest.raises(KeyError):
        largest_logits(model, layer=1)


def test_a_run_logs_every_step_and_holds_the_logits_at_tau():
    cfg = toy_config(vocab_size=32, n_layers=1, qk_norm=False)
    free = heated_run(cfg, muon_lr=0.3, steps=30)
    held = heated_run(cfg, muon_lr=0.3, steps=30, tau=20.0)
    assert [log.step for log in free.logs] == list(range(30))
    assert free.fired == []
    assert len(free.logits) == 30
    first = held.fired[0]
    assert held.logits[: first + 1] == free.logits[: first + 1]  # the same until then
    assert held.logits[first] > 20 >= held.logits[first - 1]
    assert max(held.logits) < max(free.logits) / 2
    assert free.logs[0].muon_lr == pytest.approx(0.3 / 20)  # warmup
    assert 0 < held.loss < 5
    assert held.loss != held.logs[-1].loss  # on batches of its own


def test_seeds_differ_and_repeat():
    cfg = toy_config(vocab_size=32, n_layers=1)
    losses = [heated_run(cfg, muon_lr=0.02, steps=2, seed=s).loss for s in (0, 0, 1)]
    assert losses[0] == losses[1] != losses[2]


@pytest.mark.parametrize(
    "wrong",
    [{"muon_lr": 0.0}, {"muon_lr": 0.1, "tau": 0.0}, {"muon_lr": 1, "steps": 0}],
)
def test_what_cannot_run_is_an_error(wrong):
    with pytest.raises((ValueError, TypeError), match=r"must|at least|above"):
        heated_run(toy_config(vocab_size=32), **wrong)
