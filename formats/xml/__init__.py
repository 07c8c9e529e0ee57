"""OGF usage records and EMI compute accounting records."""
