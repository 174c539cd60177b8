"""Text from a model of the Llama family: weights of a file as they are, prompts in blocks, and a cache that grows in place."""
