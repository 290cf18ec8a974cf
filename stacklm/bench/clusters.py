"""The sharded step on 8, 64 and 1,024 GPUs, on paper: nothing here was measured.

The work is counted by the schedule that ``Muon`` runs; the rates come from data sheets,
with what can be expected of them. What is assumed, beside the constants below:

- Newton–Schulz in bf16, in its plain form (``ns_dtype=torch.bfloat16``): the way out is
  bf16, weights, momentum and the way in are fp32.
- FSDP over all GPUs; between nodes every byte takes the slow link, though an eighth or
  less of them would not have to.
- Messages of a rank follow one another, and nothing overlaps.
- The host keeps up: its time to launch kernels is not counted.
- Training takes 6 FLOPs per parameter and token, at the same share of the peak.
- Whether a model fits is not asked; ``held`` says what its weights, gradients and
  momentum take.

Legend: N parameters; W GPUs. Units: seconds, bytes. Taught in chapter 13.
"""

from __future__ import annotations

from dataclasses import dataclass

from stacklm.bench.cases import block_shapes
from stacklm.bench.cost_model import Machine, predict, work_of
from stacklm.config import StackConfig, count_params

# NVIDIA H100 Tensor Core GPU data sheet, SXM: dense bf16 (half of the figure with
# sparsity), memory, NVLink (900 GB/s both ways together).
BF16_FLOPS = 989e12
MEMORY_BYTES = 3.35e12
NVLINK_BYTES = 450e9
# NVIDIA DGX H100 user guide: a 400 Gb/s adapter for each of the eight GPUs of a node.
NETWORK_BYTES = 50e9
GPUS_PER_NODE = 8
# Of the figures above, what is reached. Products: the share of the peak that large
# training runs report, Dubey et al. 2024, table 4 (38 to 43 %). Links and memory: 380
# of 450 GB/s between two H100 (NVIDIA/nccl, issue 1264), taken for all of them.
OF_FLOPS, OF_BYTES = 0.40, 0.84
# Hu et al. 2025, arXiv:2507.04786, table 1: a hop of NCCL's "simple" protocol.
MESSAGE_SECONDS = 6e-6
# Tokens of a step. Dubey et al. 2024, section 3.4.1: 4 million at first.
TOKENS = 4_194_304

# Dubey et al. 2024, arXiv:2407.21783, table 3, for 8B and 70B; Zhang et al. 2024,
# arXiv:2401.02385, table 1, for 1.1B.
MODELS: dict[str, StackConfig] = {
    "Stack-100M": StackConfig(),
    "1.1B": StackConfig(
        vocab_size=32_000,
        d_model=2048,
        n_layers=22,
        n_heads=32,
        n_kv_heads=4,
        intermediate=5632,
        tie_embeddings=False,
    ),
    "8B": StackConfig(
        vocab_size=128_256,
        d_model=4096,
        n_layers=32,
        n_heads=32,
        n_kv_heads=8,
        head_dim=128,
        intermediate=14_336,
        tie_embeddings=False,
    ),
    "70B": StackConfig(
        vocab_size=128_256,
        d_model=8192,
        n_layers=80,
        n_heads=64,
        n_kv_heads=8,
        head_dim=128,
        intermediate=28_672,
        tie_embeddings=False,
    ),
}
GPUS = (8, 64, 1024)


@dataclass(frozen=True)
class Estimate:
    """A step of a model on so many GPUs."""

    model: str
    gpus: int
    matrices: int
    """Those that Muon takes."""
    terms: dict[str, float]
    """Seconds of the optimizer's step, by term of the cost model."""
    idle: float
    """The share of GPUs that own no matrix; they wait."""
    held: float
    """Bytes of fp32 weights, gradients and momentum of Muon's matrices on a GPU."""
    training: float
    """Seconds of the forward and backward passes."""

    @property
    def seconds(self) -> float:
        """Of the optimizer's step."""
        return sum(self.terms.values())

    @property
    def share(self) -> float:
        """Of the optimizer in the whole step."""
        return self.seconds / (self.seconds + self.training)


def h100(gpus: int) -> Machine:
    """So many H100: by NVLink within a node, by InfiniBand between nodes.

    Args:
        gpus: GPUs, W of them.

    Returns:
        Its rates, a device for each rank.
    """
    link = NVLINK_BYTES if gpus <= GPUS_PER_NODE else NETWORK_BYTES
    return Machine(
        per_flop=1 / (BF16_FLOPS * OF_FLOPS),
        per_wire_byte=1 / (link * OF_BYTES),
        per_message=MESSAGE_SECONDS,
        per_memory_byte=1 / (MEMORY_BYTES * OF_BYTES),
    )


def estimate(model: str, gpus: int, *, tokens: int = TOKENS) -> Estimate:
    """What the cost model says of a step.

    Args:
        model: One of ``MODELS``.
        gpus: GPUs, W of them.
        tokens: Of all GPUs together.

    Returns:
        The estimate.
    """
    cfg = MODELS[model]
    shapes = block_shapes(cfg) * cfg.n_layers
    work = work_of(shapes, gpus, out_itemsize=2)
    training = 6 * count_params(cfg).total * tokens  # FLOPs
    return Estimate(
        model=model,
        gpus=gpus,
        matrices=len(shapes),
        terms=predict(work, h100(gpus)),
        idle=max(0.0, 1 - len(shapes) / gpus),
        held=12 * sum(m * n for m, n in shapes) / gpus,
        training=training / (gpus * BF16_FLOPS * OF_FLOPS),
    )


def table(tokens: int = TOKENS) -> str:
    """All models on all numbers of GPUs, as lines of text; times in milliseconds."""
    lines = [
        f"{'model':12}{'GPUs':>6}{'matrices':>10}{'products':>10}{'wire':>8}"
        f"{'messages':>10}{'memory':>8}{'step':>9}{'training':>11}{'share':>7}"
    ]
    for model in MODELS:
        for gpus in GPUS:
            e = estimate(model, gpus, tokens=tokens)
            t = {term: 1e3 * seconds for term, seconds in e.terms.items()}
            lines.append(
                f"{model:12}{gpus:6}{e.matrices:10}{t['products']:10.2f}"
                f"{t['wire']:8.2f}{t['messages']:10.2f}{t['memory']:8.2f}"
                f"{1e3 * e.seconds:9.2f}{1e3 * e.training:11.1f}{e.share:7.1%}"
            )
    return "\n".join(lines)
