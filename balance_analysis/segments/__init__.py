"""Network history segments: a network's whole past, in files that outlive its nodes.

A segment is a zip, or its unpacked folder, of what a data node's database has of some blocks. This
room finds segments, puts them in order, checks that they are whole, and reads them as rows of the
table.
"""
