"""Kinds of policies, one a file."""
