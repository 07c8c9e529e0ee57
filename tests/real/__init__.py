"""Comparisons with real programs, run by `make test-real SOURCES=DIR` and never by `make test`.

DIR has checkouts or bare repositories of `apel` (github.com/apel/apel) and `ssm` (apel/ssm); clients of AUDITOR and
Waldur come from PyPI. What is not at hand is skipped with the reason. At the end a table says what was compared, with
which version.
"""
