"""Fine-tuning on labelled tasks, and the scores that come out of it."""
