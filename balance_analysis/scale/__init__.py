"""The functions of a table over archives of any size: slices of accounts, in threads or on Dask."""
