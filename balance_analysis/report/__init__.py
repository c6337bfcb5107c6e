"""The report: one HTML file that tells what an archive or a table holds.

It owns the page and its words. It computes nothing: `analysis` does, and `figures` draws.
"""
