"""Small models and batches that the model tests share."""

import pytest
import torch

from stacklm.config import toy_config
from stacklm.model import RMSNorm, Stack100M


@pytest.fixture
def make_model():
    """Build a toy in float64 with weights and gains large enough to matter."""

    def make(seed=0, **overrides):
        torch.manual_seed(seed)
        model = Stack100M(toy_config(**overrides)).double()
        for module in model.modules():
            if isinstance(module, RMSNorm):
                torch.nn.init.uniform_(module.weight, 0.5, 1.5)
            elif isinstance(module, torch.nn.Linear):
                torch.nn.init.normal_(module.weight, std=0.3)
        return model

    return make


@pytest.fixture
def make_tokens():
    """Draw (rows, length) token ids of the toy's vocabulary."""

    def make(rows, length, seed=1):
        generator = torch.Generator().manual_seed(seed)
        return torch.randint(256, (rows, length), generator=generator)

    return make


@pytest.fixture
def sensitivity():
    """Measure how much the logits at one position depend on every input position."""

    def measure(model, tokens, position, seq_ids=None):
        kept = []

        def keep(_module, _inputs, output):
            kept.append(output)

        handle = model.tok_emb.register_forward_hook(keep)
        logits, _ = model(tokens, seq_ids=seq_ids)
        handle.remove()
        (grad,) = torch.autograd.grad(logits[:, position].square().sum(), kept)
        return grad.abs().amax(dim=-1)  # (B, T)

    return measure
