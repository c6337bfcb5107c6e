"""The report: one HTML file that tells what an archive or a table holds."""
