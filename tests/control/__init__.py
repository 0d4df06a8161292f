"""Tests of autospec.control."""
