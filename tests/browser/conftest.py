"""A browser, the built pages, and a visit that records what goes wrong."""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from book.site import chromium
from tests.served import HTML, served

WIDGET = "application/vnd.jupyter.widget-view+json"


def built_pages() -> list[str]:
    """Names of the built pages, such as `chapters/02_newton_schulz.html`."""
    found = sorted(HTML.rglob("*.html"))
    names = [path.relative_to(HTML).as_posix() for path in found]
    # index.html only sends the reader on; 404.html needs a host: test_programs.py.
    apart = ("_static/", "index.html", "404.html")
    return [name for name in names if not name.startswith(apart)]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give `page_name` every built page, `widget_page` those with widgets."""
    names = built_pages()
    if "page_name" in metafunc.fixturenames:
        metafunc.parametrize("page_name", names or ["(not built)"])
    if "widget_page" in metafunc.fixturenames:
        having = [n for n in names if WIDGET in (HTML / n).read_text("utf-8")]
        metafunc.parametrize("widget_page", having or ["(none)"])


def required() -> bool:
    """Whether a missing browser is a failure: in CI, or where one says so."""
    asked = os.environ.get("STACKLM_REQUIRE_BROWSER") == "1"
    return asked or os.environ.get("CI") == "true"


def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Without a browser keep one of the tests that need it, to say so once."""
    if chromium.find() or required():
        return
    browsing = [item for item in items if item.get_closest_marker("browser")]
    for item in browsing[:1]:
        item.add_marker(pytest.mark.skip(reason=chromium.MISSING))
    config.hook.pytest_deselected(items=browsing[1:])
    items[:] = [item for item in items if item not in browsing[1:]]


@pytest.fixture(scope="session")
def html() -> Path:
    """The folder of the built pages."""
    if not (HTML / "index.html").exists():
        pytest.fail(f"{HTML} is not built; run `make book` first")
    return HTML


@pytest.fixture(scope="session")
def http_base(html: Path) -> Iterator[str]:
    """Address of the built pages, served as their host serves them."""
    with served() as base:
        yield base


@pytest.fixture(params=["http", "file"])
def base(request: pytest.FixtureRequest, html: Path) -> str:
    """Address of the built pages, served and as files."""
    if request.param == "file":
        return html.as_uri() + "/"
    return request.getfixturevalue("http_base")


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """One Chromium for all tests."""
    path = chromium.find()
    if path is None:  # and required, or the tests would not have been collected
        pytest.fail(chromium.MISSING)
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=path, args=chromium.FLAGS)
        yield running
        running.close()


@pytest.fixture(scope="session")
def contexts(browser: Browser) -> Iterator[dict[str, BrowserContext]]:
    """One browser context for each theme, as a returning reader has it."""
    made = {}
    for mode in chromium.MODES:
        context = browser.new_context(viewport={"width": 1280, "height": 900})
        context.add_init_script(chromium.remember(mode))
        made[mode] = context
    yield made
    for context in made.values():
        context.close()


@dataclass
class Visit:
    """An open page and what went wrong on it."""

    page: Page
    base: str
    problems: list[str] = field(default_factory=list)
    requests: set[str] = field(default_factory=set)

    def watch(self) -> None:
        """Record errors, failed requests and requests to any other host."""
        note = self.problems.append
        page = self.page
        page.on("pageerror", lambda error: note(f"page error: {error}"))
        page.on("requestfailed", lambda r: note(f"request failed: {r.url[:200]}"))
        page.on("console", self.on_console)
        page.on("request", self.on_request)
        page.on("response", self.on_response)

    def on_console(self, message) -> None:
        if message.type == "error":
            self.problems.append(f"console error: {message.text[:300]}")

    def on_request(self, request) -> None:
        self.requests.add(request.url)
        if not request.url.startswith((self.base, "data:", "blob:")):
            self.problems.append(f"request to another place: {request.url[:200]}")

    def on_response(self, response) -> None:
        if response.status >= 400:
            self.problems.append(f"status {response.status}: {response.url[:200]}")

    def open(self, name: str) -> "Visit":
        """Open a page and wait until it stands."""
        self.page.goto(self.base + name, wait_until="load")
        return self.settle()

    def settle(self) -> "Visit":
        """Wait until mathematics, widgets and images are drawn."""
        chromium.settle(self.page)
        return self


@pytest.fixture
def visit_in() -> Iterator[Callable[[BrowserContext, str, str], Visit]]:
    """`visit_in(context, base, name)` opens a page and watches it."""
    opened = []

    def start(context: BrowserContext, base: str, name: str) -> Visit:
        made = Visit(context.new_page(), base)
        opened.append(made)
        made.watch()
        return made.open(name)

    yield start
    for made in opened:
        made.page.close()


@pytest.fixture
def visit(contexts: dict[str, BrowserContext], visit_in) -> Callable[..., Visit]:
    """`visit(base, name, mode)` does so as a returning reader."""

    def start(base: str, name: str, mode: str = "light") -> Visit:
        return visit_in(contexts[mode], base, name)

    return start
