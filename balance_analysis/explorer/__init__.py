"""The explorer: a page to look at balances with, live over an archive or frozen into one file.

It computes no number of its own: `analysis` does, and the page shows the results.
"""
