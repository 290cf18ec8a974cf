"""A sample of the seeded faults, small enough for every run; `make mutants` has all."""

import json

import pytest

from tests.mutants import CATCHERS, all_faults
from tests.mutants.__main__ import RECORD
from tests.mutants.faults import ROOT, Fault
from tests.mutants.replay import FAILED, said, wanted
from tests.mutants.runner import catch, failure, faulty_copy

SAMPLE = {
    "no square root": "tests/optim/test_qk_clip.py",
    "scale by the short side": "tests/optim/test_muon_step.py",
    "warmup begins at zero": "tests/optim/test_schedule.py",
}


@pytest.mark.parametrize(("what", "catcher"), SAMPLE.items())
def test_a_fault_is_caught(what, catcher):
    (fault,) = (fault for fault in all_faults() if fault.what == what)
    assert catch(fault, [catcher]).startswith(catcher + "::")


def test_a_notebook_catches_a_fault_and_passes_without_it():
    """The cell that shows the source of what is wrong is not asked."""
    notebook = "solutions/05_wsd_branch.ipynb"
    assert failure(notebook) is None
    fault = Fault("x", "optim/schedule.py", "math.sqrt(p)", "p * p")
    assert catch(fault, [notebook]).startswith(notebook + "::Cell")


WHERE = """
import subprocess, sys

def test_where():
    import stacklm
    from stacklm.bench import Ranks

    say = "import stacklm; print(stacklm.__file__)"
    command = [sys.executable, "-c", say]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    with Ranks(1) as ranks:
        (rank,) = ranks.run(eval, "__import__('stacklm.optim').__file__")
    assert {stacklm.__file__, run.stdout.strip(), rank} == {"%s"}
"""


def test_ranks_and_other_processes_have_the_faulty_copy(tmp_path):
    fault = Fault("x", "optim/schedule.py", "math.sqrt(p)", "p * p")
    copy = faulty_copy(fault, tmp_path)
    test = tmp_path / "test_where.py"
    test.write_text(WHERE % (copy / "stacklm" / "__init__.py"), encoding="utf-8")
    assert failure(str(test), copy) is None
    assert failure(str(test)).endswith("::test_where")


def test_a_replayed_cell_fails_where_it_raises_or_says_something_else(tmp_path):
    def cell(source, printed, *tags):
        text = {"output_type": "stream", "name": "stdout", "text": [printed]}
        about = {"metadata": {"tags": list(tags)}, "outputs": [text]}
        return {"cell_type": "code", "source": [source], **about}

    sound = [
        {"cell_type": "markdown", "source": ["# A page"]},
        cell("print(1)", "1\n"),
        cell("print(2)", "two\n", "nbval-ignore-output"),
        cell("raise OSError", "", "skip-execution", "nbval-skip"),
    ]
    for last, found in (
        (cell("print(4)", "4\n"), None),
        (cell("print(4)", "5\n"), 3),
        (cell("assert not 1", "", "nbval-ignore-output"), 3),
    ):
        page = tmp_path / "page.ipynb"
        page.write_text(json.dumps({"cells": [*sound, last]}), encoding="utf-8")
        assert failure(str(page)) == (found and f"{page}::Cell {found}")
    assert failure(f"{page}::Cell 2") is None  # the last cell does not run


def test_what_is_shown_is_compared_but_not_source_pictures_and_widgets():
    glued = {"application/papermill.record/text/plain": "0.5"}
    table = {"text/plain": ["a\n", "b"], "text/html": "<b>"}
    others = [
        {"text/plain": "def f(): ...", "text/markdown": "```"},
        {"text/plain": "[figure]", "image/png": "…"},
        {"text/plain": "Box()", "application/vnd.jupyter.widget-view+json": {}},
    ]
    assert said("x", [glued, table, *others]) == ("x", ["0.5", "a\nb"])
    held = [{"output_type": "display_data", "data": data} for data in (glued, table)]
    warned = {"output_type": "stream", "name": "stderr", "text": ["w"]}
    printed = {"output_type": "stream", "name": "stdout", "text": ["x"]}
    assert wanted([warned, printed, *held]) == ("x", ["0.5", "a\nb"])


def test_a_catcher_that_runs_nothing_is_an_error():
    with pytest.raises(RuntimeError, match="ran nothing"):
        failure("tests/optim/no_such_file.py")


def test_every_fault_still_fits_its_module_and_changes_it():
    for fault in all_faults():
        text = fault.applied()
        compile(text, fault.module, "exec")
        assert text != (ROOT / "stacklm" / fault.module).read_text(encoding="utf-8")
    names = [fault.what for fault in all_faults()]
    assert len(names) == len(set(names)) >= 80


def test_the_record_has_every_fault_and_who_saw_it_mostly_a_notebook():
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    faults = {fault.what for fault in all_faults()}
    assert set(record) == faults, "try the new ones: python -m tests.mutants --new"
    assert all(record.values())
    for by in record.values():
        assert (ROOT / by.partition("::")[0]).is_file(), by
    assert sum(".ipynb::Cell" in by for by in record.values()) >= 0.7 * len(record)


def test_every_module_with_faults_has_catchers_that_exist():
    for catchers in CATCHERS.values():
        assert all((ROOT / catcher).exists() for catcher in catchers)
    assert FAILED.findall("FAILED a.ipynb::Cell 5") == ["a.ipynb::Cell 5"]
