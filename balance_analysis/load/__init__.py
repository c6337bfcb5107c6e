"""Load from a node: windows, walk and decode make one checked table; also pages and limits."""
