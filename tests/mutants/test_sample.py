"""A sample of the seeded faults, small enough for every run; `make mutants` has all."""

import json

import pytest

from tests.mutants import CATCHERS, all_faults
from tests.mutants.__main__ import RECORD
from tests.mutants.faults import ROOT, Fault
from tests.mutants.replay import FAILED
from tests.mutants.runner import catch, failure

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


def test_the_record_names_faults_that_exist_and_who_saw_them():
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    assert set(record) <= {fault.what for fault in all_faults()}
    assert all(record.values())
    for by in record.values():
        assert (ROOT / by.partition("::")[0]).is_file(), by


def test_every_module_with_faults_has_catchers_that_exist():
    for catchers in CATCHERS.values():
        assert all((ROOT / catcher).exists() for catcher in catchers)
    assert FAILED.findall("FAILED a.ipynb::Cell 5") == ["a.ipynb::Cell 5"]
