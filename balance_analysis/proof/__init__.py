"""Prove what an archive says, compare histories, and mend an archive with the help of a node.

It must not know how rows are drawn or served.
"""
