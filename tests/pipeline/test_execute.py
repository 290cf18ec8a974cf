"""Two runs that compute the same give the same bytes; a stray output is an error."""

import os
import signal
import subprocess
import sys
import time

import pytest

from book.pipeline.execute import canonicalize, dumps, execute
from book.pipeline.pages import PageError, read_source

WIDGETS = """
```{code-cell}
import ipywidgets as w
slider = w.IntSlider(description="steps", max=1)
stack = w.Stack([w.HTML("a"), w.HTML("b")], selected_index=0)
unused = w.IntSlider()
w.jslink((slider, "value"), (stack, "selected_index"))
w.VBox([slider, stack])
```

```{code-cell}
print("one"); import sys; sys.stdout.flush(); print("two")
```
"""


def run(page):
    nb = read_source(page)
    execute(nb, page)
    canonicalize(nb, page)
    return nb


def test_two_runs_give_the_same_bytes_widgets_included(make_page):
    page = make_page(WIDGETS)
    first = run(page)
    text = dumps(first)
    assert text == dumps(run(page))
    canonicalize(first, page)
    assert dumps(first) == text, "a second pass must change nothing"


def test_widgets_keep_their_links_and_lose_what_is_not_shown(make_page):
    nb = run(make_page(WIDGETS))
    state = nb.metadata.widgets["application/vnd.jupyter.widget-state+json"]["state"]
    kinds = [model["model_name"] for model in state.values()]
    assert kinds.count("LinkModel") == 1
    assert kinds.count("IntSliderModel") == 1
    link = next(m for m in state.values() if m["model_name"] == "LinkModel")
    for end in ("source", "target"):
        assert link["state"][end][0].removeprefix("IPY_MODEL_") in state
    (view,) = nb.cells[0].outputs
    view = view.data["application/vnd.jupyter.widget-view+json"]
    assert state[view["model_id"]]["model_name"] == "VBoxModel"


def test_a_stream_in_chunks_is_one_output(make_page):
    (stream,) = run(make_page(WIDGETS)).cells[1].outputs
    assert stream.text == "one\ntwo\n"


def test_nothing_of_the_machine_is_left(make_page):
    nb = run(make_page("```{code-cell}\n1 + 1\n```\n"))
    assert nb.metadata.language_info == {"name": "python"}
    assert nb.cells[0].metadata == {}, "nbclient's time stamps are off"
    assert nb.cells[0].execution_count == nb.cells[0].outputs[0].execution_count == 1


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("1 / 0", "ZeroDivisionError"),
        ("import warnings\nwarnings.warn('careful')", "stderr"),
        ("object()", "memory address"),
    ],
)
def test_a_stray_output_is_an_error_that_names_the_page(make_page, code, message):
    page = make_page(f"```{{code-cell}}\n{code}\n```\n")
    with pytest.raises(PageError, match=rf"(?s)chapters/01_x\.md.*{message}"):
        run(page)


def test_an_interrupted_run_says_so_and_leaves_no_kernel(make_page, root):
    page = make_page("```{code-cell}\nimport time\ntime.sleep(60)\n```\n")
    script = (
        "import sys; from pathlib import Path\n"
        "from book.pipeline import __main__, pages\n"
        "from book.pipeline.execute import execute\n"
        "def run(args):\n"
        f"    page = pages.Page(Path({str(page.source)!r}), Path({str(page.root)!r}))\n"
        "    print('running', flush=True)\n"
        "    execute(pages.read_source(page), page)\n"
        "__main__.COMMANDS['check'] = run\n"
        "sys.exit(__main__.main(['check']))\n"
    )
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    command = [sys.executable, "-c", script]
    with subprocess.Popen(command, cwd=root, start_new_session=True, **pipes) as run:
        assert run.stdout.readline() == "running\n"
        time.sleep(3)
        os.killpg(run.pid, signal.SIGINT)
        # The kernel shares these pipes: they close when it is gone.
        said = run.communicate(timeout=30)[1]
    assert run.returncode == 130, said
    # The kernel may say more; the last words are ours.
    assert said.splitlines()[-1].startswith("error: interrupted; the pages that were")


def test_the_header_must_name_the_books_kernel(make_page):
    page = make_page("text", header="---\nkernelspec:\n  name: conda\n---\n")
    with pytest.raises(PageError, match="copy the header"):
        read_source(page)
