"""One optimizer step: accumulation, guard, clipping, rates, QK-clip."""

import copy
import math
from dataclasses import replace

import pytest
import torch

from stacklm.config import TrainConfig, toy_config
from stacklm.model import LogitRecord, Stack100M
from stacklm.optim import build_optimizers, wsd_lr
from stacklm.train import adamw_alone, muon_and_adamw, optimizer_step

CFG = TrainConfig(warmup_steps=4, total_steps=20, qk_clip_every=0, grad_clip=0.0)
PEAKS = (0.02, 3e-3)


def make(seed=0, build=muon_and_adamw, dtype=torch.float64, **overrides):
    torch.manual_seed(seed)
    model = Stack100M(toy_config(**overrides)).to(dtype)
    return model, *build(model, CFG)


def batch(rows=8, length=12, seed=1):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randint(256, (rows, length + 1), generator=generator)
    return x[:, :-1].contiguous(), x[:, 1:].clone()


def cut(whole, size):
    return list(zip(*(t.split(size) for t in whole), strict=True))


def state_of(model, *optimizers):
    """Every bit that a step may change, copied."""
    kept = [p.detach().clone() for p in model.parameters()]
    for optimizer in optimizers:
        for entry in optimizer.state.values():
            kept += [value.clone() for value in entry.values()]
    return kept


def same(a, b):
    return len(a) == len(b) and all(map(torch.equal, a, b))


@pytest.mark.parametrize("size", [1, 2, 4])
def test_the_number_of_micro_batches_changes_nothing(size):
    x, targets = batch()
    targets[0, 3:] = -100  # micro-batches with different numbers of targets
    targets[5] = -100
    ends = []
    for rows in (8, size):
        model, muon, adamw = make()
        log = optimizer_step(model, cut((x, targets), rows), muon, adamw, PEAKS, 4, CFG)
        ends.append((log, list(model.parameters())))
    (one, whole), (many, parts) = ends
    assert many.loss == pytest.approx(one.loss, rel=1e-12)
    assert many.grad_norm == pytest.approx(one.grad_norm, rel=1e-10)
    torch.testing.assert_close(parts, whole, rtol=1e-7, atol=1e-9)
    assert one.tokens == many.tokens == x.numel()


def test_the_loss_is_the_mean_not_the_last_micro_batch():
    model, muon, adamw = make()
    parts = [batch(4, seed=1), batch(4, seed=2)]
    losses = [model(*part)[1].item() for part in parts]
    log = optimizer_step(model, parts, muon, adamw, PEAKS, 0, CFG)
    assert abs(losses[0] - losses[1]) > 1e-3
    assert log.loss == pytest.approx(sum(losses) / 2, rel=1e-12)


def test_a_step_is_both_optimizers_on_the_mean_gradient():
    model, muon, adamw = make()
    twin = copy.deepcopy(model)
    by_hand = muon_and_adamw(twin, CFG)
    optimizer_step(model, [batch()], muon, adamw, PEAKS, 4, CFG)
    twin(*batch())[1].backward()
    for optimizer in by_hand:
        optimizer.step()  # step 4 of a warmup of 4 is at the peak
    torch.testing.assert_close(list(model.parameters()), list(twin.parameters()))


def test_a_step_begins_without_the_gradients_of_the_last():
    model, muon, adamw = make()
    logs = [
        optimizer_step(
            model, [batch()], muon, adamw, PEAKS, 0, CFG, multiplier=lambda _: 0.0
        )
        for _ in range(2)
    ]
    assert logs[1].grad_norm == pytest.approx(logs[0].grad_norm, rel=1e-12)
    assert logs[1].loss == logs[0].loss


@pytest.mark.parametrize("limit", [0.0, 0.01, 1e9])
def test_one_factor_clips_all_gradients_and_the_log_has_the_norm_before(limit):
    model, muon, adamw = make()
    twin = copy.deepcopy(model)
    twin(*batch())[1].backward()
    grads = [p.grad for p in twin.parameters()]
    norm = math.sqrt(sum(float(g.square().sum()) for g in grads))
    cfg = replace(CFG, grad_clip=limit)
    log = optimizer_step(model, [batch()], muon, adamw, PEAKS, 0, cfg)
    assert log.grad_norm == pytest.approx(norm, rel=1e-10)
    factor = min(1.0, limit / norm) if limit else 1.0
    wanted = [factor * g for g in grads]
    torch.testing.assert_close([p.grad for p in model.parameters()], wanted)


