"""Checkpoints: nothing torn, nothing trusted, nothing lost."""

import builtins
import errno
import json
import os
import random

import pytest
import torch
from safetensors import safe_open

from stacklm.config import TrainConfig, toy_config
from stacklm.model import Stack100M
from stacklm.train import (
    CheckpointError,
    adamw_alone,
    checkpoints,
    muon_and_adamw,
    optimizer_step,
    read_checkpoint,
    restore,
    save_checkpoint,
)
from stacklm.train import checkpoint as module

CFG = TrainConfig(warmup_steps=1, total_steps=20)


def make(seed=0, steps=0, build=muon_and_adamw, **overrides):
    torch.manual_seed(seed)
    model = Stack100M(toy_config(n_layers=1, **overrides))
    muon, adamw = build(model, CFG)
    for step in range(steps):
        optimizer_step(model, [batch(step)], muon, adamw, (0.02, 3e-3), step, CFG)
    return model, muon, adamw


def batch(seed):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randint(256, (2, 9), generator=generator)
    return x[:, :-1].contiguous(), x[:, 1:].contiguous()


def bits(model, *optimizers):
    kept = list(model.state_dict().values())
    for optimizer in optimizers:
        for entry in optimizer.state_dict()["state"].values():
            kept += (value for _, value in sorted(entry.items()))
    return kept


@pytest.fixture(scope="module")
def trained():
    return make(steps=3)


def test_everything_comes_back_bit_for_bit(tmp_path, trained):
    torch.manual_seed(5)
    path = save_checkpoint(tmp_path, 3, *trained, state={"note": [1, "é"]})
    drawn = torch.rand(4)
    other = make(seed=1, steps=1)
    torch.manual_seed(6)
    found = read_checkpoint(path)
    restore(found, *other)
    assert all(map(torch.equal, bits(*other), bits(*trained)))
    assert torch.equal(torch.rand(4), drawn)
    assert (found.step, found.state["note"]) == (3, [1, "é"])
    for model, muon, adamw in (trained, other):  # and so does the step after
        optimizer_step(model, [batch(3)], muon, adamw, (0.02, 3e-3), 3, CFG)
    assert all(map(torch.equal, bits(*other), bits(*trained)))


def test_states_are_named_after_their_parameters(tmp_path, trained):
    path = save_checkpoint(tmp_path, 3, *trained, state={})
    with safe_open(path, framework="pt") as file:
        names = set(file.keys())
    wq, gain = "blocks.0.attn.wq.weight", "blocks.0.attn.q_norm.weight"
    for name in (f"model/{wq}", f"muon/{wq}/momentum_buffer", f"adamw/{gain}/exp_avg"):
        assert name in names
    assert f"adamw/{wq}/exp_avg" not in names
    assert "rng/cpu" in names


def test_any_single_flipped_bit_is_found(tmp_path, trained):
    path = save_checkpoint(tmp_path, 3, *trained, state={})
    whole = path.read_bytes()
    chance = random.Random(0)
    header = int.from_bytes(whole[:8], "little") + 8
    places = [chance.randrange(len(whole)) for _ in range(30)]
    places += [chance.randrange(header) for _ in range(60)] + [0, 7, len(whole) - 1]
    for place in places:
        broken = bytearray(whole)
        broken[place] ^= 1 << chance.randrange(8)
        path.write_bytes(broken)
        with pytest.raises(CheckpointError, match="use an older one"):
            read_checkpoint(path)
    path.write_bytes(whole)
    assert read_checkpoint(path).step == 3


@pytest.mark.parametrize("keep", [0, 5, 100, -1])
def test_a_cut_file_is_found(tmp_path, trained, keep):
    path = save_checkpoint(tmp_path, 3, *trained, state={})
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(CheckpointError, match="cannot be read"):
        read_checkpoint(path)


def test_a_pickle_is_not_run(tmp_path):
    class Trap:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "sprung"),)

    path = tmp_path / "step-00000001.safetensors"
    torch.save({"model": Trap()}, path)
    with pytest.raises(CheckpointError, match="cannot be read"):
        read_checkpoint(path)
    assert not (tmp_path / "sprung").exists()
    with pytest.raises(FileNotFoundError, match="there is no checkpoint"):
        read_checkpoint(tmp_path / "step-00000002.safetensors")


