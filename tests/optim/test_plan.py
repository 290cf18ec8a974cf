"""What the planner chooses, what it says about it, and what is refused."""

import pytest
import torch

from stacklm.optim import (
    Muon,
    choose_method,
    format_plans,
    newton_schulz_flops,
    orthogonalize_bucketed,
    plan_newton_schulz,
    zeropower_via_newtonschulz5,
)
from stacklm.optim.plan import MAX_STACK_BYTES, fastest_stack_bytes

CPU, CUDA = torch.device("cpu"), torch.device("cuda")
METHODS = ("direct", "direct-mirrored", "gram", "gram-mirrored")
BLOCK_OF_STACK_100M = [(512, 512)] * 2 + [(128, 512)] * 2 + [(1408, 512)] * 2
STACK_100M = 30 * [*BLOCK_OF_STACK_100M, (512, 1408)]


@pytest.mark.parametrize(
    ("shape", "dtype", "device", "method"),
    [
        ((512, 1408), torch.float32, CPU, "gram-mirrored"),
        ((512, 512), torch.float32, CPU, "direct-mirrored"),
        ((512, 768), torch.float32, CPU, "direct-mirrored"),  # at break-even
        ((512, 769), torch.float32, CPU, "gram-mirrored"),
        ((255, 1408), torch.float32, CPU, "direct"),  # less than two blocks
        ((128, 512), torch.float32, CPU, "direct"),
        ((512, 1408), torch.float64, CPU, "direct"),
        ((512, 1408), torch.bfloat16, CPU, "direct-mirrored"),  # too coarse for Gram
        ((255, 1408), torch.bfloat16, CPU, "direct"),
        ((512, 1408), torch.float16, CPU, "direct"),
        ((512, 1408), torch.float32, CUDA, "gram"),
        ((128, 512), torch.float32, CUDA, "gram"),
        ((512, 512), torch.float32, CUDA, "direct"),
        ((512, 1408), torch.bfloat16, CUDA, "direct"),
        ((512, 1408), torch.float32, torch.device("meta"), "direct"),
    ],
)
def test_auto_by_shape_dtype_and_device(shape, dtype, device, method):
    assert choose_method(*shape, dtype, device) == method


def test_tf32_is_too_coarse_for_a_gram_matrix(monkeypatch):
    assert choose_method(512, 1408, torch.float32, CUDA) == "gram"
    monkeypatch.setattr("stacklm.optim.plan.allows_tf32", lambda: True)
    assert choose_method(512, 1408, torch.float32, CUDA) == "direct"
    assert choose_method(512, 1408, torch.float32, CPU) == "gram-mirrored"


def test_stack_100m_makes_three_classes_and_saves_two_fifths():
    dirs = [torch.empty(shape, device="meta") for shape in STACK_100M]
    plans = plan_newton_schulz(dirs, max_stack_bytes=6 * 2**20)
    assert [(p.rows, p.cols, len(p.members)) for p in plans] == [
        (512, 512, 60),
        (128, 512, 60),
        (512, 1408, 90),
    ]
    assert sorted(i for p in plans for i in p.members) == list(range(210))
    assert [p.per_stack for p in plans] == [6, 24, 2]
    chosen = {"direct-mirrored": 60, "direct": 60, "gram-mirrored": 90}
    shapes = [(512, 512), (128, 512), (512, 1408)]
    flops = sum(
        count * newton_schulz_flops(*shape, method=method)
        for shape, (method, count) in zip(shapes, chosen.items(), strict=True)
    )
    assert flops / 1.038e12 == pytest.approx(0.597, abs=1e-3)


def test_the_number_of_matrices_changes_the_stacks_only():
    one, many = (
        plan_newton_schulz([torch.empty(512, 1408)] * count, max_stack_bytes=2**30)[0]
        for count in (1, 400)
    )
    assert (one.method, one.per_stack) == (many.method, many.per_stack)
    assert [len(s) for s in many.stacks()] == [372, 28]  # 1 GiB, then the rest
    assert one.stacks() == [(0,)]


