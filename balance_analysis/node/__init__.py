"""All that knows HTTP and the wire."""
