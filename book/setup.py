"""Make .venv ready to build the book, or to test it as well.

    python3 book/setup.py book    what building the pages needs; no torch
    python3 book/setup.py test    that, and everything the notebooks and tests need

A finished step leaves a stamp and is skipped the next time, unless the files that it
installs from have changed. Written for whatever `python3` is, so that an old one is
told what is wrong: standard library only, no syntax newer than Python 3.0.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys

OLDEST = (3, 11)
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
VENV = os.path.join(ROOT, ".venv")
PIP_LOG = os.path.join(VENV, "pip.log")
PIP = ["-m", "pip", "--disable-pip-version-check", "install", "--progress-bar", "off"]
NO_NETWORK = re.compile(
    r"Failed to establish a new connection|name resolution|ConnectTimeout|timed out|"
    r"Network is unreachable|Connection refused|NewConnectionError|ProxyError|"
    r"from versions: none"
)


class SetupError(Exception):
    """A step that cannot go on; the message is one sentence for the reader."""


def venv_python():
    folder, name = ("Scripts", "python.exe") if os.name == "nt" else ("bin", "python")
    return os.path.join(VENV, folder, name)


def read(*names):
    parts = []
    for name in names:
        with open(os.path.join(ROOT, name), "rb") as file:
            parts.append(file.read())
    return b"\0".join(parts)


def torch_pin():
    """The pin of torch in requirements.txt: it goes in a pip call of its own."""
    lines = read("requirements.txt").decode("utf-8").splitlines()
    return [line.strip() for line in lines if line.startswith("torch==")]


def steps(level):
    """(name, what is said, files it depends on, pip arguments) of each step."""
    hashed = ["--require-hashes", "-r", "book/requirements.txt"]
    found = [("book", "the page builder", ["book/requirements.txt"], hashed)]
    if level == "test":
        pins = ["requirements.txt"]
        found += [
            ("torch", "torch, the largest part", pins, torch_pin() + ["-c"] + pins),
            ("tests", "notebook and test tools", pins, ["-r", "requirements.txt"]),
            (
                "stacklm",
                "stacklm itself, from this folder",
                ["pyproject.toml"],
                ["--no-deps", "--no-build-isolation", "-e", "."],
            ),
        ]
    return found


def check_python():
    if sys.version_info[:2] < OLDEST:
        raise SetupError(
            "This book needs Python %d.%d or newer, and this is %s; install one and "
            "name it, as in `make book PYTHON=python3.12`."
            % (OLDEST[0], OLDEST[1], sys.version.split()[0])
        )


def make_venv():
    if os.path.exists(os.path.join(VENV, "pyvenv.cfg")) and pip_works():
        return
    print("Creating .venv with Python %s" % sys.version.split()[0])
    shutil.rmtree(VENV, ignore_errors=True)
    run = subprocess.Popen(
        [sys.executable, "-m", "venv", VENV],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    text = run.communicate()[0].decode("utf-8", "replace")
    if run.returncode != 0 or not pip_works():
        shutil.rmtree(VENV, ignore_errors=True)
        hint = "install python3-venv" if "ensurepip" in text else text.strip()[-300:]
        raise SetupError("Python could not create .venv here: %s." % hint)


def pip_works():
    try:
        return (
            subprocess.call(
                [venv_python(), "-m", "pip", "--version"],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            == 0
        )
    except OSError:
        return False


def install(what, arguments):
    """Run pip, showing a line per package; its whole output goes to .venv/pip.log."""
    print("Installing %s" % what)
    sys.stdout.flush()
    run = subprocess.Popen(
        [venv_python()] + PIP + arguments,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    lines = []
    for raw in run.stdout:
        line = raw.decode("utf-8", "replace").rstrip()
        lines.append(line)
        if line.startswith(("Collecting ", "Installing collected")):
            print("  " + line.split(" (from")[0][:76])
            sys.stdout.flush()
    run.stdout.close()
    run.wait()
    with open(PIP_LOG, "w", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")
    if run.returncode != 0:
        raise SetupError(why_failed(what, lines))


def why_failed(what, lines):
    if NO_NETWORK.search("\n".join(lines)):
        return (
            "pip could not reach its package index to install %s; connect to the "
            "network and run the same command again (details: .venv/pip.log)." % what
        )
    errors = [line for line in lines if line.startswith("ERROR")] or lines[-1:]
    return "Installing %s failed: %s (details: .venv/pip.log)." % (
        what,
        "".join(errors[:1])[:200],
    )


def stamp(name, files):
    digest = hashlib.sha256(read(*files)).hexdigest()[:16]
    return os.path.join(VENV, "stamp-%s-%s" % (name, digest))


def prepare(level):
    check_python()
    make_venv()
    for name, what, files, arguments in steps(level):
        done = stamp(name, files)
        if os.path.exists(done):
            continue
        install(what, arguments)
        with open(done, "w", encoding="utf-8") as file:
            file.write(" ".join(arguments) + "\n")


if __name__ == "__main__":
    try:
        prepare(sys.argv[1])
    except SetupError as failure:
        sys.exit("error: %s" % failure)
