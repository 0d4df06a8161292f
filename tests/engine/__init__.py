"""Tests of autospec.engine."""
