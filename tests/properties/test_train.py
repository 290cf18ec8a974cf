"""Training and benchmarks on hard values: files of any bytes, mixes, steps, counts."""

import json
import math
from fractions import Fraction

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from stacklm.bench import (
    PerLeafMuon,
    Times,
    calibrate,
    least_bytes,
    plain_newton_schulz,
    predict,
    ratio,
    with_spectrum,
    work_of,
)
from stacklm.config import TrainConfig, toy_config
from stacklm.model import Stack100M
from stacklm.optim import Muon, build_optimizers, zeropower_via_newtonschulz5
from stacklm.train import (
    ByteTokenizer,
    CheckpointError,
    Mixture,
    RunConfig,
    checkpoints,
    open_tokens,
    optimizer_step,
    read_checkpoint,
    read_metrics,
    validate,
    write_shards,
)
from tests.properties.strategies import ANYTHING
from tests.properties.test_bad_input import many, tried

few = settings(many, max_examples=40)


@few
@given(values=st.dictionaries(st.sampled_from(list(vars(RunConfig()))), ANYTHING))
def test_a_run_is_watched_and_saved_in_whole_steps_or_refused(values):
    cfg = tried(RunConfig, **values)
    if cfg is not None:
        assert all(type(value) is int for value in vars(cfg).values())
        assert min(cfg.validate_every, cfg.save_every) >= 0
        assert min(cfg.keep_last, cfg.validate_batches, cfg.max_skips) >= 1


@pytest.fixture(scope="module")
def book():
    return {split: open_tokens("moby-dick", split) for split in ("train", "val")}


NUMBERS = st.one_of(ANYTHING, st.floats(1e-3, 1e3), st.integers(1, 1000))


@many
@given(weights=st.fixed_dictionaries({"train": NUMBERS, "val": NUMBERS}))
def test_a_mixture_has_its_weights_or_is_refused(book, weights):
    mixed = tried(Mixture, book, weights)
    sound = all(
        type(w) in (int, float) and w > 0 and math.isfinite(w) for w in weights.values()
    )
    assert (mixed is not None) == sound
    if mixed is not None:
        parts = {name: Fraction(text) for name, text in mixed.mix.items()}
        assert sum(parts.values()) == 1
        quotient = Fraction(str(weights["train"])) / Fraction(str(weights["val"]))
        assert parts["train"] == parts["val"] * quotient


@many
@given(texts=st.lists(st.text(), max_size=4), ids=st.binary(max_size=20))
def test_any_text_is_its_bytes_and_any_bytes_are_a_text(texts, ids):
    tokenizer = ByteTokenizer()
    try:
        expected = [list(text.encode()) for text in texts]
    except UnicodeEncodeError:  # half of a surrogate pair
        with pytest.raises(ValueError, match="surrogates not allowed"):
            tokenizer.encode_batch(texts)
        return
    assert [each.tolist() for each in tokenizer.encode_batch(texts)] == expected
    assert tokenizer.decode(ids) == ids.decode(errors="replace")


@few
@given(texts=st.lists(st.one_of(st.text(max_size=30), st.none()), max_size=5))
def test_what_is_written_can_be_read_or_nothing_can(tmp_path_factory, texts):
    folder = tmp_path_factory.mktemp("shards")
    written = tried(write_shards, texts, folder)
    if written is None:
        assert not (folder / "index.json").exists()
        return
    tokens = open_tokens(folder, "train", val_frac=0.0)
    ids, _ = tokens.read(0, len(tokens))
    assert bytes(ids.tolist()) == "".join(texts).encode()
    assert written.tokens == len(tokens)


@many
@given(data=st.binary(max_size=200), cut=st.integers(0, 60))
def test_bytes_that_are_no_checkpoint_are_refused(tmp_path_factory, data, cut):
    folder = tmp_path_factory.mktemp("run")
    path = folder / "step-00000001.safetensors"
    header = json.dumps({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}})
    sound = len(header).to_bytes(8, "little") + header.encode() + bytes(4)
    for content in (data, sound, sound[: -1 - cut]):
        path.write_bytes(content)
        with pytest.raises(CheckpointError, match="cannot be read as a checkpoint"):
            read_checkpoint(path)
    assert checkpoints(folder) == [path]


RECORDS = st.lists(
    st.dictionaries(st.text(max_size=4), st.one_of(st.none(), st.integers())),
    max_size=5,
)


@many
@given(records=RECORDS, torn=st.binary(max_size=10).filter(lambda b: b"\n" not in b))
def test_a_torn_last_line_is_left_out(tmp_path_factory, records, torn):
    path = tmp_path_factory.mktemp("log") / "metrics.jsonl"
    lines = b"".join(json.dumps(record).encode() + b"\n" for record in records)
    path.write_bytes(lines + torn)
    assert read_metrics(path) == records


