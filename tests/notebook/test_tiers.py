"""What chapter 07 measures with: costs against counting, tiers against the package."""

from functools import partial

import pytest
import torch

from stacklm.config import toy_config
from stacklm.model import RMSNorm, Stack100M, exact_maxima, logit_bound, norm_bound
from stacklm.notebook import ToyLanguage, adamw_alone, tiers, train


@pytest.fixture
def model():
    torch.manual_seed(0)
    model = Stack100M(toy_config(vocab_size=8)).double()
    for module in model.modules():
        if isinstance(module, RMSNorm):
            torch.nn.init.normal_(module.weight, std=2.0)
    return model


@pytest.fixture
def tokens():
    rng = torch.Generator().manual_seed(1)
    return torch.randint(8, (3, 12), generator=rng)


def test_cost_counts_the_largest_storage_and_the_products():
    a, b = torch.zeros(8, 16), torch.zeros(16, 32)
    assert tiers.cost(lambda: (a @ b).sum()) == (8 * 32 * 4, 2 * 8 * 16 * 32)
    small = torch.zeros(2, 1)
    view = small.expand(2, 10_000)  # a view of two numbers
    assert tiers.cost(lambda: view.T) == (8, 0)
    assert tiers.cost(lambda: None) == (0, 0)
    assert tiers.cost(lambda: [{"x": torch.zeros(5)}, torch.zeros(9)]).nbytes == 36


def test_cost_counts_the_fused_kernel_as_if_it_masked_nothing():
    q, k = torch.randn(2, 4, 32, 8), torch.randn(2, 2, 32, 8)
    attend = torch.nn.functional.scaled_dot_product_attention
    for masked in (True, False):
        attention = partial(attend, q, k, k, is_causal=masked, enable_gqa=True)
        assert tiers.cost(attention).flops == 2 * (2 * 2 * 4 * 32 * 32 * 8)


def test_cost_needs_no_memory_on_meta_and_no_graph():
    x = torch.empty(40_000, 40_000, device="meta")
    assert tiers.cost(lambda: x @ x) == (4 * 40_000**2, 2 * 40_000**3)
    leaf = torch.zeros(4, requires_grad=True)
    kept = []
    tiers.cost(lambda: kept.append(leaf * 2))
    assert not kept[0].requires_grad


def test_a_cost_prints_as_one_line():
    text = "largest tensor     2.50 MB,   1.250 GFLOP in products"
    assert str(tiers.Cost(2_500_000, 1_250_000_000)) == text


def test_saved_bytes_counts_each_storage_once():
    x = torch.ones(6, dtype=torch.float64, requires_grad=True)
    assert tiers.saved_bytes(lambda: x * x) == 48
    assert tiers.saved_bytes(lambda: (x.exp(), x.sin())) == 96  # a result and x
    with torch.no_grad():
        assert tiers.saved_bytes(lambda: x.exp()) == 0


def test_saved_bytes_are_not_lost_when_storage_is_reused():
    x = torch.ones(1000, requires_grad=True)

    def call():
        for _ in range(5):
            x.exp()  # freed at once, but for what is kept

    assert tiers.saved_bytes(call) == 5 * 4000


def weigh_model(model, tokens):
    def call():
        model(tokens, tokens)

    return tiers.saved_bytes(call, without=model.parameters())


class Squares(torch.nn.Module):
    """Keeps its input twice over, of which one is a view, and its weight."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(3, dtype=torch.float64))

    def forward(self, tokens, targets):
        x = (tokens.double() * self.weight).sin()
        return None, x.mT.sum()


def test_saved_bytes_counts_each_storage_once_and_no_parameter():
    tokens = torch.ones(5, 3, dtype=torch.int64)
    # Kept: the factor beside the weight, and the input of the sine; 15 doubles each.
    assert weigh_model(Squares(), tokens) == 2 * 15 * 8


@pytest.mark.parametrize("grow", [{"batch": 2}, {"length": 2}])
def test_saved_bytes_grow_with_the_tokens_however_they_are_laid_out(grow):
    model = Stack100M(toy_config())

    def weigh(batch=1, length=1):
        return weigh_model(model, torch.zeros(2 * batch, 16 * length).long())

    grown = weigh(**grow) / weigh()
    # The tables of RoPE grow with the length alone.
    assert grown == pytest.approx(2, rel=0.02)


@pytest.mark.parametrize("packed", [False, True])
def test_all_tiers_are_those_of_the_package(model, tokens, packed):
    ids = (torch.arange(12) // 5).expand(3, 12) if packed else None
    zero, one, two = tiers.all_tiers(model, tokens, ids)
    assert torch.equal(zero, logit_bound(model))
    mask = None
    if packed:
        mask = (ids[:, :, None] == ids[:, None, :]).tril()[:, None]
    for layer, (q, k) in enumerate(tiers.queries_keys(model, tokens, ids)):
        assert q.shape == (3, 4, 12, 16)
        assert k.shape == (3, 2, 12, 16)
        torch.testing.assert_close(one[layer], norm_bound(q, k))
        torch.testing.assert_close(two[layer], exact_maxima(q, k, mask))
    assert not zero.requires_grad
    assert not q.requires_grad


def test_queries_keys_leave_no_hook_behind_even_after_an_error(model, tokens):
    with pytest.raises(ValueError, match="shape of tokens"):
        tiers.queries_keys(model, tokens, tokens[:, :5])
    tiers.queries_keys(model, tokens)
    assert not any(len(b.attn._forward_pre_hooks) for b in model.blocks)


def test_watching_changes_nothing_and_sees_each_step_before_it():
    language = ToyLanguage(vocab_size=8, length=12)
    data = language.batches(steps=4, seed=0)
    models = []
    for _ in range(2):
        torch.manual_seed(0)
        models.append(Stack100M(toy_config(vocab_size=8)))
    seen, gains = tiers.watch(models[0], adamw_alone(models[0], 1e-2), data)
    train(models[1], adamw_alone(models[1], 1e-2), data)
    same = zip(models[0].parameters(), models[1].parameters(), strict=True)
    assert all(torch.equal(p, other) for p, other in same)
    assert seen.shape == (4, 3, 2, 4)
    assert gains.shape == (4, 2, 2, 16)
    assert gains[0].eq(1).all()
    assert gains[1].ne(1).any()
    by_gains = gains.abs().amax(-1).prod(-1) * 4  # (steps, L), as sqrt(d_h) = 4
    torch.testing.assert_close(by_gains, seen[:, 0, :, 0])
