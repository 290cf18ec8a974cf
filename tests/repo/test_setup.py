"""The set-up says in one sentence what is wrong, and skips what it has done."""

import importlib.util
import os
import signal
import subprocess
import sys

import pytest


@pytest.fixture
def setup(root, tmp_path, monkeypatch):
    spec = importlib.util.spec_from_file_location("book_setup", root / "book/setup.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "VENV", str(tmp_path / "venv"))
    monkeypatch.setattr(module, "PIP_LOG", str(tmp_path / "pip.log"))
    monkeypatch.setattr(module, "WRITING", str(tmp_path / "venv" / "pip-is-writing"))
    return module


def test_an_old_python_is_named_with_the_remedy(setup, monkeypatch):
    monkeypatch.setattr(setup, "OLDEST", (9, 0))
    with pytest.raises(setup.SetupError, match=r"needs Python 9\.0 or newer.*PYTHON="):
        setup.prepare("book")


def test_a_missing_python_is_one_sentence(root):
    run = subprocess.run(
        ["make", "book", "PYTHON=no-such-python"],
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode != 0
    assert "error: there is no no-such-python here" in run.stdout
    assert "Traceback" not in run.stdout + run.stderr


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["NewConnectionError: Failed to establish a new connection"], "network"),
        (["ERROR: No matching distribution (from versions: none)"], "network"),
        (
            ["ERROR: THESE DO NOT MATCH. If you", "ERROR: x"],
            "failed: THESE DO NOT MATCH;",
        ),
        (["something odd"], "failed: something odd; mend that"),
    ],
)
def test_a_failed_install_is_one_sentence_with_the_log(setup, lines, message):
    text = setup.why_failed("the page builder", lines)
    assert message in text
    assert "pip.log" in text
    assert "\n" not in text


def test_no_network_ends_in_a_sentence_and_no_stamp(setup, monkeypatch, tmp_path):
    # A proxy on a closed port of this machine is as good as no network.
    for name in ("PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL", "PIP_CONFIG_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "0")
    monkeypatch.setattr(setup, "venv_python", lambda: sys.executable)
    with pytest.raises(setup.SetupError, match="could not reach its package index"):
        setup.install("a package", ["no-such-package-of-ours==1.0"])
    assert (tmp_path / "pip.log").exists()


def test_a_finished_step_is_skipped_until_its_files_change(
    setup, monkeypatch, tmp_path
):
    (tmp_path / "venv").mkdir()
    calls = []
    monkeypatch.setattr(setup, "make_venv", lambda: None)
    monkeypatch.setattr(setup, "install", lambda what, args: calls.append(what))
    setup.prepare("book")
    setup.prepare("book")
    assert calls == ["the page builder"]
    before = setup.read
    monkeypatch.setattr(setup, "read", lambda *names: b"changed")
    setup.prepare("book")
    assert len(calls) == 2
    monkeypatch.setattr(setup, "read", before)
    setup.prepare("book")
    assert len(calls) == 3, "what .venv holds is of the other files"


FAKE_PIP = """
import sys, time
print("Collecting a (from x)", flush=True)
print("  Downloading a-1.0%s.whl (526.1 MB)" % ("-x" * 40), flush=True)
if "late" in sys.argv: print("Installing collected packages: a", flush=True)
if "slow" in sys.argv: time.sleep(60)
sys.exit("fails" in sys.argv)
"""


@pytest.fixture
def fake_pip(setup, monkeypatch, tmp_path):
    """A pip that does as its arguments say, in a .venv that has one."""
    (tmp_path / "venv").mkdir()
    (tmp_path / "venv" / "pyvenv.cfg").touch()
    monkeypatch.setattr(setup, "venv_python", lambda: sys.executable)
    monkeypatch.setattr(setup, "PIP", ["-c", FAKE_PIP])
    return setup


def test_progress_shows_packages_and_large_downloads(fake_pip, capsys):
    fake_pip.install("a package", [])
    shown = capsys.readouterr().out
    assert "  Collecting a\n" in shown
    assert "526.1 MB" in shown


@pytest.mark.parametrize(
    ("arguments", "remade"),
    [(["late", "fails"], True), (["fails"], False), (["late"], False)],
)
def test_packages_in_halves_are_not_built_upon(
    fake_pip, tmp_path, capsys, arguments, remade
):
    if "fails" in arguments:
        with pytest.raises(fake_pip.SetupError):
            fake_pip.install("a package", arguments)
    else:
        fake_pip.install("a package", arguments)
    fake_pip.make_venv()
    assert ("Creating .venv" in capsys.readouterr().out) is remade
    assert not (tmp_path / "venv" / "pip-is-writing").exists()


def test_an_interrupted_set_up_ends_in_a_sentence_and_takes_pip_with_it(root, tmp_path):
    # As at a terminal: what a shell runs in the background is deaf to Ctrl-C.
    script = (
        "import sys, os, signal; sys.path.insert(0, 'book'); import setup\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        f"setup.VENV, setup.PIP_LOG = {str(tmp_path)!r}, {str(tmp_path / 'log')!r}\n"
        "setup.venv_python = lambda: sys.executable\n"
        f"setup.PIP = ['-c', {FAKE_PIP!r}]\n"
        "setup.prepare = lambda level: setup.install('a package', ['slow'])\n"
        "setup.main('book')\n"
    )
    command = [sys.executable, "-c", script]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, cwd=root, **pipes) as run:
        while b"526.1" not in run.stdout.readline():
            pass
        run.send_signal(signal.SIGINT)
        # pip sleeps for a minute; its pipe closes when it is gone.
        said = run.communicate(timeout=20)[1]
    assert run.returncode != 0
    assert said.startswith(b"error: interrupted; run the same command again")
    assert (tmp_path / "log").read_text(encoding="utf-8").startswith("Collecting a")


def test_reading_installs_no_torch_and_testing_installs_the_pin_alone(setup, root):
    assert all("torch" not in str(args) for *_, args in setup.steps("book"))
    locked = (root / "book/requirements.txt").read_text(encoding="utf-8")
    assert "\ntorch==" not in locked
    assert "--hash=sha256:" in locked
    (pin,) = setup.torch_pin()
    torch_step = next(s for s in setup.steps("test") if s[0] == "torch")
    assert torch_step[3] == [pin, "-c", "requirements.txt"]
