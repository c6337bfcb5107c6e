"""Network history segments: a network's whole past, in files that outlive its nodes.

A segment is a zip, or its unpacked folder, with the part of a data node's database for some blocks.
These modules find segments, order them, check that they are whole, and read them as rows of the
table.
"""
