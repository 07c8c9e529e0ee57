"""The usage publisher: from the accounting of batch systems to accounting services, each run once."""
