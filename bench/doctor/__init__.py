"""Whether the doctor is right: its verdicts, predictions and remedies against what then really happens."""
