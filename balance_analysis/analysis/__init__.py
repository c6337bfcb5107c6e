"""Reconstruction from the table: pure functions, table in, table out.

It owns what is computed, exactly, and what is unknown. It must not know files, the network or
drawing.
"""
