"""Statements: the charges of a payer for a month as a document, in text, HTML, and PDF."""
