"""Exercise 6: the condition number, and many matrices at once instead of one by one."""

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from stacklm.notebook.checking import Check, Mistake
from stacklm.notebook.checks import plain


def _with_spectrum(m: int, n: int, low: float, high: float) -> torch.Tensor:
    """Return a float64 matrix whose singular values run from ``low`` to ``high``."""
    rank = min(m, n)
    u, _ = torch.linalg.qr(plain.gaussian(m, rank, seed=0, dtype=torch.float64))
    v, _ = torch.linalg.qr(plain.gaussian(n, rank, seed=1, dtype=torch.float64))
    ratio = torch.linspace(0, 1, rank, dtype=torch.float64)
    return (u * low * (high / low) ** ratio) @ v.mT


def _ratio(sigma: torch.Tensor) -> float:
    return (sigma.max() / sigma.min()).item()


def _conditions(matrix: torch.Tensor, steps: int = 5) -> tuple[float, float]:
    """Return the ratios before and after, from singular values only."""
    return _ratio(plain.spectrum_after(matrix, 0)), _ratio(
        plain.spectrum_after(matrix, steps)
    )


def _spoiled(change):
    """Return a function that spoils the pair (before, after) by ``change``."""
    return lambda G: change(*_conditions(G))


CONDITION = Check(
    key="06a",
    task="condition_numbers(G)",
    cases=lambda: [
        (_with_spectrum(256, 128, 0.1, 10.0),),
        (_with_spectrum(48, 96, 0.01, 10.0),),
    ],
    expected=_conditions,
    rtol=1e-4,
    verified=(
        "Both numbers agree with singular values sent one by one through the quintic, "
        "for a tall and a wide matrix."
    ),
    mistakes=(
        Mistake(
            "smallest over largest",
            _spoiled(lambda before, after: (1 / before, 1 / after)),
            "You divide the smallest singular value by the largest; the condition "
            "number is the other way round and at least 1.",
        ),
        Mistake(
            "Gram matrix",
            _spoiled(lambda before, after: (before**2, after**2)),
            "Those are squares: the eigenvalues of GᵀG are σ². Use the singular "
            "values of G itself.",
        ),
        Mistake(
            "nothing done",
            _spoiled(lambda before, after: (before, before)),
            "The second number is still that of G; measure what Newton–Schulz gave.",
        ),
        Mistake(
            "exact polar factor",
            _spoiled(lambda before, after: (before, 1.0)),
            "An exact polar factor has condition number 1. Five Newton–Schulz steps do "
            "not reach it: measure what they return.",
        ),
        Mistake(
            "one step",
            lambda G: _conditions(G, steps=1),
            "The second number is what one step gives. Five are asked for: "
            "zeropower_via_newtonschulz5 does them all.",
        ),
        Mistake(
            "swapped",
            _spoiled(lambda before, after: (after, before)),
            "The two numbers are swapped: return (before, after).",
        ),
    ),
)


def _stack_100m_shapes() -> list[tuple[int, int]]:
    q_o, k_v, up, down = (512, 512), (128, 512), (1408, 512), (512, 1408)
    return [q_o, k_v, k_v, q_o, up, up, down] * 30


def _classes_by_comparison(shapes: list) -> dict:
    """Put each shape with the first one that it equals, straight or turned."""
    classes: list[list] = []
    for m, n in shapes:
        home = next((c for c in classes if c[0] in ((m, n), (n, m))), None)
        home.append((m, n)) if home else classes.append([(m, n)])
    return {(min(c[0]), max(c[0])): len(c) for c in classes}


def _counts(shapes: list, key) -> dict:
    keys = [key(shape) for shape in shapes]
    return {each: keys.count(each) for each in keys}


def _first_of_numel(shapes: list) -> dict:
    first: dict[int, tuple] = {}
    for m, n in shapes:
        first.setdefault(m * n, (min(m, n), max(m, n)))
    return _counts(shapes, lambda shape: first[shape[0] * shape[1]])


CLASSES = Check(
    key="06b",
    task="shape_classes(shapes)",
    cases=lambda: [
        (_stack_100m_shapes(),),
        ([(256, 1024), (512, 512), (1024, 256), (512, 512)],),
    ],
    expected=_classes_by_comparison,
    verified=(
        "Your classes hold the shapes that are equal straight or transposed: three for "
        "the 210 matrices of Stack-100M."
    ),
    mistakes=(
        Mistake(
            "not transposed",
            lambda shapes: _counts(shapes, tuple),
            "A tall matrix is transposed before the iteration, so 1408×512 and "
            "512×1408 belong together: take (short, long) as the key.",
        ),
        Mistake(
            "by number of entries",
            _first_of_numel,
            "Shapes with the same number of entries are not the same shape: 256×1024 "
            "and 512×512 cannot be stacked.",
        ),
        Mistake(
            "number of entries as key",
            lambda shapes: _counts(shapes, lambda s: s[0] * s[1]),
            "You count by the number of entries. Two shapes can have equally many and "
            "still not share a stack: take (short, long) as the key.",
        ),
        Mistake(
            "(long, short)",
            lambda shapes: _counts(shapes, lambda s: (max(s), min(s))),
            "The classes are right, but the keys are (long, short); asked is "
            "(short, long).",
        ),
    ),
)


