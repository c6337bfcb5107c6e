"""Pictures of balance histories, drawn into the Axes that they are given."""
