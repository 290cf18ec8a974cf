"""Tokens see earlier tokens of their own document, and nothing else."""

import pytest
import torch

from stacklm.model import document_mask

FORMS = [{}, {"attn_soft_cap": 3.0}, {"qk_norm": False}]


def test_document_mask_by_hand():
    mask = document_mask(torch.tensor([[4, 4, 1, 4]]))
    assert mask.shape == (1, 1, 4, 4)
    assert mask[0, 0].int().tolist() == [
        [1, 0, 0, 0],
        [1, 1, 0, 0],
        [0, 0, 1, 0],
        [1, 1, 0, 1],
    ]


@torch.no_grad()
@pytest.mark.parametrize("form", FORMS)
def test_packed_documents_give_the_logits_of_each_alone(form, make_model, make_tokens):
    model = make_model(**form)
    first, second = make_tokens(1, 11), make_tokens(1, 21, seed=2)
    packed = torch.cat([first, second], dim=1)
    seq_ids = torch.tensor([[0] * 11 + [1] * 21])
    logits, _ = model(packed, seq_ids=seq_ids)
    # Shifted positions cost rounding in RoPE's angles: about 1e-13 in float64.
    close = {"rtol": 0, "atol": 1e-10}
    torch.testing.assert_close(logits[:, :11], model(first)[0], **close)
    torch.testing.assert_close(logits[:, 11:], model(second)[0], **close)
    unmasked, _ = model(packed)
    assert (unmasked[:, 11:] - logits[:, 11:]).abs().max() > 1e-3


@torch.no_grad()
def test_rows_of_a_batch_have_masks_of_their_own(make_model, make_tokens):
    model, tokens = make_model(), make_tokens(3, 12)
    seq_ids = torch.tensor([[0] * 12, [0] * 5 + [1] * 7, [2] * 9 + [0] * 3])
    together, _ = model(tokens, seq_ids=seq_ids)
    for row in range(3):
        alone, _ = model(tokens[row, None], seq_ids=seq_ids[row, None])
        torch.testing.assert_close(together[row], alone[0], rtol=0, atol=1e-10)


@torch.no_grad()
def test_one_document_a_row_equals_no_mask(make_model, make_tokens):
    model, tokens = make_model(), make_tokens(2, 12)
    same, _ = model(tokens, seq_ids=torch.tensor([[5] * 12, [9] * 12]))
    torch.testing.assert_close(same, model(tokens)[0], rtol=0, atol=1e-10)


@pytest.mark.parametrize("form", FORMS)
def test_no_gradient_from_the_future(form, make_model, make_tokens, sensitivity):
    model, tokens = make_model(**form), make_tokens(2, 10)
    for position in (0, 4, 9):
        reached = sensitivity(model, tokens, position) > 0
        assert reached[:, : position + 1].all()
        assert not reached[:, position + 1 :].any()


@pytest.mark.parametrize("form", FORMS)
def test_no_gradient_across_documents(form, make_model, make_tokens, sensitivity):
    model, tokens = make_model(**form), make_tokens(1, 10)
    seq_ids = torch.tensor([[7, 7, 7, 7, 2, 2, 2, 2, 2, 7]])
    reached = sensitivity(model, tokens, 7, seq_ids)[0] > 0
    assert reached.nonzero().flatten().tolist() == [4, 5, 6, 7]
