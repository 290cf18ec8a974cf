"""What ranks compare before a step, and what they share work out by, without ranks."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from stacklm.optim import Muon, newton_schulz_flops
from stacklm.optim.layout import Matrix
from stacklm.optim.pieces import _flops, facts_of, rate_on


def groups(lr=0.5):
    """A group of a matrix with a gradient and one without, and a group of a stack."""
    a, b, c = (torch.nn.Parameter(torch.ones(s)) for s in [(4, 6), (3, 2), (2, 4, 4)])
    a.grad, c.grad = torch.ones(4, 6), torch.ones(2, 4, 4)
    wanted = [
        {"params": [("a", a), ("b", b)], "lr": lr},
        {"params": [("c", c)], "stacked": True},
    ]
    options = {"momentum": 0.75, "nesterov": False, "weight_decay": 0.25}
    return Muon(wanted, **options, ns_steps=3, ns_dtype=torch.float64).param_groups


def test_facts_are_a_line_per_option_and_parameter():
    assert facts_of(groups()) == [
        "group 0 with momentum 0.75",
        "group 0 with nesterov False",
        "group 0 with weight_decay 0.25",
        "group 0 with ns_steps 3",
        "group 0 with stacked False",
        "group 0 with ns_dtype torch.float64",
        "group 0 with ns_method auto",
        "group 0 with lr 0.5",
        "a with a gradient, shape (4, 6), torch.float32, a copy",
        "b with no gradient, shape (3, 2), torch.float32, a copy",
        "group 1 with momentum 0.75",
        "group 1 with nesterov False",
        "group 1 with weight_decay 0.25",
        "group 1 with ns_steps 3",
        "group 1 with stacked True",
        "group 1 with ns_dtype torch.float64",
        "group 1 with ns_method auto",
        "group 1 with lr 0.02",
        "c with a gradient, shape (2, 4, 4), torch.float32, a copy",
    ]


def test_facts_name_parameters_by_their_place_if_they_have_no_names():
    p = torch.nn.Parameter(torch.ones(2, 2))
    assert facts_of(Muon([p]).param_groups)[-1] == (
        "parameter 0 with no gradient, shape (2, 2), torch.float32, a copy"
    )


def test_facts_read_a_tensor_rate_on_the_cpu_and_no_other():
    assert "group 0 with lr 0.125" in facts_of(groups(torch.tensor(0.125)))
    # A rate on an accelerator would have to be waited for; "meta" stands in for one.
    elsewhere = facts_of(groups(torch.tensor(0.125, device="meta")))
    assert not [line for line in elsewhere if line.startswith("group 0 with lr")]
    assert len(elsewhere) == len(facts_of(groups())) - 1


@pytest.mark.parametrize(
    ("rows", "cols", "dtype", "method", "form"),
    [
        ((4, 2), 20, None, "direct", "direct"),
        ((4, 2), 20, None, "gram", "gram"),
        ((300, 212), 1408, None, "auto", "gram-mirrored"),  # long, fp32
        ((1000, 408), 512, None, "auto", "gram-mirrored"),  # and tall
        ((300, 212), 512, None, "auto", "direct-mirrored"),
        ((300, 212), 1408, torch.bfloat16, "auto", "direct-mirrored"),
        ((300, 212), 1408, torch.float64, "auto", "direct"),
    ],
)
def test_work_is_counted_in_flops_of_the_whole_matrix(rows, cols, dtype, method, form):
    group = {"ns_method": method, "ns_dtype": dtype, "ns_steps": 4}
    look = torch.zeros(rows[0], cols)
    want = newton_schulz_flops(sum(rows), cols, 4, form)
    assert _flops(Matrix(rows, cols), look, group) == want


def test_work_without_ns_dtype_is_by_the_dtype_of_the_momentum():
    group = {"ns_method": "auto", "ns_dtype": None, "ns_steps": 5}
    matrix = Matrix((512,), 1408)
    single, double = (
        _flops(matrix, torch.zeros(512, 1408, dtype=dtype), group)
        for dtype in (torch.float32, torch.float64)
    )
    assert single == newton_schulz_flops(512, 1408, 5, "gram-mirrored")
    assert double == newton_schulz_flops(512, 1408, 5, "direct")


def test_a_rate_on_the_cpu_is_a_number_and_one_elsewhere_goes_to_the_matrices():
    cpu, second = torch.device("cpu"), torch.device("cuda:1")
    for lr in (0.125, torch.tensor(0.125), torch.tensor([0.125])):
        found = rate_on(lr, cpu)
        assert type(found) is float
        assert found == 0.125
    with FakeTensorMode():  # devices and shapes without the devices
        lr = torch.ones(1, device="cuda:0", requires_grad=True)
        found = rate_on(lr, second)
        assert (found.device, found.shape, found.requires_grad) == (second, (), False)
