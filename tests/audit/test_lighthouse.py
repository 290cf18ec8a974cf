"""How the audit judges: limits, the median, what it names, what it says is missing."""

import pytest

from tests.audit import lighthouse

WIDGET = '<script type="application/vnd.jupyter.widget-view+json">'


def report(performance=1.0, seo=1.0, audit=1.0):
    """What Lighthouse writes, as far as it is read."""
    parts = {"performance": performance, "accessibility": 1, "best-practices": 1}
    refs = [{"id": "slow", "weight": 30}, {"id": "told", "weight": 0}]
    return {
        "categories": {
            name: {"score": score, "auditRefs": refs}
            for name, score in {**parts, "seo": seo}.items()
        },
        "audits": {
            "slow": {"score": audit, "title": "Slow", "displayValue": "9\xa0s"},
            "told": {"score": 0, "title": "Told"},
            "total-byte-weight": {"numericValue": 120_000},
        },
    }


@pytest.fixture
def judged(tmp_path, monkeypatch, capsys):
    """Judge a page of given reports; returns (misses, what was printed)."""
    monkeypatch.setattr(lighthouse, "HTML", tmp_path)

    def judge(content, *reports):
        (tmp_path / "a.html").write_text(content)
        left = list(reports)
        monkeypatch.setattr(lighthouse, "measure", lambda *args: left.pop(0))
        missed = lighthouse.judge("a.html", "http://127.0.0.1/", "chromium")
        assert not left, "measured too seldom"
        return missed, capsys.readouterr().out

    return judge


def test_a_good_page_is_measured_once(judged):
    missed, line = judged("<p>", report(performance=0.95))
    assert missed == []
    assert line.split()[:4] == ["95", "100", "100", "100"]
    assert "120 kB" in line


def test_a_miss_is_measured_thrice_and_the_median_counts(judged):
    values = [0.80, 0.99, 0.96]
    missed, line = judged("<p>", *(report(performance=value) for value in values))
    assert missed == []
    assert line.split()[0] == "96"


def test_a_miss_names_the_audits_that_cost_it(judged):
    missed, _ = judged("<p>", *[report(performance=0.94, audit=0.5)] * 3)
    [text] = missed
    assert text == "a.html: performance 94, at least 95 wanted: slow (9 s)"


def test_explorers_may_be_slower_but_not_worse_otherwise(judged):
    assert judged(WIDGET, report(performance=0.90))[0] == []
    [text] = judged(WIDGET, report(seo=0.99, audit=0.9))[0]
    assert text.startswith("a.html: seo 99, at least 100 wanted: slow")


def test_what_is_missing_is_said(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(lighthouse, "HTML", tmp_path)
    assert lighthouse.main([]) == 1
    assert "run `make book` first" in capsys.readouterr().err
    (tmp_path / "a.html").write_text("<p>")
    monkeypatch.setattr(lighthouse.chromium, "find", lambda: "chromium")
    monkeypatch.setattr(lighthouse.shutil, "which", lambda name: None)
    assert lighthouse.main([]) == 1
    assert "needs Node.js 18.16 or newer" in capsys.readouterr().err
