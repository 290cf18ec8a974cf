"""What QK-clip refuses, that it then changes nothing, and how often it waits."""

import math

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from stacklm.config import toy_config
from stacklm.model import LogitRecord, Stack100M
from stacklm.optim import qk_clip_

FORMS = [{}, {"per_head_gains": True}, {"qk_norm": False}]
FIRES = [400.0, 1.0, 2.0, 3.0]
GOOD = torch.tensor([FIRES, FIRES])


@pytest.fixture
def make_model():
    """Build a toy; two layers, four heads."""

    def make(**overrides):
        torch.manual_seed(0)
        return Stack100M(toy_config(**overrides))

    return make


@pytest.fixture
def refuse():
    """Check that a call raises, with this message, and that no weight changed."""

    def check(model, error, message, *args, **options):
        before = [p.detach().clone() for p in model.parameters()]
        with pytest.raises(error, match=message):
            qk_clip_(model, *args, **options)
        assert all(map(torch.equal, model.parameters(), before))

    return check


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("as_dict", [False, True])
def test_nan_and_infinity_name_layer_and_head(form, bad, as_dict, make_model, refuse):
    logits = GOOD.clone()
    logits[1, 2] = bad  # layer 0 fires, and must not have been clipped
    given = {0: logits[0], 1: logits[1]} if as_dict else logits
    message = f"finite or -inf, got {bad} in layer 1, head 2; no weight was changed"
    refuse(make_model(**form), ValueError, message, given)


@pytest.mark.parametrize(
    ("broken", "more"), [(1, ""), (2, " and 1 more"), (8, " and 7 more")]
)
def test_several_broken_maxima_are_counted(make_model, refuse, broken, more):
    logits = GOOD.clone()
    logits.view(-1)[:broken] = math.nan
    refuse(make_model(), ValueError, f"layer 0, head 0{more};", logits)


RECORD = LogitRecord(2, 8)
WRONG = [
    (GOOD[0], ValueError, r"\(n_layers, n_heads\) = \(2, 4\), got \(4,\)"),
    (GOOD.mT, ValueError, r"\(n_layers, n_heads\) = \(2, 4\), got \(4, 2\)"),
    (RECORD, ValueError, r"= \(2, 4\), got \(2, 8\); pass the record of this model"),
    (GOOD.long(), TypeError, r"max_logits must be a floating-point .* got torch.int64"),
    (GOOD.tolist(), TypeError, "max_logits must be a floating-point tensor, got list"),
    ({2: GOOD[0]}, ValueError, "layers 0 … 1 as keys, got 2"),
    ({"0": GOOD[0]}, ValueError, "layers 0 … 1 as keys, got '0'"),
    ({0: GOOD}, ValueError, r"max_logits\[0\] must have shape \(n_heads,\) = \(4,\)"),
    ({0: GOOD[0], 1: 5.0}, TypeError, r"max_logits\[1\] must be .* got float"),
]


@pytest.mark.parametrize(("logits", "error", "message"), WRONG)
def test_logits_of_another_form_are_refused(logits, error, message, make_model, refuse):
    refuse(make_model(), error, message, logits)


@pytest.mark.parametrize(
    ("tau", "error"),
    [
        (0.0, ValueError),
        (-1.0, ValueError),
        (math.nan, ValueError),
        (math.inf, ValueError),
        (True, TypeError),
        ("100", TypeError),
        (None, TypeError),
    ],
)
def test_tau_must_be_a_number_above_0(tau, error, make_model, refuse):
    refuse(make_model(), error, f"tau must be .* got {tau!r}", GOOD, tau=tau)


@pytest.mark.parametrize("model", [torch.nn.Linear(4, 4), torch.zeros(3), None])
def test_models_without_attention_are_refused(model):
    name = type(model).__name__
    with pytest.raises(TypeError, match=rf"qk_clip_ takes a model .* got {name}; a"):
        qk_clip_(model, GOOD)


def test_a_part_of_a_model_and_odd_layers_are_refused(make_model, refuse):
    model = make_model()
    refuse(model.blocks[1], ValueError, r"without gaps, got layer_idx \[1\]", GOOD[:1])
    model.blocks[1].attn.layer_idx = 0
    refuse(model, ValueError, r"got layer_idx \[0, 0\]", GOOD)
    model = make_model()
    model.blocks[1].attn.n_heads = 8
    refuse(model, ValueError, r"same n_heads in every layer, got \[4, 8\]", GOOD)


def test_half_a_qk_norm_is_refused_before_the_first_change(make_model, refuse):
    model = make_model()
    model.blocks[1].attn.k_norm = torch.nn.Identity()
    message = r"got \[\(16,\), None\] in layer 1; give q_norm and k_norm the same"
    refuse(model, ValueError, message, GOOD)
    model = make_model(per_head_gains=True)
    model.blocks[1].attn.q_norm = make_model().blocks[0].attn.q_norm
    refuse(model, ValueError, r"got \[\(16,\), \(2, 1, 16\)\] in layer 1", GOOD)


@pytest.mark.parametrize("form", FORMS)
def test_inside_wrappers(form, make_model):
    plain, wrapped = make_model(**form), make_model(**form)
    wrapped.blocks[0].attn = torch.compile(wrapped.blocks[0].attn, backend="eager")
    outer = torch.nn.Sequential(torch.compile(wrapped, backend="eager"))
    assert qk_clip_(plain, GOOD) == qk_clip_(outer, GOOD) == 2
    assert all(map(torch.equal, plain.parameters(), outer.parameters()))


class HostReads(TorchFunctionMode):
    """Count the calls that bring values to the host, by method."""

    NAMES = ("tolist", "item", "cpu", "numpy", "to", "__bool__", "__float__", "__int__")

    def __init__(self):
        super().__init__()
        self.counted = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if getattr(func, "__name__", "") in self.NAMES:
            self.counted.append(func.__name__)
        return func(*args, **(kwargs or {}))


class Scalars(TorchDispatchMode):
    """Count values that are read one by one."""

    count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func in (
            torch.ops.aten._local_scalar_dense.default,
            torch.ops.aten.nonzero.default,
            torch.ops.aten.equal.default,
        ):
            self.count += 1
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("as_dict", [False, True])
def test_the_host_waits_once(form, as_dict, make_model):
    given = {0: GOOD[0], 1: GOOD[1]} if as_dict else GOOD
    model = make_model(**form)
    with HostReads() as reads, Scalars() as scalars:
        assert qk_clip_(model, given) == 2
    assert reads.counted == ["tolist"]
    assert scalars.count == 0
    with HostReads() as reads, Scalars() as scalars:  # the counters do count
        bool(GOOD[0, 0] > 1)
        GOOD[0, 0].item()
    assert len(reads.counted) == scalars.count == 2


@pytest.mark.parametrize("form", FORMS)
def test_weights_are_never_read(form, make_model):
    with torch.device("meta"):  # a tensor without values: reading one raises
        model = make_model(**form)
    assert qk_clip_(model, GOOD) == 2
