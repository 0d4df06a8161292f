"""Deciding at run time how deep to draft, and when not to: policies, and their replay."""
