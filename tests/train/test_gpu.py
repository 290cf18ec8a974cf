"""What only a GPU can show; skipped where there is none."""

import os
import subprocess
import sys
from dataclasses import replace

import pytest
import torch

from stacklm.config import TrainConfig, toy_config
from stacklm.model import LogitRecord, Stack100M, document_mask, scores
from stacklm.train import muon_and_adamw, optimizer_step, step

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA"),
]
CFG = TrainConfig(warmup_steps=4, total_steps=20)
PEAKS = (0.02, 3e-3)


def make(device="cuda", **overrides):
    torch.manual_seed(0)
    cfg = {"d_model": 128, "n_heads": 4, "n_kv_heads": 2, "head_dim": 32, **overrides}
    model = Stack100M(toy_config(**cfg)).to(device)
    return model, *muon_and_adamw(model, CFG)


def batch(device="cuda", rows=4, length=64, packed=False):
    generator = torch.Generator().manual_seed(1)
    x = torch.randint(256, (rows, length), generator=generator)
    seq_ids = (torch.arange(length) // 20).expand(rows, length) if packed else None
    parts = (x, x.roll(-1, 1), seq_ids)
    return [part if part is None else part.to(device) for part in parts]


def test_a_step_computes_in_bf16_and_keeps_float32():
    logs, kinds = {}, set()
    for device in ("cpu", "cuda"):
        model, muon, adamw = make(device)
        if device == "cuda":
            model.blocks[0].mlp.w_up.register_forward_hook(
                lambda _module, _inputs, out: kinds.add(out.dtype)
            )
        logs[device] = optimizer_step(
            model, [batch(device)], muon, adamw, PEAKS, 4, CFG
        )
    assert kinds == {torch.bfloat16}
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    assert {p.grad.dtype for p in model.parameters()} == {torch.float32}
    states = [t for o in (muon, adamw) for s in o.state.values() for t in s.values()]
    assert {t.dtype for t in states} == {torch.float32}
    # bf16 keeps 8 bits; the mean over 256 tokens and the norms keep more.
    assert logs["cuda"].loss == pytest.approx(logs["cpu"].loss, rel=0.01)
    assert logs["cuda"].grad_norm == pytest.approx(logs["cpu"].grad_norm, rel=0.05)
    assert logs["cuda"].max_logit == pytest.approx(logs["cpu"].max_logit, rel=0.05)
    assert not logs["cuda"].skipped


@pytest.mark.parametrize("every", [0, 1, 2])
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("tau", [1e-3, 100.0])
def test_a_step_synchronizes_once(every, packed, tau, monkeypatch):
    cfg = replace(CFG, qk_clip_every=every, qk_clip_tau=tau)
    model, muon, adamw = make()
    batches = [batch(packed=packed)] * 2
    # The first step sets up kernels and states, and may wait as it likes.
    optimizer_step(model, batches, muon, adamw, PEAKS, 0, cfg)
    read, readings = step._read, []

    def allowed(*args):
        torch.cuda.set_sync_debug_mode("default")
        readings.append(read(*args))
        torch.cuda.set_sync_debug_mode("error")
        return readings[-1]

    monkeypatch.setattr(step, "_read", allowed)
    torch.cuda.set_sync_debug_mode("error")
    try:
        log = optimizer_step(model, batches, muon, adamw, PEAKS, 2, cfg)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert len(readings) == 1
    assert log.layers_clipped == (2 if every and tau < 1 else 0)


def test_the_reading_is_one_transfer():
    record = LogitRecord(2, 4, "cuda")
    values = torch.ones((), device="cuda"), torch.ones((), device="cuda")
    activities = [torch.profiler.ProfilerActivity.CUDA]
    for each in (None, record):
        step._read(*values, each)
        with torch.profiler.profile(activities=activities) as profile:
            step._read(*values, each)
        names = [event.name for event in profile.events()]
        assert sum("Memcpy DtoH" in name for name in names) == 1


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_soft_cap_by_flex_is_the_reference_forward_and_backward(dtype, packed):
    pytest.importorskip("triton")
    torch.manual_seed(0)
    mask = document_mask(batch(length=200, packed=True)[2]) if packed else None
    q = torch.randn(4, 4, 200, 32, device="cuda", dtype=dtype)
    k, v = torch.randn(2, 4, 2, 200, 32, device="cuda", dtype=dtype)
    pull = torch.randn_like(q)
    assert scores._flex_compiles_for(q)
    found = []
    for flex in (True, False):
        parts = [x.clone().requires_grad_() for x in (q, k, v)]
        if flex:
            out = scores.attend(*parts, mask, soft_cap=2.0)
        else:
            exact = [parts[0], *(x.repeat_interleave(2, dim=1) for x in parts[1:])]
            out = scores.capped_by_reference(*exact, mask, 2.0)
        grads = torch.autograd.grad(out, parts, pull)
        found.append([out, *grads])
    # TF32 products in the kernel keep 11 bits, bf16 keeps 8; sums of 200 terms.
    close = {torch.float32: 0.01, torch.bfloat16: 0.06}[dtype]
    for by_flex, by_reference in zip(*found, strict=True):
        torch.testing.assert_close(by_flex, by_reference, rtol=close, atol=close)


RESUME = """
import sys
import torch
from stacklm.train import checkpoints, open_tokens, pretrain, read_checkpoint
from tests.train.runs import CFG, MODEL, RUN, Interrupting, assert_same_end

torch.use_deterministic_algorithms(True)
data, val = open_tokens("moby-dick"), open_tokens("moby-dick", "val")
ends = {"val": val, "run_cfg": RUN, "device": "cuda"}
pretrain(MODEL, CFG, data, out=sys.argv[1], **ends)
assert pretrain(MODEL, CFG, Interrupting(data, 9), out=sys.argv[2], **ends).step == 10
pretrain(MODEL, CFG, data, out=sys.argv[2], **ends)
assert "rng/cuda" in read_checkpoint(checkpoints(sys.argv[2])[-1]).tensors
assert_same_end(sys.argv[1], sys.argv[2])
"""


def test_a_resumed_run_has_the_same_bits(python_path, tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", RESUME, str(tmp_path / "a"), str(tmp_path / "b")],
        env={
            **os.environ,
            "PYTHONPATH": python_path,
            "CUBLAS_WORKSPACE_CONFIG": ":4096:8",  # cuBLAS is deterministic with it
        },
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
