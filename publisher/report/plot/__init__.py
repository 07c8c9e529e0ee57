"""Plots of reports, as PNG, SVG, PDF or PostScript, drawn with matplotlib.

`style.py` holds what can be chosen and what is shown where, and knows no library; the rest is loaded only to draw.
"""
