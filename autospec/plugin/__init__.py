"""The part of autospec that runs inside SGLang's own processes, as a plugin."""
