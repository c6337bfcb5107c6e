"""Store and read archives: layout, manifest, data files, snapshots, commits, locks, status, digest.

These modules must not know how an archive is filled (`fill`), proven (`proof`), drawn or served.
"""
