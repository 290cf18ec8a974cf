"""Several ranks train one model: like one process, and through stops and errors."""

import shutil
from contextlib import nullcontext

import pytest
import torch

from stacklm.bench import ranks
from stacklm.train import checkpoints, pretrain, read_checkpoint, read_metrics
from stacklm.train.lock import only_one
from stacklm.train.presets import PRESETS, override
from tests.train import rank_cases as cases
from tests.train import rank_state_cases as states
from tests.train.runs import MODEL, RUN, assert_same_end, untimed


@pytest.fixture(scope="module")
def four():
    ranks.PRELOAD.append(
        "tests.train.rank_state_cases"
    )  # loaded once, not on every rank
    with ranks.Ranks(4, timeout=30) as pool:
        yield pool


@pytest.fixture(scope="module")
def stopped(four, tmp_path_factory):
    """Folders of a straight run by four ranks, and of one stopped at step 9."""
    straight, half = (tmp_path_factory.mktemp(name) for name in ("straight", "half"))
    four.run(cases.train, straight)
    ends = four.run(cases.train, half, stop=(3, 9))
    return straight, half, ends


def gap(a, b):
    assert a.keys() == b.keys()
    names = [name for name in a if not name.startswith("rng")]
    return max((a[n].double() - b[n].double()).abs().max().item() for n in names)


def assert_one_reports(errors, kind):
    """The same error on all ranks; all but rank 0 know that it is rank 0's."""
    words = errors[0][1]
    assert errors == [(kind, words, rank > 0) for rank in range(4)]


@pytest.mark.parametrize(
    ("form", "micros", "rows", "options"),
    [
        ((4,), 4, 2, {"qk_clip_every": 0}),  # a micro-batch for each rank
        ((4,), 1, 8, {"qk_clip_every": 0}),  # two rows for each rank
        ((2, 2), 2, 4, {"qk_clip_every": 0, "grad_clip": 0.1}),
        ((4,), 4, 2, {"qk_clip_every": 1}),
        ((4,), 4, 2, {"qk_clip_every": 2}),  # a probe, of the first micro-batch only
        ((2, 2), 1, 8, {"qk_clip_every": 2}),
    ],
)
def test_a_step_by_four_ranks_is_the_step_of_one_process(
    four, form, micros, rows, options
):
    shape = {"grad_accum_steps": micros, "micro_batch_size": rows}
    cfg = cases.replace(cases.STEP, **shape, **options)
    wanted, end = cases.steps(None, cfg)
    found = four.run(cases.steps, form, cfg)
    clips = cfg.qk_clip_every > 0
    assert any(log["layers_clipped"] for log in wanted) == clips
    for logs, _ in found:
        assert logs == found[0][0]  # the same figures on every rank, to the bit
        for log, one in zip(logs, wanted, strict=True):
            assert log.keys() == one.keys()
            for name, value in one.items():  # maxima are float32
                rel = 1e-6 if clips else 1e-12
                assert log[name] == (value and pytest.approx(value, rel=rel)), name
    assert gap(found[0][1], end) < (1e-6 if clips else 1e-12)


def test_the_toys_losses_on_four_ranks_are_those_of_one_process(
    four, data, val, tmp_path
):
    short = ["total_steps=50", "warmup_steps=10", "save_every=0", "validate_every=25"]
    toy = override(PRESETS["toy"], short)
    args = {"val": val, "run_cfg": toy.run, "device": "cpu"}
    alone = pretrain(toy.model, toy.train, data, **args).records
    parts = {"cfg": toy.train, "model": toy.model, "run_cfg": toy.run}
    for step, _, _, records in four.run(cases.train, tmp_path, **parts):
        assert step == 50
        for name in ("loss", "val_loss"):
            pairs = [
                (r[name], a[name])
                for r, a in zip(records, alone, strict=True)
                if name in a
            ]
            assert len(pairs) == (50 if name == "loss" else 2)
            assert max(abs(r - a) for r, a in pairs) < 1e-4
    assert untimed(read_metrics(tmp_path / "metrics.jsonl")) != []


