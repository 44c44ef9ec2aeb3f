"""Checks the doctor: compares its verdicts, predictions and remedies with measurements."""
