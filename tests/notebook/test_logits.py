"""Logits from outside: they are the model's own, and looking changes nothing."""

import pytest
import torch

from stacklm.config import toy_config
from stacklm.model import Stack100M
from stacklm.notebook.logits import attention_logits, query_gradients, watch_logits


@pytest.fixture(params=[True, False], ids=["qk-norm", "bare"])
def model(request):
    torch.manual_seed(0)
    model = Stack100M(toy_config(vocab_size=32, qk_norm=request.param)).double()
    with torch.no_grad():  # weights large enough for attention to matter
        for block in model.blocks:
            block.attn.wq.weight.mul_(10)
            block.attn.wk.weight.mul_(10)
    return model


@pytest.fixture
def x():
    return torch.randint(32, (3, 13), generator=torch.Generator().manual_seed(1))


def test_softmax_of_the_logits_gives_what_attention_gives(model, x):
    seen = {}
    attn = model.blocks[1].attn
    handle = attn.register_forward_hook(
        lambda _, args, out: seen.update(x=args[0], out=out)
    )
    model(x)
    handle.remove()
    weights = attention_logits(model, x)[1].softmax(-1)  # (B, H, T, T)
    v = attn.wv(seen["x"]).unflatten(-1, (2, 16)).transpose(1, 2)
    mixed = weights @ v.repeat_interleave(2, dim=1)
    out = attn.wo(mixed.transpose(1, 2).flatten(2))
    torch.testing.assert_close(out, seen["out"])


def test_watching_finds_the_largest_and_changes_nothing(model, x):
    plain, _ = model(x)
    with watch_logits(model) as largest:
        watched, _ = model(x)
        model(x[:, :5])
    model(x)
    assert torch.equal(plain, watched)
    expected = [attention_logits(model, ids).amax().item() for ids in (x, x[:, :5])]
    assert largest == pytest.approx(expected, rel=1e-12)


def test_query_gradients_agree_with_a_difference_quotient(model, x):
    attn, at = model.blocks[0].attn, (2, 3, 7)  # sequence, head, position
    pull = query_gradients(model, x)[0][at].item()
    assert all(p.grad is None for p in model.parameters())

    def loss(shift):
        def move(_norm, _args, query):
            query = query.clone()
            query[at] += shift
            return query

        handle = attn.q_norm.register_forward_hook(move)
        value = model(x[:, :-1], x[:, 1:])[1].item()
        handle.remove()
        return value

    step = 1e-4
    sides = step * torch.eye(16, dtype=torch.float64)
    slopes = [(loss(side) - loss(-side)) / (2 * step) for side in sides]
    assert torch.tensor(slopes).norm().item() == pytest.approx(pull, rel=1e-5)


@pytest.mark.parametrize("function", [attention_logits, query_gradients])
def test_no_hook_is_left_behind_by_a_pass_that_fails(model, function):
    with pytest.raises(ValueError, match="vocab_size"):
        function(model, torch.full((1, 4), 99))
    assert not any(b.attn._forward_pre_hooks for b in model.blocks)
    assert not any(b.attn.q_norm._forward_hooks for b in model.blocks)
