"""Rows: rendering each format, compared with trees of lxml elements; signing, compared with the signature alone."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from lxml import etree

from formats.apel.fold import Fold
from formats.apel.text import parse
from formats.job import Job
from formats.registry import FORMATS, record_format, report_format, totals_format
from formats.utilization.measure import Bins, BinSums, Ran, Tally, measured
from formats.utilization.report import UtilizationReport
from formats.view import View
from formats.waldur.fold import WaldurOptions
from publisher.security.credentials import ClientCredentials, load_credentials
from publisher.security.sign import Signer
from publisher.simulator.pki import make_pki
from tests.bench import inputs, plain
from tests.bench.measure import Bench
from tests.bench.rows import Sizes, row
from tests.formats.utilization.dqs_walk import walk

SIZES = Sizes(5_000, 50_000, 50_000)
BATCH = 500
RUNS = 3
HOUR_S = 3600
VIEW = View(site="EXAMPLE-SITE")
PAYLOAD_BYTES = 700_000
MESSAGES = Sizes(50, 500, 500)


def render(bench: Bench, name: str) -> None:
    """Every job as a record, and messages of the records."""
    form = record_format(name, VIEW)
    jobs = inputs.jobs(bench)
    for _ in range(RUNS):
        with bench.timed(len(jobs)):
            for batch in _batched(jobs):
                form.message([form.record(job, inputs.FIRST + inputs.MONTH_S * 2).body for job in batch])


def _batched(jobs: list[Job]) -> list[list[Job]]:
    return [jobs[first : first + BATCH] for first in range(0, len(jobs), BATCH)]


def trees(bench: Bench, record: Callable[[plain.Fields], etree._Element], space: str) -> None:
    """The same jobs as lxml trees."""
    jobs = inputs.jobs(bench)
    for _ in range(RUNS):
        with bench.timed(len(jobs)):
            for batch in _batched(jobs):
                plain.message([record(plain.fields_of(job)) for job in batch], space)


def plain_ur(bench: Bench) -> None:
    """Usage records as lxml trees, without most extensions."""
    trees(bench, plain.usage_record, plain.UR)


def plain_car(bench: Bench) -> None:
    """Compute records as lxml trees."""
    trees(bench, plain.compute_record, plain.CAR)


@row("render ogf-ur", SIZES, beside=("lxml trees", plain_ur))
def render_ur(bench: Bench) -> None:
    """Usage records with all extensions."""
    render(bench, "ogf-ur")


@row("render emi-car", SIZES, beside=("lxml trees", plain_car))
def render_car(bench: Bench) -> None:
    """Compute accounting records."""
    render(bench, "emi-car")


@row("render apel-job", SIZES, beside=("lxml trees of CAR", plain_car))
def render_apel_job(bench: Bench) -> None:
    """APEL job records."""
    render(bench, "apel-job")


def summarise(bench: Bench, name: str) -> None:
    """Jobs folded into monthly summaries, and those written."""
    form = totals_format(name, VIEW)
    jobs = inputs.jobs(bench)
    for _ in range(RUNS):
        with bench.timed(len(jobs)):
            fold = Fold(VIEW, normalised=form.normalised)
            for job in jobs:
                fold.add(job)
            text = form.message([form.record(group).body for group in fold.groups()])
        assert parse(text.decode()).records


@row("render apel-summary", SIZES, beside=("lxml trees of CAR", plain_car))
def render_summary(bench: Bench) -> None:
    """Jobs folded into monthly summaries, and those written."""
    summarise(bench, "apel-summary")


@row("render apel-normalised-summary", SIZES, beside=("lxml trees of CAR", plain_car))
def render_normalised_summary(bench: Bench) -> None:
    """The same with CPU and wall time normalised."""
    summarise(bench, "apel-normalised-summary")


def _of_accounts(bench: Bench) -> list[Job]:
    return [job for job in inputs.jobs(bench) if job.vo and job.local_user and job.wall_ms]


def plain_usage(bench: Bench) -> None:
    """The same sums in a dictionary of floating-point numbers, not written."""
    jobs = _of_accounts(bench)
    for _ in range(RUNS):
        with bench.timed(len(jobs)):
            sums: dict[tuple[str | None, ...], list[float]] = {}
            for job in jobs:
                month = time.strftime("%Y-%m", time.gmtime(job.end))
                for user in (None, job.local_user):
                    amounts = sums.setdefault((month, job.vo, user), [0.0, 0.0])
                    hours = (job.wall_ms or 0) / HOUR_S / 1000
                    amounts[0] += hours * (job.cores or job.slots or 1)
                    amounts[1] += hours * (job.gpus or 0)


@row("render waldur-usage", SIZES, beside=("a dictionary of floats", plain_usage))
def render_usage(bench: Bench) -> None:
    """Jobs folded into usages of accounts and users by month, exact, and those written."""
    view = View(site=VIEW.site, options=WaldurOptions(by="vo"))
    form, kind = totals_format("waldur-usage", view), FORMATS["waldur-usage"].required_totals
    jobs = _of_accounts(bench)
    for _ in range(RUNS):
        with bench.timed(len(jobs)):
            fold = kind.fold(view)
            for job in jobs:
                fold.add(job)
            bodies = [form.record(total).body for total in fold.groups()]
        assert bodies


def report(bench: Bench, sums: Callable[[Iterable[Ran], Bins], Iterator[BinSums]]) -> None:
    """A month of jobs in bins of an hour, as a report."""
    form = report_format("utilization", VIEW)
    bins = Bins(inputs.FIRST, inputs.FIRST + inputs.MONTH_S, HOUR_S)
    ran = [
        Ran(job.start, job.end, job.cpu_user_ms or 0, job.cpu_system_ms or 0, job.slots or job.cores or 1)
        for job in inputs.jobs(bench)
        if job.start and job.end
    ]
    for _ in range(RUNS):
        with bench.timed(len(ran)):
            found = tuple(measured(bins, sums(ran, bins)))
            form.message(
                UtilizationReport(
                    site=VIEW.site, start=bins.start, stop=bins.stop, bin_s=HOUR_S, measure="queue", bins=found
                )
            )


def _tallied(ran: Iterable[Ran], bins: Bins) -> Iterator[BinSums]:
    tally = Tally(bins)
    for run in ran:
        tally.add(run)
    return tally.sums()


def walked(bench: Bench) -> None:
    """The manual's walk over the same jobs."""
    report(bench, lambda ran, bins: iter(walk(ran, bins)))


@row("render utilization", SIZES, beside=("the manual's walk", walked))
def render_report(bench: Bench) -> None:
    """A month of jobs in bins of an hour, as a report."""
    report(bench, _tallied)


def _credentials(folder: Path) -> ClientCredentials:
    client = make_pki(folder / "pki").client
    return load_credentials(client.certificate, client.key, now_s=time.time())


def rsa_alone(bench: Bench) -> None:
    """RSA signatures (2048 bits, SHA-256) of 256 bytes: what `openssl speed` measures."""
    key = _credentials(bench.folder).key
    assert isinstance(key, rsa.RSAPrivateKey)
    with bench.timed(bench.size):
        for number in range(bench.size):
            key.sign(number.to_bytes(256, "big"), padding.PKCS1v15(), hashes.SHA256())


@row("sign messages of 700 kB", MESSAGES, beside=("RSA signing alone", rsa_alone), unit="messages")
def sign(bench: Bench) -> None:
    """S/MIME messages, finished."""
    signer = Signer(_credentials(bench.folder))
    payload = b"<UsageRecord>some text of a record</UsageRecord>\n" * (PAYLOAD_BYTES // 49)
    with bench.timed(bench.size):
        for _ in range(bench.size):
            signer.sign(payload)
