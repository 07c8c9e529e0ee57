"""Usage records as their specifications define them: from jobs to bytes, and back.

Everything in this package is pure. It opens no file and no socket, reads no clock and no settings, and logs nothing;
everything that a rendering depends on is in its arguments (`formats.view.View`), so the same job always gives the same
bytes.
"""
