"""HTTP and the wire: send requests, decode answers, walk all rows and find a node's reach.

These modules must not know archives. Only the limits and the doctor know pandas.
"""
