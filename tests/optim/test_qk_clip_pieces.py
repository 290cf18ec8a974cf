"""What a rank does to its piece of a weight, in one process that pretends to be a rank.

The process group is torch's "fake" one: it answers at once, with what it was given.
torch caches what a mesh's place is, so a process can pretend to be one rank only. Real
ranks are in ``tests/train/test_ranks.py``.
"""

import math

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.testing._internal.distributed.fake_pg import FakeStore

from stacklm.config import toy_config
from stacklm.model import Stack100M
from stacklm.optim import Muon, qk_clip_
from stacklm.optim.pieces import facts_of


@pytest.fixture(scope="module", autouse=True)
def rank():
    """This process as the fifth of six ranks."""
    dist.init_process_group("fake", store=FakeStore(), rank=4, world_size=6)
    yield
    dist.destroy_process_group()


def cut(whole, mesh, placements):
    return torch.nn.Parameter(
        distribute_tensor(whole.detach(), mesh, placements, src_data_rank=None)
    )


def model_without_norm():
    torch.manual_seed(0)
    return Stack100M(toy_config(n_layers=1, qk_norm=False))


FORMS = {
    "rows": ((6,), [Shard(0)]),
    "copies": ((6,), [Replicate()]),
    "copies of rows": ((2, 3), [Replicate(), Shard(0)]),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_rank_scales_the_rows_that_it_holds(form):
    sizes, placements = FORMS[form]
    mesh = init_device_mesh("cpu", sizes, mesh_dim_names=("a", "b")[: len(sizes)])
    whole, pieces = model_without_norm(), model_without_norm()
    attn = pieces.blocks[0].attn
    for linear in (attn.wq, attn.wk):
        linear.weight = cut(linear.weight, mesh, placements)
    maxima = torch.tensor([[120.0, 90.0, 400.0, 50.0]])
    assert qk_clip_(whole, maxima) == qk_clip_(pieces, maxima) == 1
    for name in ("wq", "wk"):
        right = getattr(whole.blocks[0].attn, name).weight
        here = cut(right, mesh, placements).to_local()
        assert torch.equal(getattr(attn, name).weight.to_local(), here)
        held = {"rows": 11, "copies": 64, "copies of rows": 22}[form]  # of heads of 16
        assert name == "wk" or here.shape[0] == held


def test_what_a_rank_has_not_measured_is_no_infinity_to_the_others():
    model = model_without_norm()
    one = torch.tensor([[-math.inf, 50.0, -math.inf, 400.0]])
    assert qk_clip_(model, one, group=dist.group.WORLD) == 1
    before = model.blocks[0].attn.wq.weight.detach().clone()
    for broken in (math.inf, math.nan):
        with pytest.raises(ValueError, match="got inf in layer 0, head 1"):
            qk_clip_(
                model, torch.tensor([[0, broken, 0, 400.0]]), group=dist.group.WORLD
            )
    assert torch.equal(model.blocks[0].attn.wq.weight, before)


def test_errors_about_placements_name_the_parameter():
    mesh = init_device_mesh("cpu", (6,))
    columns = cut(torch.ones(8, 8), mesh, [Shard(1)])
    for params, name in (
        ([("up.weight", columns)], r"up\.weight"),
        ([columns], "parameter 0"),
    ):
        with pytest.raises(ValueError, match=name):
            Muon(params)
    rows, whole = cut(torch.ones(8, 8), mesh, [Shard(0)]), torch.ones(8, 8)
    muon = Muon([torch.nn.Parameter(whole), rows])
    layouts = [muon._layout(p) for p in muon.param_groups[0]["params"]]
    assert facts_of(muon.param_groups)[-1].endswith("float32, (Shard(dim=0),)")
    assert layouts[0] is None
    assert (layouts[1].shards, layouts[1].place) == (6, (0, 4))
