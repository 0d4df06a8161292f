"""Tests of autospec.cli."""
