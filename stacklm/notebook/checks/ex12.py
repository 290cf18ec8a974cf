"""Exercise 12: a checkpoint of rows that goes on with another number of ranks."""

from itertools import pairwise

import torch

from stacklm.notebook.checking import Check, Mistake
from stacklm.notebook.checks import plain


def _rows_by_torch(m: int, ranks: int) -> list[tuple[int, int]]:
    """Let torch.chunk cut the row numbers, and look at what came out."""
    pieces = torch.arange(m).chunk(ranks)
    found = [(int(piece[0]), int(piece[-1]) + 1) for piece in pieces]
    return found + [(m, m)] * (ranks - len(found))


def _size(m: int, ranks: int) -> int:
    return -(-m // ranks)


def _balanced(m: int, ranks: int) -> list[tuple[int, int]]:
    """Cut as evenly as possible: the first m % ranks pieces get one row more."""
    ends = [r * (m // ranks) + min(r, m % ranks) for r in range(ranks + 1)]
    return list(pairwise(ends))


ROWS = Check(
    key="12a",
    task="row_ranges(m, ranks)",
    cases=lambda: [(512, 4), (18, 4), (18, 8), (3, 4), (1, 1), (72, 16)],
    expected=_rows_by_torch,
    verified="Cut by torch.chunk, the numbers of the rows end up in the same pieces.",
    mistakes=(
        Mistake(
            "balanced",
            _balanced,
            "You cut as evenly as possible. FSDP2 does not: every rank gets ceil(m / "
            "ranks) rows until they run out, so that the last ranks may have none.",
        ),
        Mistake(
            "rows lost",
            lambda m, ranks: [
                (r * (m // ranks), (r + 1) * (m // ranks)) for r in range(ranks)
            ],
            "You round the size of a piece down, and the rows that are left over "
            "belong to nobody.",
        ),
        Mistake(
            "past the end",
            lambda m, ranks: [
                (r * _size(m, ranks), (r + 1) * _size(m, ranks)) for r in range(ranks)
            ],
            "Your last pieces run past row m. Both ends of a range are at most m.",
        ),
        Mistake(
            "last row included",
            lambda m, ranks: [(a, b - 1) for a, b in _rows_by_torch(m, ranks)],
            "Your ranges end at their last row; they are to end one row after it, as "
            "slices do.",
        ),
        Mistake(
            "sizes",
            lambda m, ranks: [b - a for a, b in _rows_by_torch(m, ranks)],
            "Those are the numbers of rows. Asked is where each piece begins and ends.",
        ),
    ),
)


def _owner_of_rows(m: int, ranks: int) -> list[int]:
    return [r for r, (a, b) in enumerate(_rows_by_torch(m, ranks)) for _ in range(a, b)]


def _reads_by_rows(m: int, old: int, new: int) -> list[list[tuple[int, int, int]]]:
    """Walk over the rows one by one; neighbours from one file make one read."""
    source, found = _owner_of_rows(m, old), []
    for first, end in _rows_by_torch(m, new):
        reads: list[tuple[int, int, int]] = []
        for row in range(first, end):
            if reads and reads[-1][0] == source[row]:
                reads[-1] = (source[row], reads[-1][1], row + 1)
            else:
                reads.append((source[row], row, row + 1))
        found.append(reads)
    return found


def _reads_with_empty(m, old, new):
    """Also reads of no rows."""
    return [
        [
            (s, max(a, c), min(b, d))
            for s, (c, d) in enumerate(_rows_by_torch(m, old))
            if max(a, c) <= min(b, d)
        ]
        for a, b in _rows_by_torch(m, new)
    ]


def _in_the_file(m, old, new):
    """Rows counted from the beginning of each file."""
    begin = [first for first, _ in _rows_by_torch(m, old)]
    return [
        [(s, a - begin[s], b - begin[s]) for s, a, b in reads]
        for reads in _reads_by_rows(m, old, new)
    ]


READS = Check(
    key="12b",
    task="reads(m, old, new)",
    cases=lambda: [
        (16, 4, 2),
        (18, 4, 2),
        (18, 2, 4),
        (3, 4, 2),
        (18, 4, 1),
        (9, 3, 3),
    ],
    expected=_reads_by_rows,
    verified=(
        "Walking over the rows one by one finds the same files and the same rows in "
        "each."
    ),
    mistakes=(
        Mistake(
            "own file",
            lambda m, old, new: [
                [(r, *rows)] if r < old and rows[0] < rows[1] else []
                for r, rows in enumerate(_rows_by_torch(m, new))
            ],
            "Each of your ranks reads the file of its own number. With another number "
            "of ranks its rows lie elsewhere: compare ranges of rows, not numbers of "
            "ranks.",
        ),
        Mistake(
            "whole files",
            lambda m, old, new: [
                [(s, *_rows_by_torch(m, old)[s]) for s, _, _ in reads]
                for reads in _reads_by_rows(m, old, new)
            ],
            "You find the right files but read all of each. A rank takes the rows that "
            "it will hold, and no others.",
        ),
        Mistake(
            "everything",
            lambda m, old, new: [
                [(s, a, b) for s, (a, b) in enumerate(_rows_by_torch(m, old)) if a < b]
                for _ in range(new)
            ],
            "Each of your ranks reads every file. That is right for one rank alone.",
        ),
        Mistake(
            "empty reads",
            _reads_with_empty,
            "You list reads of no rows. Keep a read only if it begins before it ends.",
        ),
        Mistake(
            "rows of the file",
            _in_the_file,
            "You count rows from the beginning of each file. Count them in the whole "
            "matrix.",
        ),
    ),
)


def _files(shapes: dict[str, tuple[int, int]], ranks: int) -> list[dict]:
    """Checkpoints of known matrices, a file per rank."""
    files: list[dict] = [{} for _ in range(ranks)]
    for seed, (name, (m, n)) in enumerate(shapes.items()):
        for kind in ("weight", "momentum"):
            full = plain.gaussian(m, n, seed=2 * seed + (kind == "momentum"))
            for file, (a, b) in zip(files, _rows_by_torch(m, ranks), strict=True):
                file[f"{name}.{kind}"] = full[a:b].clone()
    return files


def _reshard_by_reads(files: list[dict], ranks: int) -> list[dict]:
    """Copy row by row, each from the one file that has it."""
    out: list[dict] = [{} for _ in range(ranks)]
    for name in files[0]:
        m = sum(len(file[name]) for file in files)
        begin = [first for first, _ in _rows_by_torch(m, len(files))]
        for new, reads in zip(out, _reads_by_rows(m, len(files), ranks), strict=True):
            rows = [
                files[s][name][row - begin[s]]
                for s, a, b in reads
                for row in range(a, b)
            ]
            new[name] = torch.stack(rows) if rows else files[0][name][:0]
    return out


def _only_rank_0(files: list[dict], ranks: int) -> list[dict]:
    """Momentum of rank 0 alone; the other ranks start at zero."""
    out = _reshard_by_reads(files, ranks)
    for new in out[1:]:
        for name in new:
            if name.endswith("momentum"):
                new[name] = torch.zeros_like(new[name])
    return out


def _no_empty(files: list[dict], ranks: int) -> list[dict]:
    out = _reshard_by_reads(files, ranks)
    return [{name: t for name, t in new.items() if len(t)} for new in out]


def _dealt(files: list[dict], ranks: int) -> list[dict]:
    """Rows dealt like cards."""
    full = _reshard_by_reads(files, 1)[0]
    return [{name: t[r::ranks] for name, t in full.items()} for r in range(ranks)]


RESHARD = Check(
    key="12c",
    task="reshard(files, ranks)",
    cases=lambda: [
        (_files({"a": (16, 6), "b": (18, 3)}, 4), 2),
        (_files({"a": (18, 3), "b": (3, 5)}, 4), 1),
        (_files({"a": (18, 3), "b": (3, 5)}, 2), 4),
        (_files({"a": (7, 2)}, 4), 4),
    ],
    expected=_reshard_by_reads,
    rtol=0.0,
    verified=(
        "Copying one row after the other gives the same files, to the bit, for fewer, "
        "for more and for as many ranks."
    ),
    mistakes=(
        Mistake(
            "own file",
            lambda files, ranks: [
                dict(files[r]) if r < len(files) else {} for r in range(ranks)
            ],
            "Each of your ranks gets the file of its own number. That is right for as "
            "many ranks as before only.",
        ),
        Mistake(
            "only rank 0",
            _only_rank_0,
            "The weights are right, but the momentum is rank 0's alone and zero on the "
            "others. Such a run goes on without an error, only worse.",
        ),
        Mistake(
            "copies",
            lambda files, ranks: _reshard_by_reads(files, 1) * ranks,
            "You give every rank all rows. Each is to hold its own.",
        ),
        Mistake(
            "empty ones dropped",
            _no_empty,
            "A rank without rows of a matrix still needs its entry, with zero rows and "
            "all columns.",
        ),
        Mistake(
            "dealt like cards",
            _dealt,
            "Your rows go round the ranks one by one. FSDP2 gives each rank "
            "neighbours: cut the whole as in part a.",
        ),
    ),
)

CHECKS = (ROWS, READS, RESHARD)
