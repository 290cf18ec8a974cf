"""Checkpoints: resume exactly, keep momentum's precision, refuse what is not ours."""

import pytest
import torch

from stacklm.optim import Muon

SHAPES = [(8, 24), (24, 8), (16, 16)]


def parameters(dtype=torch.float32):
    torch.manual_seed(0)
    return [torch.nn.Parameter(torch.randn(shape).to(dtype)) for shape in SHAPES]


def advance(muon, params, steps):
    for step in steps:
        generator = torch.Generator().manual_seed(step)
        for p in params:
            p.grad = torch.randn(p.shape, generator=generator).to(p.dtype)
        muon.step()


def resumed(muon, params, **options):
    """A second process: the weights copied, a new optimizer, the state loaded."""
    copies = [torch.nn.Parameter(p.detach().clone()) for p in params]
    other = Muon(copies, **options)
    other.load_state_dict(muon.state_dict())
    return other, copies


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_a_resumed_run_gives_the_same_bits(dtype, tmp_path):
    params = parameters(dtype)
    muon = Muon(params, lr=0.05, momentum=0.9)
    advance(muon, params, range(3))
    torch.save(muon.state_dict(), tmp_path / "muon.pt")
    copies = [torch.nn.Parameter(p.detach().clone()) for p in params]
    other = Muon(copies)
    other.load_state_dict(torch.load(tmp_path / "muon.pt", weights_only=True))
    assert other.param_groups[0]["momentum"] == 0.9  # options travel too
    advance(muon, params, range(3, 6))
    advance(other, copies, range(3, 6))
    assert all(torch.equal(p, q) for p, q in zip(params, copies, strict=True))


def test_state_is_one_buffer_b_of_the_parameters_shape():
    params = parameters()
    muon = Muon(params, momentum=0.5)
    total = [torch.zeros_like(p) for p in params]
    for step in range(3):
        advance(muon, params, [step])
        total = [0.5 * B + p.grad for B, p in zip(total, params, strict=True)]
    for p, B in zip(params, total, strict=True):
        assert list(muon.state[p]) == ["momentum_buffer"]
        torch.testing.assert_close(muon.state[p]["momentum_buffer"], B.detach())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_momentum_of_half_parameters_stays_fp32_through_a_load(dtype):
    params = parameters(dtype)
    muon = Muon(params)
    advance(muon, params, range(3))
    other, copies = resumed(muon, params)
    for p, q in zip(params, copies, strict=True):
        B = other.state[q]["momentum_buffer"]
        assert B.dtype == torch.float32
        assert torch.equal(B, muon.state[p]["momentum_buffer"])
        assert not torch.equal(B, B.to(dtype).float())  # the cast would have lost bits


@pytest.mark.parametrize(
    ("dtype", "saved", "loaded"),
    [
        (torch.bfloat16, torch.bfloat16, torch.float32),
        (torch.float32, torch.bfloat16, torch.float32),
        (torch.float32, torch.float64, torch.float32),
        (torch.float64, torch.float32, torch.float64),
    ],
)
def test_momentum_saved_in_another_dtype_takes_the_parameters(dtype, saved, loaded):
    p = torch.nn.Parameter(torch.ones(2, 4, dtype=dtype))
    B = torch.arange(8.0).reshape(2, 4).to(saved)
    muon = Muon([p])
    groups = muon.state_dict()["param_groups"]
    muon.load_state_dict({"state": {0: {"momentum_buffer": B}}, "param_groups": groups})
    got = muon.state[p]["momentum_buffer"]
    assert got.dtype == loaded
    assert torch.equal(got, B.to(loaded))


def test_momentum_goes_to_the_device_of_its_parameter():
    params = parameters()
    muon = Muon(params)
    advance(muon, params, [0])
    # "meta" stands in for another device: what is on it has a shape and no values.
    elsewhere = [torch.nn.Parameter(p.detach().to("meta")) for p in params]
    other = Muon(elsewhere)
    other.load_state_dict(muon.state_dict())
    buffers = [other.state[p]["momentum_buffer"] for p in elsewhere]
    assert [(B.device.type, B.shape) for B in buffers] == [
        ("meta", torch.Size(shape)) for shape in SHAPES
    ]


