"""Pre-train ELECTRA-style text encoders, from a folder of text to a model with GLUE scores."""

__version__ = "0.1.0"
