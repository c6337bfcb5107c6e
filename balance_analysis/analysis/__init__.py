"""Reconstruction from the table: pure functions, table in, table out."""
