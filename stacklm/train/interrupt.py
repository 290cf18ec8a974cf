"""Ctrl-C between two steps: the first asks, the second insists."""

from __future__ import annotations

import signal
import sys
import threading

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupt:
    """Turn Ctrl-C and SIGTERM (what a cluster sends first) into a flag.

    As a context manager; outside the main thread, where Python handles no signals, the
    flag just stays False.

    Args:
        quiet: Say nothing; of several ranks, only one need speak.

    Attributes:
        asked: whether a signal came.
    """

    def __init__(self, quiet: bool = False):
        self.asked, self._quiet = False, quiet
        self._before = {}

    def __enter__(self):
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                self._before[number] = signal.signal(number, self._ask)
        return self

    def __exit__(self, *_):
        for number, handler in self._before.items():
            signal.signal(number, handler or signal.SIG_DFL)

    def _ask(self, number, _frame):
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True
        if self._quiet:
            return
        name = signal.Signals(number).name
        print(
            f"\n{name}: stopping after this step; once more stops at once",
            file=sys.stderr,
            flush=True,
        )
