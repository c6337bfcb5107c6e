"""What an archive is, and reading it: coverage, data files, limits, runs, locks, status, verify.

It must not know how an archive is filled (`ingest`), drawn or served.
"""
