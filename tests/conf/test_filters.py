"""The filters that a site installs in its batch system: they refuse control characters, and nothing else."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ODD = ("a\nb", "a\rb", "a\x1bb", "a\x7f", "\n")
PLAIN = ("job.sh", "ünïcödé", "a b:c|d;e=f", "", "'\"$(id)")

# --- Grid Engine


def jsv(root: Path, *jobs: list[str]) -> list[str]:
    """The states with which the JSV answers, a process for all jobs."""
    sent = "".join("START\n" + "".join(f"PARAM {line}\n" for line in job) + "BEGIN\n" for job in jobs)
    answers = []
    with subprocess.Popen(
        [root / "conf/filters/gridengine-jsv"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8"
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for job in sent.split("START\n")[1:] if len(jobs) > 1 else [sent.removeprefix("START\n")]:
            process.stdin.write(f"START\n{job}")
            process.stdin.flush()
            assert process.stdout.readline() == "STARTED\n"
            answers.append(process.stdout.readline().split(" ")[2].strip())
        process.stdin.write("QUIT\n")
        process.stdin.flush()
        assert process.wait() == 0
    return answers


USUAL = ["VERSION 1.0", "CLIENT qsub", "USER ada", "CMDNAME job.sh", "CMDARGS 1", "CMDARG0 " + "a:" * 50, "N job.sh"]


def test_grid_engine_accepts_usual_jobs(root: Path) -> None:
    jobs = [[*USUAL, f"l_hard arch={text}"] for text in PLAIN]
    assert jsv(root, *jobs) == ["ACCEPT"] * len(jobs)


RECORD = "main.q:h:g:ada:n:7:" + "0:" * 40


@pytest.mark.parametrize(
    "text",
    [
        *ODD,
        f"x\n{RECORD}\ny",
        f"x\nPARAM l_soft {RECORD}",
        f"x\nPARAM CMDARG0 {RECORD}",
        f"x\nPARAM CMDARG1 {RECORD}",
        f"x\nPARAM CMDNAME z\nPARAM CMDARG1 {RECORD}",
        f"x\nPARAM CMDARGS 2\nPARAM CMDARG1 {RECORD}",
        f"x\nENV {RECORD}",
        f"x\nENV ADD A {RECORD}",
        f"x\nBEGIN\n{RECORD}",
        "x\nSTART\nPARAM l_soft y",
        "x\nQUIT\ny",
    ],
)
def test_grid_engine_refuses_what_makes_lines(root: Path, text: str) -> None:
    assert jsv(root, [*USUAL, f"l_hard arch={text}", "M ada@h"]) == ["REJECT"]


@pytest.mark.parametrize("count", ["", "x", "1 2", "-1", "9" * 20])
def test_grid_engine_refuses_a_count_of_arguments_that_is_none(root: Path, count: str) -> None:
    assert jsv(root, ["CMDNAME job.sh", f"CMDARGS {count}", "N job.sh"]) == ["REJECT"]


def test_grid_engine_accepts_every_argument_that_is_counted(root: Path) -> None:
    arguments = [f"CMDARG{number} {'a:' * 50}" for number in range(12)]
    assert jsv(root, ["CMDNAME job.sh", "CMDARGS 12", *arguments, "N job.sh"]) == ["ACCEPT"]
    assert jsv(root, ["CMDNAME job.sh", "CMDARGS 11", *arguments, "N job.sh"]) == ["REJECT"]


def test_grid_engine_judges_each_job_by_itself(root: Path) -> None:
    assert jsv(root, USUAL, [*USUAL, "A \x01"], USUAL) == ["ACCEPT", "REJECT", "ACCEPT"]


# --- TORQUE


def submit_filter(root: Path, script: bytes, *options: str) -> subprocess.CompletedProcess[bytes]:
    if shutil.which("perl") is None:
        pytest.skip("perl is not installed")
    program = root / "conf/filters/torque-submit-filter"
    return subprocess.run([program, *options], input=script, capture_output=True, check=False)


@pytest.mark.parametrize("text", PLAIN)
def test_torque_accepts_and_gives_the_script_unchanged(root: Path, text: str) -> None:
    script = f"#!/bin/sh\r\n#PBS -N {text}\r\necho \t\x1b[0m\n\nlast".encode()
    done = submit_filter(root, script, "-A", text)
    assert (done.returncode, done.stdout) == (0, script)


@pytest.mark.parametrize("text", ODD)
def test_torque_refuses_control_characters(root: Path, text: str) -> None:
    done = submit_filter(root, b"true\n", "-N", text)
    assert done.returncode != 0
    assert b"control characters" in done.stderr


@pytest.mark.parametrize(
    ("script", "options"),
    [
        (b"#PBS -N a\x0bb\n", ()),
        (b"true\n  #PBS -N a\x0bb\n", ()),
        (b"#PBS -A a \\\n -N a\x0bb\n", ()),
        (b"#X -N a\x0bb\n", ("-C", "#X")),
        (b"#X -N a\x0bb\n", ("-VC#X",)),
    ],
)
def test_torque_refuses_control_characters_of_directives(root: Path, script: bytes, options: tuple[str, ...]) -> None:
    assert submit_filter(root, script, *options).returncode != 0
    assert submit_filter(root, script.replace(b"\x0b", b""), *options).returncode == 0


def test_torque_accepts_control_characters_of_other_lines(root: Path) -> None:
    script = b"#X \x0b\n#PBS -N a\necho \\\n\x0b\n"
    assert submit_filter(root, script, "-C", "", "-N", "x").stdout == script


# --- PBS


_PBS = """
import json, sys

