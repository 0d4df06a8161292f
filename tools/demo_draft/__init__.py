"""What trains the drafter of the demo."""
