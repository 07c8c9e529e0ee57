"""The tables of the store: what was read, what must be delivered where, what was delivered, and decisions of people.

    sources      a source by its name, with cursor and counters
    file_marks   how far each log file of a source was read
    classes      facts that many runs share (who, where, which benchmark), interned: folds and target filters look here
    class_users  the local users and groups of runs whose class does not have them (`publisher.store.class_users`)
    runs         one row a run: its class, end, wall and CPU time, whether these are complete, its ids, the record as
                 read (`publisher.encoded_run`), its mark in the source, check numbers (`publisher.store.row_checks`)
    versions     earlier versions of runs that changed after they had been delivered
    changes      which runs each transaction wrote (`publisher.store.changes`), for what is derived from the store
    targets      a target by its name, the settings that its deliveries follow, and its last attempt
    earlier_settings   those that they followed before, each up to the last message that was made by them
    deliveries   the outbox and the ledger: one row for each run that a target selects
    counters     deliveries by target and state, kept in the transaction that changes them
    batches      the messages, with their receipts
    reconciliations   when a target was last reconciled and is due again, and since when accepted jobs are unconfirmed
    reconciled_months   what the last comparison of each month found; month 0: in no known month
    groups       summaries, reports and sync counts as last sent, by target and month
    due_months   months whose sync counts or summaries are due again, and how often they were marked
    report_reaches   by period, how far back its runs reach: they count in reports of earlier periods
    purged_sync_counts   the sync counts of a month when its jobs were purged: what comes later is added to them
    grid_logs    how far the grid log of a source was read
    grid_jobs    its entries: the grid identities of local jobs
    grid_waits   runs that have no entry, and which of them are held until they have one
    same_jobs    pairs of runs of different sources that are one job, in both directions
    energies     energy of runs that another program than their batch system measured
    usage_notes  runs whose CPU time the source corrected, or doubts
    unreadable   input that is not a record, with file, line, reason; or may be a user's text, with its run
    sent_mark    the id of the store, and how many messages have left it (`publisher.store.sent_mark`); one row
    resends      windows that are being sent again
    audit        actions of people
    program_runs  the history: runs of the program, and what each did
    check_progress   how far the store was checked by runs, and the damaged runs that are known; one row
    notices      the problems that a mail was sent about
    closings     closed months, each with its price list and digest; `successor`: the closing that replaced it
    closed_statements   the statements that were issued, by their number in the series
    closed_lines, closed_runs   what each run was charged for: its usage by line, as of the closing that issued it
    closed_texts   names and texts of closed statements, which have their tokens only
    number_series   the last number of each series, a row that is locked while numbers are taken
    purged_months, purged_runs, purged_deliveries   what is kept of purged jobs: that they were stored and delivered
    erased       pseudonyms of erased persons, with salted hashes of their names
    spool_changes   changes that spooling contexts have not written yet, by triggers if there are contexts

Texts from outside may be of any length, and PostgreSQL takes at most 2,704 bytes in an index: there is an index over a
digest of them, over `formats.identity.index_key`, or over what the configuration bounds.

Instants are epoch seconds UTC. A run that a target selects has exactly one delivery to it, with a `State`.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Connection,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    SmallInteger,
    Table,
    Text,
    UniqueConstraint,
    event,
    literal_column,
    text,
)

from publisher.reason import ReasonCode


class State(IntEnum):
    """The state of a delivery. Stored as its number; the numbers are part of the store's format and never change
    their meaning."""

    WAITING = 1
    IN_FLIGHT = 2
    ACCEPTED = 3
    """Accepted by the service, or assumed to be; whether it is confirmed is in another column."""
    REJECTED = 4
    HELD = 5
    WAIVED = 6
    SUPERSEDED = 7
    """Changed after the service accepted an earlier version, which it keeps."""

    @property
    def word(self) -> str:
        """The word used in `status --json` and for people."""
        return self.name.lower()


class BatchState(IntEnum):
    """The state of a message."""

    IN_FLIGHT = 1
    ACCEPTED = 2
    NOT_ACCEPTED = 3
    """Refused, split, or set to wait again; its records are in other batches or wait."""


class Ambiguity(IntEnum):
    """What is unknown of what a service has of a run: in the column `may_be_one_of_several`."""

    NONE = 0
    VERSION = 1
    """It keeps the first version that it received, which may be an earlier one than was last sent."""
    SETTINGS = 2
    """It keeps the first message, and may have this version as it was made by earlier settings than those by which it
    was last sent."""


metadata = MetaData()

# SQLite makes only a column of exactly this type an alias of the row id.
RowId = BigInteger().with_variant(Integer, "sqlite")
_InOrderOfBytes = Text().with_variant(Text(collation="C"), "postgresql")
"""A text whose index finds all values with a common beginning, in any locale of a server."""

sources = Table(
    "sources",
    metadata,
    Column("id", RowId, primary_key=True),
    Column("name", Text, nullable=False, unique=True),
    Column("kind", Text, nullable=False),
    Column("cursor", Text, nullable=False, server_default="{}"),
    Column("at_end", SmallInteger, nullable=False, server_default="0"),
    Column("first_read_done", SmallInteger, nullable=False, server_default="0"),
    Column("complete_since", BigInteger),
    Column("jobs", BigInteger, nullable=False, server_default="0"),
    Column("skipped", BigInteger, nullable=False, server_default="0"),
    Column("unreadable", BigInteger, nullable=False, server_default="0"),
    Column("last_collected", BigInteger),
    Column("last_job_end", BigInteger),
    Column("last_error", Text),
    Column("row_digest", LargeBinary, nullable=False, server_default=""),
)

file_marks = Table(
    "file_marks",
    metadata,
    Column("source_id", BigInteger, ForeignKey("sources.id"), primary_key=True),
    Column("file", Text, primary_key=True),
    Column("mark", Text, nullable=False),
    sqlite_with_rowid=False,
)

classes = Table(
    "classes",
    metadata,
    Column("id", RowId, primary_key=True),
    Column("source_id", BigInteger, ForeignKey("sources.id"), nullable=False),
    Column("facts", LargeBinary, nullable=False),
    Column("digest", LargeBinary, nullable=False),
    UniqueConstraint("source_id", "digest", name="classes_facts"),
)

class_users = Table(
    "class_users",
    metadata,
    Column("class_id", Integer, ForeignKey("classes.id"), primary_key=True),
    Column("digest", LargeBinary, primary_key=True),
    Column("local_user", LargeBinary, nullable=False),
    sqlite_with_rowid=False,
)

runs = Table(
    "runs",
    metadata,
    Column("id", RowId, primary_key=True),
    Column("end_time", BigInteger),
    Column("wall_ms", BigInteger, nullable=False),
    Column("cpu_ms", BigInteger, nullable=False),
    Column("stored_at", BigInteger, nullable=False),
    Column("class_id", Integer, ForeignKey("classes.id"), nullable=False),
    Column("sums_check", Integer, nullable=False, server_default="0"),
    Column("finished", SmallInteger, nullable=False),
    Column("incomplete_usage", SmallInteger, nullable=False),
    Column("row_check", SmallInteger, nullable=False, server_default="0"),
    Column("record_key", LargeBinary, nullable=False),
    Column("digest", LargeBinary, nullable=False),
    Column("mark", LargeBinary),
    Column("record_id", Text, nullable=False),
    Column("local_id", _InOrderOfBytes),
    Column("global_key", LargeBinary),
    Column("job", LargeBinary, nullable=False),
    UniqueConstraint("record_key", name="runs_record_key"),
    Index("runs_by_end", "end_time", "id", "class_id", "wall_ms", "cpu_ms", "incomplete_usage", "sums_check").ddl_if(
        "sqlite"
    ),
    Index("runs_by_end", "end_time", "id").ddl_if("postgresql"),
    Index("runs_local_id", "local_id", sqlite_where=text("local_id IS NOT NULL")),
    Index("runs_global_key", "global_key"),
)
"""Long columns come last, and columns that PostgreSQL aligns come first, so that rows have no padding.

