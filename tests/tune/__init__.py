"""Tests of autospec.tune."""
