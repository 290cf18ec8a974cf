"""Where this book's repository lives: one answer for buttons, set-up cells and README.

`_config.yml` holds the address that the authors wrote. A clone knows better: its
`origin` is where it came from. A workflow knows best: GITHUB_REPOSITORY is where it
runs. `python -m book.site.address` prints the answer.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from urllib.parse import urlsplit

import yaml

FORGES = ("github.com", "gitlab.com", "codeberg.org", "bitbucket.org")
# git@github.com:owner/name.git, the short form of ssh://git@github.com/owner/name.git
SCP = re.compile(r"^(?:[\w.-]+@)?(?P<host>[\w.-]+\.\w+):(?!//)(?P<path>.+)$")


def address(root: Path | str) -> str:
    """Find the https address of the repository that `root` belongs to.

    Args:
        root: The folder that holds `_config.yml`.

    Returns:
        An address such as `https://github.com/owner/name`, without `.git`.

    Raises:
        KeyError: If `_config.yml` has no `repository.url`.

    Example:
        >>> as_https("git@github.com:owner/name.git")
        'https://github.com/owner/name'
    """
    root = Path(root)
    return in_workflow() or as_https(origin(root)) or written(root)


def in_workflow() -> str | None:
    """Return the address of the repository whose GitHub workflow runs this."""
    name = os.environ.get("GITHUB_REPOSITORY")
    server = os.environ.get("GITHUB_SERVER_URL", "https://github.com")
    return f"{server}/{name}" if name else None


def origin(root: Path) -> str:
    """Return what git calls origin in `root`; empty where there is none."""
    command = ["git", "-C", str(root), "remote", "get-url", "origin"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:  # no git: an unpacked archive
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def as_https(remote: str) -> str | None:
    """Turn a remote on a public forge into its https address, others into None.

    Args:
        remote: https, ssh or scp-like address, or a local path.

    Returns:
        `https://host/owner/name`, or None for anything that a reader cannot open.
    """
    short = SCP.match(remote)
    if short:
        host, path = short["host"], short["path"]
    else:
        parts = urlsplit(remote)
        if parts.scheme not in ("https", "ssh"):
            return None
        host, path = parts.hostname or "", parts.path
    path = path.strip("/").removesuffix(".git")
    if host not in FORGES or path.count("/") < 1:
        return None
    return f"https://{host}/{path}"


def written(root: Path) -> str:
    """Return `repository.url` of `_config.yml`."""
    config = yaml.safe_load((root / "_config.yml").read_text(encoding="utf-8"))
    return config["repository"]["url"].rstrip("/")


def published(url: str) -> str:
    """Return where GitHub Pages shows a repository; empty for other hosts.

    Args:
        url: The repository's https address.

    Returns:
        An address that ends with a slash.

    Example:
        >>> published("https://github.com/owner/name")
        'https://owner.github.io/name/'
        >>> published("https://github.com/owner/owner.github.io")
        'https://owner.github.io/'
    """
    parts = urlsplit(url)
    if parts.hostname != "github.com":
        return ""
    owner, name = parts.path.strip("/").split("/")
    site = f"{owner}.github.io".lower()
    return f"https://{site}/" if name.lower() == site else f"https://{site}/{name}/"


if __name__ == "__main__":
    print(address(Path(__file__).resolve().parents[2]))
