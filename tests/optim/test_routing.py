"""The audit of Stack-100M itself, what a route may say, and the printed table."""

from collections import Counter

import pytest
import torch
from torch import nn

from stacklm.config import LADDER, StackConfig, toy_config
from stacklm.model import Stack100M
from stacklm.optim import Route, audit, format_routes


def on_meta(cfg):
    with torch.device("meta"):
        return Stack100M(cfg)


@pytest.fixture(scope="module")
def stack():
    return audit(on_meta(StackConfig()))


def test_stack_100m_is_210_and_122(stack):
    muon = Counter(r.shape for r in stack if r.optimizer == "muon")
    assert muon == {(512, 512): 60, (128, 512): 60, (1408, 512): 60, (512, 1408): 30}
    assert muon.total() == 210
    assert sum(r.numel for r in stack if r.optimizer == "muon") == 84_541_440
    adamw = Counter(r.shape for r in stack if r.optimizer == "adamw")
    assert adamw == {(32_768, 512): 1, (512,): 61, (64,): 60}
    assert adamw.total() == 122
    assert sum(r.numel for r in stack) == 101_353_728
    assert len(stack) == 332


def test_stack_100m_reasons(stack):
    assert Counter(r.reason for r in stack) == {
        "hidden matrix": 210,
        "embedding: a look-up picks one row": 1,
        "gain of RMSNorm": 121,
    }
    assert [r.name for r in stack if r.decay and r.optimizer == "adamw"] == [
        "tok_emb.weight"
    ]


@pytest.mark.parametrize("tie", [True, False])
@pytest.mark.parametrize("per_head", [True, False])
@pytest.mark.parametrize("qk_norm", [True, False])
def test_every_variant_of_the_model(tie, per_head, qk_norm):
    cfg = toy_config(
        tie_embeddings=tie, per_head_gains=per_head and qk_norm, qk_norm=qk_norm
    )
    routes = audit(on_meta(cfg))
    assert sum(r.optimizer == "muon" for r in routes) == 7 * cfg.n_layers
    rest = {r.name.split(".")[-2] for r in routes if r.optimizer == "adamw"}
    want = {"tok_emb", "norm1", "norm2", "final_norm"}
    want |= set() if tie else {"lm_head"}
    want |= {"q_norm", "k_norm"} if qk_norm else set()
    assert rest == want


@pytest.mark.parametrize("rung", LADDER)
def test_every_rung_of_the_ladder(rung):
    cfg = LADDER[rung]
    routes = audit(on_meta(cfg))
    assert sum(r.optimizer == "muon" for r in routes) == 7 * cfg.n_layers


def test_a_byte_level_model_as_wide_as_its_vocabulary():
    cfg = toy_config(d_model=256, vocab_size=256, n_heads=16, n_kv_heads=16)
    routes = audit(on_meta(cfg))
    assert sum(r.optimizer == "muon" for r in routes) == 7 * cfg.n_layers


def test_order_and_fields(stack):
    model = on_meta(StackConfig())
    assert [r.name for r in stack] == [name for name, _ in model.named_parameters()]
    r = Route("w", (2, 3), 6, "muon", "why")  # what a reader needs to build one
    assert (r.decay, r.stacked, r.aliases) == (True, False, ())


class Model(nn.Module):
    """One parameter of every kind that needs a route."""

    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(4, 8, bias=False)
        self.fc2 = nn.Linear(8, 4, bias=False)
        self.experts = nn.Parameter(torch.empty(3, 4, 8))
        self.gain = nn.Parameter(torch.empty(4))
        self.conv = nn.Conv1d(4, 8, 3, bias=False)


ROUTE = {"fc*": "muon", "experts": "muon"}


def by_name(routes):
    return {r.name: r for r in routes}


def test_a_route_overrides_and_a_name_beats_a_glob():
    routes = by_name(audit(Model(), {**ROUTE, "fc2.weight": "adamw"}))
    assert routes["fc1.weight"].optimizer == "muon"
    assert routes["fc1.weight"].reason == 'as route["fc*"] says'
    assert routes["fc2.weight"].optimizer == "adamw"
    assert routes["experts"].stacked
    assert routes["gain"].optimizer == "adamw"
    assert not routes["gain"].decay


def test_a_route_may_use_any_name_of_a_tied_parameter():
    model = nn.Module()
    model.table = nn.Embedding(9, 4)
    model.lm_head = nn.Linear(4, 9, bias=False)
    model.lm_head.weight = model.table.weight
    (r,) = audit(model, {"lm_head.weight": "muon"})
    assert (r.name, r.optimizer) == ("table.weight", "muon")


def test_a_routed_gain_still_takes_no_decay():
    routes = by_name(audit(Model(), {"*": "adamw"}))
    assert {r.optimizer for r in routes.values()} == {"adamw"}
    assert not routes["gain"].decay
    assert routes["experts"].decay


