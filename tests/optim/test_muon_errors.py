"""What Muon refuses, and that it refuses before anything changes."""

import pytest
import torch
from torch import nn

from stacklm.optim import Muon


def make(*shape, dtype=torch.float32):
    return nn.Parameter(torch.ones(shape, dtype=dtype), requires_grad=False)


DTYPES = "torch.float16, torch.bfloat16, torch.float32, torch.float64"
A_STACK = r'a stack of matrices with \{"params": \[\.{3}\], "stacked": True\}$'
SHAPES = [
    ("norm.weight", make(5), False, r"norm.weight of shape \(5,\); route it to AdamW$"),
    ("scale", make(), False, r"scale of shape \(\); route it to AdamW$"),
    ("w", make(64, 1, 3, 3), False, r"w of shape \(64, 1, 3, 3\); route it to AdamW$"),
    ("moe", make(4, 2, 3), False, r"moe of .*\(4, 2, 3\).*" + A_STACK),
    ("value.weight", make(1, 5), False, r"value.weight of shape \(1, 5\), a vector"),
    ("q.weight", make(5, 1), False, r"q.weight of shape \(5, 1\), a vector"),
    (
        "w",
        make(2, 3),
        True,
        r'w of shape \(2, 3\); put it in a group without "stacked"',
    ),
    ("gain", make(4, 1, 3), True, r"gain of shape \(4, 1, 3\), a vector"),
    ("w", nn.UninitializedParameter(), False, "w not initialized; run one forward"),
]
KINDS = [
    ("w", make(2, 3, dtype=torch.complex64), "w of dtype torch.complex64; route it"),
    ("w", make(2, 3, dtype=torch.int64), "w of dtype torch.int64; route it to AdamW"),
    ("w", torch.ones(2, 3).to_sparse(), "w of layout torch.sparse_coo; route it"),
    ("w", [[1.0]], "w of type list"),
]


@pytest.mark.parametrize(("name", "p", "stacked", "message"), SHAPES)
def test_shapes_that_are_no_matrix(name, p, stacked, message):
    with pytest.raises(ValueError, match=message):
        Muon([{"params": [("ok", make(*[4, 4, 4][not stacked :])), (name, p)],
               "stacked": stacked}])  # fmt: skip


@pytest.mark.parametrize(("name", "p", "message"), KINDS)
def test_parameters_of_another_kind(name, p, message):
    with pytest.raises(TypeError, match=message):
        Muon([(name, p)])


def test_without_names_the_place_is_named():
    with pytest.raises(ValueError, match=r"parameter 1 of shape \(3,\)"):
        Muon([make(2, 2), make(3)])


def test_named_parameters_of_a_module():
    with pytest.raises(ValueError, match=r"got bias of shape \(4,\)"):
        Muon(nn.Linear(4, 4).named_parameters())


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"lr": -0.1}, ValueError, "lr must be finite and at least 0, got -0.1"),
        ({"lr": float("nan")}, ValueError, "lr must be finite"),
        ({"lr": "0.1"}, TypeError, "lr must be a number, got '0.1'"),
        ({"lr": torch.tensor(-1.0)}, ValueError, "lr must be finite .* got -1.0"),
        ({"lr": torch.ones(2)}, ValueError, r"one element, got shape \(2,\)"),
        ({"lr": torch.tensor(1)}, TypeError, "must be floating point, got torch.int64"),
        ({"momentum": 1.0}, ValueError, r"momentum must be in \[0, 1\), got 1.0"),
        ({"momentum": -0.1}, ValueError, "momentum must be finite and at least 0"),
        ({"momentum": torch.tensor(0.9)}, TypeError, "momentum must be a number"),
        ({"weight_decay": -1}, ValueError, "weight_decay must be .* got -1"),
        ({"weight_decay": float("inf")}, ValueError, "weight_decay must be finite"),
        ({"nesterov": 1}, TypeError, "nesterov must be one of"),
        ({"batched": "yes"}, TypeError, "batched must be one of .* got 'yes'"),
        ({"ns_steps": 0}, ValueError, "ns_steps must be at least 1, got 0"),
        ({"ns_steps": 2.5}, TypeError, "ns_steps must be an int, got 2.5"),
        (
            {"ns_dtype": torch.int8},
            ValueError,
            f"ns_dtype must be None or one of {DTYPES}, got torch.int8",
        ),
        ({"ns_method": "svd"}, ValueError, r'"auto", "direct", .*, got \'svd\''),
    ],
)
def test_hyperparameters_out_of_range(options, error, message):
    with pytest.raises(error, match=message):
        Muon([make(2, 2)], **options)
    muon = Muon([make(2, 2)])
    with pytest.raises(error, match=message):  # the same, given for a group
        muon.add_param_group({"params": [make(2, 2)], **options})
    assert len(muon.param_groups) == 1


