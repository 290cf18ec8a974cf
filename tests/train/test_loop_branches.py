"""Branches off a run, its seeds, its validation and its records."""

import json
import random
from dataclasses import replace

import pytest
import torch

from stacklm.model import Stack100M
from stacklm.optim import wsd_lr_branch
from stacklm.train import (
    Branch,
    pretrain,
    validate,
)
from stacklm.train.feed import micro_batches
from stacklm.train.validation import validation_batches
from tests.train.runs import (
    CFG,
    MODEL,
    RUN,
    Interrupting,
    assert_same_end,
    end_of,
    untimed,
)


def test_the_callers_random_numbers_stay_as_they_are(data):
    torch.manual_seed(3)
    drawn = torch.rand(3)
    torch.manual_seed(3)
    pretrain(MODEL, replace(CFG, total_steps=6), data, device="cpu")
    assert torch.equal(torch.rand(3), drawn)


def test_the_seed_draws_weights_and_order(data):
    short = replace(CFG, total_steps=6, decay_frac=0.0)
    losses = [
        pretrain(MODEL, replace(short, seed=seed), data, device="cpu").records[0][
            "loss"
        ]
        for seed in (0, 0, 1)
    ]
    assert losses[0] == losses[1] != losses[2]


def test_runs_of_all_seeds_are_validated_on_the_same_rows(val):
    sets = [validation_batches(val, replace(CFG, seed=seed), 3) for seed in (0, 1)]
    for one, other in zip(*sets, strict=True):
        assert torch.equal(one[0], other[0])
    assert not torch.equal(sets[0][0][0], sets[0][1][0])


def test_a_branch_at_the_first_decay_step_is_the_run_itself(
    data, val, straight, tmp_path
):
    trunk, out = straight
    branch = Branch(out / "step-00000018.safetensors", decay_steps=6)
    args = {"val": val, "run_cfg": RUN, "device": "cpu", "branch": branch}
    run = pretrain(MODEL, CFG, data, out=tmp_path, **args)
    assert run.step == 24
    assert untimed(run.records) == untimed(trunk.records[18:])
    _, tensors = end_of(tmp_path)
    _, wanted = end_of(out)
    assert all(torch.equal(tensors[name], wanted[name]) for name in wanted)


def test_branches_decay_from_any_stable_checkpoint_and_resume(
    data, val, straight, tmp_path
):
    _, out = straight
    branch = Branch(out / "step-00000012.safetensors", decay_steps=5)
    args = {"out": tmp_path, "run_cfg": RUN, "device": "cpu", "branch": branch}
    other = replace(CFG, total_steps=999, decay_frac=0.5)  # a branch has its own
    run = pretrain(MODEL, other, Interrupting(val, 13), **args)  # another data mix
    assert run.interrupted
    run = pretrain(MODEL, other, val, **args)
    rates = {"warmup_steps": 4, "stable_steps": 8, "decay_steps": 5}
    assert [(r["step"], r["muon_lr"]) for r in run.records] == [
        (step, pytest.approx(wsd_lr_branch(step, peak_lr=CFG.muon_peak_lr, **rates)))
        for step in range(12, 17)
    ]
    with pytest.raises(ValueError, match="branch"):  # the branch is no plain run
        pretrain(MODEL, other, val, out=tmp_path, device="cpu")


def test_a_branch_leaves_from_the_stable_phase_of_a_trunk(
    data, val, straight, tmp_path
):
    _, out = straight

    def start(checkpoint, cfg=CFG, steps=5):
        branch = Branch(checkpoint, decay_steps=steps)
        return pretrain(MODEL, cfg, data, out=tmp_path, branch=branch, device="cpu")

    with pytest.raises(ValueError, match=r"stable phase, steps 4 to 18 .*00000024"):
        start(out / "step-00000024.safetensors")
    with pytest.raises(ValueError, match=r"momentum is 0\.9"):
        start(out / "step-00000012.safetensors", replace(CFG, momentum=0.9))
    with pytest.raises(ValueError, match="at least 1 step, got 0"):
        start(out / "step-00000012.safetensors", steps=0)
    with pytest.raises(FileNotFoundError, match="there is no checkpoint"):
        start(out / "step-00000013.safetensors")
    assert [p.name for p in tmp_path.iterdir()] == [".lock"]


def test_lengths_and_vocabularies_are_checked_first(data):
    with pytest.raises(ValueError, match=r"seq_len must not exceed .* 256, got 512"):
        pretrain(MODEL, replace(CFG, seq_len=512), data)
    with pytest.raises(ValueError, match=r"data has ids up to 255, .* raise it to 256"):
        pretrain(replace(MODEL, vocab_size=128), CFG, data)


def test_validation_is_a_mean_over_targets_and_leaves_the_mode():
    torch.manual_seed(0)
    model = Stack100M(MODEL).eval()
    x, targets = torch.randint(256, (2, 4, 8)).unbind()
    targets[0, 1:] = -100
    parts = [(x[:1], targets[:1], None), (x[1:], targets[1:], None)]
    whole = validate(model, [(x, targets, None)])
    assert validate(model, parts) == pytest.approx(whole, rel=1e-6)
    assert not model.training
    model.train()
    validate(model, parts)
    assert model.training
    assert all(p.grad is None for p in model.parameters())


def test_rows_within_one_document_need_no_mask(data):
    batches = list(micro_batches(data, CFG, 3))
    assert len(batches) == 2
    assert all(seq_ids is None for _, _, seq_ids in batches)
    shape = {"batch_size": 2, "seq_len": 16, "seed": CFG.seed, "micros": 2}
    for micro, (x, targets, _) in enumerate(batches):
        found = data.batch(3, micro=micro, **shape)
        assert torch.equal(found.x, x)
        assert torch.equal(found.targets, targets)

    class TwoDocuments:
        def batch(self, step, **shape):
            x, targets, seq_ids = data.batch(step, **shape)
            seq_ids = seq_ids.clone()
            seq_ids[1, 8:] += 1
            return x, targets, seq_ids

    for _, _, seq_ids in micro_batches(TwoDocuments(), CFG, 3):
        assert seq_ids.shape == (2, 16)


def test_metrics_are_cut_back_to_the_checkpoint(data, val, straight, tmp_path):
    args = {"val": val, "out": tmp_path, "run_cfg": RUN, "device": "cpu"}
    pretrain(MODEL, CFG, Interrupting(data, 7), **args)
    with open(tmp_path / "metrics.jsonl", "a", encoding="utf-8") as file:
        for step in (8, 9):  # what a killed process had written since
            file.write(json.dumps({"step": step, "loss": 9.0}) + "\n")
        file.write('{"step": 10, "lo')
    done = pretrain(MODEL, CFG, data, **args)
    assert untimed(done.records) == untimed(straight[0].records)
    lines = (tmp_path / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["step"] for line in lines] == list(range(24))


def test_runs_of_random_lengths_end_alike(data, val, straight, tmp_path):
    chance = random.Random(0)
    args = {"val": val, "out": tmp_path, "run_cfg": replace(RUN, save_every=1)}
    done = 0
    while done < 24:
        stop = Interrupting(data, done + chance.randrange(6))
        done = pretrain(MODEL, CFG, stop, device="cpu", **args).step
    assert_same_end(tmp_path, straight[1])
