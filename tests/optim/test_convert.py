"""A run of torch.optim.Muon goes on with ours, and back."""

import pytest
import torch

from stacklm.optim import (
    Muon,
    convert_muon_lr,
    from_torch_muon_state,
    groups_by_columns,
    muon_scale,
    to_torch_muon_state,
    zeropower_via_newtonschulz5,
)

SHAPES = [(8, 24), (24, 8), (16, 16), (40, 8)]


@pytest.fixture(autouse=True)
def torch_iterates_like_us(monkeypatch):
    """Precision aside, what torch computes; its bf16 is measured elsewhere."""
    monkeypatch.setattr(
        torch.optim._muon,
        "_zeropower_via_newtonschulz",
        lambda G, coefficients, steps, eps: zeropower_via_newtonschulz5(G, steps),
    )


def named(shapes=SHAPES):
    torch.manual_seed(0)
    return [(f"w{i}", torch.nn.Parameter(torch.randn(s))) for i, s in enumerate(shapes)]


def copies(pairs):
    return [(name, torch.nn.Parameter(p.detach().clone())) for name, p in pairs]


def advance(optimizer, pairs, steps):
    for step in steps:
        generator = torch.Generator().manual_seed(step)
        for _, p in pairs:
            p.grad = torch.randn(p.shape, generator=generator)
        optimizer.step()


def same_weights(a, b):
    # fp32 rounding in another order, grown by five steps.
    for (_, p), (_, q) in zip(a, b, strict=True):
        torch.testing.assert_close(p, q, atol=2e-6, rtol=0)


def torch_muon(groups, rule, **options):
    return torch.optim.Muon(groups, lr=0.03, adjust_lr_fn=rule, **options)


@pytest.mark.parametrize("rule", ["match_rms_adamw", "original", None])
def test_a_torch_run_goes_on_with_ours(rule):
    pairs = named()
    theirs = torch_muon(groups_by_columns(pairs), rule, momentum=0.9, weight_decay=0.2)
    advance(theirs, pairs, range(3))
    mine = copies(pairs)
    ours = Muon(groups_by_columns(mine))
    ours.load_state_dict(from_torch_muon_state(theirs.state_dict()))
    assert ours.param_groups[0]["momentum"] == 0.9
    advance(theirs, pairs, range(3, 6))
    advance(ours, mine, range(3, 6))
    same_weights(mine, pairs)


@pytest.mark.parametrize("rule", ["match_rms_adamw", "original"])
def test_our_run_goes_on_with_torch(rule):
    pairs = named()
    ours = Muon(groups_by_columns(pairs), lr=0.03, momentum=0.9, weight_decay=0.2)
    advance(ours, pairs, range(3))
    their_pairs = copies(pairs)
    theirs = torch_muon(groups_by_columns(their_pairs), rule)
    theirs.load_state_dict(to_torch_muon_state(ours.state_dict(), adjust_lr_fn=rule))
    advance(ours, pairs, range(3, 6))
    advance(theirs, their_pairs, range(3, 6))
    same_weights(their_pairs, pairs)


def test_the_buffer_is_one_minus_mu_times_ours():
    pairs, mine = named(), named()
    theirs = torch_muon([{"params": pairs}], "match_rms_adamw", momentum=0.95)
    ours = Muon([{"params": mine}], lr=0.03)
    advance(theirs, pairs, range(4))
    advance(ours, mine, range(4))
    converted = from_torch_muon_state(theirs.state_dict())["state"]
    for i, ((_, p), (_, q)) in enumerate(zip(pairs, mine, strict=True)):
        B = ours.state[q]["momentum_buffer"]
        torch.testing.assert_close(theirs.state[p]["momentum_buffer"], 0.05 * B)
        torch.testing.assert_close(converted[i]["momentum_buffer"], B)


def test_there_and_back_is_the_same_state_and_nothing_is_shared():
    pairs = named()
    ours = Muon(groups_by_columns(pairs), lr=0.03)
    advance(ours, pairs, range(2))
    before = ours.state_dict()
    there = to_torch_muon_state(before, adjust_lr_fn="original")
    back = from_torch_muon_state(there)
    for i, entry in before["state"].items():
        torch.testing.assert_close(back["state"][i], entry)
        back["state"][i]["momentum_buffer"].zero_()
        there["state"][i]["momentum_buffer"].zero_()
        assert entry["momentum_buffer"].abs().sum() > 0
    for theirs, mine in zip(back["param_groups"], before["param_groups"], strict=True):
        assert theirs["lr"] == pytest.approx(mine["lr"])
        assert theirs["weight_decay"] == pytest.approx(mine["weight_decay"])
        assert theirs["params"] == mine["params"]
        assert theirs["param_names"] == mine["param_names"]


