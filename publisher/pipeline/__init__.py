"""The verbs of a job's life, in reading order: collect, plan, batch, send, recover, summarise, reconcile."""
