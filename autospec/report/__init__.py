"""What a person reads: tables and sentences."""
