"""What the repository promises at its front: commands, licences, address, weight."""

import ast
import re
import subprocess

import pytest
import yaml

from book.pipeline.address import carriers, respelled, rewrite
from book.pipeline.pages import PageError, find_pages
from book.site.address import written

# Everything that looks like this repository's own address, on any forge.
OWN = re.compile(r"https://(?:github|gitlab|codeberg)\.(?:com|org)/[\w.-]+/[\w.-]*book")


@pytest.fixture(scope="module")
def tracked(root):
    """The repository's files; all of the folder's in an unpacked archive."""
    if not (root / ".git").exists():
        walked = (p.relative_to(root) for p in root.rglob("*") if p.is_file())
        return [root / p for p in walked if p.parts[0] not in (".venv", "_build")]
    run = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(run, cwd=root, capture_output=True, text=True, check=True)
    return [root / name for name in listed.stdout.splitlines()]


def test_one_address_is_spelled_everywhere(root):
    address = written(root)
    for path in carriers(root):
        text = path.read_text(encoding="utf-8")
        assert set(OWN.findall(text)) <= {address}, path
    for page in find_pages(root):
        text = page.source.read_text(encoding="utf-8")
        assert f"@ git+{address}" in text, f"{page.name}: its set-up cell lacks it"


def test_a_new_address_reaches_every_file_that_holds_it(tmp_path):
    config = "repository:\n  url: https://github.com/a/b\n"
    (tmp_path / "_config.yml").write_text(config, encoding="utf-8")
    readme = tmp_path / "README.md"
    colab = "https://colab.research.google.com/github"
    readme.write_text(f"{colab}/a/b/blob/x https://github.com/a/b", encoding="utf-8")
    assert len(rewrite("https://codeberg.org/c/d.git", tmp_path)) == 2
    text = readme.read_text(encoding="utf-8")
    assert text == f"{colab}/c/d/blob/x https://codeberg.org/c/d"
    assert written(tmp_path) == "https://codeberg.org/c/d"
    with pytest.raises(PageError, match="must read https://host/owner/name"):
        rewrite("github.com/c", tmp_path)
    assert respelled("no address", "https://x.org/a/b", "https://y.org/c/d") == (
        "no address"
    )


def test_the_readme_names_commands_that_exist_and_the_help_lists_them(root):
    readme = (root / "README.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`?make (\w+)", readme))
    shown = subprocess.run(
        ["make", "help"], cwd=root, capture_output=True, text=True, check=True
    ).stdout
    for command in named | {"serve", "clean", "notebooks"}:
        assert f"make {command}" in shown, command


def test_links_in_the_readme_lead_to_files(root):
    readme = (root / "README.md").read_text(encoding="utf-8")
    for target in re.findall(r"\]\((?!https?:)([^)]+)\)", readme):
        assert (root / target).is_file(), target
    blob = re.findall(r"/blob/main/(\S+?)\)", readme)
    assert blob
    assert all((root / path).is_file() for path in blob)


def test_ci_runs_the_readmes_command_and_hides_no_failure(root):
    script = (root / ".ci/run").read_text(encoding="utf-8")
    assert "set -euo pipefail" in script
    assert re.search(r"^make test$", script, re.M)
    assert not re.search(r"\|\| true|set \+e|exit 0", script)


def test_citation_and_licences_agree(root):
    cited = yaml.safe_load((root / "CITATION.cff").read_text(encoding="utf-8"))
    assert cited["authors"] == [{"name": "The stacklm authors"}]
    assert cited["license"] == ["MIT", "CC-BY-4.0"]
    assert "MIT License" in (root / "LICENSE").read_text(encoding="utf-8")
    text = (root / "LICENSE-TEXT").read_text(encoding="utf-8")
    assert "Creative Commons Attribution 4.0 International" in text
    project = (root / "pyproject.toml").read_text(encoding="utf-8")
    assert f'version = "{cited["version"]}"' in project


def test_files_and_functions_stay_short(tracked, root):
    for path in (p for p in tracked if p.suffix == ".py" and p.exists()):
        text, where = path.read_text(encoding="utf-8"), path.relative_to(root)
        assert text.count("\n") <= 300, f"{where}: {text.count(chr(10))} lines"
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef):
                assert code_lines(node) <= 40, f"{where}: {node.name} is long"


def code_lines(node: ast.FunctionDef) -> int:
    """Lines of a function's body; a docstring may take the room it needs."""
    documented = ast.get_docstring(node) is not None
    body = node.body[documented:] or node.body
    return node.end_lineno - body[0].lineno + 1


def test_the_repository_stays_light(tracked, root):
    for path in (p for p in tracked if p.exists()):
        size = path.stat().st_size
        limit = 3_000_000 if "vendor" in path.parts else 1_500_000
        assert size <= limit, f"{path.relative_to(root)}: {size:,} bytes"
