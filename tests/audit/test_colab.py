"""A sample of the Colab lane, and what it calls a fault.

The sample runs on the light machine, whose set-up cell installs stacklm alone; that it
also brings what stacklm needs, and every other notebook, is for `make audit`.
"""

import nbformat
import pytest

from book.pipeline.pages import Page, find_pages
from tests.audit import colab
from tests.audit.colab_machine import Machine, addresses, closure, pins, snapshot

CHAPTER, EXERCISE = "chapters/02_newton_schulz", "exercises/05_wsd_branch"


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    """The working tree, committed to a repository that git finds instead of ours."""
    return snapshot(tmp_path_factory.mktemp("snapshot"))


def page(name):
    (found,) = (p for p in find_pages() if p.name == name)
    return found


def test_a_chapter_runs_from_its_own_set_up_cell_and_its_dials_turn(repository):
    result = colab.run(page(CHAPTER), repository, light=True)
    assert result.faults == []
    assert result.dials == 3
    assert 0 < result.set_up < result.whole


def test_an_exercise_runs_and_leaves_no_kernel_behind(repository, monkeypatch):
    made = []
    real = colab.AsyncKernelManager

    def manager(**kwargs):
        made.append(real(**kwargs))
        return made[-1]

    monkeypatch.setattr(colab, "AsyncKernelManager", manager)
    result = colab.run(page(EXERCISE), repository, light=True)
    assert result.faults == []
    assert not colab.run_sync(made[0].is_alive)()


def test_every_notebook_is_run_and_installs_from_one_address():
    chosen = colab.pages([])
    assert {p.folder for p in chosen} == {"chapters", "exercises", "solutions"}
    for each in chosen:
        first = colab.code_cells(colab.read_notebook(each))[0]
        assert len(addresses(first.source)) == 1, each.name


def test_a_notebook_that_fails_is_a_fault_and_no_end(repository, tmp_path):
    root = tmp_path
    (root / "chapters").mkdir()
    nb = colab.read_notebook(page(EXERCISE))
    nb.cells = [
        nbformat.v4.new_code_cell("from pathlib import Path  # git+https://x.org/a/b"),
        nbformat.v4.new_code_cell("assert not Path('.git').exists()\nimport stacklm"),
    ]
    nbformat.write(nb, root / "chapters" / "broken.ipynb")
    broken = Page(root / "chapters" / "broken.md", root)
    result = colab.run(broken, repository, light=True)
    (fault,) = result.faults
    assert "raised ModuleNotFoundError: No module named 'stacklm'" in fault


def probed(machine, **changed):
    """What is said of a probe that found everything right, but for what changed."""
    found = {"from": f"{machine.python.parents[1]}/lib/stacklm/__init__.py"}
    found |= {"widgets": "7.7.1", "turned": [True]} | changed
    probe = nbformat.v4.new_code_cell()
    text = colab.json.dumps(found)
    probe.outputs = [nbformat.v4.new_output("stream", name="stdout", text=text)]
    result = colab.Result("chapters/any")
    colab.look(result, probe, machine)
    return result.faults


def test_the_probe_sees_our_own_packages_and_a_dial_that_is_stuck(tmp_path):
    machine = Machine(tmp_path / "python/bin/python", tmp_path, {})
    assert probed(machine) == []
    (fault,) = probed(machine, **{"from": "/elsewhere/stacklm/__init__.py"})
    assert fault == "stacklm came from /elsewhere/stacklm/__init__.py"
    (fault,) = probed(machine, widgets="8.1.9")
    assert fault == "it ran with ipywidgets 8.1.9, not Colab's"
    (fault,) = probed(machine, turned=[True, False])
    assert fault == "a dial of an explorer changes nothing"


def test_a_check_that_answers_otherwise_is_a_fault():
    nb = colab.read_notebook(page(EXERCISE))
    shown = [colab.texts(cell) for cell in colab.code_cells(nb)]
    assert sum("not attempted yet" in text for text in shown) == 2
    assert colab.other_verdicts(nb, shown) == []
    for cell in colab.code_cells(nb):
        for output in cell.outputs:
            output.text = output.text.replace("not attempted yet", "correct")
    first, _ = colab.other_verdicts(nb, shown)
    assert first.startswith('check("05a", wsd_lr_branch) says ')


def test_the_light_machine_has_colabs_kernel_and_the_whole_one_all_it_needs():
    light, whole = pins(light=True), pins(light=False)
    assert {"ipywidgets==7.7.1", "ipython==7.34.0", "numpy==2.1.3"} <= set(light)
    assert set(light) < set(whole)
    assert {"torch", "sympy", "pip"} <= closure("torch")
    assert "ipywidgets" not in closure("torch")


def test_the_times_are_kept_beside_others_of_the_same_versions(tmp_path):
    colab.record(colab.Result(CHAPTER, set_up=3.04, whole=10.0, load=0.3), tmp_path)
    path = colab.record(colab.Result(EXERCISE, set_up=2.0, whole=2.5), tmp_path)
    assert path.name.endswith("-notebooks.json")
    found = colab.json.loads(path.read_text())
    first = {"set_up_seconds": 3.0, "cell_seconds": 7.0, "load": 0.3}
    assert list(found["notebooks"]) == [CHAPTER, EXERCISE]
    assert found["notebooks"][CHAPTER] == first
    assert found["versions"]["ipywidgets"] == "7.7.1"
    assert {"processor", "cores", "memory_bytes"} <= set(found["hardware"])
    found["versions"]["torch"] = "1.0"
    path.write_text(colab.json.dumps(found))
    colab.record(colab.Result(EXERCISE, set_up=2.0, whole=2.5), tmp_path)
    assert list(colab.json.loads(path.read_text())["notebooks"]) == [EXERCISE]


def test_what_cannot_be_run_is_said(capsys):
    with pytest.raises(SystemExit):
        colab.main(["no-such-page"])
    said = "no notebook is called anything like no-such-page"
    assert said in capsys.readouterr().err
