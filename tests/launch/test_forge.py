"""The files that a forge and a package index read."""

from __future__ import annotations

import configparser
import re

import pytest

import dadmm
from tests.support.processes import ROOT

yaml = pytest.importorskip("yaml", reason="pyyaml is not installed")

FORGE = ROOT / ".github"
VERSIONS = ["3.11", "3.12", "3.13", "3.14"]


def load(name: str) -> dict:
    return yaml.safe_load((ROOT / name).read_text("utf-8"))


def test_the_matrix_has_each_python_and_both_mpis():
    jobs = load(".github/workflows/ci.yml")["jobs"]
    matrix = jobs["tests"]["strategy"]["matrix"]
    metadata = configparser.ConfigParser()
    metadata.read(ROOT / "setup.cfg")
    named = re.findall(r"Python :: (3\.\d+)", metadata["metadata"]["classifiers"])

    assert matrix == {"python": VERSIONS, "mpi": ["mpich", "openmpi"]}
    assert named == VERSIONS
    assert metadata["options"]["python_requires"] == f">={VERSIONS[0]}"
    assert jobs.keys() == {"tests", "docs", "build"}


def test_jobs_run_the_commands_of_the_project():
    """Nothing is written to the repository, and each job has a time limit."""
    workflow = load(".github/workflows/ci.yml")
    jobs = workflow["jobs"].values()
    steps = [step for job in jobs for step in job["steps"]]
    commands = [step["run"] for step in steps if "run" in step]

    assert workflow["permissions"] == {"contents": "read"}
    assert all(job["timeout-minutes"] for job in jobs)
    assert "./launch/test --mpi ${{ matrix.mpi }}" in commands
    assert "./launch/docs" in commands
    (wheel,) = re.findall(r"tests/\S+\.py", " ".join(commands))
    assert (ROOT / wheel).exists()


@pytest.mark.parametrize("name", ["bug", "idea"])
def test_issue_forms_are_valid(name):
    """Each field has an identifier of its own and a label, as forges require."""
    form = load(f".github/ISSUE_TEMPLATE/{name}.yml")
    fields = [field["id"] for field in form["body"]]

    assert form["name"]
    assert form["description"]
    assert len(set(fields)) == len(fields) > 0
    assert all(field["attributes"]["label"] for field in form["body"])
    assert {field["type"] for field in form["body"]} <= {"textarea", "input"}


def test_the_citation_has_the_version_and_its_date():
    about = load("CITATION.cff")
    found = (about["cff-version"], about["version"], str(about["date-released"]))

    assert found[:2] == ("1.2.0", dadmm.__version__)
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", found[2])


def test_the_pages_that_the_templates_name_exist():
    (template,) = FORGE.glob("pull_request_template.*")
    text = template.read_text("utf-8")
    contributing = (ROOT / "CONTRIBUTING.md").read_text("utf-8")

    assert '"Versions" in CONTRIBUTING.md' in text
    assert "\n## Versions\n" in contributing
    for page in re.findall(r"\]\((\S+?)\)", (ROOT / "SECURITY.md").read_text("utf-8")):
        assert (ROOT / page).exists(), page
