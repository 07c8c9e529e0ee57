"""Rows: reading each kind of source, compared with the simplest pass of a script over the same file."""

from __future__ import annotations

import csv
import json
import sqlite3
from pathlib import Path

from publisher.config import schema
from publisher.sources import blah as sources_blah
from publisher.sources import make_source
from tests.bench import inputs
from tests.bench.measure import Bench
from tests.bench.rows import Sizes, row

SIZES = Sizes(10_000, 100_000, 100_000)
RUNS = 3


def read(bench: Bench, kind: str, path: Path, timezone: str | None = None) -> None:
    """Read a source from its beginning to its end."""
    settings = {"type": kind, "path": path} | ({"timezone": timezone} if timezone else {})
    for _ in range(RUNS):
        source = make_source("ce1", schema.SourceSettings.model_validate(settings))
        with bench.timed(bench.size):
            read = sum(page.read for page in source.pages({}))
        assert read >= bench.size


def plain_colon(bench: Bench) -> None:
    """The csv module over the file, nothing made of the fields."""
    path = inputs.gridengine_colon(bench)
    for _ in range(RUNS):
        with bench.timed(bench.size), path.open(encoding="utf-8", newline="") as file:
            assert sum(1 for _row in csv.reader(file, delimiter=":")) == bench.size


def plain_jsonl(bench: Bench) -> None:
    """json.loads of every line."""
    path = inputs.gridengine_jsonl(bench)
    for _ in range(RUNS):
        with bench.timed(bench.size), path.open(encoding="utf-8") as file:
            assert sum(1 for line in file if json.loads(line)) == bench.size


def plain_torque(bench: Bench) -> None:
    """Splitting every line at semicolons, blanks and equals signs."""
    path = inputs.torque_day(bench) / "20261001"
    for _ in range(RUNS):
        with bench.timed(bench.size), path.open(encoding="utf-8") as file:
            found = [dict(pair.split("=", 1) for pair in line.rstrip().split(";", 3)[3].split(" ")) for line in file]
        assert len(found) == bench.size


def plain_pbs(bench: Bench) -> None:
    """Splitting every line at semicolons, blanks and equals signs."""
    path = inputs.pbs_day(bench) / "20261001"
    for _ in range(RUNS):
        with bench.timed(bench.size), path.open(encoding="utf-8") as file:
            found = [dict(pair.split("=", 1) for pair in line.rstrip().split(";", 3)[3].split(" ")) for line in file]
        assert len(found) == bench.size


def plain_lsf(bench: Bench) -> None:
    """The csv module over the file, with a blank between the fields."""
    path = inputs.lsb_acct(bench)
    for _ in range(RUNS):
        with bench.timed(bench.size), path.open(encoding="utf-8", newline="") as file:
            assert sum(1 for _row in csv.reader(file, delimiter=" ")) == bench.size


def plain_condor(bench: Bench) -> None:
    """Splitting every line at its equals sign, an ad at a time."""
    path = inputs.condor_history(bench)
    for _ in range(RUNS):
        ads = 0
        with bench.timed(bench.size), path.open(encoding="utf-8") as file:
            ad: dict[str, str] = {}
            for line in file:
                if line.startswith("***"):
                    ads, ad = ads + 1, {}
                else:
                    name, _equals, value = line.partition(" = ")
                    ad[name] = value
        assert ads == bench.size


def plain_dqs(bench: Bench) -> None:
    """The csv module over the file, nothing made of the fields."""
    path = inputs.act_file(bench)
    for _ in range(RUNS):
        with bench.timed(bench.size), path.open(encoding="utf-8", newline="") as file:
            assert sum(1 for _row in csv.reader(file, delimiter=":")) == bench.size


def plain_blah(bench: Bench) -> None:
    """Splitting every line between its quotes, and at the equals signs."""
    path = inputs.blah_log(bench)
    for _ in range(RUNS):
        with bench.timed(bench.size), path.open(encoding="utf-8") as file:
            found = sum(1 for line in file if dict(pair.split("=", 1) for pair in line[1:-2].split('" "')))
        assert found == bench.size


def plain_sacct(bench: Bench) -> None:
    """csv.DictReader over the table."""
    path = inputs.sacct_table(bench)
    for _ in range(RUNS):
        with bench.timed(bench.size), path.open(encoding="utf-8", newline="") as file:
            assert sum(1 for _row in csv.DictReader(file, delimiter="|")) == bench.size


def plain_arc(bench: Bench) -> None:
    """Bare sqlite3: every row of the seven tables that a record needs, in their order, nothing made of them."""
    path = inputs.arc_database(bench)
    for _ in range(RUNS):
        with bench.timed(bench.size):
            assert floor_rows(path) == bench.size


def floor_rows(path: Path) -> int:
    """Fetch all rows of an ARC database, table by table; the number of jobs."""
    tables = ("AuthTokenAttributes", "JobEvents", "RunTimeEnvironments", "DataTransfers", "JobExtraInfo", "Endpoints")
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    try:
        jobs = sum(1 for _row in connection.execute("SELECT * FROM AAR ORDER BY RecordID"))
        for table in tables:
            for _row in connection.execute(f"SELECT * FROM {table} ORDER BY 1"):
                pass
    finally:
        connection.close()
    return jobs


@row("parse gridengine colon", SIZES, beside=("csv module", plain_colon))
def gridengine_colon(bench: Bench) -> None:
    """Grid Engine's classic accounting file."""
    read(bench, "gridengine", inputs.gridengine_colon(bench))


@row("parse gridengine jsonl", SIZES, beside=("json.loads", plain_jsonl))
def gridengine_jsonl(bench: Bench) -> None:
    """Grid Engine's JSON lines."""
    read(bench, "gridengine", inputs.gridengine_jsonl(bench))


@row("parse torque", SIZES, beside=("split", plain_torque))
def torque(bench: Bench) -> None:
    """A day of TORQUE's accounting."""
    read(bench, "torque", inputs.torque_day(bench), "UTC")


@row("parse pbs", SIZES, beside=("split", plain_pbs))
def pbs(bench: Bench) -> None:
    """A day of PBS Pro's accounting."""
    read(bench, "pbs", inputs.pbs_day(bench), "UTC")


@row("parse lsf", SIZES, beside=("csv module", plain_lsf))
def lsf(bench: Bench) -> None:
    """An lsb.acct."""
    read(bench, "lsf", inputs.lsb_acct(bench))


@row("parse htcondor", SIZES, beside=("split", plain_condor))
def htcondor(bench: Bench) -> None:
    """HTCondor's history; a record is an ad of 28 lines."""
    read(bench, "htcondor", inputs.condor_history(bench))


@row("parse dqs", SIZES, beside=("csv module", plain_dqs))
def dqs(bench: Bench) -> None:
    """DQS' act_file."""
    read(bench, "dqs", inputs.act_file(bench))


@row("parse grid log", SIZES, unit="entries", beside=("split", plain_blah))
def blah(bench: Bench) -> None:
    """A grid log as BLAH writes it."""
    path = inputs.blah_log(bench)
    for _ in range(RUNS):
        with bench.timed(bench.size):
            assert sum(len(page.entries) for page in sources_blah.pages(path, {})) == bench.size


@row("parse slurm", SIZES, beside=("csv.DictReader", plain_sacct))
def slurm(bench: Bench) -> None:
    """A table that sacct printed."""
    read(bench, "slurm", inputs.sacct_table(bench), "UTC")


@row("parse arc", SIZES, beside=("bare sqlite3", plain_arc))
def arc(bench: Bench) -> None:
    """ARC's accounting database."""
    read(bench, "arc", inputs.arc_database(bench))
