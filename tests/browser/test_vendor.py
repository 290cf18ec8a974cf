"""What the repository vendors is what the lock names, byte for byte. No network."""

import json

import pytest

from book.vendor import refresh

LIMIT = 4_500_000  # bytes: mathematics, widgets, fonts and licences


@pytest.fixture(scope="module")
def manifest():
    return json.loads(refresh.MANIFEST.read_text())


def test_versions_are_those_of_the_lock(manifest):
    """package.json, the lock and the manifest agree."""
    wanted = json.loads((refresh.HERE / "package.json").read_text())["dependencies"]
    locked = refresh.locked()
    assert manifest["packages"] == locked, "run `make vendor`"
    assert wanted == {name: entry["version"] for name, entry in locked.items()}


def test_files_are_those_of_the_manifest(manifest):
    """No file was edited, lost or added by hand."""
    assert refresh.digests() == manifest["files"], "run `make vendor`"


def test_lock_names_hashes_and_no_host():
    """Each package is pinned by a hash, and can come from any registry."""
    text = (refresh.HERE / "package-lock.json").read_text()
    packages = json.loads(text)["packages"]
    assert all("integrity" in entry for key, entry in packages.items() if key)
    assert "resolved" not in text


def test_licences_lie_beside_the_files():
    """The licence of each vendored package, and of what is bundled into one."""
    mathjax = (refresh.FILES / "mathjax" / "LICENSE").read_text()
    assert "Apache License" in mathjax
    bundled = (refresh.FILES / "html-manager" / "LICENSES.txt").read_text()
    for words in (
        "Project Jupyter Contributors",
        "jquery",
        "nouislider",
        "Font Awesome",
    ):
        assert words in bundled


def test_repository_stays_light():
    """A few megabytes, and no source maps."""
    files = [path for path in refresh.FILES.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < LIMIT
    assert not [path for path in files if path.suffix == ".map"]


def test_sums_notice_a_change(tmp_path):
    """The comparison above can fail: one more byte is another sum."""
    (tmp_path / "a.js").write_text("1;")
    before = refresh.digests(tmp_path)
    (tmp_path / "a.js").write_text("2;")
    assert refresh.digests(tmp_path) != before
