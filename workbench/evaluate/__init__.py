"""Evaluation: deterministic samples, baselines beside every score, intervals."""
