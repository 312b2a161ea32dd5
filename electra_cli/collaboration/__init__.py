"""Encoder and language model together: who is asked what, what it costs, and what the answers are worth."""
