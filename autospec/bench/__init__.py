"""Figures of one server, and of two side by side. Puts ``engine`` and ``measure`` together."""
