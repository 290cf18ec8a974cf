"""Make .venv ready to build the book, or to test it as well.

    python3 book/setup.py book    what building the pages needs; no torch
    python3 book/setup.py test    that, and everything the notebooks and tests need

A finished step leaves a stamp and is skipped the next time, unless the files that it
installs from have changed. If pip was cut off while it wrote packages, which leaves
some of them in halves, the next run starts with a new .venv. Written for whatever
`python3` is, so that an old one is told what is wrong: standard library only, no syntax
newer than Python 3.0.
"""

import glob
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
WRITING = os.path.join(VENV, "pip-is-writing")
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
    made = os.path.exists(os.path.join(VENV, "pyvenv.cfg"))
    if made and not os.path.exists(WRITING) and pip_works():
        return
    print("Creating .venv with Python %s" % sys.version.split()[0])
    sys.stdout.flush()
    shutil.rmtree(VENV, ignore_errors=True)
    run = subprocess.Popen(
        [sys.executable, "-m", "venv", VENV],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    text = run.communicate()[0].decode("utf-8", "replace")
    if run.returncode != 0 or not pip_works():
        shutil.rmtree(VENV, ignore_errors=True)
        text = " ".join(text.split())
        hint = "install python3-venv" if "ensurepip" in text else text[-300:]
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
    try:
        for raw in run.stdout:
            lines.append(raw.decode("utf-8", "replace").strip())
            show(lines[-1])
            if lines[-1].startswith("Installing collected"):
                open(WRITING, "w").close()
    except KeyboardInterrupt:
        run.terminate()
        raise
    finally:
        run.stdout.close()
        run.wait()
        with open(PIP_LOG, "w", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")
    if run.returncode != 0:
        raise SetupError(why_failed(what, lines))
    if os.path.exists(WRITING):
        os.remove(WRITING)


def show(line):
    """Print a line of pip's that says how far it is: packages, and large downloads."""
    large = re.match(r"Downloading (\S+) \((\d{2,}[\d.]* MB|[\d.]+ GB)\)", line)
    if large:
        print("  Downloading %s, %s" % (large.group(1)[:50], large.group(2)))
    elif line.startswith(("Collecting ", "Installing collected")):
        print("  " + line.split(" (from")[0][:76])
    sys.stdout.flush()


def why_failed(what, lines):
    if NO_NETWORK.search("\n".join(lines)):
        return (
            "pip could not reach its package index to install %s; connect to the "
            "network and run the same command again (details: .venv/pip.log)." % what
        )
    errors = [line[6:].strip() for line in lines if line.startswith("ERROR:")]
    first = "".join((errors or lines[-1:])[:1]).split(". ")[0][:200].rstrip(".")
    return (
        "Installing %s failed: %s; mend that and run the same command again "
        "(details: .venv/pip.log)." % (what, first)
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
        # A stamp of other files would count again when they come back.
        for old in glob.glob(os.path.join(glob.escape(VENV), "stamp-%s-*" % name)):
            os.remove(old)
        install(what, arguments)
        with open(done, "w", encoding="utf-8") as file:
            file.write(" ".join(arguments) + "\n")


def main(level):
    try:
        prepare(level)
    except SetupError as failure:
        sys.exit("error: %s" % failure)
    except KeyboardInterrupt:
        sys.exit("error: interrupted; run the same command again to go on.")


if __name__ == "__main__":
    main(sys.argv[1])
