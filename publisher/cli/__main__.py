"""`python -m publisher.cli` is `usage-publisher`."""

from publisher.cli.main import main

main()
