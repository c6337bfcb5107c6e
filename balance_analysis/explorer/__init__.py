"""The explorer: a page that shows balances, live over an archive or frozen into one file.

`analysis` computes balances, sums and deltas; the page counts, ranks and shows them.
"""
