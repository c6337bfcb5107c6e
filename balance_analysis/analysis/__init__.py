"""Reconstruction from the table: pure functions, table in, table out.

It computes exactly, and says what is unknown. It must not know files, the network or drawing.
"""
