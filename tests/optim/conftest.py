"""Matrices with a known spectrum, and what several tests compare against."""

import pytest
import torch
from torch import nn

COEFFICIENTS = (3.4445, -4.7750, 2.0315)  # Jordan 2024; typed a second time on purpose


def _matrix(m, n, sigma, seed=0):
    """A float64 m x n matrix with the singular values sigma, min(m, n) of them."""
    generator = torch.Generator().manual_seed(seed)
    r = min(m, n)

    def frame(rows):
        square = torch.randn(rows, r, dtype=torch.float64, generator=generator)
        return torch.linalg.qr(square)[0]

    sigma = torch.as_tensor(sigma, dtype=torch.float64)
    return frame(m) * sigma @ frame(n).mT


def _by_svd(G, steps=5, coefficients=COEFFICIENTS):
    """What Newton–Schulz must give: the scalar polynomial on each singular value."""
    U, S, Vh = torch.linalg.svd(G.double(), full_matrices=False)
    S = S / S.square().sum().sqrt()
    a, b, c = coefficients
    for _ in range(steps):
        S = a * S + b * S**3 + c * S**5
    return U * S @ Vh


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """Small matrices are slower on two threads, much slower on a busy machine."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def matrix():
    """A function (m, n, sigma, seed=0) -> float64 matrix with that spectrum."""
    return _matrix


@pytest.fixture(scope="session")
def by_svd():
    """A function (G, steps=5) -> float64 result of Newton–Schulz, found by an SVD."""
    return _by_svd


@pytest.fixture(scope="session")
def spectra():
    """{name: function of r giving singular values} that break careless code."""

    def dominant(r):
        return torch.cat([torch.ones(1), torch.full((r - 1,), 1e-4)])

    return {
        "flat": torch.ones,
        "condition 1e10": lambda r: torch.logspace(0, -10, r),
        "one dominant": dominant,
        "rank deficient": lambda r: (torch.arange(r) < (r + 3) // 4).float(),
        "tiny": lambda r: 1e-28 * torch.linspace(0.1, 1, r),
        "huge": lambda r: 1e30 * torch.linspace(0.1, 1, r),
    }


class TinyBlock(nn.Module):
    """Two hidden matrices, a wide one and a tall one, and a gain."""

    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self.w_up = nn.Linear(8, 24, bias=False)
        self.w_down = nn.Linear(24, 8, bias=False)

    def forward(self, x):
        return x + self.w_down(torch.relu(self.w_up(self.norm(x))))


class TinyModel(nn.Module):
    """An embedding, two blocks and an untied head; small enough for any test."""

    def __init__(self):
        super().__init__()
        self.tok_emb = nn.Embedding(11, 8)
        self.blocks = nn.ModuleList(TinyBlock() for _ in range(2))
        self.lm_head = nn.Linear(8, 11, bias=False)

    def forward(self, tokens):
        x = self.tok_emb(tokens)
        for block in self.blocks:
            x = block(x)
        return self.lm_head(x)


@pytest.fixture
def tiny_model():
    """A TinyModel with seed 0."""
    torch.manual_seed(0)
    return TinyModel()
