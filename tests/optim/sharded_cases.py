"""Steps of Muon that several ranks take together, beside the same by one process."""

import copy
import os

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.distributed.tensor.debug import CommDebugMode

from stacklm.optim import Muon, build_optimizers
from stacklm.optim.layout import layout_of, local_part
from stacklm.optim.sharded import orthogonalize_sharded

# 4 ranks hold 18 rows as 5, 5, 5, 3; 5 rows as 2, 2, 1, 0; 3 rows as 1, 1, 1, 0.
SHAPES = [(16, 16), (18, 40), (40, 18), (5, 32), (32, 5), (3, 16), (16, 16), (16, 16)]


def full(shapes, seed, dtype=torch.float32):
    """Tensors that are the same on every rank."""
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(s, generator=generator).to(dtype) for s in shapes]


def laid_out(mesh, tensors, placements):
    """Parameters: DTensors, or plain copies if there are no placements."""
    if placements is None:
        return [torch.nn.Parameter(t.clone()) for t in tensors]
    return [
        torch.nn.Parameter(
            distribute_tensor(t.clone(), mesh, placements, src_data_rank=None)
        )
        for t in tensors
    ]


def whole(t):
    t = t.detach()
    return t.full_tensor() if hasattr(t, "full_tensor") else t.clone()


def give(params, gradients, mesh, placements):
    for p, g in zip(params, gradients, strict=True):
        if g is None:
            p.grad = None
        elif placements is None:
            p.grad = g.clone()
        else:
            p.grad = distribute_tensor(g, mesh, placements, src_data_rank=None)


def placements_of(mesh, kind):
    shard = [Shard(0)] if mesh.ndim == 1 else [Replicate(), Shard(0)]
    return {"fsdp": shard, "copies": [Replicate()] * mesh.ndim, "plain": None}[kind]


def named(mesh, kind):
    """What Muon is told: what fully_shard made brings its mesh, copies may, too."""
    return None if kind == "fsdp" else mesh


def compare(form, shapes, kind="fsdp", **options):
    """The largest differences in weights and momentum from one process."""
    return compare_on(mesh_of(form), shapes, kind, **options)


def compare_on_some(ranks, kind):
    """The same for a mesh of some ranks; the others make it, and then do nothing."""
    os.environ["TORCH_DIST_INIT_BARRIER"] = "1"  # whoever makes a group waits in it
    mesh = DeviceMesh("cpu", ranks)
    return {} if mesh.get_coordinate() is None else compare_on(mesh, SHAPES, kind)


def compare_on(
    mesh, shapes, kind, dtype=torch.float32, steps=10, missing=(), **options
):
    """The largest differences from one process."""
    placements = placements_of(mesh, kind)
    start = full(shapes, 0, dtype)
    params = laid_out(mesh, start, placements)
    alone = [torch.nn.Parameter(t.clone()) for t in start]
    stacked = {"stacked": True} if len(shapes[0]) == 3 else {}
    ours = Muon([{"params": params, **stacked}], mesh=named(mesh, kind), **options)
    one = Muon([{"params": alone, **stacked}], **options)
    for step in range(steps):
        gradients = full(shapes, 100 + step, dtype)
        gradients = [None if i in missing else g for i, g in enumerate(gradients)]
        give(params, gradients, mesh, placements)
        give(alone, gradients, mesh, None)
        ours.step()
        one.step()
    gaps = {"weights": 0.0, "momentum": 0.0}
    for p, q in zip(params, alone, strict=True):
        pairs = {"weights": (p, q)}
        if q in one.state:
            buffers = [m.state[x]["momentum_buffer"] for m, x in ((ours, p), (one, q))]
            pairs["momentum"] = buffers
            assert buffers[0].dtype == buffers[1].dtype
        for what, (a, b) in pairs.items():
            gap = (whole(a).double() - whole(b).double()).abs().max().item()
            gaps[what] = max(gaps[what], gap)
    return gaps


def compare_mixed():
    """The largest difference of weights in rows, as copies and plain, in one group."""
    mesh = mesh_of((4,))
    ways = [[Shard(0)], [Replicate()], None, [Shard(0)]]
    start, params = full(SHAPES[:4], 0), []
    start[3] = start[3].bfloat16()
    for w, way in zip(start, ways, strict=True):
        params += laid_out(mesh, [w], way)
    alone = laid_out(mesh, start, None)
    ours, one = Muon(params, mesh=mesh), Muon(alone)
    for step in range(3):
        gradients = full(SHAPES[:4], 100 + step)
        gradients[3] = gradients[3].bfloat16()
        for p, g, way in zip(params, gradients, ways, strict=True):
            give([p], [g], mesh, way)
        give(alone, gradients, mesh, None)
        ours.step()
        one.step()
    pairs = zip(params, alone, strict=True)
    return max((whole(p) - q.detach()).abs().max().item() for p, q in pairs)


def mesh_of(form):
    names = ("replicate", "shard")[2 - len(form) :]
    return init_device_mesh("cpu", form, mesh_dim_names=names)


