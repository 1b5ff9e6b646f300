"""Pictures and panels: they show what the other rooms return and compute nothing."""
