"""The kernels of the engine on a CPU, each against a plain reference."""
