"""Prove that an archive is what it says, and mend it with the help of a node.

It owns what is checked, what is compared with a node, and what is asked for again: by the means of
an export (`ingest`). It must not know how rows are drawn or served.
"""
