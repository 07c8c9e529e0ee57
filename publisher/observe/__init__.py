"""What can be seen from outside: events, logging, metrics, notices."""
