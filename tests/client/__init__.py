"""Tests of the client, over real HTTP on the fake server."""
