"""Four simulated devices: exchanges counted, sharded against unsharded, checkpoints.

All of it is measured by tests/jax/four_devices.py in one process of its own.
"""

import json
import os
import subprocess
import sys

import pytest

MESHES = ("1x4", "2x2")
# Written, in loops and executed collectives of one update of four blocks (28 matrices,
# four shapes). A new jax that changes them changes chapter 14, too.
PINNED = {
    ("1x4", "optax"): ({"all-gather": 240, "all-reduce": 61}, 0, 301),
    ("1x4", "optax, scanned"): ({"all-gather": 48, "all-reduce": 13}, 60, 301),
    ("1x4", "stacked"): ({"all-to-all": 8}, 0, 8),
    ("1x4", "stacked bf16"): ({"all-to-all": 8}, 0, 8),
    ("2x2", "optax"): (
        {"all-gather": 80, "all-reduce": 206, "collective-permute": 240},
        0,
        526,
    ),
    ("2x2", "optax, scanned"): (
        {"all-gather": 16, "all-reduce": 45, "collective-permute": 48},
        108,
        541,
    ),
    ("2x2", "stacked"): ({"all-to-all": 8, "all-gather": 4}, 0, 12),
    ("2x2", "stacked bf16"): ({"all-to-all": 8, "all-gather": 4}, 0, 12),
}


@pytest.fixture(scope="module")
def found(root, python_path):
    """What the process printed."""
    flags = "--xla_force_host_platform_device_count=4"
    env = {**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    env |= {"PYTHONPATH": python_path, "OMP_NUM_THREADS": "1"}
    run = subprocess.run(
        [sys.executable, "-W", "error", "tests/jax/four_devices.py"],
        cwd=root,
        env=env,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-3000:]
    # The partitioner says so where it gives up and copies everything everywhere.
    assert "rematerialization" not in run.stderr
    measured = json.loads(run.stdout)
    assert measured["devices"] == 4
    return measured


@pytest.mark.parametrize(("mesh", "form"), PINNED)
def test_the_exchanges_of_an_update_are_those_of_the_chapter(found, mesh, form):
    counts = found["counts"][mesh][form]
    written, in_loops, executed = PINNED[mesh, form]
    assert counts["written"] == written
    assert counts["in_loops"] == in_loops
    assert sum(counts["executed"].values()) == executed


@pytest.mark.parametrize("mesh", MESHES)
def test_a_stack_loops_without_exchanges_and_shares_the_work_exactly(found, mesh):
    stacked = found["counts"][mesh]["stacked"]
    assert stacked["in_loops"] == 0
    assert stacked["loops"] == 4  # one per shape, so the loops were there to look into
    shapes = [(256, 256, 8), (64, 256, 8), (256, 704, 12)]
    total = sum(k * 5 * (4 * r * r * c + 2 * r**3) for r, c, k in shapes)
    assert stacked["dot_flops"] * 4 == total
    # In and out, float32, a quarter each; replicas fetch each other's share as well.
    entries = sum(k * r * c for r, c, k in shapes)
    assert stacked["bytes"] == entries * 4 / 4 * 2 * {"1x4": 1, "2x2": 2}[mesh]


@pytest.mark.parametrize("mesh", MESHES)
def test_leaf_by_leaf_multiplies_more_and_moves_more(found, mesh):
    counts = found["counts"][mesh]
    for form in ("optax", "optax, scanned"):
        assert counts[form]["dot_flops"] > 1.1 * counts["stacked"]["dot_flops"]
        assert counts[form]["bytes"] > 10 * counts["stacked"]["bytes"]


@pytest.mark.parametrize("mesh", MESHES)
def test_only_the_constraints_keep_exchanges_out_of_the_loop(found, mesh):
    assert found["without_constraint"][mesh]["free"] > 0
    assert found["without_constraint"][mesh]["held"] == 0


@pytest.mark.parametrize("mesh", MESHES)
def test_zero_matrices_make_an_uneven_stack_move_like_an_even_one(found, mesh):
    """Without them the partitioner copies everything everywhere on two axes."""
    seen = found["uneven"][mesh]
    replicas = {"1x4": 1, "2x2": 2}[mesh]
    assert seen["executed"].pop("all-to-all") == 2
    assert sum(seen["executed"].values()) == replicas - 1
    entries = 8 * 64 * 32  # of eight matrices, two a device
    assert seen["bytes"] == entries * 4 / 4 * 2 * replicas


@pytest.mark.parametrize("mesh", MESHES)
def test_two_steps_sharded_are_two_steps_unsharded_and_optax(found, mesh):
    parity = found["parity"][mesh]
    assert parity["unsharded"] < 1e-6
    assert parity["small stacks"] < 1e-6
    assert parity["optax"] < 1e-5
    assert parity["updates"] < 1e-4
    assert parity["devices"] == [4]  # nothing of the state gathered on one device


def test_every_way_to_cut_a_matrix_gives_the_same(found):
    cuts = found["odd_placements"]
    assert set(cuts) == {"columns", "both", "whole", "rows by replicate", "own axis"}
    assert max(cuts.values()) < 1e-6


@pytest.mark.parametrize(
    "way",
    [
        "stacked 1x4 -> optax 2x2",
        "optax 2x2 -> stacked 1x4",
        "stacked 1x4 -> stacked None",
    ],
)
def test_a_checkpoint_resumes_under_another_form_and_mesh(found, way):
    resumed = found["checkpoints"][way]
    assert resumed["restored"] == 0
    assert resumed["at home"]  # where the new mesh wants each array
    assert resumed["straight"] < 1e-6


def test_a_state_made_by_jit_alone_lies_on_one_device_and_ours_on_all(found):
    traps = found["traps"]
    assert (traps["naive"], traps["ours"]) == (1, 4)
    assert traps["alike"]


def test_an_update_is_compiled_for_the_places_of_its_parameters(found):
    """With a state, XLA finds most of them by itself; with none, it cannot."""
    assert found["traps"]["stateless"]


@pytest.mark.parametrize(
    ("what", "rule", "value", "remedy"),
    [
        ("explicit", "must be Auto", "fsdp: Explicit", "axis_types="),
        ("elsewhere", "optimizer's mesh", "'fsdp': 4", "same mesh"),
        ("three axes", "one axis (shard,)", "('a', 'b', 'c')", "one or two axes"),
    ],
)
def test_a_mesh_that_will_not_do_is_refused(found, what, rule, value, remedy):
    message = found["traps"][what]
    assert rule in message
    assert value in message
    assert remedy in message
