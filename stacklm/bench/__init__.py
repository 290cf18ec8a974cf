"""What is timed against whom: ``python -m stacklm.bench``, or ``make bench``.

cases.py     the matrices of Stack-100M, hard spectra, and the form one writes first
launches.py  how many kernels a GPU would be asked to run
clock.py     time by turns, so that what disturbs one disturbs all
peers.py     other packages' Muon; an optional extra, ``pip install stacklm[peers]``
measure.py   the candidates, each with its time and its distance from float64
report.py    the table, the JSON, the hardware

Units: seconds; a FLOP is an addition or a multiplication, and FLOP/s always count the
FLOPs of the plain quintic, 1.038 TFLOP for Stack-100M, whatever a form really does.
"""

from stacklm.bench.cases import (
    block_shapes,
    hard_matrices,
    plain_newton_schulz,
    random_matrices,
    with_spectrum,
)
from stacklm.bench.clock import Times, by_turns, ratio

__all__ = [
    "Times",
    "block_shapes",
    "by_turns",
    "hard_matrices",
    "plain_newton_schulz",
    "random_matrices",
    "ratio",
    "with_spectrum",
]
