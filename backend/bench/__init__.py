"""``make bench``: SRAM and cycles, ours against Vela's, measured in one run."""
