"""The host waits for the device once per step; proven on tensors without values.

A "meta" tensor has a shape and no values, so that reading one raises an error. A whole
step runs on such tensors, its one reading aside; that one is counted on its own.
"""

import math
from dataclasses import replace

import pytest
import torch

from stacklm.config import TrainConfig, toy_config
from stacklm.model import LogitRecord, Stack100M
from stacklm.train import World, muon_and_adamw, optimizer_step, step

CFG = TrainConfig(warmup_steps=4, total_steps=20)
FORMS = {
    "shared gains": {},
    "per-head gains": {"per_head_gains": True},
    "projections": {"qk_norm": False},
}


@pytest.mark.parametrize(
    ("form", "every", "packed", "norm"),
    [
        ("shared gains", 0, False, 0.5),
        ("shared gains", 1, True, 50.0),  # longer than grad_clip
        ("shared gains", 1, False, math.nan),
        ("per-head gains", 2, False, 50.0),  # probed
        ("projections", 1, False, 0.5),
    ],
)
def test_a_step_reads_once_and_nothing_else_waits(
    form, every, packed, norm, monkeypatch
):
    readings = []

    def read(loss, total, record, _world):
        readings.append((loss.device.type, total.device.type))
        maxima = None if record is None else torch.full((2, 4), 200.0)
        return 5.0, norm, maxima  # long gradients are clipped, large logits too

    monkeypatch.setattr(step, "_read", read)
    cfg = replace(CFG, qk_clip_every=every)
    with torch.device("meta"):
        model = Stack100M(toy_config(**FORMS[form]))
        x = torch.zeros(2, 16, dtype=torch.long)
    pair = muon_and_adamw(model, cfg)
    batches = [(x, x, x if packed else None)] * 2
    log = optimizer_step(model, batches, *pair, (0.02, 3e-3), 0, cfg)
    assert readings == [("meta", "meta")]
    assert log.skipped == math.isnan(norm)
    assert log.layers_clipped == (2 if every and not log.skipped else 0)


def test_another_reading_would_be_seen():
    with pytest.raises(Exception, match="meta"):
        torch.zeros(3, device="meta").max().item()
    nothing = torch.zeros((), device="meta")
    with pytest.raises(Exception, match="meta"):
        step._read(nothing, nothing, None, World())


@pytest.mark.parametrize("recorded", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_reading_is_one_transfer(recorded, dtype, monkeypatch):
    transfers = []
    for name in ("cpu", "tolist", "item"):
        real = getattr(torch.Tensor, name)

        def counted(tensor, name=name, real=real):
            transfers.append(name)
            return real(tensor)

        monkeypatch.setattr(torch.Tensor, name, counted)
    record = None
    if recorded:
        record = LogitRecord(2, 4)
        record.maxima[1, 2] = 123.0
    loss, norm = torch.tensor(2.5, dtype=dtype), torch.tensor(0.75)
    found = step._read(loss, norm, record, World())
    # What was fetched by cpu() is read on the host, where no one waits.
    assert transfers == ["cpu", "tolist"]
    assert found[:2] == (2.5, 0.75)
    assert (found[2] is None) == (not recorded)
    if recorded:
        assert torch.equal(found[2].float(), record.maxima)
