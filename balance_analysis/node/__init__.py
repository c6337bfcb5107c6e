"""All that knows HTTP and the wire: one request, its answer, and a walk that loses no row.

It must not know pandas' tables beyond a page's, nor archives.
"""
