"""What the failure gallery is shown with: a call that must fail, and two ranks."""

import pytest
import torch

from stacklm.bench import Ranks
from stacklm.notebook import gallery
from stacklm.notebook.clipping import loud_toy
from stacklm.optim import qk_clip_


@pytest.fixture(scope="module")
def ranks():
    with Ranks(2) as pool:
        yield pool


def test_a_complaint_is_one_line_and_names_its_type():
    def fails(**options):
        raise ValueError(f"a list:\n  one,  two\n  {options}")

    text = "ValueError: a list: one,  two; {'at': 3}"
    assert gallery.complaint(fails, at=3) == text


def test_a_call_that_does_not_fail_is_a_failure():
    with pytest.raises(AssertionError, match="was expected to fail and did not"):
        gallery.complaint(int, "3")


def test_an_interrupt_is_no_complaint():
    def interrupted():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        gallery.complaint(interrupted)


def test_the_default_dtype_comes_back_also_after_an_error():
    @gallery.float64()
    def fails():
        raise ZeroDivisionError(torch.zeros(1).dtype)

    before = torch.get_default_dtype()
    with pytest.raises(ZeroDivisionError, match=r"torch\.float64"):
        fails()
    assert torch.get_default_dtype() == before == torch.float32


@pytest.mark.parametrize("maxima", [(120.0, 400.0), (400.0, 120.0)])
def test_both_ranks_clip_as_one_that_has_seen_the_largest(ranks, maxima):
    with gallery.float64():
        model = loud_toy()
        qk_clip_(model, torch.full((1, 4), 400.0))
    gains = model.blocks[0].attn.q_norm.weight.tolist()
    assert ranks.run(gallery.clipped_gains, maxima) == [gains, gains]


def test_a_sharded_checkpoint_holds_what_one_process_holds(ranks):
    expected = gallery.alone(steps=3)
    assert expected[1][0].dtype == torch.float64
    for found in ranks.run(gallery.sharded_checkpoint, 3):
        for some, right in zip(found, expected, strict=True):
            torch.testing.assert_close(some, right)
    earlier = gallery.alone(steps=2)  # the third step is seen in both
    assert not torch.equal(earlier[0][0], expected[0][0])
    assert not torch.equal(earlier[1][0], expected[1][0])


def test_every_step_has_gradients_of_its_own():
    p = torch.nn.Parameter(torch.zeros(4, 4))
    gradients = []
    for step in (0, 1, 0):
        gallery.give_gradients([p], step)
        gradients.append(p.grad)
    assert torch.equal(gradients[0], gradients[2])
    assert not torch.equal(gradients[0], gradients[1])


@pytest.mark.parametrize(
    ("shape", "held"), [((3, 8), (2, 1)), ((1, 8, 8), (1, 0)), ((2, 8, 8), (1, 1))]
)
def test_ranks_with_few_rows_or_none_take_the_step_of_one(ranks, shape, held):
    (first, one), (second, other) = ranks.run(gallery.rows_held, shape)
    assert (first, second) == held
    assert torch.equal(one, other)
    torch.testing.assert_close(one, gallery.one_step(shape))


@pytest.mark.parametrize("missing", [0, 1])
def test_a_gradient_that_one_rank_lacks_is_named_on_both(ranks, missing):
    texts = ranks.run(gallery.step_with_a_gap, missing)
    assert all(text.startswith("ValueError: all ranks must") for text in texts)
    gap = "second with no gradient, shape (3, 20), torch.float64, a copy on rank"
    assert all(f"{gap} {missing};" in text for text in texts)
