"""Faults of the JAX edition, and of what benchmarks count, time and predict."""

from tests.mutants.faults import Fault

BUILD, STACK = "jax/build.py", "jax/newton_schulz.py"
LEAVES, PLACES = "jax/routing.py", "jax/sharding.py"
HLO, TREE = "jax/hlo.py", "jax/model.py"
TRAFFIC = "bench/collectives.py"

FAULTS = [
    Fault(
        "JAX: decay left out of Muon",
        BUILD,
        "optax.add_decayed_weights(config.weight_decay)",
        "optax.add_decayed_weights(0.0)",
    ),
    Fault(
        "JAX: momentum not corrected for its first steps",
        BUILD,
        "now = correct(grads, beta, count)",
        "now = grads",
    ),
    Fault(
        "JAX: state all on one device",
        BUILD,
        "return jax.jit(optimizer.init, out_shardings=shardings)(params)",
        "return jax.jit(optimizer.init)(params)",
    ),
    Fault(
        "JAX: results in another order",
        BUILD,
        "named.update(zip(group.names, done, strict=True))",
        "named.update(zip(group.names, done[::-1], strict=True))",
    ),
    Fault(
        "JAX: tall matrices iterate on the long side",
        STACK,
        "tall = X.dtype, X.shape[1] > X.shape[2]",
        "tall = X.dtype, False",
    ),
    Fault(
        "JAX: stacks without their padding",
        STACK,
        "padded(group.matrices, mesh) - group.matrices",
        "0",
    ),
    Fault(
        "JAX: the exchange is skipped",
        STACK,
        "path = stages(mesh, group.spec) if mesh is not None else []",
        "path = []",
    ),
    Fault(
        "JAX: rows and columns moved at once",
        PLACES,
        "for side in (0, 1):",
        "for side in ():",
    ),
    Fault(
        "JAX: replicas iterate on the same matrices",
        PLACES,
        "moved += free",
        "moved += ()",
    ),
    Fault(
        "JAX: heads on Muon",
        LEAVES,
        'return Verdict("adamw", "output head: one column per class or token")',
        'return Verdict("muon", "hidden matrix")',
    ),
    Fault(
        "JAX: stacks without being asked",
        LEAVES,
        'return Verdict("unclear", f"3-D; {why}")',
        'return Verdict("muon", f"3-D; {why}")',
    ),
    Fault(
        "JAX: half the triples suffice",
        "jax/config.py",
        "if many and len(given) != config.ns_steps:",
        "if False:",
    ),
    Fault(
        "loops turn once",
        HLO,
        "times * int(turns[1] if turns else 1)",
        "times",
    ),
    Fault(
        "collectives of loops are not told apart",
        HLO,
        "found.in_loops += inside",
        "found.in_loops += 0",
    ),
    Fault(
        "JAX: matrices as torch has them",
        TREE,
        "array.T if matrix else array",
        "array",
    ),
    Fault("JAX: no causal mask", TREE, "jnp.tril(", "jnp.asarray("),
    Fault(
        "JAX: two curves of different steps",
        "jax/parity.py",
        "if [step for step, _ in curve] != [step for step, _ in reference]:",
        "if False:",
    ),
    Fault(
        "JAX: a checkpoint is cast silently",
        "jax/checkpoint.py",
        "if odd:\n",
        "if False:\n",
    ),
    Fault(
        "JAX: the update is counted without its places",
        "jax/compiled.py",
        "jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)",
        "jax.ShapeDtypeStruct(leaf.shape, leaf.dtype)",
    ),
    Fault(
        "the bound counts replicas once",
        TRAFFIC,
        "(replicas * m - own) * n * out_itemsize",
        "(m - own) * n * out_itemsize",
    ),
    Fault(
        "what a rank sends itself is counted",
        TRAFFIC,
        "return row * (sum(splits) - splits[me])",
        "return row * sum(splits)",
    ),
    Fault(
        "all GPUs share one node",
        "bench/clusters.py",
        "NVLINK_BYTES if gpus <= GPUS_PER_NODE else NETWORK_BYTES",
        "NVLINK_BYTES",
    ),
    Fault(
        "way out as wide as the way in",
        "bench/cost_model.py",
        "gone[1, r, s] += away.sum() * back  # out",
        "gone[1, r, s] += away.sum() * self.itemsize  # out",
    ),
    Fault(
        "messages of one class only",
        "bench/cost_model.py",
        "self.told += 2 * _peers(owners, *self.form)",
        "self.told = 2 * _peers(owners, *self.form)",
    ),
    Fault(
        "the leaf-by-leaf step looks back",
        "bench/per_leaf.py",
        "orthogonalize_leaf(p.grad + mu * B,",
        "orthogonalize_leaf(B,",
    ),
    Fault(
        "an error of a rank is an answer",
        "bench/ranks.py",
        "    if errors:\n",
        "    if False:\n",
    ),
    Fault(
        "the machine is judged on what it has seen",
        "bench/held_out.py",
        'abs(row["error"]) for row in rows if row["held_out"]',
        'abs(row["error"]) for row in rows if not row["held_out"]',
    ),
    Fault(
        "the peak of the slowest product",
        "bench/measure.py",
        'flops / min(times[f"GEMM {n}"].seconds)',
        'flops / max(times[f"GEMM {n}"].seconds)',
    ),
    Fault(
        "two machines in one file",
        "bench/report.py",
        'machine.get("accelerator") or machine["processor"]',
        '"machine"',
    ),
    Fault(
        "a step lasts as long as on the fastest rank",
        "bench/sharded.py",
        "return max(wall for wall, _ in both)",
        "return min(wall for wall, _ in both)",
    ),
]
