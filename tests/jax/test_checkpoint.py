"""Checkpoints on one device: bit for bit, across implementations, and refusals."""

import jax
import jax.numpy as jnp
import pytest

from stacklm.jax import MuonConfig, init_state, restore_checkpoint, save_checkpoint
from tests.jax.steps import advance, compiled, run
from tests.jax.trees import MIXED, apart, arrays

CONFIGS = {impl: MuonConfig(impl) for impl in ("optax", "stacked")}


def fresh(impl):
    """A tree to restore into: other numbers, the same structure."""
    params = arrays(MIXED, 9)
    state = init_state(compiled(CONFIGS[impl], None)[0], params)
    return {"params": params, "state": state}


@pytest.mark.parametrize("one", CONFIGS)
@pytest.mark.parametrize("two", CONFIGS)
def test_a_run_goes_on_as_if_nothing_had_happened(tmp_path, one, two):
    params, state = run(CONFIGS[one], 2)
    save_checkpoint(tmp_path / "2", {"params": params, "state": state})
    back = restore_checkpoint(tmp_path / "2", fresh(two))
    assert apart(back, {"params": params, "state": state}) == 0
    end, _ = advance(CONFIGS[two], back["params"], back["state"], range(2, 4))
    straight, _ = run(CONFIGS[one], 4)
    # The same bits under the same implementation, rounding under the other one.
    assert apart(end, straight) <= (0 if one == two else 1e-6)


def test_a_folder_is_never_overwritten_and_must_be_there(tmp_path):
    tree = {"w": jnp.ones(3)}
    save_checkpoint(tmp_path / "1", tree)
    with pytest.raises(FileExistsError, match=r"needs a new folder, and .*1 exists"):
        save_checkpoint(tmp_path / "1", {"w": jnp.zeros(3)})
    assert restore_checkpoint(tmp_path / "1", tree)["w"].sum() == 3
    with pytest.raises(FileNotFoundError, match=r"no checkpoint at .*2; look at"):
        restore_checkpoint(tmp_path / "2", tree)


@pytest.mark.parametrize(
    ("like", "words"),
    [
        ({"w": jnp.ones(4)}, r"w: saved \(\(3,\), 'float32'\), wanted \(\(4,\)"),
        ({"w": jnp.ones(3, jnp.bfloat16)}, "wanted .*'bfloat16'"),
        ({"v": jnp.ones(3)}, "w: saved .*, wanted nothing"),
        ({"w": jnp.ones(3), "v": jnp.ones(3)}, "v: saved nothing, wanted"),
    ],
)
def test_another_tree_is_refused_with_the_leaf_that_differs(tmp_path, like, words):
    save_checkpoint(tmp_path / "1", {"w": jnp.ones(3)})
    with pytest.raises(ValueError, match=words):
        restore_checkpoint(tmp_path / "1", like)


def test_what_has_shapes_only_can_be_restored_into(tmp_path):
    tree = {"params": arrays(MIXED)}
    save_checkpoint(tmp_path / "1", tree)
    like = jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), tree
    )
    assert apart(restore_checkpoint(tmp_path / "1", like), tree) == 0