def test_a_loaded_state_shares_no_memory():
    params = parameters()
    muon = Muon(params)
    advance(muon, params, [0])
    other, copies = resumed(muon, params)
    saved = muon.state[params[0]]["momentum_buffer"].clone()
    advance(other, copies, [1])
    assert torch.equal(muon.state[params[0]]["momentum_buffer"], saved)


@pytest.mark.parametrize(("one", "two"), [(True, False), (False, True), (None, True)])
def test_looped_state_loads_into_batched_and_keeps_its_way(one, two):
    params = parameters()
    muon = Muon(params, batched=one)
    advance(muon, params, range(2))
    other, copies = resumed(muon, params, batched=two)
    assert other.param_groups[0]["batched"] is two
    advance(muon, params, range(2, 4))
    advance(other, copies, range(2, 4))
    for p, q in zip(params, copies, strict=True):
        torch.testing.assert_close(p, q, atol=1e-6, rtol=0)


def test_stacked_groups_round_trip():
    torch.manual_seed(0)
    stack = torch.nn.Parameter(torch.randn(3, 4, 6))
    muon = Muon([{"params": [("experts", stack)], "stacked": True}])
    advance(muon, [stack], range(2))
    copy = torch.nn.Parameter(stack.detach().clone())
    other = Muon([{"params": [("experts", copy)], "stacked": True}])
    other.load_state_dict(muon.state_dict())
    assert other.param_groups[0]["param_names"] == ["experts"]
    for optimizer, p in ((muon, stack), (other, copy)):
        advance(optimizer, [p], [2])
    assert torch.equal(stack, copy)


def test_a_state_with_gaps_or_missing_options_loads():
    params = parameters()
    muon = Muon(params)
    for p in params[:2]:
        p.grad = torch.ones_like(p)
    muon.step()
    state = muon.state_dict()
    del state["param_groups"][0]["ns_method"]  # as if saved before it existed
    copies = [torch.nn.Parameter(p.detach().clone()) for p in params]
    other = Muon(copies)
    other.load_state_dict(state)
    assert copies[2] not in other.state
    assert other.param_groups[0]["ns_method"] == "auto"
    advance(other, copies, [0])


def test_hooks_of_others_still_run_and_see_the_loaded_state():
    params = parameters(torch.bfloat16)  # torch would show them momentum in bf16
    muon = Muon(params)
    advance(muon, params, [0])
    other = Muon(params)
    seen = []

    def halve(_, state):
        return {**state, "param_groups": [{**state["param_groups"][0], "lr": 0.5}]}

    other.register_load_state_dict_pre_hook(halve)
    other.register_load_state_dict_post_hook(
        lambda o: seen.append(o.state[params[0]]["momentum_buffer"].clone())
    )
    for _ in range(2):
        other.load_state_dict(muon.state_dict())
    assert other.param_groups[0]["lr"] == 0.5
    assert [B.dtype for B in seen] == 2 * [torch.float32]
    assert torch.equal(seen[0], muon.state[params[0]]["momentum_buffer"])


def test_zero_lr_and_zero_gradients_make_state_without_moving():
    """How torch.distributed.checkpoint makes a fresh optimizer's state to load into."""
    params = parameters()
    before = [p.detach().clone() for p in params]
    muon = Muon(params, lr=0.0)
    for p in params:
        p.grad = torch.zeros_like(p)
    muon.step()
    assert all(torch.equal(p, w) for p, w in zip(params, before, strict=True))
    assert len(muon.state) == 3


def other_optimizers():
    """States that torch itself would load: of SGD with momentum, and without state."""
    (p,) = parameters()[:1]
    p.grad = torch.ones_like(p)
    sgd = torch.optim.SGD([p], lr=0.1, momentum=0.9)
    sgd.step()
    return [sgd, torch.optim.SGD([p], lr=0.1), torch.optim.AdamW([p], lr=0.1)]


