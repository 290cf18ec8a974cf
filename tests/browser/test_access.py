"""Pages for everyone: a sample of `python -m tests.audit.axe`, in every run."""

import pytest

from tests.audit import axe

# A front page, an explorer and mathematics, an exercise, long lists, a page of tables.
SAMPLE = [
    "book/index.html",
    "chapters/02_newton_schulz.html",
    "exercises/04_gqa_clip.html",
    "book/glossary.html",
    "book/bibliography.html",
    "book/api.html",
]


@pytest.fixture
def still(browser, request):
    """A page in a theme, without moving colours."""
    context = axe.context_in(browser, request.param)
    yield context.new_page()
    context.close()


@pytest.mark.browser
@pytest.mark.parametrize("name", SAMPLE)
@pytest.mark.parametrize(
    ("still", "width"), [("light", 1280), ("dark", 390)], indirect=["still"]
)
def test_axe_finds_nothing(still, http_base, name, width):
    """No fault by WCAG 2.2 AA and axe's best practice, everything unfolded."""
    still.goto(http_base + name)
    assert axe.faults_at(still, width) == []


@pytest.mark.browser
def test_axe_can_find_something(browser):
    """An image without words, a button without a name, pale ink: each is reported."""
    page = browser.new_page()
    page.set_content(
        "<html lang='en'><title>t</title><main><h1>t</h1><img src='data:,'>"
        "<button></button><p style='color:#bbb;background:#fff'>pale</p></main>"
    )
    told = " ".join(axe.faults(page))
    for rule in ("image-alt", "button-name", "color-contrast"):
        assert rule in told
    page.close()
