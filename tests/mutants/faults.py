"""A fault: one small wrong edit of one module of stacklm."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Fault:
    """What is edited, and what that means."""

    what: str
    """In words, unique; also its name on the command line."""
    module: str
    """File below stacklm/."""
    old: str
    """Text that occurs exactly once, or whose first place is meant."""
    new: str
    """What takes its place."""

    def applied(self) -> str:
        """The faulty text of the module.

        Raises:
            ValueError: ``old`` is not in the module any more.
        """
        text = (ROOT / "stacklm" / self.module).read_text(encoding="utf-8")
        if self.old not in text:
            raise ValueError(
                f"the fault {self.what!r} edits {self.old!r}, which {self.module} no "
                "longer has; write the fault anew"
            )
        return text.replace(self.old, self.new, 1)
