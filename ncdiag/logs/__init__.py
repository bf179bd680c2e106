"""Reading what engines and tools left behind: vLLM, Ray and torch logs, pasted command output."""
