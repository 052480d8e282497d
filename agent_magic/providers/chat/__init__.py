"""The chat completions API of vLLM, llama.cpp, Ollama, LiteLLM and most gateways.

Servers differ: a field that a server refuses by name is omitted from then on (`dialect`), and streams are read with any
line ends, comments and last events (`events`, `stream`).
"""
