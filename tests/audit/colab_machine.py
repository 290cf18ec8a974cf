"""A machine like Colab's: its versions, none of our packages, another working folder.

Under ``_build/colab``, made once for each list of pins:

- ``whole`` holds every package of ``colab.txt``. Only torch is linked from ``.venv``:
  Colab's own version is not to be had everywhere, and a copy weighs a gigabyte.
- ``light`` holds the first two groups of ``colab.txt``, the kernel with its widgets
  and what draws, in front of everything else in ``.venv`` but ``stacklm``. It is quick
  to make, but what the set-up cell would bring besides ``stacklm`` is already there.

A notebook starts from a fresh environment in front of one of the two, so that what one
installs is not there for the next.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import Distribution, distributions
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "_build" / "colab"
PINS = Path(__file__).with_name("colab.txt")
REST = "# The rest"
# What tells a package that it runs in Colab; some then call `google.colab.output`.
STUB = "def __getattr__(name):\n    return lambda *args, **kwargs: None\n"
# Of these the notebook's environment must know nothing.
FOREIGN = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "JUPYTER_PATH")


@dataclass(frozen=True)
class Machine:
    """One notebook's machine.

    Args:
        python: Its interpreter.
        content: The folder that notebooks run in, Colab's /content.
        environment: The variables of its kernel.
    """

    python: Path
    content: Path
    environment: dict[str, str]


def pins(light: bool) -> list[str]:
    """The lines of ``colab.txt`` that a machine is made from."""
    text = PINS.read_text(encoding="utf-8")
    text = text.split(REST)[0] if light else text
    return [line for line in text.splitlines() if not line.startswith("#")]


def site(python_folder: Path) -> Path:
    """Where an environment keeps its packages."""
    where = {"base": str(python_folder), "platbase": str(python_folder)}
    return Path(sysconfig.get_path("purelib", "venv", vars=where))


def base(light: bool) -> Path:
    """Return the site-packages that stand for Colab's own, making them if need be."""
    wanted, torch = pins(light), version_of("torch")
    key = hashlib.sha256(repr((wanted, torch, sys.version)).encode()).hexdigest()[:12]
    folder = FOLDER / ("light" if light else "whole")
    stamp = folder / "made-from"
    if stamp.exists() and stamp.read_text() == key:
        return site(folder)
    shutil.rmtree(folder, ignore_errors=True)
    _venv(folder)
    command = [sys.executable, "-m", "pip", "--python", str(folder / "bin/python")]
    command += ["install", "-q", "--disable-pip-version-check", "--no-deps", *wanted]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(
            "Colab's packages could not be installed, which takes a package index; pip "
            f"said: {done.stderr.strip()[-400:]}"
        )
    names = {canonicalize_name(line.split("==")[0]) for line in wanted}
    _link(set(_here()) - {"stacklm"} if light else closure("torch"), names, folder)
    stamp.write_text(key)
    return site(folder)


def _venv(folder: Path) -> None:
    command = [sys.executable, "-m", "venv", "--without-pip", str(folder)]
    subprocess.run(command, check=True)


def _here() -> dict[str, Distribution]:
    """What is installed beside the interpreter that runs this, by name."""
    return {canonicalize_name(d.metadata["Name"]): d for d in distributions()}


def version_of(name: str) -> str:
    """Return the version of a package of this environment."""
    return _here()[name].version


def closure(name: str) -> set[str]:
    """A package of this environment with all it needs; pip comes along.

    Example:
        >>> "sympy" in closure("torch")
        True
    """
    here, found, todo = _here(), {"pip"}, [name]
    while todo:
        name = canonicalize_name(todo.pop())
        if name in found or name not in here:
            continue
        found.add(name)
        needs = map(Requirement, here[name].requires or ())
        no_extra = {"extra": ""}
        todo += [n.name for n in needs if not n.marker or n.marker.evaluate(no_extra)]
    return found


def _link(names: Iterable[str], but: set[str], folder: Path) -> None:
    """Link packages of this environment into another, except those in ``but``."""
    here = _here()
    for name in sorted(set(names) - but):
        tops = {file.parts[0] for file in here[name].files or ()}
        for top in sorted(tops - {"..", "__pycache__"}):
            source = Path(here[name].locate_file(top)).resolve()
            if source.exists() and not (site(folder) / top).exists():
                (site(folder) / top).symlink_to(source)


def snapshot(folder: Path) -> Path:
    """Commit the working tree, as it is, to a repository of its own; return it."""
    repository = folder / "repository"

    def git(*words: str) -> None:
        who = ["-c", "user.name=audit", "-c", "user.email=audit@localhost"]
        where = ["--git-dir", str(repository / ".git"), "--work-tree", str(ROOT)]
        subprocess.run(["git", *who, *where, *words], check=True, cwd=ROOT)

    subprocess.run(["git", "init", "-q", str(repository)], check=True)
    git("add", "--all")
    git("commit", "-q", "--no-gpg-sign", "-m", "The working tree")
    # pip asks for a clone without the contents of old files.
    git("config", "uploadpack.allowFilter", "true")
    return repository


@contextmanager
def machine(repository: Path, address: str, light: bool = False) -> Iterator[Machine]:
    """A fresh machine, gone afterwards.

    Args:
        repository: What git gets instead of ``address``, see ``snapshot``.
        address: The address in the set-up cells.
        light: Whether pip may take what ``stacklm`` needs from ``.venv``.
    """
    below = base(light)
    with tempfile.TemporaryDirectory(prefix="colab-") as name:
        folder = Path(name).resolve()
        own = folder / "python"
        _venv(own)
        (site(own) / "colab.pth").write_text(f"{below}\nimport google.colab\n")
        stub = site(own) / "google" / "colab"
        stub.mkdir(parents=True)
        (stub / "__init__.py").touch()
        (stub / "output.py").write_text(STUB, encoding="utf-8")
        content = folder / "content"
        content.mkdir()
        variables = _variables(own, repository, address)
        if light:
            variables["PIP_NO_DEPS"] = "1"
        yield Machine(own / "bin/python", content, variables)


def _variables(own: Path, repository: Path, address: str) -> dict[str, str]:
    """The kernel's variables: git finds the repository here instead of afar."""
    found = {k: v for k, v in os.environ.items() if k not in FOREIGN}
    found["PATH"] = f"{own / 'bin'}{os.pathsep}{found['PATH']}"
    # The old debugger warns about newer Pythons in every kernel that starts.
    found["PYDEVD_DISABLE_FILE_VALIDATION"] = "1"
    found["GIT_CONFIG_COUNT"] = "1"
    found["GIT_CONFIG_KEY_0"] = f"url.{repository.as_uri()}.insteadOf"
    found["GIT_CONFIG_VALUE_0"] = address
    return found


def addresses(source: str) -> list[str]:
    """Addresses of repositories that a set-up cell installs from."""
    return re.findall(r"git\+(https://[^\s\"']+)", source)
