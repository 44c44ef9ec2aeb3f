"""Feedline beside the flagship: every picture format, validation, colour, small pictures, the first epoch."""
