"""Comparisons with real programs, run by `make test-real SOURCES=DIR` and never by `make test`.

DIR has checkouts or bare repositories of `apel` (github.com/apel/apel), `ssm` (apel/ssm), `luts` (sgas/luts3-service),
`auditor` (ALU-Schumacher/AUDITOR, its schema), and `xdmod` (ubccr/xdmod, with the host's `php`). The clients of AUDITOR
and Waldur, Waldur's site agent, and AUDITOR's APEL plugin come from PyPI; Grid Engine's `qacct` and Slurm's programs
are those of the host, Slurm's beside a slurmctld with slurmdbd, which are only asked. What is not at hand is skipped
with the reason. At the end a table says what was compared, with which version.
"""
