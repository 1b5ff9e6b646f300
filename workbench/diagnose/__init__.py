"""Diagnosis: the evidence of a run in, a named cause and the next step out."""
