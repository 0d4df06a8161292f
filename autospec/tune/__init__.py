"""What to try next, what was tried, and which to choose. Pure of engines and HTTP."""
