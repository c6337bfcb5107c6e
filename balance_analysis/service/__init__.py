"""Serve the two operations of the interface over an archive.

It must not know the package `node`, so that their agreement is evidence.
"""
