"""The race against every peer: one file per peer, `venvs` installs them, `ratios` compares, `page` writes it up."""
