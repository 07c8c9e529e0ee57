"""The web page of `serve`, read-only; and a report as one HTML file."""
