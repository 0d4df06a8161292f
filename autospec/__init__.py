"""autospec chooses and controls speculative decoding for models served by SGLang."""
