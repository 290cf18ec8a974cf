"""Trees of parameters that several tests share, on a mesh or on one device."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec

# A block of Stack-100M at half its width, laid out as JAX has it: (in, out).
BLOCK = {
    "wq": (256, 256),
    "wk": (256, 64),
    "wv": (256, 64),
    "wo": (256, 256),
    "w_gate": (256, 704),
    "w_up": (256, 704),
    "w_down": (704, 256),
}
# Two kinds of square, wide, tall; stacks; odd numbers of each; what goes to Adam.
MIXED = {
    "layers": [{"wq": (16, 16), "w_up": (16, 24), "w_down": (24, 16)}] * 2,
    "odd": {"w_up": (6, 10), "wk": (16, 4)},
    "experts": {"w_up": (5, 8, 12), "bias": (5, 12)},
    "tok_emb": (20, 16),
    "norm1": (16,),
}
ROUTE = {"experts.w_up": "muon"}


def is_shape(x) -> bool:
    return isinstance(x, tuple)


def mesh(*sizes, kind=AxisType.Auto):
    """("fsdp",) of one size, ("replicate", "fsdp") of two."""
    names = ("replicate", "fsdp")[-len(sizes) :]
    return jax.make_mesh(sizes, names, axis_types=(kind,) * len(sizes))


def place(shape, on):
    """Rows over fsdp where they divide; a stack (E, m, n) by its m."""
    if on is None:
        return None
    rows = len(shape) - 2 if len(shape) > 1 else 0
    cut = [None] * len(shape)
    if len(shape) > 1 and shape[rows] % on.shape["fsdp"] == 0:
        cut[rows] = "fsdp"
    return NamedSharding(on, PartitionSpec(*cut))


def structs(shapes, on=None):
    """Shapes with shardings, no memory."""

    def one(shape):
        return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=place(shape, on))

    return jax.tree.map(one, shapes, is_leaf=is_shape)


def arrays(shapes, seed=0, on=None):
    """Gaussian arrays; the same numbers on every mesh."""
    leaves, treedef = jax.tree.flatten(shapes, is_leaf=is_shape)
    rng = np.random.default_rng(seed)
    made = [rng.standard_normal(s, np.float32) for s in leaves]
    made = [jax.device_put(x, place(x.shape, on)) for x in made]
    return jax.tree.unflatten(treedef, made)


def apart(a, b) -> float:
    """The largest difference of two trees, relative to the largest entry of a leaf."""

    def one(x, y):
        x, y = jax.device_get(x), jax.device_get(y)
        return float(abs(x - y).max() / max(abs(y).max(), 1e-30))

    return max(jax.tree.leaves(jax.tree.map(one, a, b)))
