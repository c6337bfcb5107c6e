"""The table: its columns, order and filters, the names of its ids, and its known intervals."""
