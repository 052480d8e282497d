"""The chat completions API of vLLM, llama.cpp, Ollama, LiteLLM and most gateways."""
