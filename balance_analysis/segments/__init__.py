"""Network history segments: a network's whole past, in files that outlive its nodes.

A segment is a zip, or its unpacked folder, with the part of a data node's database for some blocks.
This package finds segments, puts them in order, checks that they are whole, and reads them as rows
of the table.
"""
