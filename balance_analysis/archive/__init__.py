"""What an archive is, and reading it: manifest, data files, limits, runs, locks, status.

It must not know how an archive is filled (`fill`), proven (`proof`), drawn or served.
"""
