"""Tests of autospec.report."""
