"""Tests of autospec.tuning."""
