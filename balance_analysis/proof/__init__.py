"""Verify an archive, compare histories, confirm an archive by another source, and mend it.

It must not know how rows are drawn or served.
"""
