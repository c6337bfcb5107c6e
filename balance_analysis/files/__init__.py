"""Read and write single files: tables, and network limits. A file appears whole or not at all.

These modules must not know nodes or archives.
"""
