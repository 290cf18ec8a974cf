"""Imports go one way, and only stacklm.notebook needs a notebook's packages."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import stacklm

PACKAGE = Path(stacklm.__file__).parent
FORBIDDEN = {"matplotlib", "ipywidgets", "IPython", "ipykernel"}
PARTS = ("config", "model", "optim", "train")
LIBRARY = sorted(
    path
    for path in PACKAGE.rglob("*.py")
    if "notebook" not in path.relative_to(PACKAGE).parts
)


def imported(path):
    """Top-level and dotted names that a file imports, wherever in it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide the direction"
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@pytest.mark.parametrize("path", LIBRARY, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_no_file_outside_notebook_imports_a_notebook_package(path):
    names = set(imported(path))
    assert not {name.split(".")[0] for name in names} & FORBIDDEN
    assert not [name for name in names if name.startswith("stacklm.notebook")]


def test_the_library_was_found():
    names = {path.relative_to(PACKAGE).parts[0] for path in LIBRARY}
    assert {"config.py", "model", "optim"} <= names


@pytest.mark.parametrize("part", PARTS)
def test_importing_a_part_loads_no_notebook_package(part):
    code = (
        f"import sys, stacklm.{part}\n"
        f"loaded = {FORBIDDEN!r} & set(sys.modules)\n"
        "later = {n for n in sys.modules if n.startswith('stacklm.notebook')}\n"
        "sys.exit(f'loaded: {loaded | later}' if loaded | later else 0)"
    )
    run = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        cwd=PACKAGE.parent,
    )
    assert run.returncode == 0, run.stderr


def test_optim_does_not_import_model_and_config_only_the_standard_library():
    for path in LIBRARY:
        where = path.relative_to(PACKAGE).parts
        names = set(imported(path))
        if where[0] == "optim":
            assert not [name for name in names if name.startswith("stacklm.model")], (
                path
            )
        if where == ("config.py",):
            roots = {name.split(".")[0] for name in names} - {"stacklm"}
            assert roots <= sys.stdlib_module_names
