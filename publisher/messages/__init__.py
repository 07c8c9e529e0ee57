"""What is sent: records, summaries, sync counts, and reports; and which months are complete."""
