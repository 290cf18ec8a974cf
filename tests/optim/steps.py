"""What the tests of Muon's step share: parameters, gradients, a few steps."""

import torch

SHAPES = [(8, 24), (24, 8), (16, 16)]


def parameters(dtype=torch.float32, shapes=SHAPES, seed=0):
    torch.manual_seed(seed)
    return [torch.nn.Parameter(torch.randn(shape).to(dtype)) for shape in shapes]


def give_gradients(params, seed, scale=1.0):
    generator = torch.Generator().manual_seed(seed)
    for p in params:
        p.grad = (scale * torch.randn(p.shape, generator=generator)).to(p.dtype)


def run(muon, params, steps=3):
    for step in range(steps):
        give_gradients(params, step)
        muon.step()
    return [p.detach().clone() for p in params]
