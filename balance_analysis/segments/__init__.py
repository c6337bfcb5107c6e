"""Network history segments: a network's whole past, in files that outlive its nodes.

A segment is a zip, or its unpacked folder, of what a data node's database has of some blocks. Here
they are found, put in order, proven to be whole, and read as rows of the table.
"""
