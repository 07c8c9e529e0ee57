"""Rows: the main job compared with ARC's own publisher, with the same jobs and services.

It comes from Debian's packages, fetched once and unpacked in the folder of inputs; nothing is installed. If they are
not available, or Python is too new for it, these rows are left out.
"""

from __future__ import annotations

import compileall
import shutil
import subprocess
import sys
import tempfile
from functools import lru_cache
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from tests.bench import delivering, inputs
from tests.bench.measure import Bench
from tests.bench.rows import Sizes, row
from tests.bench.services import BenchServices, services

PACKAGES: Final = ("nordugrid-arc-arex", "nordugrid-arc-arcctl", "libarccommon3v5")
MODULES: Final = Path("usr/lib/python3/dist-packages")
VERSION: Final = "6.17"
UNPACKED: Final = f"arc-{VERSION}"
RUNNER: Final = Path(__file__).parent / "arc_runner.py"
SIZES: Final = Sizes(None, 100_000, 100_000)
MEMORY: Final = Sizes(None, None, 100_000)
_TOO_NEW: Final = (3, 12)
"""The first Python without the parameters with which it connects."""
_CONFIGURATION: Final = """\
[arex]
controldir={folder}
[arex/jura]
x509_host_cert={certificate}
x509_host_key={key}
x509_cert_dir={authorities}
[arex/jura/{target}:bench]
gocdb_name=EXAMPLE-SITE
topic=gLite-APEL
targeturl={url}
urbatchsize={records}
apel_messages={messages}
"""


@lru_cache
def missing(kept: Path) -> str:
    """Why this publisher is missing; empty if it is in the folder of inputs (`kept`)."""
    if sys.version_info >= _TOO_NEW:
        return f"ARC {VERSION}'s publisher does not run with this Python"
    root = kept / UNPACKED
    if not root.exists():
        try:
            _unpack(root)
        except (OSError, subprocess.SubprocessError):
            return f"the packages with ARC {VERSION}'s publisher cannot be fetched and unpacked here"
    return ""


def _unpack(root: Path) -> None:
    """Raises `OSError` and `SubprocessError`."""
    root.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=root.parent) as folder:
        fetch = ["apt-get", "download", "-qq", *PACKAGES]
        subprocess.run(fetch, cwd=folder, capture_output=True, check=True, timeout=120)
        packages = [str(package) for package in Path(folder).glob(f"*_{VERSION}.*.deb")]
        if len(packages) < len(PACKAGES):
            raise FileNotFoundError(f"no packages of version {VERSION}")
        unpacked = Path(folder) / "unpacked"
        for package in packages:
            subprocess.run(["dpkg-deb", "-x", package, str(unpacked)], check=True, timeout=120)
        compileall.compile_dir(unpacked / MODULES, quiet=1)  # as the installation of the packages does
        unpacked.rename(root)


def publish(bench: Bench, target: str, messages: str, records: int, *, one_context: bool = False) -> None:
    """Measure one run of ARC's publisher, to services that have every job of it in the end.

    Of its summaries all messages must have arrived: several are of one key, of which APEL keeps the last.
    """
    database(bench, inputs.arc_database(bench))
    with tempfile.TemporaryDirectory() as folder, services(Path(folder)) as running:
        run(bench, bench.size, running, target, messages, records, one_context=one_context)
        delivering.require_arrival(running, bench, messages_alone=messages == "summaries")


def database(bench: Bench, source: Path) -> Path:
    """A copy of an accounting database where its publisher looks for it."""
    (bench.folder / "accounting").mkdir()
    return Path(shutil.copy(source, bench.folder / "accounting" / "accounting.db"))


def run(
    bench: Bench,
    jobs: int,
    running: BenchServices,
    target: str,
    messages: str,
    records: int,
    *,
    one_context: bool = False,
    since: int = 0,
) -> None:
    """Measure its publisher with the jobs of its database that ended after `since`: so many are `jobs`."""
    modules = f"PYTHONPATH={bench.inputs / UNPACKED / MODULES}"
    configuration = bench.folder / "arc.conf"
    configuration.write_text(_configured(running, bench.folder, target, messages, records), encoding="utf-8")
    port = urlsplit(running.ready["token_url"]).port
    runner = (sys.executable, "-P", RUNNER, configuration, str(port), str(int(one_context)), str(since))
    bench.process(jobs, "env", modules, *runner)


def _configured(running: BenchServices, folder: Path, target: str, messages: str, records: int) -> str:
    ready = running.ready
    return _CONFIGURATION.format(
        folder=folder,
        certificate=ready["certificate"],
        key=ready["key"],
        authorities=ready["ca_directory"],
        target=target,
        url=ready["sgas_url" if target == "sgas" else "ams_url"],
        records=records,
        messages=messages,
    )


def arc_sgas(bench: Bench) -> None:
    """ARC's publisher to SGAS."""
    publish(bench, "sgas", "", delivering.ARC_RECORDS)


def arc_sgas_fixed(bench: Bench) -> None:
    """The same with one TLS context."""
    publish(bench, "sgas", "", delivering.ARC_RECORDS, one_context=True)


def arc_car(bench: Bench) -> None:
    """ARC's publisher to AMS, compute records."""
    publish(bench, "apel", "urs", delivering.CAR_RECORDS)


def arc_car_fixed(bench: Bench) -> None:
    """The same with one TLS context."""
    publish(bench, "apel", "urs", delivering.CAR_RECORDS, one_context=True)


def arc_summaries(bench: Bench) -> None:
    """ARC's publisher to AMS, summaries."""
    publish(bench, "apel", "summaries", delivering.CAR_RECORDS)


@row("ARC's own publisher, memory: SGAS", MEMORY, unless=missing)
def arc_memory_sgas(bench: Bench) -> None:
    """What ARC's publisher takes of all jobs, to SGAS; measured alone."""
    publish(bench, "sgas", "", delivering.ARC_RECORDS)


@row("ARC's own publisher, memory: CAR", MEMORY, unless=missing)
def arc_memory_car(bench: Bench) -> None:
    """The same as compute records."""
    publish(bench, "apel", "urs", delivering.CAR_RECORDS)


@row("SGAS beside ARC's publisher", SIZES, beside=("ARC 6.17's", arc_sgas), unless=missing)
def sgas_beside_arc(bench: Bench) -> None:
    """ARC database to SGAS in messages of ARC's size."""
    delivering.to_sgas_as_arc(bench)


@row(
    "SGAS beside ARC's publisher, fixed",
    SIZES,
    beside=("ARC 6.17's, one TLS context", arc_sgas_fixed),
    unless=missing,
)
def sgas_beside_arc_fixed(bench: Bench) -> None:
    """The same, compared with ARC's publisher without a TLS context for each connection."""
    delivering.to_sgas_as_arc(bench)


@row("CAR beside ARC's publisher", SIZES, beside=("ARC 6.17's", arc_car), unless=missing)
def car_beside_arc(bench: Bench) -> None:
    """ARC database to AMS, compute records."""
    delivering.to_ams_car(bench)


@row("CAR beside ARC's publisher, fixed", SIZES, beside=("ARC 6.17's, one TLS context", arc_car_fixed), unless=missing)
def car_beside_arc_fixed(bench: Bench) -> None:
    """The same, beside ARC's without a TLS context for each connection."""
    delivering.to_ams_car(bench)


@row("summaries beside ARC's publisher", SIZES, beside=("ARC 6.17's", arc_summaries), unless=missing)
def summaries_beside_arc(bench: Bench) -> None:
    """ARC database to AMS, summaries."""
    delivering.to_ams_summaries(bench)
