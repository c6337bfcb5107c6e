"""The explorer: a page that shows balances, live over an archive or frozen into one file.

It computes no number itself: `analysis` does, and the page shows the results.
"""
