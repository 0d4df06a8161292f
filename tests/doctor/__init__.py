"""Tests of autospec.doctor."""
