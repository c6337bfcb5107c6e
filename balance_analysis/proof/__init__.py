"""Verify and repair archives, compare histories, and confirm an archive by another source.

These modules must not know how rows are drawn or served.
"""
