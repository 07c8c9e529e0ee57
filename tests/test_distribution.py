"""The wheel holds the program and its data, the licence, and nothing else."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

PACKAGES = ("formats", "publisher")
NOT_SHIPPED = shutil.ignore_patterns("__pycache__", "*.egg-info")


def _distributed(root: Path) -> list[str]:
    """What `make wheel` builds from."""
    text = (root / "Makefile").read_text(encoding="utf-8").replace("\\\n", " ")
    words = text.partition("\nDISTRIBUTED := ")[2].partition("\n")[0]
    plain, _, in_conf = words.partition("$(addprefix conf/,")
    listed = plain.replace("$(PACKAGES)", " ".join(PACKAGES)).split()
    return [*listed, *(f"conf/{name}" for name in in_conf.rstrip().removesuffix(")").split())]


def _copy(root: Path, copy: Path, names: list[str]) -> None:
    """With the modes of the umask."""
    for name in names:
        if (root / name).is_dir():
            shutil.copytree(root / name, copy / name, ignore=NOT_SHIPPED, copy_function=shutil.copyfile)
        else:
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(root / name, copy / name)


def _build(root: Path, copy: Path) -> Path:
    """Built in a copy, so that nothing is left in the checkout and nothing in it that git ignores is picked up."""
    _copy(root, copy, [*_distributed(root), "tests"])
    build = "import sys; from setuptools import build_meta; build_meta.build_wheel(sys.argv[1])"
    subprocess.run(
        [sys.executable, "-c", build, str(copy / "dist")],
        cwd=copy, check=True, capture_output=True, env={**os.environ, "SOURCE_DATE_EPOCH": "1790812800"},
    )  # fmt: skip
    (path,) = (copy / "dist").glob("*.whl")
    return path


@pytest.fixture(scope="module")
def wheel_file(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _build(root, tmp_path_factory.mktemp("copy"))


@pytest.fixture(scope="module")
def wheel(wheel_file: Path) -> zipfile.ZipFile:
    return zipfile.ZipFile(wheel_file)


def test_built_again_it_is_the_same_to_the_byte(root: Path, wheel_file: Path, tmp_path: Path) -> None:
    assert _build(root, tmp_path).read_bytes() == wheel_file.read_bytes()


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_it_is_the_same_with_any_umask(root: Path, tmp_path: Path) -> None:
    built = []
    for mask in (0o022, 0o077):
        copy = tmp_path / f"{mask:03o}"
        before = os.umask(mask)
        try:
            _copy(root, copy, [*_distributed(root), "Makefile", "constraints.txt"])
            for folder in (copy, *copy.rglob("*/")):
                folder.chmod(0o777 & ~mask)
            subprocess.run(
                ["make", "--old-file", f"{sys.prefix}/.plain", f"VENV={sys.prefix}", "wheel"],
                cwd=copy, check=True, capture_output=True, env={**os.environ, "SOURCE_DATE_EPOCH": "1790812800"},
            )  # fmt: skip
        finally:
            os.umask(before)
        (wheel,) = (copy / "dist").glob("*.whl")
        built.append(wheel.read_bytes())
    assert built[0] == built[1]


def test_the_wheel_has_every_file_of_the_packages(root: Path, wheel: zipfile.ZipFile) -> None:
    there = {
        str(path.relative_to(root))
        for package in PACKAGES
        for path in (root / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    shipped = {name for name in wheel.namelist() if ".dist-info/" not in name and ".data/" not in name}
    assert shipped == there


def test_the_wheel_has_what_a_host_needs_beside_the_program(root: Path, wheel: zipfile.ZipFile) -> None:
    shared = {name.partition(".data/data/")[2]: name for name in wheel.namelist() if ".data/" in name}
    systemd = [file.name for file in (root / "conf" / "systemd").iterdir()]
    filters = [file.name for file in (root / "conf" / "filters").iterdir()]
    expected = {
        "share/man/man1/usage-publisher.1": "docs/usage-publisher.1",
        "share/bash-completion/completions/usage-publisher": "conf/completions/usage-publisher",
        "share/zsh/site-functions/_usage-publisher": "conf/completions/_usage-publisher",
        "share/fish/vendor_completions.d/usage-publisher.fish": "conf/completions/usage-publisher.fish",
        "share/usage-publisher/publisher.toml": "conf/publisher.toml",
        "share/usage-publisher/prometheus/usage-publisher.rules.yml": "conf/prometheus/usage-publisher.rules.yml",
        "share/usage-publisher/grafana/usage-publisher.json": "conf/grafana/usage-publisher.json",
        **{f"share/usage-publisher/systemd/{name}": f"conf/systemd/{name}" for name in systemd},
        **{f"share/usage-publisher/filters/{name}": f"conf/filters/{name}" for name in filters},
    }
    assert shared.keys() == expected.keys()
    for name, source in expected.items():
        assert wheel.read(shared[name]) == (root / source).read_bytes()


def test_the_wheel_says_where_the_project_is(wheel: zipfile.ZipFile) -> None:
    (metadata,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    urls = [line for line in wheel.read(metadata).decode().splitlines() if line.startswith("Project-URL: ")]
    assert {line.split()[1].rstrip(",") for line in urls} >= {"Homepage", "Issues", "Changelog"}


def test_the_wheel_has_the_licence_and_the_command(root: Path, wheel: zipfile.ZipFile) -> None:
    (licence,) = (name for name in wheel.namelist() if name.endswith("/licenses/LICENSE"))
    assert wheel.read(licence) == (root / "LICENSE").read_bytes()
    (bundled,) = (name for name in wheel.namelist() if name.endswith("/licenses/publisher/page/uplot/LICENSE.txt"))
    assert b"Leon Sorokin" in wheel.read(bundled)
    (commands,) = (name for name in wheel.namelist() if name.endswith("/entry_points.txt"))
    assert b"usage-publisher = publisher.cli.start:main" in wheel.read(commands)


def test_what_is_bundled_is_in_the_sbom(root: Path, tmp_path: Path) -> None:
    sbom = tmp_path / "sbom.json"
    sbom.write_text('{"components": []}', encoding="utf-8")
    subprocess.run([sys.executable, root / "conf" / "packages" / "bundled", sbom], check=True)
    (uplot,) = json.loads(sbom.read_text(encoding="utf-8"))["components"]
    assert uplot["purl"] == "pkg:npm/uplot@1.6.32"


@pytest.mark.parametrize(
    ("there", "chosen"),
    [
        ({"python3": True, "python3.12": True}, "python3"),
        ({"python3": False, "python3.11": True, "python3.12": True}, "python3.12"),
        ({"python3": False, "python3.14": False, "python3.11": True}, "python3.11"),
        ({"python3": False}, "python3"),
    ],
)
def test_make_finds_an_interpreter(root: Path, tmp_path: Path, there: dict[str, bool], chosen: str) -> None:
    """A system's python3 may be too old, as that of EL 9."""
    for name in ("python3", "python3.14", "python3.13", "python3.12", "python3.11"):
        script = f'exec {sys.executable} "$@"' if there.get(name) else "exit 1"
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n", encoding="ascii")
        (tmp_path / name).chmod(0o755)
    words = ["make", "--silent", "--eval=shown: ; @echo $(PYTHON)", "shown"]
    path = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    done = subprocess.run(words, cwd=root, env=path, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == chosen