SQLite sums runs from the index over their ends alone; PostgreSQL would read the table as well until a vacuum.
Local ids ascend. Their index has no NULL: PostgreSQL would sort it last, and leave all other pages half empty.
"""

versions = Table(
    "versions",
    metadata,
    Column("run_id", BigInteger, ForeignKey("runs.id"), primary_key=True),
    Column("digest", LargeBinary, primary_key=True),
    Column("stored_at", BigInteger, nullable=False),
    Column("job", LargeBinary, nullable=False),
)

changes = Table(
    "changes",
    metadata,
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("kinds", SmallInteger, nullable=False),
    Column("token", LargeBinary, nullable=False),
    Column("runs", LargeBinary, nullable=False),
    sqlite_with_rowid=False,
)

usage_notes = Table(
    "usage_notes",
    metadata,
    Column("run_id", BigInteger, ForeignKey("runs.id"), primary_key=True),
    Column("source_id", BigInteger, ForeignKey("sources.id"), nullable=False),
    Column("note", SmallInteger, nullable=False),
    sqlite_with_rowid=False,
)

energies = Table(
    "energies",
    metadata,
    Column("run_id", BigInteger, ForeignKey("runs.id"), primary_key=True),
    Column("energy_mj", BigInteger, nullable=False),
    Column("method", SmallInteger, nullable=False),
    sqlite_with_rowid=False,
)

targets = Table(
    "targets",
    metadata,
    Column("id", RowId, primary_key=True),
    Column("name", Text, nullable=False, unique=True),
    Column("kind", Text, nullable=False),
    Column("filter_settings", Text, nullable=False),
    Column("last_attempt", BigInteger),
    Column("last_success", BigInteger),
    Column("last_error", Text),
    Column("assumes", Text),
    Column("row_digest", LargeBinary, nullable=False, server_default=""),
)

earlier_settings = Table(
    "earlier_settings",
    metadata,
    Column("target_id", BigInteger, ForeignKey("targets.id"), primary_key=True),
    Column("last_batch_id", BigInteger, primary_key=True),
    Column("settings", Text, nullable=False),
    sqlite_with_rowid=False,
)

batches = Table(
    "batches",
    metadata,
    Column("id", RowId, primary_key=True),
    Column("uid", Text, nullable=False),
    Column("target_id", BigInteger, ForeignKey("targets.id"), nullable=False),
    Column("state", SmallInteger, nullable=False),
    Column("format", Text, nullable=False),
    Column("records", Integer, nullable=False),
    Column("bytes", BigInteger, nullable=False),
    Column("latest_end", BigInteger),
    Column("created_at", BigInteger, nullable=False),
    Column("closed_at", BigInteger),
    Column("receipt", Text),
    Column("answer", Text),
    Column("row_check", Integer, nullable=False, server_default="0"),
    Index("batches_by_target", "target_id", "state", "latest_end"),
)

_OPEN = f"state <> {State.ACCEPTED.value}"
OPEN: ColumnElement[bool] = literal_column(f"deliveries.{_OPEN}")
"""The condition of the index over open deliveries, as a query must repeat it in order to use it: without the type
Boolean, which SQLAlchemy would write `... = 1` for SQLite, whose planner then walks through all deliveries."""

_ASSUMED = f"reason = '{ReasonCode.ASSUMED.value}'"
ARE_ASSUMED: ColumnElement[bool] = literal_column(f"deliveries.{_ASSUMED}")
"""The condition of the index over assumed deliveries, as it must stand in a query that is to use it."""

deliveries = Table(
    "deliveries",
    metadata,
    Column("run_id", BigInteger, ForeignKey("runs.id")),
    Column("end_time", BigInteger, nullable=False),
    Column("changed_at", BigInteger, nullable=False),
    Column("confirmed_at", BigInteger),
    Column("batch_id", Integer, ForeignKey("batches.id")),
    Column("target_id", SmallInteger, ForeignKey("targets.id")),
    Column("state", SmallInteger, nullable=False),
    Column("revision", SmallInteger, nullable=False, server_default="0"),
    Column("deselected", SmallInteger, nullable=False, server_default="0"),
    Column("may_be_one_of_several", SmallInteger, nullable=False, server_default="0"),
    Column("sent_digest", LargeBinary),
    Column("reason", Text),
    Column("reason_parameters", Text),
    PrimaryKeyConstraint("target_id", "run_id"),
    Index("deliveries_open", "target_id", "state", "end_time", "run_id", sqlite_where=text(_OPEN)),
    Index("deliveries_assumed", "target_id", sqlite_where=text(_ASSUMED)),
    sqlite_with_rowid=False,
)


_SERVER_SETTINGS: Final = (
    "ALTER TABLE runs ALTER COLUMN job SET STORAGE EXTERNAL",
    "ALTER TABLE versions ALTER COLUMN job SET STORAGE EXTERNAL",
    "ALTER TABLE deliveries SET (autovacuum_vacuum_scale_factor = 0.02)",
)
"""Records arrive compressed: a server need not try to compress them. A delivery leaves two dead rows, whose space is
used again after a vacuum: autovacuum would start it only when a fifth of the rows are dead."""


@event.listens_for(metadata, "after_create")
def _set_on_server(_metadata: MetaData, connection: Connection, **_: object) -> None:
    if connection.dialect.name == "postgresql":
        for statement in _SERVER_SETTINGS:
            connection.execute(text(statement))


@event.listens_for(metadata, "before_create")
def _limit_on_server(_metadata: MetaData, connection: Connection, **_: object) -> None:
    """The same conditions on a server. As table arguments above, they would load the server's dialect in every
    process."""
    if connection.dialect.name == "postgresql":
        for index in (*runs.indexes, *deliveries.indexes):
            index.dialect_options["postgresql"]["where"] = index.dialect_options["sqlite"]["where"]


counters = Table(
    "counters",
    metadata,
    Column("target_id", BigInteger, ForeignKey("targets.id"), primary_key=True),
    Column("state", SmallInteger, primary_key=True),
    Column("jobs", BigInteger, nullable=False),
    sqlite_with_rowid=False,
)

groups = Table(
    "groups",
    metadata,
    Column("target_id", BigInteger, ForeignKey("targets.id"), primary_key=True),
    Column("kind", Text, primary_key=True),
    Column("month", Integer, primary_key=True),
    Column("key", Text, primary_key=True),
    Column("state", SmallInteger, nullable=False),
    Column("digest", LargeBinary, nullable=False),
    Column("jobs", BigInteger, nullable=False),
    Column("body", LargeBinary, nullable=False),
    Column("batch_id", BigInteger, ForeignKey("batches.id")),
    Column("changed_at", BigInteger, nullable=False),
    Column("confirmed_at", BigInteger),
    Column("state_check", SmallInteger, nullable=False, server_default="0"),
    sqlite_with_rowid=False,
)

reconciliations = Table(
    "reconciliations",
    metadata,
    Column("target_id", BigInteger, ForeignKey("targets.id"), primary_key=True),
    Column("due_at", BigInteger, nullable=False),
    Column("looked_at", BigInteger),
    Column("evidence_at", BigInteger),
    Column("problem", Text),
    Column("differences", BigInteger, nullable=False, server_default="0"),
    Column("missing", BigInteger, nullable=False, server_default="0"),
    Column("differing", BigInteger, nullable=False, server_default="0"),
    Column("unconfirmed_since", BigInteger),
    Column("last_batch_id", BigInteger, nullable=False, server_default="0"),
    Column("next_month", Integer),
    sqlite_with_rowid=False,
)

reconciled_months = Table(
    "reconciled_months",
    metadata,
    Column("target_id", BigInteger, ForeignKey("targets.id"), primary_key=True),
    Column("month", Integer, primary_key=True),
    Column("differences", BigInteger, nullable=False),
    Column("missing", BigInteger, nullable=False),
    Column("differing", BigInteger, nullable=False),
    sqlite_with_rowid=False,
)

due_months = Table(
    "due_months",
    metadata,
    Column("target_id", BigInteger, ForeignKey("targets.id"), primary_key=True),
    Column("purpose", Text, primary_key=True),
    Column("month", Integer, primary_key=True),
    Column("times", BigInteger, nullable=False),
    sqlite_with_rowid=False,
)

report_reaches = Table(
    "report_reaches",
    metadata,
    Column("target_id", BigInteger, ForeignKey("targets.id"), primary_key=True),
    Column("period", Integer, primary_key=True),
    Column("reach", LargeBinary, nullable=False),
    sqlite_with_rowid=False,
)

purged_sync_counts = Table(
    "purged_sync_counts",
    metadata,
    Column("target_id", BigInteger, ForeignKey("targets.id"), primary_key=True),
    Column("month", Integer, primary_key=True),
    Column("key", Text, primary_key=True),
    Column("body", LargeBinary, nullable=False),
    Column("digest", LargeBinary, nullable=False, server_default=""),
    sqlite_with_rowid=False,
)

grid_logs = Table(
    "grid_logs",
    metadata,
    Column("source_id", BigInteger, ForeignKey("sources.id"), primary_key=True),
    Column("cursor", Text, nullable=False),
)

grid_jobs = Table(
    "grid_jobs",
    metadata,
    Column("source_id", BigInteger, ForeignKey("sources.id"), primary_key=True),
    Column("key", Text, primary_key=True),
    Column("at", BigInteger, primary_key=True),
    Column("lrms_id", Text, primary_key=True),
    Column("user_dn", Text),
    Column("fqans", Text, nullable=False),
    Column("submit_host", Text),
    Column("token_subject", Text),
    Column("token_issuer", Text),
    Column("token_groups", Text),
    sqlite_with_rowid=False,
)

grid_waits = Table(
    "grid_waits",
    metadata,
    Column("run_id", BigInteger, ForeignKey("runs.id"), primary_key=True),
    Column("source_id", BigInteger, ForeignKey("sources.id"), nullable=False),
    Column("key", Text, nullable=False),
    Column("end_time", BigInteger, nullable=False),
    Column("held", SmallInteger, nullable=False),
    Index("grid_waits_key", "source_id", "key"),
    Index("grid_waits_held", "source_id", "held", "end_time"),
    sqlite_with_rowid=False,
)

same_jobs = Table(
    "same_jobs",
    metadata,
    Column("run_id", BigInteger, ForeignKey("runs.id"), primary_key=True),
    Column("other_key", LargeBinary, primary_key=True),
    sqlite_with_rowid=False,
)
"""`other_key`: the `record_key` of the other run, which is the same in every store."""

unreadable = Table(
    "unreadable",
    metadata,
    Column("id", RowId, primary_key=True),
    Column("source_id", BigInteger, ForeignKey("sources.id"), nullable=False),
    Column("file", Text, nullable=False),
    Column("line", BigInteger),
    Column("offset", BigInteger),
    Column("reason", Text, nullable=False),
    Column("raw", LargeBinary, nullable=False),
    Column("seen_at", BigInteger, nullable=False),
    Column("unread_from", BigInteger),
    Column("digest", LargeBinary, nullable=False),
    Column("run", LargeBinary),
    Column("first_read", SmallInteger),
    UniqueConstraint("source_id", "digest", name="unreadable_place"),
)

resends = Table(
    "resends",
    metadata,
    Column("target_id", BigInteger, ForeignKey("targets.id"), primary_key=True),
    Column("begins", BigInteger, nullable=False),
    Column("ends", BigInteger, nullable=False),
    Column("only_missing", SmallInteger, nullable=False),
    Column("asked_at", BigInteger, nullable=False),
    sqlite_with_rowid=False,
)

sent_mark = Table(
    "sent_mark",
    metadata,
    Column("store", Text, primary_key=True),
    Column("messages", BigInteger, nullable=False),
    Column("sent_at", BigInteger),
)

audit = Table(
    "audit",
    metadata,
    Column("id", RowId, primary_key=True),
    Column("at", BigInteger, nullable=False),
    Column("who", Text, nullable=False),
    Column("action", Text, nullable=False),
    Column("subject", Text, nullable=False),
    Column("detail", Text, nullable=False),
)

program_runs = Table(
    "program_runs",
    metadata,
    Column("id", RowId, primary_key=True),
    Column("command", Text, nullable=False),
    Column("host", Text, nullable=False),
    Column("began_at", BigInteger, nullable=False),
    Column("ended_at", BigInteger),
    Column("exit_code", SmallInteger),
    Column("done", Text, nullable=False),
)

purged_months = Table(
    "purged_months",
    metadata,
    Column("month", Integer, primary_key=True, autoincrement=False),
    Column("runs", BigInteger, nullable=False),
    Column("purged_at", BigInteger, nullable=False),
)

purged_runs = Table(
    "purged_runs",
    metadata,
    Column("run", LargeBinary, primary_key=True),
    Column("digest", LargeBinary, primary_key=True),
    sqlite_with_rowid=False,
)

purged_deliveries = Table(
    "purged_deliveries",
    metadata,
    Column("target_id", BigInteger, ForeignKey("targets.id"), primary_key=True),
    Column("month", Integer, primary_key=True),
    Column("state", SmallInteger, primary_key=True),
    Column("jobs", BigInteger, nullable=False),
    sqlite_with_rowid=False,
)

erased = Table(
    "erased",
    metadata,
    Column("pseudonym", Text, primary_key=True),
    Column("salt", LargeBinary, nullable=False),
    Column("person", LargeBinary, nullable=False),
    Column("erased_at", BigInteger, nullable=False),
    sqlite_with_rowid=False,
)

spool_changes = Table(
    "spool_changes",
    metadata,
    Column("kind", Text, primary_key=True),
    Column("key", Text, primary_key=True),
    Column("target", Text, primary_key=True),
    Column("times", BigInteger, nullable=False),
    sqlite_with_rowid=False,
)

check_progress = Table(
    "check_progress",
    metadata,
    Column("part", Text, primary_key=True),
    Column("last_id", BigInteger, nullable=False),
    Column("checked_at", BigInteger, nullable=False),
    Column("damaged", Text, nullable=False),
    sqlite_with_rowid=False,
)

notices = Table(
    "notices",
    metadata,
    Column("key", Text, primary_key=True),
    Column("notified_at", BigInteger, nullable=False),
    sqlite_with_rowid=False,
)

closings = Table(
    "closings",
    metadata,
    Column("id", RowId, primary_key=True),
    Column("month", Integer, nullable=False),
    Column("closed_at", BigInteger, nullable=False),
    Column("successor", BigInteger),
    Column("settings", Text, nullable=False),
    Column("digest", LargeBinary, nullable=False),
)

closed_statements = Table(
    "closed_statements",
    metadata,
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("closing_id", BigInteger, ForeignKey("closings.id"), nullable=False),
    Column("cancels", BigInteger),
    Column("label", Text, nullable=False, unique=True),
    Column("body", Text, nullable=False),
)

closed_lines = Table(
    "closed_lines",
    metadata,
    Column("closing_id", BigInteger, ForeignKey("closings.id"), primary_key=True),
    Column("line", Integer, primary_key=True),
    Column("body", Text, nullable=False),
    sqlite_with_rowid=False,
)

closed_runs = Table(
    "closed_runs",
    metadata,
    Column("closing_id", BigInteger, ForeignKey("closings.id"), primary_key=True),
    Column("run", LargeBinary, primary_key=True),
    Column("line", Integer, primary_key=True),
    Column("issued_in", BigInteger, ForeignKey("closings.id"), primary_key=True),
    Column("usage", Text, nullable=False),
    sqlite_with_rowid=False,
)
"""`usage`: a whole number of any size. Rows are only added: of each run and line, that of the latest closing counts."""

closed_texts = Table(
    "closed_texts",
    metadata,
    Column("token", Text, primary_key=True),
    Column("salt", LargeBinary, nullable=False),
    Column("content", Text, nullable=False),
    sqlite_with_rowid=False,
)

number_series = Table(
    "number_series",
    metadata,
    Column("series", Text, primary_key=True),
    Column("last", BigInteger, nullable=False),
    sqlite_with_rowid=False,
)
