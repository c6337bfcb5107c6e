"""Fill an archive from a source of rows: nodes, or network history segments.

These modules decide what a run asks for, and in which order it commits. They must not know how an
archive is verified or repaired (`proof`), or how rows are drawn or served.
"""