@pytest.mark.parametrize("poison", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("name", ["tok_emb.weight", "blocks.1.mlp.w_up.weight"])
def test_a_gradient_that_is_not_finite_changes_nothing(poison, name):
    model, muon, adamw = make()
    cfg = replace(CFG, grad_clip=1.0)
    optimizer_step(model, [batch()], muon, adamw, PEAKS, 0, cfg)
    before = state_of(model, muon, adamw)

    def spoil(grad):
        grad = grad.clone()
        grad.view(-1)[7] = poison
        return grad

    handle = model.get_parameter(name).register_hook(spoil)
    log = optimizer_step(model, [batch()], muon, adamw, PEAKS, 1, cfg)
    handle.remove()
    assert log.skipped
    assert not math.isfinite(log.grad_norm)
    assert math.isfinite(log.loss)
    assert same(state_of(model, muon, adamw), before)
    assert all(p.grad is None for p in model.parameters())
    again = optimizer_step(model, [batch()], muon, adamw, PEAKS, 2, cfg)
    assert not again.skipped
    assert not same(state_of(model, muon, adamw), before)


def test_a_loss_or_logit_that_is_not_finite_skips_the_step(monkeypatch):
    model, muon, adamw = make()
    before = state_of(model, muon, adamw)
    with monkeypatch.context() as patch:
        forward = model.forward

        def overflow(*args):
            logits, loss = forward(*args)
            return logits, loss + (math.inf - loss.detach())  # gradients stay finite

        patch.setattr(model, "forward", overflow)
        log = optimizer_step(model, [batch()], muon, adamw, PEAKS, 0, CFG)
    assert (log.loss, log.skipped) == (math.inf, True)
    assert math.isfinite(log.grad_norm)
    keep = LogitRecord.keep
    for poison in (math.nan, math.inf):

        def spoiled(record, layer, found, poison=poison):
            keep(record, layer, found)
            record.maxima[layer, 1] = poison

        with monkeypatch.context() as patch:
            patch.setattr(LogitRecord, "keep", spoiled)
            cfg = replace(CFG, qk_clip_every=1)
            log = optimizer_step(model, [batch()], muon, adamw, PEAKS, 0, cfg)
        assert log.skipped
    assert same(state_of(model, muon, adamw), before)


@pytest.mark.parametrize("step", [0, 2, 4, 18, 19])
def test_one_multiplier_drives_both_and_every_group_keeps_its_peak(step):
    model, muon, adamw = make()
    peaks = ([0.05], [1e-3, 4e-3])
    adamw.param_groups[1]["lr"] = torch.tensor(9.0, dtype=torch.float64)
    log = optimizer_step(model, [batch()], muon, adamw, peaks, step, CFG)
    run = {"warmup_steps": 4, "total_steps": 20, "decay_steps": 2}
    rates = [wsd_lr(step, peak_lr=peak, **run) for peak in (0.05, 1e-3, 4e-3)]
    groups = muon.param_groups + adamw.param_groups
    assert [float(g["lr"]) for g in groups] == pytest.approx(rates, rel=1e-12)
    assert isinstance(groups[2]["lr"], torch.Tensor)
    assert (log.muon_lr, log.adamw_lr) == (groups[0]["lr"], groups[1]["lr"])
    halved = optimizer_step(
        model, [batch()], muon, adamw, PEAKS, step, CFG, multiplier=lambda _: 0.5
    )
    assert (halved.muon_lr, halved.adamw_lr) == (0.01, 1.5e-3)


def test_what_does_not_fit_is_refused_before_anything_changes():
    model, muon, adamw = make()
    before = state_of(model, muon, adamw)
    with pytest.raises(ValueError, match="at least one micro-batch, got none"):
        optimizer_step(model, [], muon, adamw, PEAKS, 0, CFG)
    with pytest.raises(ValueError, match=r"AdamW has 2 parameter groups, got 3 peak"):
        optimizer_step(model, [batch()], muon, adamw, (0.02, [1e-3] * 3), 0, CFG)
    assert same(state_of(model, muon, adamw), before)
    assert muon.param_groups[0]["lr"] == CFG.muon_peak_lr


def test_without_muon_all_is_adamw():
    model, none, adamw = make(build=adamw_alone)
    assert none is None
    in_adamw = sum(len(group["params"]) for group in adamw.param_groups)
    assert in_adamw == len(list(model.parameters()))
    decayed, kept = adamw.param_groups
    assert {p.ndim for p in decayed["params"]} == {2}
    assert {p.ndim for p in kept["params"]} == {1}
    before = state_of(model)
    log = optimizer_step(model, [batch()], None, adamw, (None, 1e-3), 5, CFG)
    assert (log.muon_lr, log.adamw_lr) == (0.0, 1e-3)
    assert not any(map(torch.equal, state_of(model), before))


def test_qk_clip_follows_the_step_with_what_the_step_measured():
    cfg = replace(CFG, qk_clip_every=1, qk_clip_tau=1.5)
    gains = {}
    for tau in (1.5, 1e9):
        model, muon, adamw = make(n_layers=1)
        log = optimizer_step(
            model, [batch()], muon, adamw, PEAKS, 0, replace(cfg, qk_clip_tau=tau)
        )
        gains[tau] = model.blocks[0].attn.q_norm.weight, log
    (clipped, log), (free, unclipped) = gains[1.5], gains[1e9]
    assert (log.layers_clipped, unclipped.layers_clipped) == (1, 0)
    assert log.max_logit == unclipped.max_logit > 1.5
    torch.testing.assert_close(clipped, free * math.sqrt(1.5 / log.max_logit))


def test_every_step_records_tier_1_over_all_micro_batches():
    model, muon, adamw = make()
    parts = [batch(4, seed=seed) for seed in (1, 2, 3)]
    tops = []
    for part in parts:
        record = LogitRecord(2, 4)
        model(*part, record=record)
        tops.append(float(record.maxima.max()))
    cfg = replace(CFG, qk_clip_every=1)
    log = optimizer_step(model, parts, muon, adamw, PEAKS, 0, cfg)
    assert max(tops) > min(tops)
    assert log.max_logit == pytest.approx(max(tops))


def test_every_third_step_probes_exactly_and_uses_up_no_batch():
    plain, probed = make(), make()
    seen = []
    for step in range(4):
        parts = [batch(4, seed=10 * step), batch(4, seed=10 * step + 1)]
        exact = copy.deepcopy(probed[0])
        for block in exact.blocks:
            block.attn.record_exact = True
        record = LogitRecord(2, 4)
        exact(*parts[0], record=record)
        optimizer_step(plain[0], parts, *plain[1:], PEAKS, step, CFG)
        cfg = replace(CFG, qk_clip_every=3)
        log = optimizer_step(probed[0], parts, *probed[1:], PEAKS, step, cfg)
        seen.append(log.max_logit)
        if log.max_logit is not None:
            assert log.max_logit == pytest.approx(float(record.maxima.max()))
        assert not any(block.attn.record_exact for block in probed[0].blocks)
    assert [top is None for top in seen] == [False, True, True, False]
    assert same(state_of(*plain), state_of(*probed))


def test_without_qk_clip_any_model_will_do():
    class Bigrams(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.hidden = torch.nn.Linear(8, 8, bias=False)
            self.tok_emb = torch.nn.Embedding(256, 8)

        def forward(self, x, targets):
            logits = self.hidden(self.tok_emb(x)) @ self.tok_emb.weight.T
            flat = logits.flatten(0, 1)
            return logits, torch.nn.functional.cross_entropy(flat, targets.flatten())

    model = Bigrams()
    pair = build_optimizers(model, route={"hidden.weight": "muon"})
    log = optimizer_step(model, [batch()], *pair, PEAKS, 0, CFG)
    assert log.max_logit is None
    assert not log.skipped


def test_a_step_without_targets_is_no_nan():
    model, muon, adamw = make()
    x, targets = batch()
    log = optimizer_step(
        model, [(x, torch.full_like(targets, -100))], muon, adamw, PEAKS, 0, CFG
    )
    assert (log.loss, log.grad_norm, log.skipped) == (0.0, 0.0, False)
    assert all(p.isfinite().all() for p in model.parameters())


def test_the_cpu_computes_in_the_models_own_dtype():
    model, muon, adamw = make(dtype=torch.float32)
    kinds = set()
    model.blocks[0].mlp.w_up.register_forward_hook(
        lambda _module, _inputs, out: kinds.add(out.dtype)
    )
    optimizer_step(model, [batch()], muon, adamw, PEAKS, 0, CFG)
    assert kinds == {torch.float32}
