"""What only several devices can show, measured in a process of its own.

XLA reads how many devices to simulate when it starts, so the parent sets XLA_FLAGS and
asserts on the JSON that this script prints. Nothing is judged here.
"""

import json
import sys
import tempfile
import time
from dataclasses import asdict

import jax
import jax.numpy as jnp
import optax
from jax.sharding import AxisType

from stacklm.jax import (
    MuonConfig,
    build_optimizers,
    compile_update,
    count_exchanges,
    count_update,
    init_state,
    restore_checkpoint,
    save_checkpoint,
    state_shardings,
)
from stacklm.jax.newton_schulz import Group, group_leaves, orthogonalize_group
from stacklm.optim import COEFFICIENTS
from tests.jax.steps import advance, compiled, optimizer_for, run
from tests.jax.trees import BLOCK, MIXED, apart, arrays, mesh, structs

MESHES = {"1x4": (4,), "2x2": (2, 2)}
FORMS = {
    "optax": MuonConfig("optax"),
    "optax, scanned": MuonConfig("optax", coefficients=(COEFFICIENTS,) * 5),
    "stacked": MuonConfig(),
    "stacked bf16": MuonConfig(ns_dtype="bfloat16"),
}


def counts():
    """Exchanges of one update of four blocks, by mesh and form."""
    tree = {"blocks": [BLOCK] * 4}

    def of(name, form):
        on = mesh(*MESHES[name])
        params = structs(tree, on)
        return asdict(count_update(build_optimizers(FORMS[form], params, on), params))

    return {name: {form: of(name, form) for form in FORMS} for name in MESHES}


def without_constraint():
    """Collectives in the loop of a stack that nobody says where to put."""

    def of(name):
        on = mesh(*MESHES[name])
        leaves = structs([(64, 32)] * 4, on)
        named = dict(zip("abcd", leaves, strict=True))
        (group,) = group_leaves(named, on, 2**30)
        rows = jnp.broadcast_to(jnp.asarray(COEFFICIENTS), (5, 3))
        options = {"eps": 1e-8, "dtype": jnp.float32}

        def go(leaves, where):
            return orthogonalize_group(leaves, group, rows, mesh=where, **options)

        found = {}
        for key, where in (("free", None), ("held", on)):
            program = jax.jit(lambda x, where=where: go(x, where)).lower(leaves)
            found[key] = count_exchanges(program.compile().as_text()).in_loops
        return found

    return {name: of(name) for name in MESHES}


def uneven():
    """Exchanges of a stack of five, which four devices cannot share out evenly."""
    found = {}
    rows = jnp.broadcast_to(jnp.asarray(COEFFICIENTS), (5, 3))
    for name, sizes in MESHES.items():
        on = mesh(*sizes)
        leaves = structs([(64, 32)] * 5, on)
        (group,) = group_leaves(dict(zip("abcde", leaves, strict=True)), on, 2**30)

        def go(leaves, on=on, group=group):
            options = {"mesh": on, "eps": 1e-8, "dtype": jnp.float32}
            return orthogonalize_group(leaves, group, rows, **options)

        program = jax.jit(go).lower(leaves).compile()
        found[name] = asdict(count_exchanges(program.as_text()))
    return found


def parity():
    """Two steps on each mesh against one device, and against optax."""
    alone, _ = run()
    reference, _ = run(MuonConfig("optax"))
    start = arrays(MIXED)
    moved = jax.tree.map(jnp.subtract, reference, start)
    found = {"alone": apart(alone, reference)}
    for name, sizes in MESHES.items():
        params, state = run(on=mesh(*sizes))
        here = jax.tree.map(lambda p, s: jax.device_get(p) - s, params, start)
        found[name] = {
            "unsharded": apart(params, alone),
            "optax": apart(params, reference),
            "updates": apart(here, moved),
            "small stacks": apart(
                run(MuonConfig(max_stack_bytes=1), on=mesh(*sizes))[0], alone
            ),
            "devices": sorted({len(x.devices()) for x in jax.tree.leaves(state)}),
        }
    return found