class Job:
    def __getattr__(self, name):
        return None

class Event:
    job = Job()
    def accept(self):
        sys.exit("accepted")
    def reject(self, message):
        sys.exit(message)

def event():
    vars(Event.job).update(json.load(sys.stdin))
    return Event()
"""
"""The module that PBS has for hooks: attributes of a job that are not set are None."""


def hook(root: Path, folder: Path, **attributes: Any) -> str:
    (folder / "pbs.py").write_text(_PBS)
    command = [sys.executable, "-S", root / "conf/filters/pbs_hook.py"]
    done = subprocess.run(
        command, input=json.dumps(attributes), env={"PYTHONPATH": str(folder)}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    return done.stderr.strip()


@pytest.mark.parametrize("text", PLAIN)
def test_pbs_accepts_usual_jobs(root: Path, tmp_path: Path, text: str) -> None:
    assert hook(root, tmp_path, Job_Name=text, Resource_List={"software": text, "ncpus": 4}) == "accepted"


@pytest.mark.parametrize("text", ODD)
@pytest.mark.parametrize("attribute", ["Job_Name", "Account_Name", "project"])
def test_pbs_refuses_control_characters(root: Path, tmp_path: Path, attribute: str, text: str) -> None:
    assert hook(root, tmp_path, **{attribute: text}).endswith(f"not allowed in {attribute}")
    assert "Resource_List" in hook(root, tmp_path, Resource_List={"software": text})


# --- Slurm

_LUA = """
slurm = {ERROR = -1, SUCCESS = 0, log_user = function(...) said = string.format(...) end}
dofile(arg[1])
local job = {name = arg[2], comment = arg[3], time_limit = 5}
print(slurm_job_submit(job, {}, 1000), slurm_job_modify(job, {}, {}, 1000), said or "")
"""


def lua(root: Path, tmp_path: Path, name: str, comment: str) -> str:
    program = shutil.which("lua5.4") or shutil.which("lua") or pytest.skip("Lua is not installed")
    script = tmp_path / "call.lua"
    script.write_text(_LUA)
    command = [program, script, root / "conf/filters/job_submit.lua", name, comment]
    return subprocess.run(command, capture_output=True, encoding="utf-8", check=True).stdout.strip()


@pytest.mark.parametrize("text", PLAIN)
def test_slurm_accepts_usual_jobs(root: Path, tmp_path: Path, text: str) -> None:
    assert lua(root, tmp_path, text, text) == "0\t0"


@pytest.mark.parametrize("text", ODD)
def test_slurm_refuses_control_characters(root: Path, tmp_path: Path, text: str) -> None:
    answer = lua(root, tmp_path, "job", text)
    assert answer.startswith("-1\t-1\t")
    assert answer.endswith("in its comment")
