"""Load nodes' rows and the evidence for them, as a table, a stream or a file.

It chooses the node to ask for each stretch. It must not know archives.
"""
