"""Tests of what runs inside the server."""
