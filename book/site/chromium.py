"""Which browser the tests and the screenshots use."""

import os
import shutil

NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
MISSING = "no Chromium here: `apt-get install chromium` (or set CHROMIUM to its path)"


def find() -> str | None:
    """Return the path of the first Chromium there is; CHROMIUM names another."""
    wanted = os.environ.get("CHROMIUM")
    found = (shutil.which(name) for name in ([wanted] if wanted else NAMES))
    return next((path for path in found if path), None)
