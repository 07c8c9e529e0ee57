"""The tables of the first released schema."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

_ROW_ID = sa.BigInteger().with_variant(sa.Integer, "sqlite")
_IN_ORDER_OF_BYTES = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    """Make them."""
    is_on_server = op.get_bind().dialect.name == "postgresql"
    op.create_table(
        "sources",
        sa.Column("id", _ROW_ID, primary_key=True),
        sa.Column("name", sa.Text(), nullable=False, unique=True),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("cursor", sa.Text(), nullable=False, server_default="{}"),
        sa.Column("at_end", sa.SmallInteger(), nullable=False, server_default="0"),
        sa.Column("first_read_done", sa.SmallInteger(), nullable=False, server_default="0"),
        sa.Column("complete_since", sa.BigInteger()),
        sa.Column("jobs", sa.BigInteger(), nullable=False, server_default="0"),
        sa.Column("skipped", sa.BigInteger(), nullable=False, server_default="0"),
        sa.Column("unreadable", sa.BigInteger(), nullable=False, server_default="0"),
        sa.Column("last_collected", sa.BigInteger()),
        sa.Column("last_job_end", sa.BigInteger()),
        sa.Column("last_error", sa.Text()),
    )
    op.create_table(
        "classes",
        sa.Column("id", _ROW_ID, primary_key=True),
        sa.Column("source_id", sa.BigInteger(), sa.ForeignKey("sources.id"), nullable=False),
        sa.Column("facts", sa.LargeBinary(), nullable=False),
        sa.Column("digest", sa.LargeBinary(), nullable=False),
        sa.UniqueConstraint("source_id", "digest", name="classes_facts"),
    )
    op.create_table(
        "runs",
        sa.Column("id", _ROW_ID, primary_key=True),
        sa.Column("end_time", sa.BigInteger()),
        sa.Column("wall_ms", sa.BigInteger(), nullable=False),
        sa.Column("cpu_ms", sa.BigInteger(), nullable=False),
        sa.Column("stored_at", sa.BigInteger(), nullable=False),
        sa.Column("class_id", sa.Integer(), sa.ForeignKey("classes.id"), nullable=False),
        sa.Column("finished", sa.SmallInteger(), nullable=False),
        sa.Column("incomplete_usage", sa.SmallInteger(), nullable=False),
        sa.Column("record_key", sa.LargeBinary(), nullable=False),
        sa.Column("digest", sa.LargeBinary(), nullable=False),
        sa.Column("mark", sa.LargeBinary()),
        sa.Column("record_id", sa.Text(), nullable=False),
        sa.Column("local_id", _IN_ORDER_OF_BYTES),
        sa.Column("global_key", sa.LargeBinary()),
        sa.Column("job", sa.LargeBinary(), nullable=False),
        sa.UniqueConstraint("record_key", name="runs_record_key"),
    )
    summed = [] if is_on_server else ["class_id", "wall_ms", "cpu_ms", "incomplete_usage"]
    op.create_index("runs_by_end", "runs", ["end_time", "id", *summed])
    op.create_index("runs_global_key", "runs", ["global_key"])
    condition = sa.text("local_id IS NOT NULL")
    op.create_index("runs_local_id", "runs", ["local_id"], sqlite_where=condition, postgresql_where=condition)
    op.create_table(
        "versions",
        sa.Column("run_id", sa.BigInteger(), sa.ForeignKey("runs.id"), primary_key=True),
        sa.Column("digest", sa.LargeBinary(), primary_key=True),
        sa.Column("stored_at", sa.BigInteger(), nullable=False),
        sa.Column("job", sa.LargeBinary(), nullable=False),
    )
    op.create_table(
        "targets",
        sa.Column("id", _ROW_ID, primary_key=True),
        sa.Column("name", sa.Text(), nullable=False, unique=True),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("filter_settings", sa.Text(), nullable=False),
        sa.Column("last_attempt", sa.BigInteger()),
        sa.Column("last_success", sa.BigInteger()),
        sa.Column("last_error", sa.Text()),
        sa.Column("assumes", sa.Text()),
    )
    op.create_table(
        "batches",
        sa.Column("id", _ROW_ID, primary_key=True),
        sa.Column("uid", sa.Text(), nullable=False),
        sa.Column("target_id", sa.BigInteger(), sa.ForeignKey("targets.id"), nullable=False),
        sa.Column("state", sa.SmallInteger(), nullable=False),
        sa.Column("format", sa.Text(), nullable=False),
        sa.Column("records", sa.Integer(), nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.Column("latest_end", sa.BigInteger()),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("closed_at", sa.BigInteger()),
        sa.Column("receipt", sa.Text()),
        sa.Column("answer", sa.Text()),
    )
    op.create_index("batches_by_target", "batches", ["target_id", "state", "latest_end"])
    op.create_table(
        "deliveries",
        sa.Column("run_id", sa.BigInteger(), sa.ForeignKey("runs.id")),
        sa.Column("end_time", sa.BigInteger(), nullable=False),
        sa.Column("changed_at", sa.BigInteger(), nullable=False),
        sa.Column("confirmed_at", sa.BigInteger()),
        sa.Column("batch_id", sa.Integer(), sa.ForeignKey("batches.id")),
        sa.Column("target_id", sa.SmallInteger(), sa.ForeignKey("targets.id")),
        sa.Column("state", sa.SmallInteger(), nullable=False),
        sa.Column("revision", sa.SmallInteger(), nullable=False, server_default="0"),
        sa.Column("deselected", sa.SmallInteger(), nullable=False, server_default="0"),
        sa.Column("may_be_one_of_several", sa.SmallInteger(), nullable=False, server_default="0"),
        sa.Column("sent_digest", sa.LargeBinary()),
        sa.Column("reason", sa.Text()),
        sa.Column("reason_parameters", sa.Text()),
        sa.PrimaryKeyConstraint("target_id", "run_id"),
        sqlite_with_rowid=False,
    )
    condition = sa.text("reason = 'assumed'")
    op.create_index(
        "deliveries_assumed", "deliveries", ["target_id"], sqlite_where=condition, postgresql_where=condition
    )
    condition = sa.text("state <> 3")
    op.create_index(
        "deliveries_open",
        "deliveries",
        ["target_id", "state", "end_time", "run_id"],
        sqlite_where=condition,
        postgresql_where=condition,
    )
    op.create_table(
        "counters",
        sa.Column("target_id", sa.BigInteger(), sa.ForeignKey("targets.id"), primary_key=True),
        sa.Column("state", sa.SmallInteger(), primary_key=True),
        sa.Column("jobs", sa.BigInteger(), nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "groups",
        sa.Column("target_id", sa.BigInteger(), sa.ForeignKey("targets.id"), primary_key=True),
        sa.Column("kind", sa.Text(), primary_key=True),
        sa.Column("month", sa.Integer(), primary_key=True),
        sa.Column("key", sa.Text(), primary_key=True),
        sa.Column("state", sa.SmallInteger(), nullable=False),
        sa.Column("digest", sa.LargeBinary(), nullable=False),
        sa.Column("jobs", sa.BigInteger(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.Column("batch_id", sa.BigInteger(), sa.ForeignKey("batches.id")),
        sa.Column("changed_at", sa.BigInteger(), nullable=False),
        sa.Column("confirmed_at", sa.BigInteger()),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "reconciliations",
        sa.Column("target_id", sa.BigInteger(), sa.ForeignKey("targets.id"), primary_key=True),
        sa.Column("due_at", sa.BigInteger(), nullable=False),
        sa.Column("looked_at", sa.BigInteger()),
        sa.Column("evidence_at", sa.BigInteger()),
        sa.Column("problem", sa.Text()),
        sa.Column("differences", sa.BigInteger(), nullable=False, server_default="0"),
        sa.Column("unconfirmed_since", sa.BigInteger()),
        sa.Column("last_batch_id", sa.BigInteger(), nullable=False, server_default="0"),
        sa.Column("next_month", sa.Integer()),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "due_months",
        sa.Column("target_id", sa.BigInteger(), sa.ForeignKey("targets.id"), primary_key=True),
        sa.Column("purpose", sa.Text(), primary_key=True),
        sa.Column("month", sa.Integer(), primary_key=True),
        sa.Column("times", sa.BigInteger(), nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "report_reaches",
        sa.Column("target_id", sa.BigInteger(), sa.ForeignKey("targets.id"), primary_key=True),
        sa.Column("period", sa.Integer(), primary_key=True),
        sa.Column("reach", sa.LargeBinary(), nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "purged_sync_counts",
        sa.Column("target_id", sa.BigInteger(), sa.ForeignKey("targets.id"), primary_key=True),
        sa.Column("month", sa.Integer(), primary_key=True),
        sa.Column("key", sa.Text(), primary_key=True),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "grid_logs",
        sa.Column("source_id", sa.BigInteger(), sa.ForeignKey("sources.id"), primary_key=True),
        sa.Column("cursor", sa.Text(), nullable=False),
    )
    op.create_table(
        "grid_jobs",
        sa.Column("source_id", sa.BigInteger(), sa.ForeignKey("sources.id"), primary_key=True),
        sa.Column("key", sa.Text(), primary_key=True),
        sa.Column("at", sa.BigInteger(), primary_key=True),
        sa.Column("lrms_id", sa.Text(), primary_key=True),
        sa.Column("user_dn", sa.Text()),
        sa.Column("fqans", sa.Text(), nullable=False),
        sa.Column("submit_host", sa.Text()),
        sa.Column("token_subject", sa.Text()),
        sa.Column("token_issuer", sa.Text()),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "grid_waits",
        sa.Column("run_id", sa.BigInteger(), sa.ForeignKey("runs.id"), primary_key=True),
        sa.Column("source_id", sa.BigInteger(), sa.ForeignKey("sources.id"), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("end_time", sa.BigInteger(), nullable=False),
        sa.Column("held", sa.SmallInteger(), nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_index("grid_waits_held", "grid_waits", ["source_id", "held", "end_time"])
    op.create_index("grid_waits_key", "grid_waits", ["source_id", "key"])
    op.create_table(
        "unreadable",
        sa.Column("id", _ROW_ID, primary_key=True),
        sa.Column("source_id", sa.BigInteger(), sa.ForeignKey("sources.id"), nullable=False),
        sa.Column("file", sa.Text(), nullable=False),
        sa.Column("line", sa.BigInteger()),
        sa.Column("offset", sa.BigInteger()),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("raw", sa.LargeBinary(), nullable=False),
        sa.Column("seen_at", sa.BigInteger(), nullable=False),
        sa.Column("unread_from", sa.BigInteger()),
        sa.Column("digest", sa.LargeBinary(), nullable=False),
        sa.UniqueConstraint("source_id", "digest", name="unreadable_place"),
    )
    op.create_table(
        "resends",
        sa.Column("target_id", sa.BigInteger(), sa.ForeignKey("targets.id"), primary_key=True),
        sa.Column("begins", sa.BigInteger(), nullable=False),
        sa.Column("ends", sa.BigInteger(), nullable=False),
        sa.Column("only_missing", sa.SmallInteger(), nullable=False),
        sa.Column("asked_at", sa.BigInteger(), nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "sent_mark",
        sa.Column("store", sa.Text(), primary_key=True),
        sa.Column("messages", sa.BigInteger(), nullable=False),
        sa.Column("sent_at", sa.BigInteger()),
    )
    op.create_table(
        "audit",
        sa.Column("id", _ROW_ID, primary_key=True),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("who", sa.Text(), nullable=False),
        sa.Column("action", sa.Text(), nullable=False),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("detail", sa.Text(), nullable=False),
    )
    op.create_table(
        "purged_months",
        sa.Column("month", sa.Integer(), primary_key=True, autoincrement=False),
        sa.Column("runs", sa.BigInteger(), nullable=False),
        sa.Column("purged_at", sa.BigInteger(), nullable=False),
    )
    op.create_table(
        "purged_runs",
        sa.Column("run", sa.LargeBinary(), primary_key=True),
        sa.Column("digest", sa.LargeBinary(), primary_key=True),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "purged_deliveries",
        sa.Column("target_id", sa.BigInteger(), sa.ForeignKey("targets.id"), primary_key=True),
        sa.Column("month", sa.Integer(), primary_key=True),
        sa.Column("state", sa.SmallInteger(), primary_key=True),
        sa.Column("jobs", sa.BigInteger(), nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "erased",
        sa.Column("pseudonym", sa.Text(), primary_key=True),
        sa.Column("salt", sa.LargeBinary(), nullable=False),
        sa.Column("person", sa.LargeBinary(), nullable=False),
        sa.Column("erased_at", sa.BigInteger(), nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "spool_changes",
        sa.Column("kind", sa.Text(), primary_key=True),
        sa.Column("key", sa.Text(), primary_key=True),
        sa.Column("target", sa.Text(), primary_key=True),
        sa.Column("times", sa.BigInteger(), nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "notices",
        sa.Column("key", sa.Text(), primary_key=True),
        sa.Column("notified_at", sa.BigInteger(), nullable=False),
        sqlite_with_rowid=False,
    )
    if is_on_server:
        op.execute("ALTER TABLE runs ALTER COLUMN job SET STORAGE EXTERNAL")
        op.execute("ALTER TABLE versions ALTER COLUMN job SET STORAGE EXTERNAL")
        op.execute("ALTER TABLE deliveries SET (autovacuum_vacuum_scale_factor = 0.02)")
