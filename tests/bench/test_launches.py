"""Launches are counted once each, views not at all."""

import torch

from stacklm.bench.launches import launches


def test_products_and_passes_are_counted_and_views_are_not():
    A = torch.ones(4, 4)

    def run():
        B = A.mT @ A[:4]
        C = torch.addmm(A, B, B)
        return (2 * C.abs() + 1).view(16).reshape(2, 8)

    assert launches(run) == {"products": 2, "passes": 3}
    assert launches(lambda: A.mT) == {"products": 0, "passes": 0}
