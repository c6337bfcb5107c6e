"""Load the rows of nodes, with the evidence for them, as a table, a stream or a file.

It chooses which node is asked for which stretch. It must not know archives.
"""
