"""Fill an archive from a source of rows: nodes, or network history segments.

It decides what a run asks for and in which order it commits. It must not know how an archive is
proven or mended (`proof`), or how rows are drawn or served.
"""
