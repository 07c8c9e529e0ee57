"""Plots of reports as PNG, SVG, PDF, and PostScript (matplotlib), and as text for terminals.

`style.py` holds the choices and geometry that all of them share; matplotlib is imported only to draw.
"""
