"""Exercise 1: what Newton–Schulz on the tied embedding costs, and what it touches."""

import torch
from torch.utils.flop_counter import FlopCounterMode

from stacklm.notebook.checking import Check, Mistake
from stacklm.notebook.checks import plain


def _counted_flops(rows: int, cols: int, steps: int) -> int:
    """Count the FLOPs of the products by running them on tensors without storage."""
    matrix = torch.empty(rows, cols, device="meta")
    with FlopCounterMode(display=False) as counter:
        plain.orthogonalize(matrix, steps)
    return counter.get_total_flops()


def _formula(square: int, cube: int, *, r=min, c=max):
    """Return a function for steps · (square · r²c + cube · r³)."""

    def flops(rows: int, cols: int, steps: int) -> int:
        short, long = r(rows, cols), c(rows, cols)
        return steps * (square * short**2 * long + cube * short**3)

    return flops


FLOPS = Check(
    key="01a",
    task="newton_schulz_flops(rows, cols, steps)",
    cases=lambda: [
        (512, 512, 5),
        (128, 512, 5),
        (1408, 512, 5),
        (512, 1408, 5),
        (32768, 512, 5),
        (32768, 512, 1),
    ],
    expected=_counted_flops,
    verified=(
        "Your formula gives what PyTorch's FLOP counter counts for the three products "
        "of each step, for the block matrices and for the embedding."
    ),
    mistakes=(
        Mistake(
            "long side",
            _formula(4, 2, r=max, c=min),
            "You form the Gram matrix on the long side. Transpose a tall matrix first: "
            "r is the smaller of rows and cols, whichever comes first.",
        ),
        Mistake(
            "rows as short side",
            _formula(4, 2, r=lambda m, n: m, c=lambda m, n: n),
            "You take rows as the short side. The embedding has more rows than columns "
            "and is transposed first: r is the smaller of the two.",
        ),
        Mistake(
            "one step",
            lambda rows, cols, steps: _formula(4, 2)(rows, cols, 1),
            "That is the cost of one step; steps does not enter.",
        ),
        Mistake(
            "square of the Gram matrix forgotten",
            _formula(4, 0),
            "The product A @ A of the r × r Gram matrix is missing: 2r³ FLOPs a step.",
        ),
        Mistake(
            "square priced like the others",
            _formula(6, 0),
            "You price all three products alike. The square of A multiplies two r × r "
            "matrices: 2r³ FLOPs, c does not enter.",
        ),
        Mistake(
            "last product forgotten",
            _formula(2, 2),
            "One of the two products with X is missing. A step forms X Xᵀ and, at the "
            "end, multiplies the polynomial in it by X: 2r²c FLOPs each.",
        ),
        Mistake(
            "multiply-adds counted once",
            _formula(2, 1),
            "You count a multiplication and its addition as one. By the usual "
            "convention they are two FLOPs: a product of (a × b) and (b × c) costs "
            "2abc.",
        ),
    ),
)


def _rows_with_gradient(ids: torch.Tensor, vocab_size: int) -> float:
    """Let autograd say which rows of an embedding a batch of ids reaches."""
    weight = torch.zeros(vocab_size, 1, requires_grad=True)
    torch.nn.functional.embedding(ids, weight).sum().backward()
    return (weight.grad != 0).any(dim=1).double().mean().item()


def _id_batches() -> list[tuple]:
    generator = torch.Generator().manual_seed(0)
    skewed = (torch.rand(32, 64, generator=generator) ** 4 * 1000).long()
    return [
        (torch.tensor([[3, 1, 3], [1, 3, 0]]), 10),
        (torch.arange(8).reshape(2, 4), 8),
        (skewed, 1000),
    ]


ROWS = Check(
    key="01b",
    task="fraction_of_rows_touched(ids, vocab_size)",
    cases=_id_batches,
    expected=_rows_with_gradient,
    verified=(
        "Your fraction is that of the rows to which autograd sends a gradient from the "
        "lookup, for three batches."
    ),
    mistakes=(
        Mistake(
            "tokens counted",
            lambda ids, vocab_size: ids.numel() / vocab_size,
            "You count tokens. A token that occurs twice touches the same row twice: "
            "count distinct ids.",
        ),
        Mistake(
            "divided by tokens",
            lambda ids, vocab_size: ids.unique().numel() / ids.numel(),
            "You divide by the number of tokens. The question is about rows: divide by "
            "vocab_size.",
        ),
        Mistake(
            "count, not fraction",
            lambda ids, vocab_size: ids.unique().numel(),
            "That is the number of rows. Divide by vocab_size for the fraction.",
        ),
        Mistake(
            "percent",
            lambda ids, vocab_size: 100 * ids.unique().numel() / vocab_size,
            "That is in percent; a fraction is asked for, 0 to 1.",
        ),
        Mistake(
            "untouched rows",
            lambda ids, vocab_size: 1 - ids.unique().numel() / vocab_size,
            "That is the fraction of rows which get no gradient from the lookup; the "
            "question is about the others.",
        ),
    ),
)

CHECKS = (FLOPS, ROWS)
