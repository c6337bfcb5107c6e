"""Load from a node: requests side by side, checked and joined to one table, a stream or a file.

It owns which node is asked, and what is known of the answers. It must not know archives.
"""
