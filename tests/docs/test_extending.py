"""The package that docs/internals/extending.md explains is installed, and the program runs with it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.extent import RUN_WHOLE

SITE = '[site]\nname = "EXAMPLE-SITE"\n[store]\nurl = "sqlite:///store.db"\n'


@pytest.fixture(scope="module")
def files(root: Path) -> dict[str, str]:
    """The text of each file of the package."""
    package = root / "docs" / "internals" / "example-add-on"
    paths = (path for path in package.rglob("*.*") if "__pycache__" not in path.parts)
    return {str(path.relative_to(package)): path.read_text(encoding="utf-8") for path in paths}


@pytest.fixture(scope="module")
def installed(files: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder into which the package was installed."""
    package, place = tmp_path_factory.mktemp("package"), tmp_path_factory.mktemp("installed")
    for name, text in files.items():
        if name.startswith(("example_add_on/", "pyproject")):
            (package / name).parent.mkdir(exist_ok=True)
            (package / name).write_text(text, encoding="utf-8")
    options = ["--quiet", "--no-index", "--no-build-isolation", "--no-deps", "--disable-pip-version-check"]
    command = [sys.executable, "-m", "pip", "install", *options, "--target", str(place), str(package)]
    subprocess.run(
        command, check=True, capture_output=True, text=True, env=os.environ | {"PIP_ROOT_USER_ACTION": "ignore"}
    )
    return place


class AddOnSite:
    """A folder with the configuration of the package and a log; commands run with the package installed."""

    def __init__(self, folder: Path, installed: Path, root: Path, configuration: str) -> None:
        self.folder = folder
        self._path = os.pathsep.join([str(installed), str(root)])
        self.configure(configuration)

    def configure(self, text: str) -> None:
        text = text.replace("/tmp/usage.json", str(self.folder / "usage.json"))
        (self.folder / "publisher.toml").write_text(SITE + text, encoding="utf-8")

    def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        program = [sys.executable, "-m", "publisher.cli", "--config", str(self.folder / "publisher.toml"), *arguments]
        environment = os.environ | {"PYTHONPATH": self._path, "COLUMNS": "200"}
        return subprocess.run(program, check=False, capture_output=True, text=True, env=environment, cwd=self.folder)

    def sent(self) -> list[dict[str, object]]:
        text = (self.folder / "usage.json").read_text(encoding="ascii")
        return [record for message in text.split("]\n")[:-1] for record in json.loads(message + "]")]


@pytest.fixture
def site(tmp_path: Path, installed: Path, root: Path, files: dict[str, str]) -> AddOnSite:
    made = AddOnSite(tmp_path, installed, root, files["publisher.toml"])
    lines = [
        f"{number},{'eve' if number == 4 else 'ada'},{1_795_000_000 + number},100,50,1\n" for number in range(1, 6)
    ]
    (tmp_path / "jobs.log").write_text("".join([*lines, "this is no job\n"]), encoding="ascii")
    return made


def test_the_page_names_every_file_of_the_package(files: dict[str, str], root: Path) -> None:
    page = (root / "docs" / "internals" / "extending.md").read_text(encoding="utf-8")
    assert [name for name in files if f"(example-add-on/{name})" not in page] == []
    assert set(files) == {
        "pyproject.toml", "example_add_on/__init__.py", "example_add_on/log.py", "example_add_on/form.py",
        "example_add_on/target.py", "publisher.toml", "test_example.py",
    }  # fmt: skip


def test_a_target_with_its_format_double_and_suite_is_short(files: dict[str, str]) -> None:
    """As a package, without the source, which is another add-on."""
    modules = ("__init__", "form", "target")
    names = (*(f"example_add_on/{name}.py" for name in modules), "test_example.py", "pyproject.toml")
    lines = [line for name in names for line in files[name].splitlines() if line.strip()]
    assert len(lines) <= 100


def test_the_package_keeps_the_promises(installed: Path, files: dict[str, str], root: Path, tmp_path: Path) -> None:
    """Its author's suite, run as its author does: pytest in another process, with the package installed."""
    (tmp_path / "test_example.py").write_text(files["test_example.py"], encoding="utf-8")
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = -p no:cacheprovider -rs\n", encoding="utf-8")
    chosen = [] if RUN_WHOLE else ["-k", "not history or 0"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *chosen, "test_example.py"],
        check=False, capture_output=True, text=True, cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(installed), str(root)]), "COLUMNS": "200"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert "not applicable: evidence is none" in done.stdout
    assert "not applicable: second_version is replaces" in done.stdout


def test_an_installed_package_brings_a_source_a_format_and_a_target(site: AddOnSite, files: dict[str, str]) -> None:
    done = site.command("--json", "run")
    assert done.returncode == 3, done.stderr
    reported = json.loads(done.stdout)
    counted = reported["sources"]["example"]
    assert (counted["read"], counted["new"], counted["unreadable"]) == (6, 5, 1)
    delivered = reported["targets"]["example"]
    assert (delivered["accepted"], delivered["held"], delivered["batches"]) == (4, 1, 2)
    assert [record["id"] for record in site.sent()] == [
        f"ur-example/tier3/{number}/{1_795_000_000 + number - 100}" for number in (1, 2, 3, 5)
    ]
    assert all(record["site"] == "EXAMPLE-SITE" and record["vo"] == "atlas" for record in site.sent())
    held = site.command("records", "list", "--state", "held")
    assert "this format insists on one: add a mapping rule" in held.stdout
    site.configure(files["publisher.toml"].replace('local_user = "ada"', 'local_user = ["ada", "eve"]'))
    assert site.command("run").returncode == 0
    assert [record["user"] for record in site.sent()] == ["ada"] * 4 + ["eve"]
    rendered = site.command("--json", "render", "example-json", "--since", "2026-01-01", "--output", "out")
    assert json.loads(rendered.stdout)["records"] == 5


def test_check_accepts_what_the_package_brings(site: AddOnSite) -> None:
    checked = site.command("--json", "check")
    assert "usage.json can be written" in checked.stdout


def test_a_problem_with_an_add_on_names_the_key(site: AddOnSite, files: dict[str, str]) -> None:
    text = files["publisher.toml"]
    site.configure(text.replace("options = { file", "options = { fil"))
    said = site.command("run")
    assert "targets.example.options.file: a target of type example-file needs a file" in said.stdout + said.stderr
    site.configure(text.replace('type = "example-file"', 'type = "example-fil"'))
    said = site.command("run")
    assert said.returncode == 2
    assert "allowed: sgas, ams, https, directory, auditor, waldur, example-file" in said.stderr
    site.configure(text.replace('records = "example-json"', 'records = "example-jso"'))
    said = site.command("run")
    assert said.returncode == 2
    assert "utilization, example-json" in said.stderr
    site.configure(text.replace("batch_records", "batch_record"))
    said = site.command("run")
    assert said.returncode == 2
    assert "did you mean 'batch_records'?" in said.stderr
