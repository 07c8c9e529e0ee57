"""Usage records as their documents define them: jobs in, bytes out.

Everything in this package is pure. It opens no file and no socket, reads no clock and no settings, and logs nothing;
what a rendering depends on is in its arguments (`formats.view.View`), so the same job always gives the same bytes.
"""