def prepared(form, kind, shapes, **options):
    """A Muon over ranks, its parameters with gradients."""
    mesh = mesh_of(form)
    placements = placements_of(mesh, kind)
    params = laid_out(mesh, full(shapes, 0), placements)
    give(params, full(shapes, 1), mesh, placements)
    return Muon(params, mesh=named(mesh, kind), **options), params


def count(form, kind, shapes, steps):
    """Collectives of some steps, after a first one that makes its groups."""
    muon, _ = prepared(form, kind, shapes)
    muon.step()
    with pytest.MonkeyPatch.context() as patch, CommDebugMode() as mode:
        for name in ("send", "recv", "isend", "irecv", "batch_isend_irecv"):
            patch.setattr(dist, name, _refused)
        for _ in range(steps):
            muon.step()
    counts = mode.get_comm_counts().items()
    return {str(kind).rpartition(".")[2]: times for kind, times in counts}


def _refused(*_, **__):
    raise AssertionError("a point-to-point call that no collective counter sees")


def bytes_sent(form, shapes, ns_dtype):
    """Bytes that this rank sends to others in a step, all dtypes as they are."""
    muon, _ = prepared(form, "fsdp", shapes, ns_dtype=ns_dtype)
    muon.step()
    sent = []
    whole_call = dist.all_to_all_single

    def counted(output, input, output_splits, input_splits, group, **options):
        own = input_splits[dist.get_rank(group)]
        sent.append((sum(input_splits) - own) * input.element_size())
        return whole_call(
            output, input, output_splits, input_splits, group=group, **options
        )

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dist, "all_to_all_single", counted)
        muon.step()
    return sum(sent)


def sent_as_half():
    """Pieces that nothing was done to but their way: as bf16, back in their dtype."""
    params = laid_out(mesh_of((2, 2)), full(SHAPES, 0), [Replicate(), Shard(0)])
    layout = layout_of("w", params[0])
    pieces = [local_part(p) for p in params]
    matrices = [matrix for p in params for matrix in layout.matrices(p.shape, False)]
    costs = [1] * len(matrices)
    same = orthogonalize_sharded(
        pieces, matrices, costs, layout, list, wire=torch.bfloat16
    )
    pairs = zip(same, pieces, strict=True)
    return all(torch.equal(a, b.bfloat16().float()) for a, b in pairs), {
        a.dtype for a in same
    }


def state_keys():
    muon, _ = prepared((4,), "fsdp", SHAPES)
    muon.step()
    state = muon.state_dict()
    return set(state["state"][0]), "mesh" in str(state["param_groups"])


class Net(torch.nn.Module):
    """An embedding, two matrices and a head, the second matrix with 6 rows."""

    def __init__(self):
        super().__init__()
        self.tok_emb = torch.nn.Embedding(11, 16)
        self.w_up = torch.nn.Linear(16, 6, bias=False)
        self.w_down = torch.nn.Linear(6, 16, bias=False)
        self.norm = torch.nn.RMSNorm(16)
        self.lm_head = torch.nn.Linear(16, 11, bias=False)

    def forward(self, tokens):
        x = self.tok_emb(tokens)
        return self.lm_head(self.norm(x + self.w_down(self.w_up(x).relu())))


def train_tiny_model():
    """Five steps under fully_shard, each rank with a quarter of the batch."""
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    alone = Net()
    sharded = copy.deepcopy(alone)
    fully_shard(sharded, mesh=init_device_mesh("cpu", (world,)))
    pairs = [build_optimizers(model) for model in (alone, sharded)]
    generator = torch.Generator().manual_seed(1)
    for _ in range(5):
        tokens = torch.randint(11, (8, 5), generator=generator)
        mine = tokens.chunk(world)[rank]
        for model, batch, pair in zip(
            (alone, sharded), (tokens, mine), pairs, strict=True
        ):
            logits = model(batch[:, :-1])
            loss = torch.nn.functional.cross_entropy(
                logits.flatten(0, 1), batch[:, 1:].flatten()
            )
            loss.backward()
            for optimizer in pair:
                optimizer.step()
                optimizer.zero_grad()
    pairs = zip(alone.parameters(), sharded.parameters(), strict=True)
    return {"weights": max((p - whole(q)).abs().max().item() for p, q in pairs)}


def pass_state_around():
    """From four shards to copies, to 2 x 2, to DTensor copies and to four shards."""
    muon, params = prepared((4,), "fsdp", SHAPES)
    muon.step()
    first = [whole(muon.state[p]["momentum_buffer"]) for p in params]
    assert all(B.abs().max() > 0 for B in first)
    state, same = muon.state_dict(), []
    for form, kind, batched in [
        ((4,), "plain", False),
        ((2, 2), "fsdp", None),
        ((4,), "copies", True),
        ((4,), "fsdp", False),
    ]:
        other, others = prepared(form, kind, SHAPES, batched=batched)
        other.load_state_dict(state)
        state = other.state_dict()
        buffers = [other.state[p]["momentum_buffer"] for p in others]
        for B, p, then in zip(buffers, others, first, strict=True):
            same.append(getattr(B, "placements", 0) == getattr(p, "placements", 0))
            same.append(torch.equal(whole(B), then))
        other.step()  # `state` holds the same buffers, which have moved on
        first = [whole(other.state[p]["momentum_buffer"]) for p in others]
    return all(same)
