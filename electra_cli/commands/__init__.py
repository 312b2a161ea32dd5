"""The commands: the only users of Typer and Rich. Each parses, calls one stage and shows its result."""
