"""Rows: rendering each format, beside trees of lxml elements; signing, beside the signature alone."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from lxml import etree

from formats.apel_text import parse
from formats.job import Job
from formats.registry import record_format, summary_format
from formats.summary import Fold
from formats.view import View
from publisher.credentials import ClientCredentials, load_credentials
from publisher.signing import Signer
from publisher.simulator.pki import make_pki
from tests.bench import inputs, plain
from tests.bench.measure import Bench
from tests.bench.rows import Sizes, row

SIZES = Sizes(5_000, 50_000, 50_000)
BATCH = 500
RUNS = 3
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


@row("render apel-summary", SIZES, beside=("lxml trees of CAR", plain_car))
def render_summary(bench: Bench) -> None:
    """Jobs folded into monthly summaries, and those written."""
    form = summary_format("apel-summary", VIEW)
    jobs = inputs.jobs(bench)
    for _ in range(RUNS):
        with bench.timed(len(jobs)):
            fold = Fold(VIEW)
            fold.add_all(jobs)
            text = form.message([form.record(group).body for group in fold.groups()])
        assert parse(text.decode()).records


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
