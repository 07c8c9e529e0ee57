"""`python -m publisher.cli` is `usage-publisher`."""

from publisher.cli.start import main

main()
