"""Compute balances, flows and statistics from a table: pure functions, table in, table out.

Results are exact, and mark what is unknown. This room must not import files, the network or
drawing.
"""
