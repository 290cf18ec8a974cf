"""Workflows: pinned actions, least permissions, an end to every job."""

import re

import pytest
import yaml

PINNED = re.compile(r"uses: [\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$")
# Who may write what, and why: a deployment, and one issue about a failed weekly run.
WRITES = {
    ("pages", "deploy"): {"pages": "write", "id-token": "write"},
    ("weekly", "report"): {"issues": "write"},
}


@pytest.fixture(scope="module")
def workflows(root):
    files = sorted((root / ".github" / "workflows").glob("*.yml"))
    return {file.stem: file.read_text(encoding="utf-8") for file in files}


def jobs(text):
    return yaml.safe_load(text)["jobs"]


def test_there_is_a_matrix_a_deployment_and_a_weekly_run(workflows):
    assert set(workflows) == {"test", "pages", "weekly"}
    suite = jobs(workflows["test"])["suite"]
    assert suite["strategy"]["matrix"]["python"] == ["3.11", "3.12", "3.13"]
    assert suite["steps"][-1] == {"run": ".ci/run"}
    # YAML reads the key "on" as true.
    assert yaml.safe_load(workflows["pages"])[True]["push"]["tags"] == ["v*"]
    assert yaml.safe_load(workflows["weekly"])[True]["schedule"]


def test_the_oldest_torch_is_the_one_that_the_package_allows(root, workflows):
    text = (root / "pyproject.toml").read_text(encoding="utf-8")
    oldest = re.search(r'"torch>=([\d.]+)"', text)[1]
    matrix = jobs(workflows["test"])["torch"]["strategy"]["matrix"]["torch"]
    assert matrix[0] == f"torch=={oldest}.*"


def test_actions_are_pinned_by_commit(workflows):
    for name, text in workflows.items():
        used = [line.strip(" -") for line in text.splitlines() if "uses:" in line]
        for line in used:
            assert PINNED.match(line), f"{name}: {line}"
        assert used


def test_permissions_are_least_and_every_job_ends(workflows):
    for name, text in workflows.items():
        assert yaml.safe_load(text)["permissions"] == {"contents": "read"}
        for job, body in jobs(text).items():
            expected = WRITES.get((name, job))
            assert body.get("permissions") == expected, f"{name}: {job}"
            assert body["timeout-minutes"] <= 90
            for step in body["steps"]:
                if "checkout" in step.get("uses", ""):
                    assert step["with"]["persist-credentials"] is False


def test_no_text_from_outside_reaches_a_shell(workflows):
    """Titles and branch names of a pull request are written by anyone."""
    for name, text in workflows.items():
        assert "pull_request_target" not in text
        for body in jobs(text).values():
            for step in body["steps"]:
                for found in re.findall(r"\$\{\{(.+?)\}\}", step.get("run", "")):
                    assert found.strip().startswith("matrix."), f"{name}: {found}"
