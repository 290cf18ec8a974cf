"""The repository's address: the workflow's, else the clone's, else the written one."""

import subprocess

import pytest

from book.site import address


@pytest.fixture
def clone(tmp_path, monkeypatch):
    """A repository with a written address, outside any workflow."""
    monkeypatch.delenv("GITHUB_REPOSITORY", raising=False)
    monkeypatch.delenv("GITHUB_SERVER_URL", raising=False)
    written = "repository:\n  url: https://github.com/written/book\n"
    (tmp_path / "_config.yml").write_text(written)
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)

    def set_origin(remote):
        command = ["git", "-C", str(tmp_path), "remote", "add", "origin", remote]
        subprocess.run(command, check=True)
        return tmp_path

    set_origin.path = tmp_path
    return set_origin


@pytest.mark.parametrize(
    ("remote", "found"),
    [
        ("https://github.com/me/book.git", "https://github.com/me/book"),
        ("https://github.com/me/book/", "https://github.com/me/book"),
        ("https://token@github.com/me/book.git", "https://github.com/me/book"),
        ("git@github.com:me/book.git", "https://github.com/me/book"),
        ("ssh://git@codeberg.org:22/me/book.git", "https://codeberg.org/me/book"),
        ("git@gitlab.com:group/sub/book.git", "https://gitlab.com/group/sub/book"),
    ],
)
def test_origin_on_a_forge(clone, remote, found):
    assert address.address(clone(remote)) == found


@pytest.mark.parametrize(
    "remote",
    [
        "/srv/git/book.git",
        "../book",
        "file:///srv/git/book.git",
        "https://intranet.example/me/book.git",
        "git@nas.local:me/book.git",
        "https://github.com/book",
        "http://github.com/me/book",
    ],
)
def test_other_remotes_leave_the_written_address(clone, remote):
    assert address.address(clone(remote)) == "https://github.com/written/book"


def test_no_remote_and_no_repository(clone, tmp_path_factory):
    assert address.address(clone.path) == "https://github.com/written/book"
    archive = tmp_path_factory.mktemp("archive")
    config = (clone.path / "_config.yml").read_text()
    (archive / "_config.yml").write_text(config)
    assert address.address(archive) == "https://github.com/written/book"


def test_workflow_comes_first(clone, monkeypatch):
    monkeypatch.setenv("GITHUB_REPOSITORY", "fork/book")
    root = clone("https://github.com/me/book.git")
    assert address.address(root) == "https://github.com/fork/book"
