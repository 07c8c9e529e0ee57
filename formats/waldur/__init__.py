"""Usages as Waldur takes them."""