def _one_by_one(matrices: list) -> list:
    return [plain.orthogonalize(matrix) for matrix in matrices]


def _by_class(matrices: list, *, key, pack, unpack, in_order: bool = True) -> list:
    """Orthogonalize stack by stack; the parts that can go wrong are arguments."""
    groups: dict = {}
    for at, matrix in enumerate(matrices):
        groups.setdefault(key(matrix), []).append(at)
    done: dict = {}
    for members in groups.values():
        first = pack(matrices[members[0]])
        stack = [pack(matrices[at]).reshape(first.shape) for at in members]
        results = plain.orthogonalize(torch.stack(stack))
        for at, result in zip(members, results, strict=True):
            done[at] = unpack(result, matrices[at])
    return [done[at] for at in (range(len(matrices)) if in_order else done)]


def _sides(matrix: torch.Tensor) -> tuple:
    return tuple(sorted(matrix.shape))


def _wide(matrix: torch.Tensor) -> torch.Tensor:
    return matrix.mT if matrix.shape[0] > matrix.shape[1] else matrix


def _turned_back(result: torch.Tensor, matrix: torch.Tensor) -> torch.Tensor:
    return result if result.shape == matrix.shape else result.mT


def _reshaped_back(result: torch.Tensor, matrix: torch.Tensor) -> torch.Tensor:
    return result.reshape(matrix.shape)


def _matrices(block: list, seed: int = 0) -> list[torch.Tensor]:
    return [plain.gaussian(m, n, seed + at) for at, (m, n) in enumerate(block)]


class _Products(TorchDispatchMode):
    """Count matrix products on their way to the kernels."""

    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket.__name__
        self.count += name in ("mm", "bmm", "addmm", "baddbmm", "_addmm_activation")
        return func(*args, **(kwargs or {}))


def _products(answer, copies: int) -> int:
    matrices = _matrices([(16, 16), (8, 16), (24, 16), (16, 24)] * copies)
    with _Products() as products:
        answer(matrices)
    return products.count


def _grows_with_copies(answer) -> str | None:
    few, many = _products(answer, 1), _products(answer, 4)
    if many <= few:
        return None
    return (
        "not yet. The values are right, but the number of matrix products grows with "
        f"the number of matrices ({few} for 4 matrices, {many} for 16 of the same "
        "shapes). Stack the matrices of a class and orthogonalize the stack."
    )


BATCHED = Check(
    key="06c",
    task="orthogonalize_batched(matrices)",
    cases=lambda: [
        (_matrices([(32, 64), (64, 64), (128, 32), (64, 64), (32, 128), (32, 64)]),),
        # One block of Stack-100M at a quarter of its size: seconds otherwise.
        (_matrices([(m // 4, n // 4) for m, n in _stack_100m_shapes()[:7]]),),
    ],
    expected=_one_by_one,
    rtol=1e-4,
    beyond=_grows_with_copies,
    verified=(
        "Every matrix comes out as it does alone, in its place and shape, for a "
        "block of Stack-100M at a quarter of its size; and four times as many matrices "
        "take no more products."
    ),
    mistakes=(
        Mistake(
            "by number of entries",
            lambda ms: _by_class(
                ms, key=torch.numel, pack=_wide, unpack=_reshaped_back
            ),
            "You stack matrices that have the same number of entries but other shapes. "
            "Reshaping mixes their rows: use (short, long) as the key.",
        ),
        Mistake(
            "order lost",
            lambda ms: _by_class(
                ms, key=_sides, pack=_wide, unpack=_turned_back, in_order=False
            ),
            "The matrices are right, but they come back class by class. Remember where "
            "each one came from and put it back there.",
        ),
        Mistake(
            "reshaped instead of transposed",
            lambda ms: _by_class(
                ms,
                key=_sides,
                pack=lambda matrix: matrix.reshape(_sides(matrix)),
                unpack=_reshaped_back,
            ),
            "You reshape tall matrices to wide ones. That cuts the rows elsewhere; "
            "transpose with .mT, and back afterwards.",
        ),
        Mistake(
            "not transposed back",
            lambda ms: _by_class(ms, key=_sides, pack=_wide, unpack=lambda x, _: x),
            "Tall matrices come back wide: transpose them back.",
        ),
    ),
)

CHECKS = (CONDITION, CLASSES, BATCHED)