def test_a_refused_group_leaves_the_optimizer_and_the_callers_dict_as_they_were():
    muon = Muon([make(2, 2)])
    group = {"params": iter([make(2, 2), make(3)])}
    with pytest.raises(ValueError, match="parameter 1 of shape"):
        muon.add_param_group(group)
    assert len(muon.param_groups) == 1
    assert set(group) == {"params"}
    muon.add_param_group({"params": make(2, 3), "lr": 0.5})  # one tensor, as torch does
    assert [g["lr"] for g in muon.param_groups] == [0.02, 0.5]
    with pytest.raises(TypeError, match="a parameter group is a dict"):
        muon.add_param_group([make(2, 2)])


def test_a_lone_vector_as_group_is_refused_too():
    with pytest.raises(ValueError, match=r"parameter 0 of shape \(3,\)"):
        Muon([{"params": make(3)}])


def test_what_torch_refuses_for_every_optimizer():
    with pytest.raises(TypeError, match="iterable of Tensors"):
        Muon(make(2, 2))
    with pytest.raises(ValueError, match="empty parameter list"):
        Muon([])
    with pytest.raises(TypeError, match="ordered collections"):
        Muon([{"params": {make(2, 2)}}])
    p = make(2, 2)
    with pytest.raises(ValueError, match="more than one parameter group"):
        Muon([{"params": [p]}, {"params": [p]}])


def test_what_torch_would_pass_over_in_a_group():
    with pytest.raises(ValueError, match="got maximize=True; negate the loss"):
        Muon([{"params": [make(2, 2)], "maximize": True}])
    with pytest.raises(ValueError, match=r'needs "params", got only \[\'lr\'\]'):
        Muon([{"lr": 0.1}])


def test_a_parameter_given_twice_would_step_twice():
    p = make(2, 2)
    with pytest.raises(ValueError, match="got b twice; give it once"):
        Muon([("a", p), ("b", p)])


def test_sparse_gradient_in_the_last_group_changes_nothing_in_the_first():
    first, last = make(2, 2), make(2, 2)
    muon = Muon([{"params": [("first", first)]}, {"params": [("last", last)]}])
    first.grad = torch.ones(2, 2)
    last.grad = torch.ones(2, 2).to_sparse()
    with pytest.raises(TypeError, match=r"sparse_coo for last; build .* sparse=False"):
        muon.step()
    assert torch.equal(first, torch.ones(2, 2))
    assert not muon.state


def test_complex_gradients_are_refused():
    p = make(2, 2)
    p.grad_dtype = torch.complex64
    p.grad = torch.ones(2, 2, dtype=torch.complex64)
    with pytest.raises(
        TypeError, match=r"got torch.complex64 for w; route it to AdamW"
    ):
        Muon([("w", p)]).step()


def stepped():
    """A Muon after one step, and its two parameters with their gradients."""
    torch.manual_seed(0)
    first, last = nn.Parameter(torch.randn(4, 6)), nn.Parameter(torch.randn(4, 6))
    muon = Muon([("first", first), ("last", last)])
    first.grad, last.grad = torch.randn(4, 6), torch.randn(4, 6)
    muon.step()
    return muon, first, last


def swap_shape(p):
    p.data = torch.randn(6, 4)


def swap_shape_and_gradient(p):
    p.grad, p.data = None, torch.randn(6, 4)
    p.grad = torch.randn(6, 4)


def move(p):
    torch.utils.swap_tensors(p, nn.Parameter(torch.empty(4, 6, device="meta")))
    p.grad = torch.empty_like(p)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (swap_shape, r"last is of shape \(6, 4\) on cpu, its gradient of .*\(4, 6\)"),
        (swap_shape_and_gradient, r"last .* its momentum of shape \(4, 6\) on cpu"),
        (move, r"last .* on meta, its momentum .* on cpu; build Muon after moving"),
    ],
)
def test_a_model_changed_under_the_optimizer_is_refused_before_any_step(
    change, message
):
    muon, first, last = stepped()
    change(last)
    weights = first.detach().clone()
    momentum = muon.state[first]["momentum_buffer"].clone()
    with pytest.raises(ValueError, match=message):
        muon.step()
    assert torch.equal(first, weights)
    assert torch.equal(muon.state[first]["momentum_buffer"], momentum)


def test_empty_parameters_are_no_error():
    p = nn.Parameter(torch.empty(0, 4))
    stack = nn.Parameter(torch.empty(0, 4, 4))
    muon = Muon([{"params": [p]}, {"params": [stack], "stacked": True}])
    p.grad, stack.grad = torch.empty(0, 4), torch.empty(0, 4, 4)
    muon.step()
    assert p.shape == (0, 4)
