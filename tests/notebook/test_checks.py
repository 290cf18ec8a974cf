"""Every check: the stub, the right answer and each listed mistake get their verdict."""

import pytest
import torch

from stacklm.notebook import check
from stacklm.notebook.checking import Check, Mistake, difference, judge, words
from stacklm.notebook.checks import CHECKS, WIDTH, ex06, plain
from tests.notebook.references import ANSWERS, measured_rms

MISTAKES = [
    pytest.param(key, mistake, id=f"{key} {mistake.name}")
    for key, entry in CHECKS.items()
    for mistake in entry.mistakes
]


def stub(*_args):
    raise NotImplementedError


def test_there_is_a_reference_for_every_check():
    assert set(ANSWERS) == set(CHECKS)
    assert all(key == entry.key for key, entry in CHECKS.items())


@pytest.mark.parametrize("key", CHECKS)
@pytest.mark.parametrize("answer", [stub, None, ..., lambda *_: ...])
def test_a_stub_is_not_attempted(key, answer, capsys):
    check(key, answer)
    assert capsys.readouterr().out == f"Exercise {key}: not attempted yet.\n"


@pytest.mark.parametrize("key", CHECKS)
def test_the_right_answer_is_correct(key, capsys):
    check(key, ANSWERS[key])
    verified = CHECKS[key].verified
    lines = capsys.readouterr().out.splitlines()
    assert " ".join(lines) == f"Exercise {key}: correct. {verified}"
    assert max(map(len, lines)) <= WIDTH


@pytest.mark.parametrize(("key", "mistake"), MISTAKES)
def test_each_mistake_gets_its_own_message(key, mistake):
    verdict = judge(CHECKS[key], mistake.answer)
    assert (verdict.status, verdict.mistake) == ("wrong", mistake.name)
    assert verdict.text == f"not yet. {mistake.message}"


@pytest.mark.parametrize("key", CHECKS)
def test_messages_are_sentences_and_differ(key):
    entry = CHECKS[key]
    messages = [mistake.message for mistake in entry.mistakes] + [entry.verified]
    assert len(set(messages)) == len(messages) >= 4
    assert all(not text[0].islower() and text.endswith(".") for text in messages)
    assert all("  " not in text for text in messages)


@pytest.mark.parametrize("key", CHECKS)
def test_another_wrong_answer_is_shown_where_it_differs(key):
    verdict = judge(CHECKS[key], lambda *args: -17)
    assert verdict.status == "wrong"
    assert verdict.mistake is None
    assert "got -17, expected" in verdict.text


def test_the_package_passes_its_own_checks():
    optim = pytest.importorskip("stacklm.optim")

    def rms(G):
        update = optim.zeropower_via_newtonschulz5(G) * optim.muon_scale(*G.shape)
        return update.square().mean().sqrt().item()

    assert judge(CHECKS["02c"], rms).status == "correct"
    assert judge(CHECKS["02b"], optim.muon_scale).status == "correct"
    assert judge(CHECKS["06c"], optim.orthogonalize_bucketed).status == "correct"


def test_the_facts_the_exercises_are_about():
    flops = CHECKS["01a"].expected
    assert round(flops(32768, 512, 5) / 1e9) == 173
    assert round(flops(1408, 512, 5) / 1e9, 3) == 8.724
    spectrum = plain.spectrum_after(ex06._with_spectrum(256, 128, 0.1, 10.0), 5)
    assert round(spectrum.min().item(), 4) == 0.6818
    assert round(spectrum.max().item(), 4) == 1.2023
    classes = CHECKS["06b"].expected(ex06._stack_100m_shapes())
    assert classes == {(512, 512): 60, (128, 512): 60, (512, 1408): 90}
    ones = torch.ones(64, dtype=torch.float64)
    assert round(CHECKS["07b"].expected(ones, ones), 12) == 8
    factor, (high, low) = CHECKS["07c"].expected([45.0, 12.0], 30.0)
    assert (round(factor, 4), round(high, 9), round(low, 9)) == (0.8165, 30, 8)
    assert CHECKS["07d"].expected(8, 2, 64) == (128, 640)


def test_one_matrix_at_a_time_is_not_batched():
    verdict = judge(CHECKS["06c"], ex06._one_by_one)
    assert verdict.status == "wrong"
    assert "grows with the number of matrices" in verdict.text


