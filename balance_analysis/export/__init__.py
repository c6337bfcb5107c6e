"""Fill an archive from a node, and mend it."""
