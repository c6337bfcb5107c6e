"""Store and read archives: manifest, data files, snapshots, runs, locks, status.

These modules must not know how an archive is filled (`fill`), proven (`proof`), drawn or served.
"""