def test_an_exception_is_reported_with_its_input_and_raised(capsys):
    with pytest.raises(ZeroDivisionError):
        check("02a", lambda m, n: 1 / (m - m))
    out = " ".join(capsys.readouterr().out.split())
    assert "raised ZeroDivisionError for (1408, 512): " in out


def test_a_forgotten_return_and_a_result_instead_of_a_function():
    assert "return missing" in judge(CHECKS["02a"], lambda m, n: None).text
    assert "ideal_rms(m, n)" in judge(CHECKS["02a"], 0.0267).text


def test_an_input_changed_in_place_is_noticed():
    def greedy(G):
        out = measured_rms(G)
        G.mul_(2)
        return out

    verdict = judge(CHECKS["02c"], greedy)
    assert verdict.status == "wrong"
    assert "changed its input" in verdict.text


def test_an_unknown_key_lists_the_known_ones():
    with pytest.raises(KeyError, match="06c"):
        check("99z", stub)


def test_a_mistake_counts_only_if_it_agrees_everywhere():
    entry = Check(
        key="00a",
        task="double(x)",
        cases=lambda: [(2,), (3,)],
        expected=lambda x: 2 * x,
        verified="Doubled.",
        mistakes=(Mistake("squared", lambda x: x * x, "You squared."),),
    )
    assert judge(entry, lambda x: x + x).status == "correct"
    assert judge(entry, lambda x: x**2).mistake == "squared"
    verdict = judge(entry, lambda x: 4)  # right for 2, as the square is
    assert verdict.mistake is None
    assert verdict.text == "not yet. For 3: got 4, expected 6."


@pytest.mark.parametrize(
    ("got", "want"),
    [
        (1, 2),
        (1.001, 1.0),
        (float("nan"), 1.0),
        (1j, 1.0),
        (True, 1),
        ("1", 1),
        (None, 1),
        (torch.ones(1), 1),
        ([1], [1, 2]),
        ([1, 3], [1, 2]),
        (3, [3]),
        ({1: 2}, {1: 3}),
        ({2: 2}, {1: 2}),
        ([1], {0: 1}),
        (torch.ones(2), torch.ones(3)),
        (torch.ones(0, 3), torch.ones(0, 2)),
        (torch.tensor([1.0, float("nan")]), torch.ones(2)),
        (torch.tensor([1.0, 1.1]), torch.ones(2)),
        (1.0, torch.ones(2)),
        ("muon", "adamw"),
        (1, "1"),
        ({"w": "muon"}, {"w": "adamw"}),
    ],
)
def test_differences(got, want):
    assert difference(got, want, 1e-6)
    assert difference(want, want, 1e-6) is None


@pytest.mark.parametrize(
    ("got", "want"),
    [
        (torch.tensor(2.0), 2.0),
        (1 + 1e-9, 1.0),
        ((1, 2), [1, 2]),
        ({"w": "muon"}, {"w": "muon"}),
        (torch.ones(0, 2), torch.ones(0, 2)),
        (torch.ones(2, dtype=torch.float64), torch.ones(2)),
    ],
)
def test_what_is_close_enough(got, want):
    assert difference(got, want, 1e-6) is None


def test_words_are_short_whatever_the_value():
    assert words((torch.zeros(20, 20), 3, "a")) == (
        "(a float32 tensor of shape (20, 20), 3, 'a')"
    )
    assert words([1] * 10) == "[1, 1, 1, 1, 1, 1, 1, 1, … (10 in all)]"
    assert words({(1, 2): 3.5}) == "{(1, 2): 3.5}"
    assert words(torch.tensor([[1, 2]])) == "[[1, 2]]"
    assert words(object()) == "object"
    several = [torch.zeros(2, 3), torch.zeros(9, 9), torch.zeros(1)]
    assert words(several) == "3 tensors of shapes [(2, 3), (9, 9), (1)]"
    assert words([(1, 2)] * 5).endswith("(1, 2), … (5 in all)]")


def test_case_inputs_are_made_anew_each_time():
    for entry in CHECKS.values():
        first, second = entry.cases(), entry.cases()
        assert difference(first, second, 0.0) is None
        for one, other in zip(first, second, strict=True):
            tensors = [a for a in one if isinstance(a, torch.Tensor)]
            assert not any(a is b for a in tensors for b in other)
