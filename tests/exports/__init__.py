"""Tests of autospec.exports."""
