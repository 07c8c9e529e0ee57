"""The commands, one module each; only this package prints."""
