"""Exercise 11: its check describes its model, and the package agrees with both."""

import re
from pathlib import Path

import pytest
import torch
from torch import nn

from stacklm.notebook.checking import judge
from stacklm.notebook.checks import CHECKS, ex11
from stacklm.optim import audit, muon_scale, zeropower_via_newtonschulz5
from tests.notebook.references import split_qkv

PAGE = Path(__file__).parents[2] / "solutions" / "11_route_a_model.md"
SIZES = {"d": 48, "vocab": 96, "rows": 72, "layers": 2}


@pytest.fixture(scope="module")
def page():
    """The names that the exercise's model and its description are made of."""
    cells = re.findall(r"^```\{code-cell\}\n(.*?)^```$", PAGE.read_text(), re.M | re.S)
    names = {"nn": nn, "torch": torch}
    for cell in cells:
        if "class " in cell:
            exec(cell, names)
    return names


def test_the_check_describes_the_model_of_the_page(page):
    found = page["described"](page["Listener"]())
    assert found == ex11._described(**SIZES)


def test_the_audit_sends_every_parameter_where_the_check_expects_it(page):
    model = page["Listener"]()
    expected = CHECKS["11a"].expected(page["described"](model))
    for route in audit(model):
        fused = "fused" in route.reason
        assert expected[route.name] == ("split" if fused else route.optimizer)
    assert set(expected.values()) == {"muon", "adamw", "split"}


def test_sizes_typed_in_are_noticed():
    def by_size(parameters):
        fused = {name: what[1] == (72, 48) for name, what in parameters.items()}
        return {
            name: role if role == "muon" else "split" if fused[name] else "adamw"
            for name, role in ex11._by_role(parameters).items()
        }

    verdict = judge(CHECKS["11a"], by_size)
    assert verdict.status == "wrong"
    assert "attn.qkv.weight] got 'adamw', expected 'split'" in verdict.text


def test_the_package_passes():
    def update(G, heads, kv_heads, width):
        parts = split_qkv(G, heads, kv_heads, width)
        return torch.cat(
            [zeropower_via_newtonschulz5(p) * muon_scale(*p.shape) for p in parts]
        )

    assert judge(CHECKS["11c"], update).status == "correct"


def test_lists_of_parts_are_as_good_as_tuples():
    verdict = judge(CHECKS["11b"], lambda *args: list(split_qkv(*args)))
    assert verdict.status == "correct"
