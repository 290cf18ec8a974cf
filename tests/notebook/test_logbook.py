"""The generated ship's log: repeatable, one line a day, never more taken than seen."""

import re

import pytest

from stacklm.notebook import ship_log

LINE = re.compile(
    r"Day (\d+)\. Wind [NESW]{1,2}, \w+\. Latitude \d{1,2}\.[0-5]\d [NS]\. "
    r"Saw ([0-3]) (?:sperm|right|fin-back) whale(s?), took ([0-3])\.\n"
)


def test_a_log_repeats_by_seed_and_grows_at_its_end():
    assert ship_log(30, seed=1) == ship_log(40, seed=1)[: len(ship_log(30, seed=1))]
    assert ship_log(30, seed=1) != ship_log(30, seed=2)


def test_every_line_is_a_day_and_no_more_whales_are_taken_than_seen():
    lines = ship_log(500).splitlines(keepends=True)
    found = [LINE.fullmatch(line) for line in lines]
    assert all(found)
    assert [int(m[1]) for m in found] == list(range(1, 501))
    assert all(int(m[4]) <= int(m[2]) for m in found)
    assert all((m[3] == "") == (m[2] == "1") for m in found)
    assert {(int(m[2]), int(m[4])) for m in found} == {
        (seen, took) for seen in range(4) for took in range(seen + 1)
    }


def test_a_log_without_days_is_refused():
    with pytest.raises(ValueError, match="at least 1 day, got 0"):
        ship_log(0)
