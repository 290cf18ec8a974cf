"""Inputs that a careless caller may hand in: any shape, dtype, stride and scale."""

import math

import torch
from hypothesis import strategies as st

FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
OTHERS = [torch.int64, torch.bool, torch.complex64, torch.uint8]
SPOILS = [None, None, None, math.nan, math.inf, -math.inf]


@st.composite
def tensors(draw, ndims=(0, 1, 2, 3, 4), dtypes=(*FLOATS, *OTHERS), least=0):
    """A tensor of any kind, with a NaN or an infinity in some, often not contiguous."""
    ndim, dtype = draw(st.sampled_from(ndims)), draw(st.sampled_from(dtypes))
    shape = [draw(st.integers(least, 9)) for _ in range(ndim)]
    generator = torch.Generator().manual_seed(draw(st.integers(0, 99)))
    values = torch.randn(shape, generator=generator, dtype=torch.float64)
    kind = draw(st.sampled_from(["random", "random", "zero", "one row"]))
    if kind == "zero":
        values.zero_()
    if kind == "one row" and ndim >= 2 and values.numel():
        values[..., 1:, :] = 0
    if dtype.is_floating_point:
        largest = math.log10(torch.finfo(dtype).max)
        exponent = draw(st.integers(-36, 36))
        values *= 10.0 ** max(-largest, min(exponent, largest - 1))
        spoil = draw(st.sampled_from(SPOILS))
        if spoil is not None and values.numel():
            values.view(-1)[draw(st.integers(0, values.numel() - 1))] = spoil
    tensor = values.to(dtype)
    return restrided(draw(st.sampled_from(["plain", "turned", "skipping"])), tensor)


def restrided(how: str, tensor):
    """The same values in another layout of memory."""
    if how == "turned" and tensor.ndim >= 2:
        return tensor.mT.contiguous().mT
    if how == "skipping" and tensor.ndim >= 1:
        wide = tensor.repeat_interleave(2, dim=-1)
        return wide[..., ::2]
    return tensor


# What may stand where a number is wanted.
ANYTHING = st.one_of(
    st.integers(-3, 60),
    st.floats(-2, 2),
    st.sampled_from([math.nan, math.inf, -math.inf, None, "3", True, 1e300]),
)


@st.composite
def mostly(draw, valid):
    """A sound value seven times in eight, so that calls get past the other checks.

    Not ``one_of``, which would weigh every branch of ANYTHING like the sound one.
    """
    return draw(ANYTHING if draw(st.integers(0, 7)) == 7 else valid)