def test_a_schedulers_initial_lr_is_converted_too():
    pairs = named([(8, 24)])
    theirs = torch_muon([{"params": pairs}], "original")
    torch.optim.lr_scheduler.LambdaLR(theirs, lambda t: 0.5)
    advance(theirs, pairs, [0])
    (group,) = from_torch_muon_state(theirs.state_dict())["param_groups"]
    assert group["initial_lr"] == pytest.approx(0.03 * 5 / 24**0.5)
    assert group["lr"] == pytest.approx(0.015 * 5 / 24**0.5)
    assert group["lr"] * group["weight_decay"] == pytest.approx(0.015 * 0.1)


def test_half_precision_buffers_are_divided_in_fp32():
    p = torch.nn.Parameter(torch.randn(4, 6).bfloat16())
    theirs = torch_muon([p], "match_rms_adamw")
    p.grad = torch.randn(4, 6).bfloat16()
    theirs.step()
    B = theirs.state[p]["momentum_buffer"]
    assert B.dtype == torch.bfloat16
    got = from_torch_muon_state(theirs.state_dict())["state"][0]["momentum_buffer"]
    assert torch.equal(got, B.float() / (1 - 0.95))


@pytest.mark.parametrize("shape", [(512, 512), (1408, 512), (512, 1408), (3, 128, 512)])
def test_rates_differ_by_5_over_the_root_of_the_columns(shape):
    m, n = shape[-2:]
    lr = convert_muon_lr(0.02, shape)
    assert lr == pytest.approx(0.02 * 5 / n**0.5)
    assert lr * muon_scale(m, n) == pytest.approx(0.02 * max(1, m / n) ** 0.5)
    assert convert_muon_lr(
        lr, shape, source="match_rms_adamw", target="original"
    ) == pytest.approx(0.02)
    assert convert_muon_lr(0.02, shape, target="original") == 0.02
    assert convert_muon_lr(torch.tensor(0.02), torch.Size(shape)).item() == (
        pytest.approx(lr)
    )


def test_a_single_row_has_a_rate_too():
    assert convert_muon_lr(0.02, (1, 25)) == pytest.approx(0.02)
    assert convert_muon_lr(0.02, (25, 1)) == pytest.approx(0.1)


def test_groups_by_columns_keep_order():
    groups = groups_by_columns(named())
    assert [[name for name, _ in g["params"]] for g in groups] == [
        ["w0"],
        ["w1", "w3"],
        ["w2"],
    ]


def test_a_matrix_without_momentum_may_have_other_columns():
    pairs = named([(8, 24), (24, 8)])
    theirs = torch_muon([{"params": pairs}], "original")
    pairs[0][1].grad = torch.ones(8, 24)
    theirs.step()  # the state knows the columns of the first alone
    with pytest.raises(ValueError, match=r"no momentum for the parameters \[1\]"):
        from_torch_muon_state(theirs.state_dict())


def torch_state(rule="match_rms_adamw", steps=1, **options):
    pairs = named()
    optimizer = torch_muon([{"params": pairs}], rule, **options)
    advance(optimizer, pairs, range(steps))
    return optimizer.state_dict()


def our_state(steps=1, stacked=False):
    pairs = named([(2, 4, 4)] if stacked else SHAPES)
    optimizer = Muon([{"params": pairs, "stacked": stacked}])
    advance(optimizer, pairs, range(steps))
    return optimizer.state_dict()


REFUSED = [
    (lambda: from_torch_muon_state(our_state()), "no state of torch.optim.Muon"),
    (
        lambda: from_torch_muon_state(torch_state(ns_coefficients=(2.0, -1.5, 0.5))),
        r"coefficients .* this state with \(2.0, -1.5, 0.5\)",
    ),
    (
        lambda: from_torch_muon_state(torch_state(momentum=1.0)),
        "momentum must be below 1 to convert, got 1.0",
    ),
    (
        lambda: from_torch_muon_state(torch_state("original")),
        r"matrices of \[8, 16, 24\] columns .* groups_by_columns",
    ),
    (
        lambda: from_torch_muon_state(torch_state("original", steps=0)),
        r"no momentum for the parameters \[0, 1, 2, 3\].*take one step",
    ),
    (lambda: to_torch_muon_state(torch_state()), "no state of stacklm.optim.Muon"),
    (lambda: to_torch_muon_state(our_state(stacked=True)), "has no stacks"),
    (
        lambda: to_torch_muon_state(our_state(), adjust_lr_fn="original"),
        "group them with groups_by_columns",
    ),
    (
        lambda: to_torch_muon_state(our_state(), adjust_lr_fn="none"),
        "adjust_lr_fn must be one of .* got 'none'",
    ),
    (
        lambda: convert_muon_lr(0.1, (4, 4), source="x"),
        "rule must be one of .* got 'x'",
    ),
    (lambda: convert_muon_lr(0.1, (4,)), r"shape must be .* got \(4,\)"),
    (lambda: convert_muon_lr(0.1, (4, 0)), r"got \(4, 0\)"),
    (
        lambda: groups_by_columns(named([(4, 4), (4,)])),
        r"takes matrices, got w1 of shape \(4,\)",
    ),
]


@pytest.mark.parametrize(("call", "message"), REFUSED)
def test_what_does_not_convert(call, message):
    with pytest.raises(ValueError, match=message):
        call()
