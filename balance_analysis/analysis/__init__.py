"""Compute balances, flows and statistics from a table: pure functions, table in, table out.

Results are exact; unknown values are NA. These modules must not import files, the network or
drawing.
"""
