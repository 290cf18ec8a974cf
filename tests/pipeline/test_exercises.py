"""An exercise is its solution with the marked parts left out, and nothing else."""

import pytest

from book.pipeline.exercises import to_exercise
from book.pipeline.pages import PageError

SOLUTION = '''---
kernelspec: {}
---

(solution-one)=
# Solution 1 · A title

Question.

This page has the answers. {doc}`The exercise </exercises/01_one>` leaves them out.

$$ x = 1 $$ (eq-x)

As {eq}`eq-x` says, unlike {eq}`eq-of-another-page`.

```{code-cell}
def f(x):
    """Double x."""
    ### BEGIN SOLUTION
    y = x + x

    return y
    ### END SOLUTION

check("01a", f)
```

% BEGIN SOLUTION
Worked answer.

With two paragraphs.
% END SOLUTION

```{code-cell}
---
tags: [solution-only]
---
print(f(2))
```

Last line.
'''


def test_marked_code_becomes_a_stub_at_its_indentation():
    text = to_exercise(SOLUTION, "solutions/01.md")
    assert '    """Double x."""\n    raise NotImplementedError\n\ncheck' in text
    assert "y = x + x" not in text
    assert "return y" not in text


def test_marked_prose_and_tagged_cells_go_and_the_rest_stays():
    text = to_exercise(SOLUTION, "solutions/01.md")
    assert "Worked answer" not in text
    assert "two paragraphs" not in text
    assert "print(f(2))" not in text
    assert "Question." in text
    assert text.endswith("Last line.\n")


def test_title_and_label_are_the_exercises_own():
    text = to_exercise(SOLUTION, "solutions/01.md")
    assert "(exercise-one)=\n# Exercise 1 · A title" in text
    assert "Generated from solutions/01.md" in text
    assert "$$ x = 1 $$ (eq-x-exercise)" in text
    assert "{eq}`eq-x-exercise` says, unlike {eq}`eq-of-another-page`" in text


def test_the_link_to_the_other_page_leads_back():
    text = to_exercise(SOLUTION, "solutions/01.md")
    assert "</solutions/01_one>" in text
    assert "</exercises/" not in text


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (SOLUTION.replace("    ### END SOLUTION\n", ""), "no ### BEGIN SOLUTION"),
        (SOLUTION.replace("% END SOLUTION\n", ""), "no partner"),
        (SOLUTION.replace("# Solution 1", "# Answer 1"), "title must read"),
        (SOLUTION.replace("### ", "# "), "no ### BEGIN SOLUTION"),
    ],
)
def test_a_marker_without_partner_is_an_error(broken, message):
    with pytest.raises(PageError, match=message):
        to_exercise(broken, "solutions/01.md")
