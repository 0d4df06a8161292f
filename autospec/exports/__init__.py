"""A profile in the words of those who serve it: SGLang, other engines, Kubernetes."""
