"""Everything that knows SGLang from outside its process."""