def test_a_step_tells_the_others_two_things(four):
    """Beside FSDP2's exchanges and Muon's: a count, then figures and maxima."""
    for seen in four.run(cases.collectives_of_a_step):
        assert seen == [("all_reduce", 1), ("all_gather", 3 + 2 * 4)]


@pytest.mark.parametrize("kind", ["loss", "logit", "gradient"])
def test_what_is_not_finite_on_one_rank_skips_the_step_on_all(four, kind):
    for skipped, same in four.run(cases.poisoned, kind):
        assert skipped == [True, False]
        assert same


@pytest.mark.parametrize("count", [4, 5])
def test_validation_is_shared_and_the_loss_is_the_same(four, count):
    wanted, passes, _ = cases.validated(None, count)
    assert passes == count
    for loss, passes, plain in four.run(cases.validated, (4,), count):
        assert loss == pytest.approx(wanted, rel=1e-12)
        assert passes == -(-count // 4)
        assert plain == []  # the root's weights are cut again


def test_a_signal_to_one_rank_stops_all_at_the_same_step(stopped):
    _, half, ends = stopped
    assert [end[:2] for end in ends] == [(10, True)] * 4
    assert {end[2] for end in ends} == {checkpoints(half)[-1]}
    assert read_checkpoint(checkpoints(half)[-1]).step == 10
    assert len(read_metrics(half / "metrics.jsonl")) == 10


def test_the_same_ranks_go_on_to_the_same_bits(four, stopped, tmp_path):
    straight, half, _ = stopped
    shutil.copytree(half, tmp_path, dirs_exist_ok=True)
    assert [end[0] for end in four.run(cases.train, tmp_path)] == [24] * 4
    assert_same_end(tmp_path, straight)
    lines = [
        untimed(read_metrics(out / "metrics.jsonl")) for out in (straight, tmp_path)
    ]
    assert lines[0] == lines[1]


@pytest.mark.parametrize("number", [4, 2, 1])
def test_other_numbers_of_ranks_take_up_the_same_state_and_go_on(
    four, stopped, tmp_path, number
):
    """Four take it up with matrices one at a time."""
    straight, half, _ = stopped
    newest = checkpoints(half)[-1]
    shutil.copytree(half, tmp_path, dirs_exist_ok=True)
    build = cases.looped if number == 4 else None
    # What a part of the ranks leaves behind must not meet the tests after this one.
    with nullcontext(four) if number == 4 else ranks.Ranks(4, timeout=30) as pool:
        found = pool.run(cases.taken_up, newest, number, looped=number == 4)
        assert found[:number] == [[]] * number
        pool.run(cases.train, tmp_path, ranks=number, build=build)
    records = [read_metrics(out / "metrics.jsonl") for out in (straight, tmp_path)]
    for one, other in zip(*records, strict=True):
        assert abs(one["loss"] - other["loss"]) < 1e-4
    ends = [read_checkpoint(checkpoints(out)[-1]) for out in (straight, tmp_path)]
    assert [end.step for end in ends] == [24, 24]
    assert gap(ends[0].tensors, ends[1].tensors) < 1e-6


def test_one_process_takes_up_what_four_ranks_wrote_and_back(
    four, data, val, stopped, tmp_path
):
    straight, half, _ = stopped
    shutil.copytree(half, tmp_path, dirs_exist_ok=True)
    short = cases.replace(RUN, save_every=6)
    args = {"val": val, "out": tmp_path, "run_cfg": short, "device": "cpu"}
    run = pretrain(MODEL, cases.FOUR, data, **args)
    assert run.step == 24
    (tmp_path / "step-00000024.safetensors").unlink()
    assert {end[0] for end in four.run(cases.train, tmp_path)} == {24}
    ends = [read_checkpoint(checkpoints(out)[-1]) for out in (straight, tmp_path)]
    assert gap(ends[0].tensors, ends[1].tensors) < 1e-6


def test_what_rank_0_cannot_write_is_an_error_on_every_rank(four, tmp_path):
    errors = four.run(cases.train_on_full_disk, tmp_path)
    assert_one_reports(errors, "OSError")
    assert "step-00000006.safetensors is intact. Make room" in errors[0][1]
    assert [read_checkpoint(path).step for path in checkpoints(tmp_path)] == [6]


def test_a_folder_in_use_is_an_error_on_every_rank(four, tmp_path):
    with only_one(tmp_path):
        errors = four.run(cases.error_of, cases.train, tmp_path)
    assert_one_reports(errors, "BusyError")
    assert "in use by process" in errors[0][1]


def test_a_step_that_cannot_be_shared_is_refused_before_any_work(four, tmp_path):
    cfg = cases.replace(cases.FOUR, grad_accum_steps=3, micro_batch_size=6)
    errors = four.run(cases.error_of, cases.train, tmp_path / "run", cfg=cfg)
    assert_one_reports(errors, "ValueError")
    words = "grad_accum_steps or micro_batch_size must be a multiple of 4, got 3 and 6"
    assert words in errors[0][1]
    assert not (tmp_path / "run").exists()


def test_meshes_that_a_run_cannot_use_are_refused(four):
    for rank, errors in enumerate(four.run(states.refused_meshes)):
        outside = errors.pop("outside")
        assert (outside is None) == (rank == 3)
        assert rank == 3 or f"rank {rank} is not among the ranks" in outside[1]
        assert "(2, 1, 2)" in errors["three"][1]
        assert "over all 4 ranks, got (1, 2)" in errors["part"][1]
        assert "must be of the mesh's kind, cpu, got cuda" in errors["kind"][1]
        assert {kind for kind, *_ in errors.values()} == {"ValueError"}


def test_a_call_that_was_not_told_of_the_other_ranks_is_refused(four):
    for errors in four.run(states.alone_with_a_model_of_many):
        for kind, words, _ in errors:
            assert kind == "ValueError"
            assert "cut over 4 ranks" in words
            assert "pass world=world_of()" in words


def test_replicas_have_groups_of_the_same_timeout(four):
    found = four.run(states.timeouts_of_replicas)
    assert [waits for waits, _ in found] == [[17.0, 17.0]] * 4
    assert [groups for _, groups in found] == [
        [[0, 2], [0, 1]],
        [[1, 3], [0, 1]],
        [[0, 2], [2, 3]],
        [[1, 3], [2, 3]],
    ]


@pytest.mark.parametrize("given", ["tensor", "dict", "record"])
@pytest.mark.parametrize("form", [(4,), (2, 2)])
@pytest.mark.parametrize("kind", states.FORMS)
def test_qk_clip_takes_the_maximum_over_ranks_and_clips_pieces_of_heads(
    four, kind, form, given
):
    wanted, end, sent = states.clipped(None, kind)
    assert (wanted, sent) == (2, [])
    for fired, found, sent in four.run(states.clipped, form, kind, given):
        assert fired == wanted
        assert [name for name in end if not torch.equal(found[name], end[name])] == []
        assert sent == [2 * 6]


def test_qk_clip_asks_its_group_and_no_other_ranks(four):
    first, second = (1, [True, False]), (1, [False, True])
    assert four.run(states.clipped_in_pairs) == [first, first, second, second]


@pytest.mark.parametrize("kind", states.FORMS)
def test_nan_on_one_rank_is_an_error_on_all_and_changes_nothing(four, kind):
    for error, same in four.run(states.clipped_with_nan, kind):
        assert error[0] == "ValueError"
        assert "got inf in layer 0, head 3" in error[1]
        assert same


def test_weights_in_no_pieces_of_rows_are_refused(four):
    for kind, words, _ in four.run(states.clip_columns):
        assert kind == "ValueError"
        assert "Partial" in words
        assert "fully_shard" in words


def test_torchs_own_checkpoints_go_from_four_ranks_to_two_to_one(four, tmp_path):
    found = four.run(states.by_dcp, tmp_path)
    assert [sorted(each) for each in found] == [[1, 2, 4], [2, 4], [4], [4]]
    for each in found:
        for differing, loss in each.values():
            assert differing == []
            assert loss == pytest.approx(found[0][4][1], abs=1e-5)
