"""Watching any SGLang server: what it does, whether speculation pays, whether its profile fits."""
