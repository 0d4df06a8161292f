"""Tests of autospec.watch."""
