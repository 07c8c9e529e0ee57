"""The dictionary with which stored runs are compressed, trained on synthetic records of all sources.

    python -m tests.generators.dictionary        (or: make dictionary)

The content of a dictionary is in every store and cannot be erased, so it must contain only invented names: the records
are those of the generators here, read by the sources like those of a site. A dictionary for each site would save little
(`docs/internals/performance.md`). Never make a dictionary that stores use again. If the fields of records have changed
much, make a new one, with a new number and new forms in `publisher.encoded_run`, and leave the old one and its forms
unchanged.
"""

from __future__ import annotations

import random
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import zstandard

from formats.identity import encode
from formats.job import Job
from publisher.config.schema import SourceSettings
from publisher.encoded_run import DICTIONARY, in_class
from publisher.sources import make_source
from tests.bench import inputs
from tests.bench.measure import Bench
from tests.generators.arc_database import create

BYTES: Final = 32_768
"""Half as much costs 1 % more bytes a record, twice as much saves 1 %."""
_EACH: Final = 1_500
_WHOLE_OF: Final = 8
"""Of so many records one is given with the facts of its class, as earlier versions are stored."""


def sources(folder: Path, each: int) -> Iterator[tuple[str, Path]]:
    """Files of all kinds of source with this number of invented records, by kind."""
    bench = Bench(folder, folder, each)
    for kind in ("clean", "varied"):
        path = folder / f"arc-{kind}.db"
        create(path, each, seed=7, kind=kind)
        yield "arc", path
    yield "gridengine", inputs.gridengine_colon(bench)
    yield "gridengine", inputs.gridengine_jsonl(bench)
    yield "torque", inputs.torque_day(bench)
    yield "pbs", inputs.pbs_day(bench)
    yield "dqs", inputs.act_file(bench)
    yield "slurm", inputs.sacct_table(bench)
    yield "htcondor", inputs.condor_history(bench)
    yield "lsf", inputs.lsb_acct(bench)


def jobs(each: int = _EACH) -> Iterator[Job]:
    """The invented records, as the sources read them."""
    with tempfile.TemporaryDirectory() as folder:
        for kind, path in sources(Path(folder), each):
            settings = SourceSettings(type=kind, path=path, timezone="UTC", cluster="fixture")
            for page in make_source("invented", settings).pages({}):
                yield from page.jobs


def samples(each: int = _EACH) -> list[bytes]:
    """What is compressed of the records, in no order."""
    found = [
        encode(job)[1:] if number % _WHOLE_OF == 0 else in_class(job, encode(job))[1]
        for number, job in enumerate(jobs(each))
    ]
    random.Random(2).shuffle(found)
    return found


def main() -> None:
    """Write the dictionary. Refuses to replace the one that stores use."""
    if DICTIONARY.exists():
        sys.exit(f"{DICTIONARY} is there; stores need it. Read `tests/generators/dictionary.py` first.")
    DICTIONARY.write_bytes(zstandard.train_dictionary(BYTES, samples(), level=3).as_bytes())
    print(f"{DICTIONARY}: {DICTIONARY.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
