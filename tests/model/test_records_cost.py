"""What records cost: no graph, no wait, no (B, H, T, T) in memory; where they run."""

import doctest
import json
import math
from pathlib import Path

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import stacklm.model.records
from stacklm.config import toy_config
from stacklm.model import LogitRecord, Stack100M, exact_maxima, norm_bound

LENGTH = 1024
SCORES = 4 * LENGTH**2 * 4  # bytes of (1, H, T, T) in float32, H = 4


@pytest.fixture
def peak_bytes(tmp_path):
    """Measure the most memory that a call holds at once, inside kernels too."""

    def measure(call):
        cpu = [torch.profiler.ProfilerActivity.CPU]
        with torch.profiler.profile(activities=cpu, profile_memory=True) as profile:
            call()
        trace = Path(tmp_path, "trace.json")
        profile.export_chrome_trace(str(trace))
        events = json.loads(trace.read_text())["traceEvents"]
        events = [event for event in events if event.get("name") == "[memory]"]
        live = most = 0
        for event in sorted(events, key=lambda event: event["ts"]):
            live += event["args"]["Bytes"]
            most = max(most, live)
        return most

    return measure


@torch.no_grad()
@pytest.mark.parametrize("packed", [False, True])
def test_tier_1_keeps_the_memory_of_sdpa_and_tier_2_works_in_blocks(packed, peak_bytes):
    torch.manual_seed(0)
    model = Stack100M(toy_config(max_seq_len=LENGTH))
    tokens = torch.zeros(1, LENGTH, dtype=torch.long)
    seq_ids = tokens if packed else None
    peaks = {
        exact: peak_bytes(
            lambda exact=exact: model(
                tokens,
                seq_ids=seq_ids,
                record=None if exact is None else {},
                record_exact=exact,
            )
        )
        for exact in (None, False, True)
    }
    # Queries and keys of one layer in float32, once more, are allowed.
    assert peaks[False] <= peaks[None] + 6 * LENGTH * 16 * 4
    assert peaks[None] < SCORES
    # A quarter of the scores and their mask, beside what a pass holds anyway.
    assert SCORES / 4 < peaks[True] < peaks[None] + SCORES / 2
    capped = Stack100M(toy_config(max_seq_len=LENGTH, attn_soft_cap=5.0))
    assert peak_bytes(lambda: capped(tokens)) > SCORES  # the measure sees them


def gradients(model, tokens, **record):
    model.zero_grad()
    saved = []
    pack = torch.autograd.graph.saved_tensors_hooks(
        lambda x: saved.append(x.shape) or x, lambda x: x
    )
    with pack:
        _, loss = model(tokens, tokens, **record)
    loss.backward()
    return loss, [p.grad for p in model.parameters()], saved


@pytest.mark.parametrize("exact", [False, True])
def test_recording_keeps_no_graph_and_changes_no_bit(exact, make_model, make_tokens):
    model, tokens = make_model(), make_tokens(2, 12)
    kept, record = {}, LogitRecord(2, 4)
    plain = gradients(model, tokens)
    for target in (kept, record):
        with_record = gradients(model, tokens, record=target, record_exact=exact)
        assert torch.equal(with_record[0], plain[0])
        assert all(map(torch.equal, with_record[1], plain[1]))
        assert with_record[2] == plain[2]  # nothing more is saved for backward
    for maxima in (*kept.values(), record.maxima):
        assert not maxima.requires_grad
        assert maxima.isfinite().all()


@pytest.mark.parametrize("tier", [norm_bound, exact_maxima])
def test_tiers_alone_keep_no_graph_either(tier):
    q = torch.randn(1, 2, 5, 4, requires_grad=True)
    assert not tier(q, q).requires_grad


