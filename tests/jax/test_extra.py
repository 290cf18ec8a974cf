"""Where the extra is missing, one sentence says so; examples in docstrings run."""

import doctest
import importlib
import os
import pkgutil
import subprocess
import sys

import pytest

import stacklm.jax

MODULES = [
    info.name for info in pkgutil.iter_modules(stacklm.jax.__path__, "stacklm.jax.")
]
BLOCKED = """
import sys
sys.modules["{0}"] = None
"""


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples_run(name):
    assert doctest.testmod(importlib.import_module(name)).failed == 0


def test_there_are_examples():
    counts = [doctest.testmod(importlib.import_module(n)).attempted for n in MODULES]
    assert sum(count > 0 for count in counts) >= 5


@pytest.mark.parametrize("package", ["jax", "optax", "orbax"])
def test_the_import_says_what_to_install(root, package):
    code = BLOCKED.format(package) + "import stacklm.jax"
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=root, capture_output=True, text=True
    )
    last = run.stderr.strip().splitlines()[-1]
    assert last.startswith("ImportError: stacklm.jax needs jax, optax and orbax")
    assert last.endswith('install them with: pip install "stacklm[jax]"')


@pytest.mark.parametrize("ci", [False, True])
def test_tests_are_skipped_with_one_sentence_but_never_under_ci(root, ci):
    code = BLOCKED.format("optax") + (
        "import pytest\n"
        "sys.exit(pytest.main(['-q', '-p', 'no:cacheprovider', 'tests/jax']))"
    )
    env = {name: value for name, value in os.environ.items() if name != "CI"}
    env |= {"CI": "true"} if ci else {}
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=root, env=env, capture_output=True, text=True
    )
    sentence = 'the extra is not installed: pip install "stacklm[jax]"'
    assert sentence in run.stdout
    assert (run.returncode == 2) == ci, run.stdout
    assert " passed" not in run.stdout
    assert ("CI must not skip" in run.stdout) == ci


def test_nothing_else_in_the_package_imports_jax(root):
    for path in (root / "stacklm").rglob("*.py"):
        if "jax" not in path.relative_to(root / "stacklm").parts:
            assert "import jax" not in path.read_text(encoding="utf-8"), path


@pytest.mark.parametrize("ci", [False, True])
def test_the_chapter_is_skipped_with_one_sentence_but_never_under_ci(root, ci):
    code = BLOCKED.format("optax") + (
        "import pytest\n"
        "options = '-q -p no:cacheprovider --nbval -rs --setup-plan'.split()\n"
        "sys.exit(pytest.main([*options, 'chapters/14_jax.ipynb']))"
    )
    env = {name: value for name, value in os.environ.items() if name != "CI"}
    env |= {"CI": "true"} if ci else {}
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=root, env=env, capture_output=True, text=True
    )
    sentence = 'this chapter needs an extra: pip install "stacklm[jax]"'
    assert (sentence in run.stdout) != ci, run.stdout
