"""Tests of autospec.measure."""