@pytest.mark.parametrize("exact", [False, True])
def test_nothing_waits_for_values(exact):
    with torch.device("meta"):  # a tensor without values: reading one raises
        model = Stack100M(toy_config())
        tokens = torch.zeros(2, 16, dtype=torch.long)
        record = LogitRecord(2, 4, "meta")
    kept = {}
    for target in (record, kept):
        model(tokens, tokens, seq_ids=tokens, record=target, record_exact=exact)
    record.reset()
    assert kept[1].shape == (4,)


@pytest.mark.parametrize("exact", [False, True])
def test_records_under_bf16_autocast_are_float32(exact, make_tokens):
    torch.manual_seed(0)
    model, tokens = Stack100M(toy_config()), make_tokens(2, 32)
    kept, plain = {}, {}
    with torch.autocast("cpu", torch.bfloat16):
        model(tokens, record=kept, record_exact=exact)
    model(tokens, record=plain, record_exact=exact)
    for layer in range(2):
        assert kept[layer].dtype == torch.float32
        # Queries and keys carry 8 bits, so each product is off by at most 0.8 %.
        close = {"rtol": 0.008, "atol": 0.03}
        torch.testing.assert_close(kept[layer], plain[layer], **close)


@pytest.mark.parametrize("tier", [norm_bound, exact_maxima])
def test_autocast_does_not_round_the_measurement(tier):
    torch.manual_seed(0)
    q, k = torch.randn(2, 4, 9, 16).bfloat16(), torch.randn(2, 2, 9, 16).bfloat16()
    with torch.autocast("cpu", torch.bfloat16):
        rounded = tier(q, k)
    assert rounded.dtype == torch.float32
    torch.testing.assert_close(rounded, tier(q.double(), k.double()).float())


@pytest.mark.parametrize("tier", [norm_bound, exact_maxima])
def test_half_precision_does_not_overflow(tier):
    q = torch.full((1, 2, 3, 16), 300.0, dtype=torch.float16)
    # 16 * 300 * 300 / 4 = 360,000; float16 ends at 65,504.
    assert tier(q, q).tolist() == [360_000.0] * 2


@pytest.mark.parametrize("exact", [False, True])
def test_compiled_records_equal_eager_ones(exact, make_model, make_tokens):
    model, graphs = make_model(), []

    def backend(graph, _):
        graphs.append(graph)
        return graph.forward

    torch.compiler.reset()
    compiled = torch.compile(model, backend=backend, fullgraph=True)
    record, same, kept = LogitRecord(2, 4), LogitRecord(2, 4), {}
    seq_ids = (torch.arange(16) // 6).expand(2, 16)
    for seed in range(3):
        tokens = make_tokens(2, 16, seed)
        options = {"seq_ids": seq_ids, "record_exact": exact}
        compiled(tokens, tokens, record=record, **options)
        model(tokens, tokens, record=same, **options)
        torch.testing.assert_close(record.maxima, same.maxima)
    assert len(graphs) == 1  # one graph serves all passes
    for seed in range(3):
        compiled(make_tokens(2, 16, seed), record=kept, **options)
    torch.testing.assert_close(torch.stack([kept[0], kept[1]]).float(), same.maxima)
    torch.compiler.reset()


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("new", [dict, lambda: LogitRecord(2, 4)])
def test_checkpointed_blocks_record_the_same(new, reentrant, make_model, make_tokens):
    model, tokens, record, same = make_model(), make_tokens(2, 12), new(), new()
    plain = gradients(model, tokens, record=same)
    for block in model.blocks:
        run = block.forward
        block.forward = lambda *args, run=run: checkpoint(
            run, *args, use_reentrant=reentrant
        )
    again = gradients(model, tokens, record=record)
    assert all(map(torch.equal, again[1], plain[1]))
    if isinstance(record, dict):
        assert all(torch.equal(record[layer], same[layer]) for layer in (0, 1))
    else:
        assert torch.equal(record.maxima, same.maxima)
        assert record.maxima.max() > -math.inf


def test_examples_run():
    result = doctest.testmod(stacklm.model.records)
    assert result.attempted > 0
    assert result.failed == 0