def test_a_newer_format_is_refused(tmp_path, trained, monkeypatch):
    monkeypatch.setattr(module, "FORMAT", 2)
    path = save_checkpoint(tmp_path, 3, *trained, state={})
    monkeypatch.undo()
    with pytest.raises(CheckpointError, match=r"has format 2, .* reads up to 1"):
        read_checkpoint(path)


def test_the_last_n_stay(tmp_path, trained):
    for step in (1, 9, 10, 100):
        save_checkpoint(tmp_path, step, *trained, state={}, keep_last=2)
    assert [p.name for p in checkpoints(tmp_path)] == [
        "step-00000010.safetensors",
        "step-00000100.safetensors",
    ]
    assert checkpoints(tmp_path / "nowhere") == []


def test_a_full_disk_leaves_the_older_one(tmp_path, trained, monkeypatch):
    first = save_checkpoint(tmp_path, 1, *trained, state={}, keep_last=1)
    before = first.read_bytes()

    def on_full_disk(path, mode):
        builtins.open(path, mode).close()
        return builtins.open("/dev/full", mode)  # the kernel's own ENOSPC

    monkeypatch.setattr(module, "open", on_full_disk, raising=False)
    with pytest.raises(
        OSError, match=r"step-00000001\.safetensors is intact"
    ) as caught:
        save_checkpoint(tmp_path, 2, *trained, state={}, keep_last=1)
    assert caught.value.errno == errno.ENOSPC
    assert "step-00000002" in str(caught.value)
    assert os.listdir(tmp_path) == [first.name]
    assert first.read_bytes() == before


@pytest.mark.parametrize("moment", ["write", "fsync", "replace"])
def test_a_writer_that_dies_leaves_no_torn_file(tmp_path, trained, monkeypatch, moment):
    first = save_checkpoint(tmp_path, 1, *trained, state={})

    def die(*_):
        raise KeyboardInterrupt

    if moment == "write":
        monkeypatch.setattr(module, "open", die, raising=False)
    else:
        monkeypatch.setattr(module.os, moment, die)
    with pytest.raises(KeyboardInterrupt):
        save_checkpoint(tmp_path, 2, *trained, state={})
    assert os.listdir(tmp_path) == [first.name]


def test_what_a_killed_writer_left_is_ignored_and_removed(tmp_path, trained):
    torn = tmp_path / ".step-00000002.safetensors.tmp"
    torn.write_bytes(b"half of it")
    assert checkpoints(tmp_path) == []
    save_checkpoint(tmp_path, 3, *trained, state={})
    assert not torn.exists()


def test_the_data_is_on_disk_before_its_name(tmp_path, monkeypatch):
    calls = []
    for name in ("fsync", "replace"):
        real = getattr(os, name)

        def noted(*args, real=real, name=name):
            kind = ""
            if name == "fsync":
                kind = " folder" if os.path.isdir(f"/dev/fd/{args[0]}") else " file"
            calls.append(name + kind)
            return real(*args)

        monkeypatch.setattr(module.os, name, noted)
    module.write_atomically(tmp_path / "a", b"content")
    assert calls == ["fsync file", "replace", "fsync folder"]
    assert (tmp_path / "a").read_bytes() == b"content"


def test_another_model_or_optimizer_is_refused(tmp_path, trained):
    path = save_checkpoint(tmp_path, 3, *trained, state={})
    found = read_checkpoint(path)
    for wrong, message in (
        (make(d_model=32), "does not fit"),
        (make(tie_embeddings=False), "does not fit"),
        (make(build=adamw_alone), r"optimizers \['Muon', 'AdamW'\].* has \['AdamW'\]"),
    ):
        before = [value.clone() for value in bits(wrong[0])]
        with pytest.raises(CheckpointError, match=message):
            restore(found, *wrong)
        assert all(map(torch.equal, bits(wrong[0]), before))


def test_optimizers_without_names_are_refused(tmp_path):
    model, muon, _ = make()
    unnamed = torch.optim.AdamW(model.parameters())
    with pytest.raises(CheckpointError, match="does not know its parameters' names"):
        save_checkpoint(tmp_path, 0, model, muon, unnamed, state={})
    assert checkpoints(tmp_path) == []


def test_the_text_beside_the_tensors_is_plain_json(tmp_path, trained):
    path = save_checkpoint(tmp_path, 3, *trained, state={"skips": 2})
    with safe_open(path, framework="pt") as file:
        state = json.loads(file.metadata()["state"])
    assert state == {
        "format": 1,
        "optimizers": ["Muon", "AdamW"],
        "skips": 2,
        "step": 3,
    }
