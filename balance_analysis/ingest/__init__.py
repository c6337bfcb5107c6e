"""Fill an archive from a node, period by period, here or on other machines.

It owns what a run asks for, whose rows it believes, and in which order it commits. It must not know
how an archive is proven or mended (`maintenance`), or how rows are drawn or served.
"""
