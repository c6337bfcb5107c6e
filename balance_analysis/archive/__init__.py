"""Parquet files that keep every digit."""
