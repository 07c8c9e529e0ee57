"""Sources into the store: a page of runs, the cursor, and a delivery for every target that selects the run."""