@pytest.mark.parametrize(
    ("route", "error", "message"),
    [
        ({"fc9*": "muon"}, ValueError, r"keys \['fc9\*'\] match no parameter"),
        ({"fc*": "sgd"}, ValueError, 'must be "muon" or "adamw", got \'sgd\'; to le'),
        ({"gain": "muon"}, ValueError, r"2-D matrices, got gain of shape \(4,\)"),
        ({"conv*": "muon"}, ValueError, r"conv.weight of shape \(8, 4, 3\).*no stack"),
        ({"f*": "muon", "*1.weight": "adamw"}, ValueError, "disagree on fc1.weight"),
        ([("fc*", "muon")], TypeError, "route must be a dict"),
        ("muon", TypeError, "route must be a dict"),
    ],
)
def test_routes_that_cannot_be_followed(route, error, message):
    with pytest.raises(error, match=message):
        audit(Model(), {**ROUTE, **route} if isinstance(route, dict) else route)


def test_a_route_cannot_make_muon_take_complex_but_may_send_it_to_adamw():
    model = nn.ModuleDict({"up": nn.Linear(4, 8, False, dtype=torch.complex64)})
    with pytest.raises(TypeError, match=r"up.weight of dtype torch.complex64"):
        audit(model, {"up.weight": "muon"})
    assert audit(model, {"up.weight": "adamw"})[0].optimizer == "adamw"


def test_a_route_cannot_save_a_sparse_embedding():
    model = nn.ModuleDict({"e": nn.Embedding(9, 4, sparse=True)})
    with pytest.raises(ValueError, match="build the embedding with sparse=False"):
        audit(model, {"e.weight": "adamw"})


def test_audit_takes_modules():
    with pytest.raises(TypeError, match=r"takes a torch.nn.Module, got list"):
        audit([nn.Linear(2, 2)])
    assert audit(nn.ReLU()) == []


def test_table_has_a_line_per_kind_and_the_totals(stack):
    text = format_routes(stack)
    lines = [line for line in text.splitlines() if not line.startswith(" ")]
    assert len(lines) == 1 + 13 + 2
    assert lines[0].split() == ["optimizer", "parameter", "count", "shape", "reason"]
    row = next(line for line in lines if "w_down" in line)
    assert row.split()[:6] == [
        "Muon",
        "blocks.*.mlp.w_down.weight",
        "30",
        "512",
        "x",
        "1408",
    ]
    assert lines[-2] == "Muon: 210 tensors, 84,541,440 parameters"
    assert lines[-1] == "AdamW: 122 tensors, 16,812,288 parameters"
    assert not any(line != line.rstrip() for line in text.splitlines())


def test_a_long_reason_goes_on_under_itself(stack):
    lines = format_routes(stack).splitlines()
    start = lines[0].index("reason")
    first = next(i for i, line in enumerate(lines) if "embedding:" in line)
    said = [line[start:] for line in lines[first : first + 3]]
    assert " ".join(said) == "embedding: a look-up picks one row"
    assert lines[first + 1][:start].isspace()
    assert max(map(len, lines)) <= 78
    long = Route("x" * 90, (2, 3), 6, "adamw", "no room but a reason is still read")
    assert "no room but a\n" in format_routes([long])


def test_table_shows_ties_scalars_and_frozen():
    text = format_routes(
        [
            Route("e.weight", (9, 4), 36, "adamw", "embedding", aliases=("h.weight",)),
            Route("s", (), 1, "adamw", "vector"),
            Route("w", (2, 3), 6, "frozen", "frozen: requires_grad is False"),
        ]
    )
    assert "embedding; tied with h.weight" in text
    head, first, second, third, *_ = text.splitlines()
    rows = [line.split()[1:5] for line in (first, second, third)]
    assert rows[0] == ["e.weight", "1", "9", "x"]
    assert rows[1] == ["s", "1", "scalar", "vector"]
    assert rows[2] == ["w", "1", "2", "x"]
    starts = (head.index("shape"), first.index("9 x 4"), second.index("scalar"))
    assert len(set(starts)) == 1
    assert text.endswith("frozen: 1 tensor, 6 parameters")
    assert "Muon:" not in text


def test_table_in_full():
    routes = [
        Route("norm", (4,), 4, "adamw", "gain", decay=False),
        Route("e", (9, 4), 36, "adamw", "embedding", aliases=("h", "out")),
        Route("a", (2, 3), 6, "frozen", "frozen: requires_grad is False"),
        Route("l.0.w", (4, 4), 16, "muon", "hidden matrix"),
        Route("l.1.w", (4, 4), 16, "muon", "hidden matrix"),
    ]
    assert format_routes(routes).splitlines() == [
        "optimizer  parameter  count  shape  reason",
        "Muon       l.*.w          2  4 x 4  hidden matrix",
        "AdamW      norm           1  4      gain",
        "AdamW      e              1  9 x 4  embedding; tied with h, out",
        "frozen     a              1  2 x 3  frozen: requires_grad is False",
        "Muon: 2 tensors, 32 parameters",
        "AdamW: 2 tensors, 40 parameters",
        "frozen: 1 tensor, 6 parameters",
    ]