@few
@given(
    cut=st.sampled_from([1, 2, 4]),
    ignored=st.integers(0, 32),
    poison=st.sampled_from([None, None, math.nan, math.inf, 1e30]),
    step=st.integers(0, 30),
)
def test_a_step_is_taken_whole_or_not_at_all(cut, ignored, poison, step):
    torch.manual_seed(0)
    model = Stack100M(toy_config(n_layers=1, vocab_size=16))
    pair = build_optimizers(model)
    ids = torch.randint(16, (4, 9))
    x, targets = ids[:, :-1], ids[:, 1:].clone()
    targets.view(-1)[:ignored] = -100
    w = model.blocks[0].mlp.w_up.weight
    if poison is not None:
        w.register_hook(lambda g: g * poison)
    before = [p.detach().clone() for p in model.parameters()]
    cfg = TrainConfig(warmup_steps=5, total_steps=40, decay_frac=0.2)
    pieces = list(zip(x.split(cut), targets.split(cut), strict=True))
    log = optimizer_step(model, pieces, *pair, (0.02, 3e-3), step, cfg)
    counted = bool((targets != -100).any())
    after = [p.detach() for p in model.parameters()]
    assert all(p.isfinite().all() for p in after)
    assert log.tokens == x.numel()
    if poison is None:
        assert not log.skipped
    if log.skipped:
        assert all(map(torch.equal, before, after))
    elif poison is None and counted:  # 1e30 clips all others below AdamW's epsilon
        assert not any(map(torch.equal, before, after))
    if counted:
        assert math.isfinite(validate(model, pieces))


@many
@given(m=st.integers(2, 9), n=st.integers(2, 9), exponent=st.integers(-30, 30))
def test_a_spectrum_is_what_was_asked_and_its_scale_is_divided_out(m, n, exponent):
    sigma = 10.0**exponent * torch.linspace(1, 0.2, min(m, n), dtype=torch.float64)
    G = with_spectrum(m, n, sigma)
    torch.testing.assert_close(
        torch.linalg.svdvals(G), sigma, atol=0, rtol=1e-9, check_dtype=False
    )
    if exponent >= 0:  # the plain form adds its epsilon to the norm
        plain = plain_newton_schulz(G)
        torch.testing.assert_close(
            plain, zeropower_via_newtonschulz5(G), atol=1e-5, rtol=0
        )


@few
@given(
    m=st.integers(2, 9),
    n=st.integers(2, 9),
    mu=st.floats(0, 0.99),
    wd=st.floats(0, 1),
    exponent=st.integers(-9, 9),
)
def test_leaf_by_leaf_takes_the_step_of_muon(m, n, mu, wd, exponent):
    generator = torch.Generator().manual_seed(m * n)
    start, grad = torch.randn(2, m, n, generator=generator, dtype=torch.float64)
    found = []
    for kind in (Muon, PerLeafMuon):
        p = torch.nn.Parameter(start.clone())
        optimizer = kind([p], lr=0.1, momentum=mu, weight_decay=wd)
        for _ in range(2):
            p.grad = 10.0**exponent * grad
            optimizer.step()
        found.append(p.detach())
    torch.testing.assert_close(*found, atol=1e-9, rtol=0)


SHAPES = st.lists(
    st.tuples(st.integers(1, 40), st.integers(1, 40)), min_size=1, max_size=6
)


@many
@given(shapes=SHAPES, shards=st.integers(1, 6), replicas=st.integers(1, 3))
def test_work_is_shared_out_and_no_rank_moves_less_than_the_bound(
    shapes, shards, replicas
):
    work = work_of(shapes, shards, replicas)
    alone = work_of(shapes, 1)
    flops, wire, messages, _ = work.total
    assert flops == alone.total[0]
    assert all(
        most <= whole for most, whole in zip(work.busiest, work.total, strict=True)
    )
    assert wire >= least_bytes(shapes, replicas, shards)
    assert (messages == 0) == (shards * replicas == 1)
    assert wire == 0 or messages > 0  # a row of its own has nowhere to go
    machine = calibrate([(work, 2.0), (alone, 1.0)] * 2)
    terms = predict(work, machine)
    assert all(0 <= seconds < math.inf for seconds in terms.values())


@many
@given(
    seconds=st.lists(
        st.tuples(st.floats(1e-6, 1e6), st.floats(1e-6, 1e6)), min_size=1, max_size=6
    )
)
def test_ratios_of_times_turn_around(seconds):
    one, other = map(tuple, zip(*seconds, strict=True))
    times = {"one": Times(one), "other": Times(other)}
    assert min(one) == times["one"].fastest <= times["one"].median <= max(one)
    assert times["one"].spread >= 0
    if len(seconds) % 2:
        assert ratio(times, "one", "other") == pytest.approx(
            1 / ratio(times, "other", "one")
        )
