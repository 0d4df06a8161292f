"""Tests of autospec.bench."""
