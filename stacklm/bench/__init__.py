"""What is timed against whom: ``python -m stacklm.bench``, or ``make bench``.

cases.py     the matrices of Stack-100M, hard spectra, and the form one writes first
launches.py  how many kernels a GPU would be asked to run
clock.py     time by turns, so that what disturbs one disturbs all
peers.py     other packages' Muon; an optional extra, ``pip install stacklm[peers]``
measure.py   the candidates, each with its time and its distance from float64
report.py    the table, the JSON, the hardware

and of several ranks:

ranks.py        several processes that train together, on this machine
collectives.py  what a function asks of other ranks: counts, bytes, the fewest bytes
per_leaf.py     Muon leaf by leaf on DTensors, the baseline
steps.py        whole steps by several ranks, on FSDP2's parameters
sharded.py      these by turns: ``python -m stacklm.bench.sharded``
cost_model.py   how long such a step takes, from what it has to do
held_out.py     the model against steps it has not seen
clusters.py     the model on 8 to 1,024 GPUs, on paper

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
from stacklm.bench.clusters import Estimate, estimate, h100
from stacklm.bench.collectives import Traffic, count_collectives, least_bytes
from stacklm.bench.cost_model import Machine, Work, calibrate, predict, work_of
from stacklm.bench.per_leaf import PerLeafMuon
from stacklm.bench.ranks import RankError, Ranks
from stacklm.bench.steps import mesh_of, prepare_step, step_traffic

__all__ = [
    "Estimate",
    "Machine",
    "PerLeafMuon",
    "RankError",
    "Ranks",
    "Times",
    "Traffic",
    "Work",
    "block_shapes",
    "by_turns",
    "calibrate",
    "count_collectives",
    "estimate",
    "h100",
    "hard_matrices",
    "least_bytes",
    "mesh_of",
    "plain_newton_schulz",
    "predict",
    "prepare_step",
    "random_matrices",
    "ratio",
    "step_traffic",
    "with_spectrum",
    "work_of",
]
