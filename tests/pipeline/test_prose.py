"""A number typed into prose is found; what is not prose is left alone."""

import pytest

from book.pipeline import prose
from book.pipeline.prose import typed_numbers

CELL = "```{{code-cell}}\n---\nmystnb:\n  {key}:\n    {value}\n---\nx = 3\n```"


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
        ("It is {glue:text}`low` and 0.123 in `x`.", "0.123"),
        ("{glue:text}`low`5", "5"),
        ("{glue:text}`low`–1.20", "–1.20"),
        ("from 0.68–1.20", "0.68–1.20"),
        ("about –7 % less", "–7 %"),
        ("it is .682 now", ".682"),
        ("… or ...0.68", "0.68"),
        ("x1.5 faster", ".5"),
        ("sub-3 %", "-3 %"),
        ("falls to-0.68", "-0.68"),
        ("within 1e-3", "1e-3"),
        ("1.2× as fast", "1.2×"),
        ("½ of it", "½"),
        ("0.682\N{NARROW NO-BREAK SPACE}s", "0.682"),
        ("lit&#101;rally &#48;.682", "0.682"),
        ("## 0.682 reached", "0.682"),
        ("# 40 % slower", "40 %"),
        ("x[^n]\n\n[^n]: 0.682", "0.682"),
        ("![rises to 0.7](x.png)", "0.7"),
        ("<p>0.682</p>", "0.682"),
        ('a <img alt="0.682"> b', "0.682"),
        ("```{figure} /x.png\n:alt: |\n:   to 0.7\n\nIt rises.\n```", "0.7"),
        ("```{figure} /x.png\n:alt: It rises.\n\nIt rises to 0.7.\n```", "0.7"),
        ("```{table} In 3 columns\n| a |\n|---|\n```", "3"),
        ("```{some-new-directive}\n0.7\n```", "0.7"),
        (CELL.format(key="image", value="alt: rises to 1.2"), "1.2"),
        (CELL.format(key="figure", value="caption: >-\n      It\n      is 1.2"), "1.2"),
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
        "fp32, bf16, float64, Stack-100M, H200, GPT-2, S4, W_1, x2",
        "# 02 A chapter\n\n## Exercise 6, again",
        "A 2-D matrix of 8-bit numbers, the 2nd of its kind.",
        "As said[^1].\n\n[^1]: A footnote.",
        "```{figure} /2026-x.png\n:width: 80%\n:alt: Rises.\n\nIt rises.\n```",
        "<!-- 0.682 -->\n\n<details open>\n\nx\n\n</details>",
        "---\nversion: 4\n---\n\nText.",
    ],
)
def test_what_is_not_prose_is_left_alone(text):
    assert typed_numbers(text, "page.md") == []


def test_the_message_shows_the_place_in_a_long_paragraph():
    (message,) = typed_numbers("word " * 40 + "reaches 0.682 here.", "page.md")
    assert "reaches 0.682 here" in message
    assert len(message) < 300


def test_an_allowed_phrase_does_not_allow_its_number_elsewhere(monkeypatch):
    monkeypatch.setattr(prose, "constants", lambda: ("512×512",))
    assert typed_numbers("A 512×512 matrix.", "page.md") == []
    for text in ("512 s", "0.512×512", "1,512×512", "512×512.5", "512×512 %"):
        assert len(typed_numbers(f"It took {text}.", "page.md")) > 0, text


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