def test_on_a_cpu_a_stack_has_a_few_mebibytes_for_every_thread(monkeypatch):
    for threads in (1, 3):
        monkeypatch.setattr(torch, "get_num_threads", lambda n=threads: n)
        plan = plan_newton_schulz([torch.empty(512, 512)] * 20)[0]
        assert plan.per_stack == 3 * threads
        half = plan_newton_schulz([torch.empty(512, 512)], ns_dtype=torch.bfloat16)[0]
        assert half.per_stack == plan.per_stack  # its norms are taken in fp32
    assert fastest_stack_bytes(torch.device("cuda")) == MAX_STACK_BYTES
    meta = torch.empty(512, 512, device="meta")
    assert plan_newton_schulz([meta])[0].per_stack == 1024


def test_the_plan_that_is_printed_is_the_one_that_runs(monkeypatch):
    ran = []

    def spy(stack, steps, method):
        ran.append((tuple(stack.shape), method))
        return stack

    monkeypatch.setattr("stacklm.optim.newton_schulz._iterate", spy)
    dirs = [torch.ones(256, 512), torch.ones(64, 96), torch.ones(512, 256)]
    orthogonalize_bucketed(dirs)
    plans = plan_newton_schulz(dirs)
    assert ran == [
        ((len(stack), p.rows, p.cols), p.method) for p in plans for stack in p.stacks()
    ]


def test_the_table_has_a_row_per_class():
    dirs = [torch.empty(1408, 512), torch.empty(512, 1408), torch.empty(64, 64)]
    plans = plan_newton_schulz(dirs, max_stack_bytes=2**30)
    head, first, second = format_plans(plans).splitlines()
    titles = "count shape dtype device method stack GFLOP of direct"
    assert " ".join(head.split()) == titles
    row = "2 512 x 1408 float32 cpu gram-mirrored 372 4.748 0.544"
    assert " ".join(first.split()) == row
    assert second.split()[-3:] == ["65536", "0.008", "1.000"]
    assert format_plans([]).split()[0] == "count"
    assert not any(line != line.rstrip() for line in (head, first, second))


def test_the_table_counts_the_steps_of_the_plan_in_units_of_1e9_flop():
    huge = torch.empty(2**17, 2**17, device="meta")  # 1 in 1e9 shows in its digits
    row = format_plans(plan_newton_schulz([huge], 3, ns_method="direct")).split()
    assert row[-2:] == [f"{3 * 6 * 2**51 / 1e9:.3f}", "1.000"]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("shape", [(300, 520), (520, 300), (256, 256), (40, 64)])
@pytest.mark.parametrize("steps", [0, 1, 3, 5, 7])
def test_flops_are_those_that_torch_counts(method, shape, steps):
    from torch.utils.flop_counter import FlopCounterMode

    G = torch.ones(shape)
    with FlopCounterMode(display=False) as counter:
        zeropower_via_newtonschulz5(G, steps, ns_method=method)
    want = newton_schulz_flops(*shape, steps, method)
    assert counter.get_total_flops() == want


def test_gram_breaks_even_at_one_and_a_half():
    def saved(cols):
        gram = newton_schulz_flops(512, cols, method="gram")
        return newton_schulz_flops(512, cols) - gram

    assert saved(768) == 0
    assert saved(767) < 0 < saved(769)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("method", ["gram", "gram-mirrored"])
def test_a_gram_matrix_in_half_precision_is_refused(dtype, method):
    message = f'"{method}" needs at least float32, .*{dtype}; take "direct"'
    for call in (
        lambda: zeropower_via_newtonschulz5(
            torch.ones(2, 3), ns_dtype=dtype, ns_method=method
        ),
        lambda: Muon([torch.ones(2, 3)], ns_dtype=dtype, ns_method=method),
    ):
        with pytest.raises(ValueError, match=message):
            call()


def test_what_is_no_matrix_is_refused_before_planning():
    with pytest.raises(ValueError, match="reshape it to matrices"):
        plan_newton_schulz([torch.ones(3)])
    with pytest.raises(ValueError, match=r'"auto", "direct", .*, got \'fast\''):
        plan_newton_schulz([torch.ones(3, 3)], ns_method="fast")
