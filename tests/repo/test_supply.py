"""What comes from others is pinned, and nothing that is read or imported runs code.

Vendored scripts are compared with the lock of npm in ``tests/browser/test_vendor.py``.
"""

import ast
import re
import subprocess
import sys

import pytest

PIN = re.compile(r"([A-Za-z0-9._-]+)==([\w.+]+)(?: ; .+)?")
HASH = re.compile(r"--hash=sha256:[0-9a-f]{64}")

# Calls that run code which data may bring along, and where one is right.
UNPICKLE = {
    "all_gather_object",
    "allow_pickle",
    "broadcast_object_list",
    "eval",
    "exec",
    "pickle.load",
    "pickle.loads",
    "torch.load",
    "yaml.load",
    "yaml.unsafe_load",
}
RANKS_OF_ONE_RUN = {
    "stacklm/bench/ranks.py": {"pickle.loads"},  # a pipe to processes it has started
    "stacklm/optim/agree.py": {"all_gather_object"},  # what ranks are about to do
    "stacklm/train/world.py": {"broadcast_object_list", "pickle.loads"},  # of rank 0
}


def pins(text: str) -> dict[str, set[str]]:
    """{package: versions}; lines of hashes and comments are left out."""
    found: dict[str, set[str]] = {}
    for line in text.splitlines():
        line = line.rstrip("\\ ")
        if line and not line.startswith(("#", " ")):
            match = PIN.fullmatch(line)
            assert match, f"no exact pin: {line}"
            name = match[1].lower().replace("_", "-").replace(".", "-")
            found.setdefault(name, set()).add(match[2])
    return found


def test_every_package_of_the_page_builder_is_locked_by_hash(root):
    text = (root / "book/requirements.txt").read_text(encoding="utf-8")
    for entry in re.split(r"\n(?=\S)", text.strip()):
        assert HASH.search(entry), f"without a hash: {entry.splitlines()[0]}"
    assert "jupyter-book" in pins(text)
    setup = (root / "book/setup.py").read_text(encoding="utf-8")
    assert '"--require-hashes", "-r", "book/requirements.txt"' in setup


def test_everything_is_pinned_and_the_two_lists_agree(root):
    everything = pins((root / "requirements.txt").read_text(encoding="utf-8"))
    builder = pins((root / "book/requirements.txt").read_text(encoding="utf-8"))
    for name, versions in builder.items():
        assert everything.get(name) == versions, f"{name}: run `make lock`"
    named = (root / "requirements.in").read_text(encoding="utf-8").splitlines()
    for line in named:
        if line and not line.startswith("#"):
            assert re.split(r"[=<>\[;]", line)[0].strip() in everything, line


@pytest.mark.parametrize("line", ["torch", "torch>=2", "torch==2.*", "torch @ git+x"])
def test_a_package_without_an_exact_pin_is_noticed(line):
    with pytest.raises(AssertionError, match="no exact pin"):
        pins(line)


def calls_that_unpickle(text: str) -> set[str]:
    """Of ``UNPICKLE``, what a module calls or sets."""
    found = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            short = name.rpartition(".")[2] if name.startswith("dist.") else name
            found |= {name, short, *(word.arg for word in node.keywords if word.arg)}
        if isinstance(node, ast.ImportFrom) and node.module in ("pickle", "torch"):
            found |= {f"{node.module}.{each.name}" for each in node.names}
    return found & UNPICKLE


def test_nothing_that_is_read_from_a_file_can_run_code(root):
    for folder in ("stacklm", "book"):
        for path in (root / folder).rglob("*.py"):
            where = path.relative_to(root).as_posix()
            found = calls_that_unpickle(path.read_text(encoding="utf-8"))
            assert found <= RANKS_OF_ONE_RUN.get(where, set()), where


@pytest.mark.parametrize(
    "line",
    [
        "torch.load(path, weights_only=True)",
        "from pickle import load",
        "np.load(path, allow_pickle=True)",
        "dist.all_gather_object(a, b)",
        "eval(text)",
    ],
)
def test_a_call_that_unpickles_is_noticed(line):
    assert calls_that_unpickle(f"import x\n{line}")


IMPORT_ALL = """
import importlib, pkgutil, sys

def refuse(event, args):
    if event in ("socket.connect", "socket.getaddrinfo", "socket.gethostbyname"):
        print("asked for the network:", event, args, flush=True)
        import os
        os._exit(3)

sys.addaudithook(refuse)
if "--probe" in sys.argv:
    import socket
    socket.create_connection(("127.0.0.1", 9))
import stacklm
for module in pkgutil.walk_packages(stacklm.__path__, "stacklm."):
    if module.name.endswith("__main__"):
        continue
    try:
        importlib.import_module(module.name)
    except ImportError as error:
        assert "pip install" in str(error), (module.name, error)  # an extra
    print(module.name)
"""


def imported(root, *options: str) -> subprocess.CompletedProcess:
    command = [sys.executable, "-c", IMPORT_ALL, *options]
    return subprocess.run(command, cwd=root, capture_output=True, text=True)


def test_importing_every_module_asks_for_no_network(root):
    run = imported(root)
    assert run.returncode == 0, run.stdout[-300:] + run.stderr[-2000:]
    names = run.stdout.split()
    there = {
        ".".join(path.relative_to(root).with_suffix("").parts)
        for path in (root / "stacklm").rglob("*.py")
        if path.name not in ("__init__.py", "__main__.py")
    }
    assert there <= set(names)


def test_a_module_that_asks_for_the_network_would_be_noticed(root):
    run = imported(root, "--probe")
    assert run.returncode == 3
    assert "asked for the network: socket." in run.stdout
