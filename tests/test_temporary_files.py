"""No test touches a path outside its temporary folder: neither itself nor a Python process that it starts."""

from __future__ import annotations

import os
import pwd
import re
from pathlib import Path

from tests.conftest import ROOT
from tests.test_conftest import run_pytest

MODULE = f"""
import os, sqlite3, subprocess, sys
from contextlib import suppress
from pathlib import Path
import pytest

OUTSIDE = {str(ROOT / "outside")!r}
INSTALLED = "/var/lib/usage-publisher/sent-mark"

@pytest.fixture(scope="module")
def of_a_fixture(): Path(OUTSIDE).touch()

def test_ok_below_tmp_path(tmp_path): (tmp_path / "file").write_text("x")
def test_ok_a_read(): Path({str(ROOT / "pyproject.toml")!r}).read_text()
def test_ok_a_descriptor(tmp_path): open(os.open(tmp_path / "file", os.O_CREAT | os.O_RDWR), "w").close()
def test_ok_sqlite(tmp_path): sqlite3.connect(tmp_path / "file").close()
def test_ok_relative_to_an_open_folder(tmp_path):
    folder = os.open(tmp_path, os.O_RDONLY)
    os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=folder))
    os.rename("file", "other", src_dir_fd=folder, dst_dir_fd=folder)
    os.unlink("other", dir_fd=folder)
    os.close(folder)
def test_ok_relative_below_tmp_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("file").write_text("x")
    os.makedirs("folder")
def test_bad_relative_file(): Path("outside").write_text("x")
def test_bad_relative_folder(): os.makedirs("outside")
def test_bad_relative_sqlite(): sqlite3.connect("outside").close()
def test_bad_file(): Path(OUTSIDE).write_text("x")
def test_bad_folder(): os.mkdir(OUTSIDE)
def test_bad_rename(tmp_path): tmp_path.rename(OUTSIDE)
def test_bad_link(tmp_path): os.symlink(tmp_path, OUTSIDE)
def test_bad_sqlite(): sqlite3.connect(OUTSIDE).close()
def test_bad_sqlite_url(): sqlite3.connect("file:" + OUTSIDE + "?mode=rwc", uri=True).close()
def test_bad_read_of_an_installed_file():
    with suppress(FileNotFoundError):
        Path(INSTALLED).read_text()
def test_ok_nothing_at_the_places_of_other_programs():
    for read in (os.listdir, os.scandir, open):
        with pytest.raises(FileNotFoundError):
            read("/var/spool")
def test_ok_no_right_to_what_other_programs_have(): assert not os.access("/var/spool", os.F_OK)
def test_ok_no_host_has_the_program(): assert not Path(INSTALLED).parent.exists()
def test_bad_write_at_the_places_of_other_programs():
    with suppress(Exception):
        Path("/var/spool/file").touch()
def test_bad_that_is_suppressed():
    with suppress(Exception):
        Path(OUTSIDE).touch()
def test_bad_fixture(of_a_fixture): pass
def test_bad_process(): subprocess.run([sys.executable, "-c", f"open({{OUTSIDE!r}}, 'w')"], stderr=subprocess.DEVNULL)
"""


def test_what_touches_another_path_fails(tmp_path: Path) -> None:
    module = tmp_path / "test_module.py"
    module.write_text(MODULE, encoding="utf-8")
    said = run_pytest(module, "-rA", "-p", "no:xdist", PYTHONPATH="").stdout
    passed = set(re.findall(r"^PASSED \S*::(test_\w+)", said, re.MULTILINE))
    wrong = set(re.findall(r"^(?:FAILED|ERROR) \S*::(test_\w+)", said, re.MULTILINE))
    names = set(re.findall(r"def (test_\w+)", MODULE))
    assert wrong == {name for name in names if "_bad_" in name}, said
    assert passed - wrong == {name for name in names if "_ok_" in name}, said
    assert not (ROOT / "outside").exists()


def test_processes_find_the_watcher_and_no_home_of_a_user() -> None:
    assert Path(os.environ["PYTHONPATH"].split(os.pathsep)[0], "sitecustomize.py").exists()
    assert os.environ["HOME"] != pwd.getpwuid(os.getuid()).pw_dir
