"""HTTP and the wire: one request, its answer, a walk that loses no row, and how far a node reaches.

It must not know archives, nor pandas but for the limits and the doctor.
"""
