"""Metrics for programs, a line of progress for people."""

import io
import json
import math

import pytest

from stacklm.train.log import Metrics, Progress, read_metrics


def record(step, **more):
    plain = {
        "step": step,
        "loss": 2.5,
        "muon_lr": 0.01,
        "adamw_lr": 3e-3,
        "skipped": False,
        "layers_clipped": 0,
        "seconds": 0.5,
        "tokens_per_second": 4096.0,
    }
    return {**plain, **more}


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_figure_that_is_not_finite_is_null(tmp_path):
    metrics = Metrics(tmp_path / "metrics.jsonl")
    metrics.append(record(0, loss=math.nan, grad_norm=math.inf, max_logit=None))
    metrics.close()
    text = (tmp_path / "metrics.jsonl").read_text(encoding="utf-8")
    assert "NaN" not in text
    assert "Infinity" not in text
    (line,) = text.splitlines()
    assert json.loads(line)["loss"] is None
    assert json.loads(line)["grad_norm"] is None


def test_a_record_is_readable_at_once(tmp_path):
    metrics = Metrics(tmp_path / "new" / "metrics.jsonl")
    for step in range(3):
        metrics.append(record(step))
        assert read_metrics(tmp_path / "new" / "metrics.jsonl") == metrics.records
    assert len(metrics.records) == 3
    metrics.close()


@pytest.mark.parametrize("tail", ["", '{"step": 3, "lo', '{"step": 3}', "\x00\x00\n"])
def test_only_what_is_done_stays(tmp_path, tail):
    path = tmp_path / "metrics.jsonl"
    whole = "".join(json.dumps(record(step)) + "\n" for step in range(3))
    path.write_text(whole + tail, encoding="utf-8")
    for step in (3, 2):
        metrics = Metrics(path, step)
        assert metrics.records == [record(i) for i in range(step)]
        metrics.append(record(step))
        metrics.close()
        assert read_metrics(path) == [record(i) for i in range(step + 1)]


def test_a_full_disk_is_said_clearly_and_the_torn_line_goes(tmp_path):
    path = tmp_path / "metrics.jsonl"
    metrics = Metrics(path)
    metrics.append(record(0))
    metrics._file.close()
    metrics._file = open("/dev/full", "wb")  # noqa: SIM115
    with pytest.raises(OSError, match=r"No space left .* checkpoints are intact"):
        metrics.append(record(1))
    metrics.close()
    with open(path, "ab") as file:
        file.write(b'{"step": 1, "lo')
    again = Metrics(path, 1)
    again.close()
    assert again.records == [record(0)]
    assert path.read_bytes().count(b"\n") == 1


def test_without_a_path_records_stay_in_memory():
    metrics = Metrics(None)
    metrics.append(record(0))
    metrics.sync()
    metrics.close()
    assert metrics.records == [record(0)]


def test_the_figures_beside_the_bar_say_what_matters():
    progress = Progress(100)
    figures = progress.figures(record(9))
    assert figures == "loss 2.500, lr 1.0e-02 3.0e-03, 4,096 tokens/s"
    progress.update(record(10, skipped=True, loss=None, val_loss=2.25))
    figures = progress.figures(record(11, layers_clipped=2))
    assert "val 2.250" in figures
    assert "1 skipped" in figures
    assert "QK-clip in 2 layers" in figures
    assert "loss not finite" in progress.figures(record(12, loss=None))


def run_through(progress, first=0, steps=100):
    for step in range(first, steps):
        progress.update(record(step))
    progress.close()


def test_a_terminal_gets_a_bar_in_place():
    terminal = Terminal()
    run_through(Progress(100, stream=terminal))
    text = terminal.getvalue()
    assert text.count("\n") == 1
    assert text.endswith("\n")
    last = text.strip().split("\r")[-1]
    assert last.startswith("100%|")
    assert "| 100/100 [" in last
    assert "4,096 tokens/s]" in last


def test_a_file_gets_a_line_every_ten_seconds(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr("tqdm.std.time", lambda: clock[0])
    file = io.StringIO()
    progress = Progress(100, show=True, stream=file)
    for step in range(100):
        clock[0] += 0.5
        progress.update(record(step))
    progress.close()
    lines = file.getvalue().splitlines()
    assert [line.split("| ")[-1].split("/")[0] for line in lines] == [
        *("0", "20", "40", "60", "80", "100"),
    ]
    assert lines[1].endswith(
        "[00:10<00:40, loss 2.500, lr 1.0e-02 3.0e-03, 4,096 tokens/s]"
    )
    assert "\r" not in file.getvalue()


def test_a_resumed_run_goes_on_where_the_bar_was():
    file = io.StringIO()
    progress = Progress(100, 40, True, file)
    assert "| 40/100 [" in file.getvalue()
    run_through(progress, 40)
    assert "| 100/100 [" in file.getvalue().splitlines()[-1]


def test_a_file_gets_nothing_unless_asked():
    file = io.StringIO()
    run_through(Progress(100, stream=file))
    assert file.getvalue() == ""


def test_a_notebook_gets_a_widget():
    nbclient, nbformat = map(pytest.importorskip, ("nbclient", "nbformat"))
    pytest.importorskip("ipywidgets")
    cell = (
        "from stacklm.train.log import Progress\n"
        "progress = Progress(2, show=True)\n"
        f"progress.update({record(0)!r})\n"
        f"progress.update({record(1)!r})\n"
        "progress.close()\n"
    )
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell)])
    nbclient.NotebookClient(book, kernel_name="python3").execute()
    (output,) = book.cells[0].outputs
    assert "application/vnd.jupyter.widget-view+json" in output.data
    widgets = json.dumps(book.metadata.widgets)
    assert "2/2" in widgets
    assert "tokens/s" in widgets
