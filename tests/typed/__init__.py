"""Type-checked, never run."""
