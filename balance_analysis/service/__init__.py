"""The two operations of the interface, served over an archive.

It must not know the package `node`: that the two agree must mean something.
"""
