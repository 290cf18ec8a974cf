"""Room for formulas: near to what MathJax draws."""

import pytest
from bs4 import BeautifulSoup

from book.site.places import height, keep_places, width


@pytest.mark.parametrize(
    ("tex", "drawn"),  # em, as MathJax drew them
    [
        (r"W_Q", 1.5),
        (r"\varepsilon", 0.5),
        (r"s = q \cdot k / \sqrt{d_h}", 7.4),
        (r"t_F, t_b, t_0, t_c", 5.9),
        (r"\max(m, n)", 5.8),
        (r"1408 \times 512", 5.8),
        (r"v \leftarrow \beta_2 v + (1 - \beta_2) g^2", 11.7),
    ],
)
def test_a_formula_gets_about_the_room_that_it_takes(tex, drawn):
    assert width(tex) == pytest.approx(drawn, abs=1.3)


@pytest.mark.parametrize(
    ("tex", "drawn"),  # em, as MathJax drew them, without the margins
    [
        (r"t = F t_F + b\, t_b .", 1.3),
        (r"O^\top O = \sum_s O_s^\top O_s", 2.9),
        (r"\mathrm{RMS}(O) = \frac{\lVert O \rVert_F}{\sqrt{mn}} .", 3.4),
        (r"s &= \frac{q \cdot k}{\sqrt{d_h}}, \\ q &= W_Q x .", 5.1),
        (r"t \begin{cases} W & a \\ 1 & b \\ p & c \\ 0 & d \end{cases}", 6.1),
    ],
)
def test_an_equation_gets_about_the_height_that_it_takes(tex, drawn):
    assert height(tex) == pytest.approx(drawn, abs=0.5)


def test_what_is_not_drawn_takes_no_room():
    assert width(r"\left( x \right)") == width("(x)")
    assert width(r"\mathrm{d}x") == width("dx")
    assert width(r"\lefteqn") == width(r"\alpha")  # no \left
    assert width("x_{ij}") > width("x_i") > width("x")


def test_a_formula_in_a_line_keeps_its_width_and_an_equation_its_height():
    page = BeautifulSoup(
        r'<span class="math">\(W_Q\)</span><div class="math">\[x\]</div>', "html.parser"
    )
    keep_places(page)
    assert page.span["style"] == f"--room:{width('W_Q'):.1f}em"
    assert page.div["style"] == f"--room:{height('x'):.1f}em"


@pytest.mark.parametrize(
    ("after", "tied"),
    [
        (", and", ","),
        (" and", None),
        ("-th row", "-th"),
        ("<em>,</em>", None),
        ("", None),
    ],
)
def test_what_follows_a_formula_at_once_stays_on_its_line(after, tied):
    page = BeautifulSoup(
        rf'<p>of <span class="math">\(Q\)</span>{after}</p>', "html.parser"
    )
    text = page.p.get_text()
    keep_places(page)
    assert page.p.get_text() == text
    assert [span.get_text() for span in page.select(".tied")] == (
        [rf"\(Q\){tied}"] if tied else []
    )


@pytest.mark.parametrize("after", ["%, as", "GFLOP, and", "MiB", "s.", "nats"])
def test_a_unit_stays_on_the_line_of_its_number(after):
    page = BeautifulSoup(
        f'<p><span class="pasted-text">8</span> {after}</p>', "html.parser"
    )
    keep_places(page)
    assert page.p.get_text() == f"8\u00a0{after}"


@pytest.mark.parametrize("after", ["steps", "since then", "GBM", "(s)"])
def test_a_word_may_begin_a_line(after):
    page = BeautifulSoup(f'<p><span class="math">8</span> {after}</p>', "html.parser")
    keep_places(page)
    assert page.p.get_text() == f"8 {after}"


@pytest.mark.parametrize(
    ("said", "tied"),
    [
        ("QK-norm and QK-clip", ["QK-norm", "QK-clip"]),
        ("of Stack-100M.", ["Stack-100M"]),
        ("a QK-normal day", []),
    ],
)
def test_a_name_is_not_broken_at_its_hyphen(said, tied):
    page = BeautifulSoup(f"<p>{said}</p><pre>QK-norm</pre>", "html.parser")
    keep_places(page)
    assert page.p.get_text() == said
    assert [span.get_text() for span in page.select(".tied")] == tied


@pytest.mark.parametrize("name", ["chapter 2", "Exercise 11", "part b", "Chapter 3"])
def test_a_number_stays_on_the_line_of_what_it_numbers(name):
    page = BeautifulSoup(f"<p>in <a>{name}</a>, so</p>", "html.parser")
    keep_places(page)
    assert page.a.string == name.replace(" ", "\u00a0")


@pytest.mark.parametrize("said", ["part and", "parts 3", "chapter one", "a part by"])
def test_other_words_may_part(said):
    page = BeautifulSoup(f"<p>{said}</p>", "html.parser")
    keep_places(page)
    assert page.p.string == said


def test_a_unit_is_tied_to_a_formula():
    page = BeautifulSoup(
        r'<p><span class="math">\(2m\)</span> FLOPs;</p>', "html.parser"
    )
    keep_places(page)
    assert page.find(class_="tied").get_text() == r"\(2m\) FLOPs;"
