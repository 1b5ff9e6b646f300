"""Text in, batches out: documents, cleaning, tokens, windows, tasks, mixture, order."""
