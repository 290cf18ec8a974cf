"""Who owns which matrix: everyone the same list, the work even, pieces kept at home."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from stacklm.optim import newton_schulz_flops
from stacklm.optim.layout import Matrix, chunks
from stacklm.optim.sharded import schedule

STACK_100M = [(512, 512)] * 60 + [(128, 512)] * 60 + [(1408, 512), (512, 1408)] * 45


def owners_of(shapes, replicas, shards):
    matrices = tuple(Matrix(chunks(m, shards), n) for m, n in shapes)
    costs = tuple(newton_schulz_flops(m, n) for m, n in shapes)
    plan = schedule(matrices, costs, replicas, shards)
    return plan, matrices, costs


@given(
    shapes=st.lists(
        st.tuples(st.integers(2, 40), st.integers(2, 40)), min_size=1, max_size=30
    ),
    replicas=st.integers(1, 4),
    shards=st.integers(1, 9),
)
@settings(max_examples=100, deadline=None)
def test_every_matrix_has_one_owner_and_the_work_is_even(shapes, replicas, shards):
    plan, matrices, costs = owners_of(shapes, replicas, shards)
    found = sorted(i for each in plan for i in each.members)
    assert found == list(range(len(shapes)))
    work = [0] * (replicas * shards)
    for each in plan:
        assert len({tuple(sorted((m.m, m.cols))) for m in each.matrices}) == 1
        numbers = [len(each.owned(rank)) for rank in range(len(work))]
        assert max(numbers) - min(numbers) <= 1
        assert sum(numbers) == len(each.members)
        for rank in range(len(work)):
            for i, matrix in each.owned(rank):
                assert matrix == matrices[i]
                work[rank] += costs[i]
    assert max(work) - min(work) <= max(costs)


def test_the_matrices_of_stack_100m_make_three_classes_of_even_work():
    for ranks in (2, 4, 8, 64):
        plan, _, costs = owners_of(STACK_100M, 1, ranks)
        assert [len(each.members) for each in plan] == [90, 60, 60]
        work = [
            sum(costs[i] for each in plan for i, _ in each.owned(rank))
            for rank in range(ranks)
        ]
        assert sum(work) == sum(costs)
        assert max(work) - min(work) <= max(costs)


def test_whole_matrices_of_a_stack_stay_where_they_are():
    """Eight matrices over four shards, two on each: nothing has to move."""
    holders = [0, 0, 1, 1, 2, 2, 3, 3]
    matrices = tuple(
        Matrix(tuple(16 if s == holder else 0 for s in range(4)), 16)
        for holder in holders
    )
    (each,) = schedule(matrices, (1,) * 8, 1, 4)
    assert list(each.owners) == holders


def test_chunks_are_those_of_torch():
    for length in range(0, 40):
        for parts in range(1, 10):
            sizes = (
                [len(c) for c in torch.arange(length).chunk(parts)] if length else []
            )
            sizes += [0] * (parts - len(sizes))
            assert chunks(length, parts) == tuple(sizes)
