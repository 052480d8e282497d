"""The chat completions API, which vLLM, llama.cpp, Ollama, LiteLLM and most gateways speak.

Servers differ: fields a server refuses by name are left out from then on (`dialect`), and streams are read with any
line ends, comments and last events (`events`, `stream`).
"""
