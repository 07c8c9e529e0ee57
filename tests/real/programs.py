"""The real programs: where their code comes from, how it is run, and what was compared with it.

`python -m tests.real.programs SOURCES` makes what is missing of their environments, before the tests, which may write
nothing there.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

ROOT: Final = Path(__file__).parents[2]
READERS: Final = Path(__file__).parent / "readers"
_KEPT: Final = ROOT / ".venv" / "real"

PROGRAMS: Final[Mapping[str, tuple[str, ...]]] = {
    "apel": ("dirq", "future", "iso8601", "setuptools<81"),
    "ssm": ("pyopenssl", "cryptography", "setuptools<81"),
    "luts": ("twisted", "psycopg2-binary"),
    "auditor-apel-plugin": (),
    "python-auditor": (),
    "waldur-api-client": (),
    "waldur-site-agent-slurm": (),
}
"""Of each what it imports from PyPI. Those without come from PyPI themselves, the others from the folder SOURCES."""
PHP_CLASSES: Final[Mapping[str, tuple[str, ...]]] = {
    "xdmod": ("OpenXdmod/Shredder", "OpenXdmod/Shredder/Slurm", "Xdmod/HostListParser", "Xdmod/SlurmResourceParser"),
}
"""Of programs in PHP, which come from the folder SOURCES, the classes that are read; the host's `php` runs them."""
SCHEMAS: Final[Mapping[str, str]] = {"auditor": "migrations"}
"""Of programs of which only the schema is read, from the folder SOURCES: the folder of SQL files."""


class ComparedFigure(msgspec.Struct, frozen=True):
    """A line of the table at the end."""

    program: str
    version: str
    what: str
    number: int


COMPARED: Final[list[ComparedFigure]] = []


class RealProgram:
    """A program in an interpreter of its own, in which the readers of this folder run: JSON in, JSON out."""

    def __init__(self, name: str) -> None:
        """Skips the test if the program is not there."""
        self.name = name
        self._folder = _KEPT / name
        version = self._folder / "version"
        if not version.exists():
            pytest.skip(f"{name} is not at hand: see tests/real/__init__.py")
        self.version = version.read_text(encoding="utf-8").strip()

    def read(self, reader: str, given: Any) -> Any:
        """What a reader makes of `given`."""
        if self.name in PHP_CLASSES:
            command: list[str | Path] = ["php", READERS / f"{reader}.php"]
        else:
            command = [self._folder / "bin" / "python", READERS / f"{reader}.py"]
        source = str(self._folder / "source")
        done = subprocess.run(
            command,
            input=json.dumps(given),
            env={"PATH": os.environ["PATH"], "TZ": "UTC", "PYTHONPATH": source, "SOURCE": source},
            check=False,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def schema(self) -> str:
        """The SQL of its database, in order."""
        files = sorted((self._folder / "source" / SCHEMAS[self.name]).glob("*.sql"))
        return "\n".join(file.read_text(encoding="utf-8") for file in files)

    def compared(self, what: str, number: int) -> None:
        """Note that so many things were compared, none of which differed."""
        compared(self.name, self.version, what, number)


def compared(program: str, version: str, what: str, number: int) -> None:
    """Note that so many things were compared with a program, none of which differed."""
    assert number, f"nothing was compared: {what}"
    COMPARED.append(ComparedFigure(program, version, what, number))


def main(sources: str) -> None:
    """Make the environments that are missing."""
    for name, classes in PHP_CLASSES.items():
        folder = _KEPT / name
        repository = repository_in(Path(sources) / name) if sources else None
        if (folder / "version").exists():
            continue
        if repository is None or shutil.which("php") is None:
            print(f"{name}: no php, or no repository {sources or 'SOURCES'}/{name}")
            continue
        version = unpack(repository, folder / "source", *(f"classes/{each}.php" for each in classes))
        (folder / "version").write_text(version, encoding="utf-8")
    for name, files in SCHEMAS.items():
        folder = _KEPT / name
        repository = repository_in(Path(sources) / name) if sources else None
        if repository is None:
            print(f"{name}: no repository {sources or 'SOURCES'}/{name}")
        elif not (folder / "version").exists():
            (folder / "version").write_text(unpack(repository, folder / "source", files), encoding="utf-8")
    for name, requirements in PROGRAMS.items():
        folder = _KEPT / name
        if (folder / "version").exists():
            continue
        repository = repository_in(Path(sources) / name) if requirements else None
        if requirements and (not sources or repository is None):
            print(f"{name}: no repository {sources or 'SOURCES'}/{name}")
            continue
        subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
        python = folder / "bin" / "python"
        install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *(requirements or (name,))]
        if subprocess.run(install, check=False).returncode:
            print(f"{name}: pip cannot install {' '.join(requirements or (name,))}")
            continue
        if repository is None:
            ask = [python, "-c", f"import importlib.metadata as m; print(m.version({name!r}))"]
            version = subprocess.run(ask, check=True, capture_output=True, text=True).stdout
        else:
            version = unpack(repository, folder / "source")
        (folder / "version").write_text(version, encoding="utf-8")


def repository_in(folder: Path) -> Path | None:
    """The repository of a folder: a checkout, or a bare one."""
    return next((each for each in (folder / ".git", folder / "repo", folder) if (each / "HEAD").exists()), None)


def unpack(repository: Path, to: Path, *files: str) -> str:
    """The newest commit, or these files of it; its version."""
    git = ("git", f"--git-dir={repository}")
    archive = subprocess.run([*git, "archive", "--format=tar", "HEAD", *files], check=True, capture_output=True).stdout
    with tarfile.open(fileobj=BytesIO(archive)) as packed:
        packed.extractall(to, filter="data")
    return subprocess.run([*git, "describe", "--tags", "--always"], check=True, capture_output=True, text=True).stdout


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "")