@pytest.mark.parametrize("case", range(3))
def test_the_state_of_another_optimizer_is_refused(case):
    muon = Muon(parameters()[:1])
    with pytest.raises(ValueError, match="this is no state of Muon, its groups have"):
        muon.load_state_dict(other_optimizers()[case].state_dict())
    assert muon.param_groups[0]["lr"] == 0.02
    assert "dampening" not in muon.param_groups[0]


def test_what_is_no_optimizer_state_is_refused():
    with pytest.raises(ValueError, match=r"state and param_groups, this has \['w'\]"):
        Muon(parameters()).load_state_dict({"w": torch.ones(2, 2)})


def test_parameters_in_another_order_would_swap_their_momentum():
    a, b = (torch.nn.Parameter(torch.randn(4, 4)) for _ in range(2))
    muon = Muon([("a", a), ("b", b)])
    advance(muon, [a, b], [0])
    other = Muon([("b", b), ("a", a)])
    with pytest.raises(ValueError, match="the state has a where this Muon has b"):
        other.load_state_dict(muon.state_dict())
    assert not other.state
    renamed = Muon([("module.a", a), ("module.b", b)])  # as DDP does; the order holds
    renamed.load_state_dict(muon.state_dict())
    B = muon.state[b]["momentum_buffer"]
    assert torch.equal(renamed.state[b]["momentum_buffer"], B)
    Muon([b, a]).load_state_dict(muon.state_dict())  # no names, nothing to compare


@pytest.mark.parametrize(
    ("buffer", "found"),
    [
        ([1.0], "a list"),
        (torch.ones(8, 24, dtype=torch.complex64), "complex64"),
        (torch.ones(8, 24).to_sparse(), "sparse_coo"),
    ],
)
def test_momentum_that_is_no_dense_real_tensor_is_refused(buffer, found):
    muon = Muon(parameters())
    groups = muon.state_dict()["param_groups"]
    state = {"state": {0: {"momentum_buffer": buffer}}, "param_groups": groups}
    with pytest.raises(ValueError, match=rf"needs a momentum_buffer of .*{found}"):
        muon.load_state_dict(state)


def broken_states(muon):
    good = muon.state_dict()
    group, state = good["param_groups"][0], good["state"]
    theirs = {**group, "adjust_lr_fn": None}
    short = {**group, "params": [0]}
    wrong = {**state, 1: {"momentum_buffer": torch.zeros(3, 3)}}
    adamw = {**state, 1: {"exp_avg": torch.zeros(24, 8), "step": 1}}
    return [
        ({"state": state, "param_groups": [theirs]}, "convert it with from_torch_muon"),
        ({"state": state, "param_groups": [short]}, r"groups of \[1\].*of \[3\]"),
        ({"state": state, "param_groups": [group, group]}, r"\[3, 3\].*of \[3\]"),
        ({"state": wrong, "param_groups": [group]}, r"w1 .*\(24, 8\).*\(3, 3\)"),
        ({"state": adamw, "param_groups": [group]}, r"w1 .*keys \['exp_avg', 'step'\]"),
        ({"state": state, "param_groups": [{**group, "lr": -1}]}, "lr must be finite"),
    ]


@pytest.mark.parametrize("case", range(6))
def test_a_state_that_is_not_this_muons_is_refused_and_changes_nothing(case):
    params = parameters()
    muon = Muon([(f"w{i}", p) for i, p in enumerate(params)])
    advance(muon, params, [0])
    state, message = broken_states(muon)[case]
    before = {p: s["momentum_buffer"].clone() for p, s in muon.state.items()}
    with pytest.raises(ValueError, match=message):
        muon.load_state_dict(state)
    assert muon.param_groups[0]["lr"] == 0.02
    for p, B in before.items():
        assert torch.equal(muon.state[p]["momentum_buffer"], B)
    assert not muon._optimizer_load_state_dict_pre_hooks
    assert not muon._optimizer_load_state_dict_post_hooks
