"""A number typed into prose is found; what is not prose is left alone."""

import pytest

from book.pipeline import prose
from book.pipeline.prose import typed_numbers


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("It reaches 0.682 after that.", "0.682"),
        ("Between 0.68 and $x$.", "0.68"),
        ("About 30 % slower.", "30 %"),
        ("| a | b |\n|---|---|\n| x | 173 |\n", "173"),
        ("- a list with 4,200 launches", "4,200"),
        ("> quoted 12", "12"),
        ("```{note}\nSaves 3 GB.\n```", "3 GB"),
        (":::{dropdown} Hint 4711\nx\n:::", "4711"),
        ("**bold 99**", "99"),
        ("# A heading with 5 steps", "5"),
        ("a figure −7.5 low", "−7.5"),
        ("```{code-cell}\nmystnb:\n  image:\n    alt: rises to 1.2\n```", "1.2"),
    ],
)
def test_a_typed_number_is_found(text, number):
    (message,) = typed_numbers(text, "page.md")
    assert repr(number) in message
    assert "glue it" in message


@pytest.mark.parametrize(
    "text",
    [
        "It reaches {glue:text}`low:.3f` after that.",
        "In `x = 0.682` and $\\sigma = 0.682$ and $$y = 3$$",
        "```python\nx = 3\n```",
        "```{code-cell}\nx = 3\n```",
        "See [section 4](https://example.org/4).",
        "{cite:t}`jordan2024muon` and {eq}`eq-1`",
        "fp32, bf16, float64, Stack-100M, S4, W_1, x2",
        "# 02 A chapter\n\n## Exercise 6, again",
        "A 2-D matrix.",
        "---\nversion: 4\n---\n\nText.",
    ],
)
def test_what_is_not_prose_is_left_alone(text):
    assert typed_numbers(text, "page.md") == []


def test_an_allowed_phrase_does_not_allow_its_number_elsewhere(monkeypatch):
    monkeypatch.setattr(prose, "constants", lambda: ("512×512",))
    assert typed_numbers("A 512×512 matrix.", "page.md") == []
    assert len(typed_numbers("It took 512 s.", "page.md")) == 1


def test_every_allowed_phrase_gives_a_reason_and_has_a_number(root):
    lines = (root / "book/pipeline/constants.txt").read_text(encoding="utf-8")
    for line in lines.splitlines():
        if not line or line.startswith("#"):
            continue
        phrase, _, reason = line.partition("  #")
        assert any(c.isdigit() for c in phrase), line
        assert len(reason.strip()) > 5, line


def test_no_allowed_phrase_is_left_over(root):
    pages = [*root.glob("book/*.md"), *root.glob("*s/*.md")]
    text = "\n".join(p.read_text(encoding="utf-8") for p in pages)
    text = " ".join(text.split())
    unused = [c for c in prose.constants() if " ".join(c.split()) not in text]
    assert unused == []
