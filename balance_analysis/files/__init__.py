"""Single files: written whole or not at all; tables as Parquet, the limits as JSON.

It must not know nodes or archives.
"""