def odd_placements():
    """Leaves cut by columns, by their own stack axis, by both axes, or not at all."""
    on = mesh(2, 2)
    cuts = {
        "columns": (None, "fsdp"),
        "both": (("replicate", "fsdp"), None),
        "whole": (None, None),
        "rows by replicate": ("replicate", "fsdp"),
    }
    rows = jnp.broadcast_to(jnp.asarray(COEFFICIENTS), (5, 3))
    options = {"eps": 1e-8, "dtype": jnp.float32}
    X = [jax.random.normal(jax.random.key(i), (16, 8)) for i in range(3)]
    found = {}
    for name, spec in cuts.items():
        group = Group(("a", "b", "c"), (1, 1, 1), (16, 8), spec)
        go = [
            jax.jit(
                lambda X, m=m, g=group: orthogonalize_group(
                    X, g, rows, mesh=m, **options
                )
            )(X)
            for m in (on, None)
        ]
        found[name] = apart(*go)
    stack = [jax.random.normal(jax.random.key(9), (4, 16, 8))]
    group = Group(("s",), (4,), (16, 8), ("fsdp", None, None))
    go = [
        orthogonalize_group(stack, group, rows, mesh=m, **options) for m in (on, None)
    ]
    found["own axis"] = apart(*go)
    return found


def checkpoints():
    """Saved by one form on one mesh, resumed by another form elsewhere."""
    found = {}
    ways = (("stacked", "1x4", "optax", "2x2"), ("optax", "2x2", "stacked", "1x4"))
    for one, first, two, second in (*ways, ("stacked", "1x4", "stacked", None)):
        on, to = (mesh(*MESHES[m]) if m else None for m in (first, second))
        params, state = run(FORMS[one], 2, on)
        like = arrays(MIXED, 5, to)
        tree = {"params": like, "state": init_state(compiled(FORMS[two], to)[0], like)}
        with tempfile.TemporaryDirectory() as folder:
            save_checkpoint(f"{folder}/2", {"params": params, "state": state})
            back = restore_checkpoint(f"{folder}/2", tree)
        end, _ = advance(FORMS[two], back["params"], back["state"], range(2, 4), to)
        homes = [jax.tree.map(lambda x: x.sharding, t) for t in (back, tree)]
        found[f"{one} {first} -> {two} {second}"] = {
            "restored": apart(back, {"params": params, "state": state}),
            "straight": apart(end, run(FORMS[one], 4, on)[0]),
            "at home": homes[0] == homes[1],
        }
    return found


def traps():
    """What JAX does by default, and what is refused."""
    on = mesh(4)
    params = arrays(MIXED, 0, on)
    optimizer = optimizer_for(MuonConfig(), params, on)
    naive = jax.tree.leaves(jax.jit(optimizer.init)(params))
    ours = jax.tree.leaves(init_state(optimizer, params))
    found = {
        "naive": max(len(x.devices()) for x in naive),
        "ours": min(len(x.devices()) for x in ours),
        "alike": state_shardings(optimizer, params)
        == jax.tree.map(lambda x: x.sharding, init_state(optimizer, params)),
    }
    # Without a state, nothing but the places asked for says where matrices lie.
    shapes = structs(MIXED, on)
    places = compile_update(optax.sgd(0.1), shapes).input_shardings[0][2]
    found["stateless"] = jax.tree.map(lambda p: p.sharding, shapes) == places
    for name, refused in {
        "explicit": lambda: build_optimizers(
            MuonConfig(),
            {"mlp": {"w_up": jnp.ones((8, 8))}},
            mesh(4, kind=AxisType.Explicit),
        ),
        "elsewhere": lambda: optimizer_for(MuonConfig(), params, mesh(2, 2)),
        "three axes": lambda: optimizer_for(
            MuonConfig(),
            params,
            jax.make_mesh((1, 2, 2), ("a", "b", "c"), axis_types=(AxisType.Auto,) * 3),
        ),
    }.items():
        try:
            refused()
            found[name] = "nothing was refused"
        except ValueError as error:
            found[name] = str(error)
    return found


if __name__ == "__main__":
    parts = (counts, without_constraint, uneven, parity)
    parts += (odd_placements, checkpoints, traps)
    found, start = {}, time.time()
    for part in parts:
        found[part.__name__] = part()
        print(f"{part.__name__}: {time.time() - start:.0f} s", file=sys.stderr)
    found["devices"] = jax.device_count()
    json.dump(found, sys.stdout)
