"""What is installed, what is missing and what would go wrong, before any server is launched."""
