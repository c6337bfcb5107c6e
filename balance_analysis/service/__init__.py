"""The two operations of the interface, served over a file of balance changes."""
