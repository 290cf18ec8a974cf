"""Configurations: the book's numbers, counted twice, and what must be refused."""

import ast
import dataclasses
import doctest
import inspect
import itertools
import math
import subprocess
import sys

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

import stacklm._counts
import stacklm.config
from stacklm.config import (
    LADDER,
    StackConfig,
    TrainConfig,
    count_params,
    flops_per_token,
    toy_config,
)
from stacklm.model import RMSNorm, Stack100M

LADDER_MATRICES = {
    "S1": 3_932_160,
    "S2": 9_158_656,
    "S3": 18_800_640,
    "S4": 43_954_176,
}
SHAPES = {
    "stack": StackConfig(),
    "toy": toy_config(),
    "untied": toy_config(tie_embeddings=False),
    "no qk-norm": toy_config(qk_norm=False),
    "per-head gains": StackConfig(per_head_gains=True),
    "wide heads": toy_config(n_heads=6, n_kv_heads=3, head_dim=32),
    **LADDER,
}


def test_stack_100m_has_the_published_counts():
    counts = count_params(StackConfig())
    assert counts.embedding == 16_777_216
    assert counts.block_matrices == 84_541_440
    assert counts.gains == 35_072
    assert counts.head == 0
    assert counts.total == 101_353_728


@pytest.mark.parametrize("name", LADDER_MATRICES)
def test_ladder_counts_and_rule(name):
    cfg = LADDER[name]
    assert count_params(cfg).block_matrices == LADDER_MATRICES[name]
    assert (cfg.n_kv_heads, cfg.head_dim) == (1, 64)
    assert cfg.n_heads * 64 == cfg.d_model
    assert cfg.intermediate % 64 == 0
    assert abs(cfg.intermediate - 2.75 * cfg.d_model) <= 32


@pytest.mark.parametrize("name", SHAPES)
def test_counts_agree_with_the_real_module(name):
    cfg = SHAPES[name]
    with torch.device("meta"):
        model = Stack100M(cfg)
    gains = [m.weight for m in model.modules() if isinstance(m, RMSNorm)]
    counts = count_params(cfg)
    assert counts.total == sum(p.numel() for p in model.parameters())
    assert counts.gains == sum(p.numel() for p in gains)
    assert counts.embedding == model.tok_emb.weight.numel()
    matrices = [p for p in model.blocks.parameters() if p.ndim == 2]
    assert counts.block_matrices == sum(p.numel() for p in matrices)


def test_stack_100m_has_210_matrices_and_122_other_tensors():
    with torch.device("meta"):
        model = Stack100M(StackConfig())
    tensors = list(model.named_parameters())
    matrices = [n for n, p in tensors if p.ndim == 2 and n.startswith("blocks.")]
    assert len(matrices) == 210
    assert len(tensors) - len(matrices) == 122


def test_per_head_gains_cost_640_parameters_a_layer():
    shared = count_params(StackConfig()).gains
    per_head = count_params(StackConfig(per_head_gains=True)).gains
    assert per_head - shared == 30 * (640 - 128)


def test_count_prints_as_a_table():
    lines = str(count_params(StackConfig(tie_embeddings=False))).splitlines()
    assert [line.split()[-1] for line in lines] == [
        "16,777,216",
        "84,541,440",
        "35,072",
        "16,777,216",
        "118,130,944",
    ]
    assert len({len(line) for line in lines}) == 1


def test_flops_of_stack_100m():
    flops = flops_per_token(StackConfig(), 2_048)
    assert flops == 6 * 101_318_656 + 188_743_680
    assert f"{flops:.3e}" == "7.967e+08"
    assert f"{flops * TrainConfig().tokens_per_step:.3e}" == "4.177e+14"


@pytest.mark.parametrize("tied", [True, False])
def test_flops_agree_with_a_counter_of_real_products(tied):
    # With the soft cap on, attention consists of plain products, which the counter sees
    # in full: no causal half is left out, so we add that half to our formula.
    cfg = toy_config(attn_soft_cap=50.0, tie_embeddings=tied)
    tokens = torch.zeros(3, 20, dtype=torch.long)
    with FlopCounterMode(display=False) as counter:
        Stack100M(cfg)(tokens, tokens)[1].backward()
    causal_half = 6 * 20 * cfg.n_heads * cfg.head_dim * cfg.n_layers
    ours = flops_per_token(cfg, 20) + causal_half
    assert counter.get_total_flops() == tokens.numel() * ours


def test_budget_of_20_billion_tokens():
    run = TrainConfig()
    assert run.tokens_per_step == 524_288
    assert run.steps_for(20e9) == run.total_steps == 38_147
    phases = (run.warmup_steps, run.stable_steps, run.decay_steps)
    assert phases == (2_000, 32_333, 3_814)
    assert run.first_decay_step == 34_333


def test_budget_of_30_billion_tokens():
    steps = TrainConfig().steps_for(30e9)
    run = TrainConfig(total_steps=steps)
    assert (steps, run.decay_steps, run.stable_steps) == (57_220, 5_722, 49_498)
    assert run.first_decay_step == 51_498


def test_toy_fits_the_book():
    toy = toy_config()
    assert (toy.vocab_size, toy.d_model, toy.n_layers) == (256, 64, 2)
    assert (toy.n_heads, toy.n_kv_heads, toy.head_dim) == (4, 2, 16)
    assert toy.intermediate == 64
    assert toy_config(n_layers=3).n_layers == 3


