"""The report: one HTML file that shows what an archive or a table holds.

It says what the page is made of and how complete that is; the page is the explorer, frozen.
"""
