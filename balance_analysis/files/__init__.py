"""Files: written whole or not at all, and tables and limits as files of their own."""
