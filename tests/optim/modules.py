"""What the tests of routing build models from."""

import torch
from torch import nn


class Holder(nn.Module):
    """A module of any class name and contents."""

    def __init__(self, kind="Holder", /, **contents):
        super().__init__()
        self.__class__ = type(kind, (Holder,), {})
        for name, thing in contents.items():
            setattr(self, name, thing)


def raw(*shape):
    return nn.Parameter(torch.empty(shape))


def linear(rows, columns, bias=False):
    return nn.Linear(columns, rows, bias=bias)