BAD_STACK = [
    ({"n_heads": 8, "n_kv_heads": 3}, "multiple of n_kv_heads, got 8 and 3"),
    ({"n_heads": 2, "n_kv_heads": 4}, "multiple of n_kv_heads, got 2 and 4"),
    ({"head_dim": 63}, "head_dim must be even, got 63"),
    ({"n_layers": 0}, "n_layers must be finite and at least 1, got 0"),
    ({"vocab_size": -1}, "vocab_size must be finite and at least 1, got -1"),
    ({"rope_theta": 0.0}, "rope_theta must be finite and above 0, got 0.0"),
    ({"rope_theta": math.inf}, "rope_theta must be finite and above 0, got inf"),
    ({"norm_eps": math.nan}, "norm_eps must be finite and above 0, got nan"),
    ({"attn_soft_cap": -5.0}, "attn_soft_cap .* got -5.0; 0 turns it off"),
    ({"per_head_gains": True, "qk_norm": False}, "per_head_gains=True needs qk_norm"),
]
BAD_TRAIN = [
    ({"decay_frac": 10.0}, "decay_frac is a fraction .* got 10.0"),
    ({"decay_frac": -0.1}, "decay_frac is a fraction .* got -0.1"),
    ({"decay_frac": math.nan}, "decay_frac is a fraction .* got nan"),
    ({"warmup_steps": 4, "decay_frac": 0.9, "total_steps": 7}, "4 . 6 steps are more"),
    ({"total_steps": 0, "warmup_steps": 0}, "total_steps .* at least 1, got 0"),
    ({"warmup_steps": -1}, "warmup_steps .* at least 0, got -1"),
    ({"muon_peak_lr": 0.0}, "muon_peak_lr .* above 0, got 0.0"),
    ({"adamw_peak_lr": -1e-3}, "adamw_peak_lr .* above 0"),
    ({"grad_clip": math.nan}, "grad_clip .* got nan; 0 turns it off"),
    ({"grad_clip": math.inf}, "grad_clip must be finite .* got inf"),
    ({"qk_clip_tau": 0.0}, "qk_clip_tau .* above 0"),
    ({"qk_clip_every": -1}, "qk_clip_every .* got -1; 0 turns it off"),
    ({"micro_batch_size": 0}, "micro_batch_size .* at least 1"),
    ({"seq_len": 0}, "seq_len .* at least 1"),
    ({"grad_accum_steps": 0}, "grad_accum_steps .* at least 1"),
    ({"weight_decay": -0.1}, "weight_decay .* at least 0"),
    ({"seed": -1}, "seed .* at least 0"),
    ({"momentum": 1.0}, r"momentum must lie in \[0, 1\), got 1.0"),
    ({"betas": (0.9, 1.5)}, r"betas must lie in \[0, 1\), got \(0.9, 1.5\)"),
]
WRONG_KIND = [
    (StackConfig, {"n_layers": 2.0}, "n_layers must be of type int, got 2.0"),
    (StackConfig, {"n_layers": True}, "n_layers must be of type int, got True"),
    (StackConfig, {"qk_norm": 1}, "qk_norm must be of type bool, got 1"),
    (StackConfig, {"rope_theta": "1e4"}, "rope_theta must be of type float"),
    (StackConfig, {"norm_eps": True}, "norm_eps must be of type float, got True"),
    (TrainConfig, {"betas": [0.9, 0.95]}, "betas must be a tuple of two floats"),
    (TrainConfig, {"betas": (0.9,)}, "betas must be a tuple of two floats"),
    (TrainConfig, {"total_steps": 1e4}, "total_steps must be of type int"),
]


@pytest.mark.parametrize(("values", "message"), BAD_STACK)
def test_impossible_models_are_refused(values, message):
    with pytest.raises(ValueError, match=message):
        StackConfig(**values)


@pytest.mark.parametrize(("values", "message"), BAD_TRAIN)
def test_impossible_runs_are_refused(values, message):
    with pytest.raises(ValueError, match=message):
        TrainConfig(**values)


@pytest.mark.parametrize(("kind", "values", "message"), WRONG_KIND)
def test_wrong_kinds_are_refused(kind, values, message):
    with pytest.raises(TypeError, match=message):
        kind(**values)


def test_misspelled_overrides_are_refused():
    with pytest.raises(TypeError, match="n_head"):
        toy_config(n_head=4)


@pytest.mark.parametrize(("seq_len", "error"), [(0, ValueError), (8.0, TypeError)])
def test_flops_need_a_length(seq_len, error):
    with pytest.raises(error, match="seq_len"):
        flops_per_token(toy_config(), seq_len)


def test_edges_are_allowed():
    StackConfig(rope_theta=500_000, n_heads=1, n_kv_heads=1, head_dim=2)
    TrainConfig(warmup_steps=0, decay_frac=1.0, grad_clip=0, qk_clip_every=0)
    TrainConfig(warmup_steps=1, total_steps=1, decay_frac=0, betas=(0, 0.5))


@pytest.mark.parametrize("kind", [StackConfig, TrainConfig])
def test_configurations_are_frozen_and_hashable(kind):
    cfg = kind()
    name = dataclasses.fields(cfg)[0].name
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(cfg, name, 1)
    assert hash(cfg) == hash(kind())


@pytest.mark.parametrize("kind", [StackConfig, TrainConfig])
def test_every_field_has_its_unit_below_it(kind):
    body = ast.parse(inspect.getsource(kind)).body[0].body
    for field, doc in itertools.pairwise(body):
        if isinstance(field, ast.AnnAssign):
            text = ast.literal_eval(doc.value) if isinstance(doc, ast.Expr) else ""
            assert text.endswith(")."), f"{field.target.id} has no unit in parentheses"


def test_configuration_loads_no_torch():
    code = "import sys, stacklm.config; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


@pytest.mark.parametrize("module", [stacklm.config, stacklm._counts])
def test_examples_in_docstrings(module):
    result = doctest.testmod(module)
    assert result.attempted > 0
    assert result.failed == 0
