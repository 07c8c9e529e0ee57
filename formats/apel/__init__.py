"""APEL's text formats: job, summary, sync."""
