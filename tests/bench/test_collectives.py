"""What ranks send is counted by kind and to the byte, and bounded from below."""

import pytest

from stacklm.bench import RankError, block_shapes, least_bytes, step_traffic
from stacklm.optim.layout import chunks
from tests.bench import traffic_cases as cases

WIDE, SQUARE, TALL = (64, 128), (64, 64), (128, 64)


def test_all_to_all_costs_what_goes_to_others(four):
    row = 3 * 8
    for me, found in enumerate(four.run(cases.counted, cases.uneven)):
        assert found.counts == {"all_to_all": 2}
        # Of me+1 rows to rank 0 and one to each of three, one part stays.
        go, come = (3, 2 + 3 + 4) if me == 0 else (me + 1 + 2, 3)
        assert (found.bytes_sent, found.bytes_received) == (
            2 * go * row,
            2 * come * row,
        )
    for found in four.run(cases.counted, cases.even):
        assert (found.bytes_sent, found.bytes_received) == (24, 24)  # 6 of 8 entries


def test_other_kinds_cost_the_usual_bounds(four):
    for found in four.run(cases.counted, cases.gathers):
        assert found.counts == {"all_gather": 2}
        assert found.bytes_sent == found.bytes_received == 2 * 3 * 5 * 4
    for found in four.run(cases.counted, cases.reductions):
        assert found.counts == {"all_reduce": 2, "reduce_scatter": 1}
        assert found.sent == found.received == {"all_reduce": 72, "reduce_scatter": 24}
    for me, found in enumerate(four.run(cases.counted, cases.from_one)):
        assert found.counts == {"broadcast": 1, "scatter": 1}
        sent = {"broadcast": 28 * (me == 2), "scatter": 24 * (me == 1)}
        assert found.sent == sent
        assert found.received == {"broadcast": 28 * (me != 2), "scatter": 8 * (me != 1)}


def test_messages_and_barriers_are_seen_although_comm_debug_mode_is_blind(four):
    traffics = four.run(cases.counted, cases.messages)
    assert traffics[0].counts == {"barrier": 1, "recv": 1, "send": 2}
    assert traffics[1].counts == {"barrier": 1, "recv": 2, "send": 1}
    assert [t.bytes_sent for t in traffics] == [22, 16, 16, 16]
    assert [t.bytes_received for t in traffics] == [16, 22, 16, 16]
    assert (traffics[0].messages, traffics[0].collectives) == (3, 1)
    assert four.run(cases.by_comm_debug_mode, cases.messages) == [0] * 4
    for run in (cases.uneven, cases.gathers, cases.reductions, cases.from_one):
        total = four.run(cases.by_comm_debug_mode, run)
        assert total == [t.collectives for t in four.run(cases.counted, run)]


def test_what_has_no_price_is_an_error(four):
    with pytest.raises(RankError, match=r"knows the bytes of .* got c10d.gather_"):
        four.run(cases.counted, cases.to_one)


def test_leaf_by_leaf_pays_per_matrix_and_ours_per_class(four):
    for name in ("per leaf", "torch.optim.Muon"):
        for shapes, gathers, reduces in (
            ([(128, 128)] * 4, 60, 4),
            ([WIDE, WIDE], 30, 2),
            ([TALL, TALL, TALL], 0, 33),
        ):
            counts = four.run(step_traffic, name, shapes)[0].counts
            found = counts.get("all_gather", 0), counts["all_reduce"]
            assert found == (gathers, reduces), (name, shapes)
    # Larger matrices go other ways, by DTensor's own estimate of bytes.
    for name, shape, count in (
        ("per leaf", (512, 512), 26),
        ("torch.optim.Muon", (512, 512), 16),
        ("torch.optim.Muon", (512, 1408), 26),
        ("torch.optim.Muon", (1408, 512), 11),
    ):
        assert four.run(step_traffic, name, [shape])[0].collectives == count
    for shapes, classes in (([SQUARE] * 4, 1), ([WIDE, TALL] * 3 + [SQUARE], 2)):
        for found in four.run(step_traffic, "stacklm", shapes):
            assert found.counts == {"all_reduce": 1, "all_to_all": 2 * classes}
            assert found.messages == 0
    for found in four.run(step_traffic, "stacklm", [WIDE, TALL] * 4, 2):
        assert found.counts == {"all_reduce": 1, "all_to_all": 3}


def test_the_bound_is_the_least_over_all_owners():
    def moved(m, n, owner, replicas, shards):
        rows = chunks(m, shards) * replicas  # of rank r*S + s
        into = sum(rows[:shards]) - rows[owner]
        return (into * 4 + (sum(rows) - rows[owner]) * 2) * n

    for m, n in ((8, 8), (18, 5), (3, 7), (5, 2)):
        for replicas, shards in ((1, 4), (2, 4), (3, 1), (1, 8), (1, 1)):
            owners = range(replicas * shards)
            least = min(moved(m, n, owner, replicas, shards) for owner in owners)
            assert least_bytes([(m, n)], replicas, shards, 4, out_itemsize=2) == least
            twice = least_bytes([(m, n)] * 2, replicas, shards)
            assert twice == 2 * least_bytes([(m, n)], replicas, shards, 4)


@pytest.mark.parametrize("replicas", [1, 2])
def test_ours_moves_the_least(four, replicas):
    narrow = [(m // 8, n // 8) for m, n in block_shapes()] * 3
    for shapes, slack in ((narrow, 1.0), ([(50, 30)] * 8 + [(30, 50)] * 5, 1.05)):
        found = four.run(step_traffic, "stacklm", shapes, replicas)
        least = least_bytes(shapes, replicas, 4 // replicas)
        for total in (
            sum(t.received["all_to_all"] for t in found),
            sum(t.sent["all_to_all"] for t in found),
        ):
            assert least <= total <= slack * least


@pytest.mark.parametrize(
    ("name", "tolerance"),
    [("stacklm", 1e-6), ("per leaf", 1e-5), ("torch.optim.Muon", 0.03)],
)
def test_all_take_the_same_steps(four, name, tolerance):
    # torch iterates in bf16, which has three digits.
    assert (
        max(four.run(cases.distance, name, [WIDE, TALL, SQUARE, (18, 40)])) < tolerance
    )


def test_an_unknown_optimizer_and_replicas_that_do_not_divide_are_errors(four):
    with pytest.raises(RankError, match=r"must be one of .*'per leaf'.* got 'adam'"):
        four.run(step_traffic, "adam", [SQUARE])
    with pytest.raises(RankError, match="must divide the number of ranks, got 3 of 4"):
        four.run(step_traffic, "stacklm", [SQUARE], 3)
