"""An archive and its reading: manifest, data files, snapshots, runs, locks, status.

The room must not know how an archive is filled (`fill`), proven (`proof`), drawn or served.
"""
